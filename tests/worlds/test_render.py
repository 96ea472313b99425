"""The renderer agrees with geometry, with other lenses, and with itself."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from merope.cameras import Equirectangular, Pinhole, UnifiedCamera
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.worlds import build_world, drive, render
from merope.worlds.layout import BOX
from tests.support.fresh_python import run_python

PINHOLE = Pinhole.from_fov(fov_x_deg=90.0, height=24, width=40)
FISHEYE = UnifiedCamera.from_fov(fov_x_deg=200.0, xi=2.3, height=30, width=44)


@pytest.fixture(scope="module")
def path():
    return drive("curve", seed=2, num_frames=12, fps=10.0)


@pytest.fixture(scope="module")
def world(path):
    return build_world(2, paths=[path])


def world_points(camera, poses, depth):
    dirs, _ = camera.pixel_rays()
    dirs_world = torch.einsum("tij,hwj->thwi", poses.R_world_cam, dirs.double())
    return poses.center_world[:, None, None] + torch.from_numpy(depth).double()[..., None] * dirs_world


def signed_gap(world, points):
    """Smallest distance-like value of points [N, 3] to any solid or the ground: 0 on a surface."""
    gaps = [points[:, 2]]
    for shape, row in zip(world.solids.shape, world.solids.geometry, strict=True):
        delta = points[:, :2] - row[:2]
        low, high = row[2] - points[:, 2], points[:, 2] - row[3]
        if shape == BOX:
            u = np.abs(delta @ np.array([row[4], row[5]])) - row[6]
            v = np.abs(delta @ np.array([-row[5], row[4]])) - row[7]
            gaps.append(np.max(np.stack([u, v, low, high]), axis=0))
    return np.abs(np.stack(gaps)).min(axis=0)


@pytest.mark.parametrize("camera", [PINHOLE, FISHEYE, Equirectangular.full_sphere(height=20, width=40)])
def test_depth_puts_points_on_surfaces(world, path, camera):
    rendered = render(world, camera, path[:2], samples=1)
    points = world_points(camera, path[:2], rendered.depth)
    hit = rendered.valid & np.isfinite(rendered.depth) & (rendered.depth < 60.0)
    gap = signed_gap(world, points.numpy()[hit])
    # Round solids are not in signed_gap; nearly all the rest must lie on a face, to float32 depth.
    assert hit.sum() > 300
    assert np.mean(gap < 1e-4) > 0.85


def test_ground_range_is_height_over_slope():
    camera = Pinhole.from_fov(fov_x_deg=60.0, height=8, width=12)
    straight = drive("straight", seed=1, num_frames=2, fps=10.0, vibration=0.0)
    world = build_world(1, paths=[straight])
    rendered = render(world, camera, straight[:1], samples=1)
    dirs, _ = camera.pixel_rays()
    down = dirs[-1, 4:8, 1].numpy()
    np.testing.assert_allclose(rendered.depth[0, -1, 4:8], 1.65 / down, rtol=1e-6)


def test_two_views_agree_on_depth(world, path):
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=48, width=80)
    pair = path[[0, 3]]
    depth = render(world, camera, pair, samples=1).depth
    points = world_points(camera, pair[:1], np.where(np.isfinite(depth[:1]), depth[:1], 0.0))[0]
    in_second = (points - pair.center_world[1]) @ pair.R_world_cam[1]
    pixels, valid = camera.project(in_second)
    inside = valid & camera.in_image(pixels) & torch.from_numpy(np.isfinite(depth[0]) & (depth[0] < 40.0))
    column, row = pixels[inside].floor().long().T
    seen = depth[1][row.numpy(), column.numpy()]
    expected = in_second[inside].norm(dim=-1).numpy()
    # Occlusions and the half pixel of nearest lookup spoil some.
    assert inside.sum() > 500
    assert np.mean(np.abs(seen - expected) < 0.1 * expected) > 0.85


def test_lenses_see_the_same_world(world, path):
    pinhole = Pinhole.from_fov(fov_x_deg=90.0, height=48, width=80)
    as_unified = UnifiedCamera(
        fx=pinhole.fx,
        fy=pinhole.fy,
        cx=pinhole.cx,
        cy=pinhole.cy,
        xi=0.0,
        width=80,
        height=48,
        pixel_origin="corner",
    )
    one, two = (render(world, camera, path[:2]) for camera in (pinhole, as_unified))
    assert np.mean(np.abs(one.rgb.astype(int) - two.rgb.astype(int)) > 1) < 0.001
    assert np.mean(np.isclose(one.depth, two.depth, rtol=1e-5)) > 0.999


def test_pixels_without_a_ray_are_black_and_invalid(world, path):
    rendered = render(world, FISHEYE, path[:2])
    assert not rendered.valid.all()
    assert rendered.valid.mean() > 0.5
    assert (rendered.rgb[~rendered.valid] == 0).all()
    assert (rendered.depth[~rendered.valid] == 0.0).all()
    assert (rendered.rgb[rendered.valid].max(axis=-1) > 0).all()


def test_the_sphere_sees_ground_below_and_sky_above(world, path):
    rendered = render(world, Equirectangular.full_sphere(height=20, width=40), path[:1])
    assert np.isinf(rendered.depth[0, 0]).all()
    assert np.abs(rendered.depth[0, -1] - 1.65).max() < 0.1


def test_result_does_not_depend_on_grouping_or_threads(world, path):
    together = render(world, PINHOLE, path)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda i: render(world, PINHOLE, path[i : i + 1]), range(len(path))))
    for index, single in enumerate(alone):
        np.testing.assert_array_equal(single.rgb[0], together.rgb[index])
        np.testing.assert_array_equal(single.depth[0], together.depth[index])


def test_a_fresh_process_renders_the_same_bytes(world, path):
    code = (
        "import hashlib\n"
        "from merope.cameras import Pinhole\n"
        "from merope.worlds import build_world, drive, render\n"
        "path = drive('curve', seed=2, num_frames=12, fps=10.0)\n"
        "camera = Pinhole.from_fov(fov_x_deg=90.0, height=24, width=40)\n"
        "rendered = render(build_world(2, paths=[path]), camera, path[:2])\n"
        "print(hashlib.sha256(rendered.rgb.tobytes() + rendered.depth.tobytes()).hexdigest())\n"
    )
    here = render(world, PINHOLE, path[:2])
    expected = hashlib.sha256(here.rgb.tobytes() + here.depth.tobytes()).hexdigest()
    finished = run_python(code, environment={"PYTHONHASHSEED": "1", "PYTHONPATH": "src"})
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == expected


def test_per_view_intrinsics_render_each_view_with_its_own_lens(world, path):
    narrow, wide = (Pinhole.from_fov(fov_x_deg=fov, height=24, width=40) for fov in (40.0, 100.0))
    both = Pinhole(
        fx=torch.tensor([narrow.fx, wide.fx], dtype=torch.float64),
        fy=torch.tensor([narrow.fy, wide.fy], dtype=torch.float64),
        cx=narrow.cx,
        cy=narrow.cy,
        width=40,
        height=24,
        pixel_origin="corner",
    )
    pair = path[:2]
    joint = render(world, both, pair)
    np.testing.assert_array_equal(joint.rgb[0], render(world, narrow, pair[:1]).rgb[0])
    np.testing.assert_array_equal(joint.rgb[1], render(world, wide, pair[1:]).rgb[0])
    with pytest.raises(ValueError, match="match poses"):
        render(world, both, path[:3])


def test_few_samples_come_close_to_many(world, path):
    few, many = (render(world, PINHOLE, path[:2], samples=n).rgb.astype(float) for n in (2, 8))
    raw = render(world, PINHOLE, path[:2], samples=1).rgb.astype(float)
    error, raw_error = np.abs(few - many).mean(), np.abs(raw - many).mean()
    assert error < 6.0
    assert error < 0.8 * raw_error


def test_far_ground_does_not_flicker_when_the_camera_creeps(world, path):
    """Moving by 2 cm must change the band below the horizon far less than the ground's own contrast."""
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=48, width=80)
    shift = path.R_world_cam[0, :, 2] * 0.02
    pose = path[:1]
    crept = Poses(R_world_cam=pose.R_world_cam, center_world=pose.center_world + shift)
    before, after = render(world, camera, pose), render(world, camera, crept)
    ground = (before.depth > 12.0) & np.isfinite(before.depth)
    change = np.abs(before.rgb.astype(float) - after.rgb.astype(float))[ground].mean()
    assert ground.sum() > 100
    assert change < 2.0


def test_near_ground_and_walls_have_detail_at_several_scales(world, path):
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=144, width=256)
    grey = render(world, camera, path[:1]).rgb[0].astype(float).mean(axis=-1)
    ground = grey[96:, :]
    for size in (1, 2, 4, 8):
        coarse = ground[: 48 // size * size, : 256 // size * size]
        coarse = coarse.reshape(48 // size, size, 256 // size, size).mean(axis=(1, 3))
        assert np.abs(np.diff(coarse, axis=1)).mean() > 0.8, size


def test_a_camera_inside_a_house_or_underground_is_named(world, path):
    box = world.solids.geometry[np.argmax(world.solids.geometry[:, 3] * (world.solids.shape == BOX))]
    center = path.center_world[:3].clone()
    center[1] = torch.tensor([box[0], box[1], 0.5 * (box[2] + box[3])])
    with pytest.raises(TrajectoryError, match=r"poses\[1\] is inside an object"):
        render(world, PINHOLE, Poses(R_world_cam=path.R_world_cam[:3], center_world=center))
    center[1, :2], center[1, 2] = path.center_world[1, :2], -0.1
    with pytest.raises(TrajectoryError, match=r"poses\[1\]"):
        render(world, PINHOLE, Poses(R_world_cam=path.R_world_cam[:3], center_world=center))
    with pytest.raises(ValueError, match="samples must be at least 1"):
        render(world, PINHOLE, path[:1], samples=0)
