"""UCPE against the released answers and a second derivation; where its ray frames give way."""

import math

import numpy as np
import pytest
import torch

from merope.cameras import ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    matrices,
    pinhole_lens,
    random_drive,
    scene,
    seen_through,
    turned,
)
from merope.encodings import GTA, UCPE
from merope.encodings.projective import rigid_inverse
from merope.encodings.scale import TranslationScale
from merope.encodings.ucpe import patch_rays, ray_frames
from merope.geometry.sphere import minrot
from tests.encodings.projective_by_hand import dense, image_turns, level_frame, relative_pose
from tests.support.released import (
    GRID as RELEASED_GRID,
)
from tests.support.released import (
    HEAD_DIM,
    attended,
    released,
    unified_rays,
)

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

UP = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def derived(queries, keys, encoding):
    half = encoding.head_dim // 2

    def blocks(at):
        clip, i, p, j, q = at
        pose = relative_pose(queries, keys, at, encoding.scale.per_metre)
        of_query = level_frame(queries.dirs_cam[clip, i, p].numpy())
        of_key = level_frame(keys.dirs_cam[clip, j, q].numpy())
        return [of_query.T @ pose @ of_key] * (half // 4) + image_turns(queries, keys, at, half)

    return torch.from_numpy(dense(queries, keys, encoding.head_dim, blocks))


def direction(azimuth_deg, elevation_deg):
    azimuth, elevation = math.radians(azimuth_deg), math.radians(elevation_deg)
    level = math.cos(elevation)
    return torch.tensor(
        [level * math.sin(azimuth), -math.sin(elevation), level * math.cos(azimuth)], dtype=torch.float64
    )


def turn_between(one, other):
    return torch.rad2deg(torch.acos(((one * other).sum((-1, -2)) - 1).div(2).clamp(-1, 1)))


# Against the released code


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_attention_answers_as_the_released_code_does(backend):
    arrays = released()
    encoding = UCPE(head_dim=HEAD_DIM, rays_at="patch_corner")
    operator = encoding.operator(unified_rays(arrays), dtype=torch.float64)
    theirs = arrays["ucpe_out"]
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-6)
    # What is left is the release's table of image-plane phases in float32.
    encoding = UCPE(head_dim=HEAD_DIM, rays_at="patch_corner", single_precision_image=True)
    operator = encoding.operator(unified_rays(arrays), dtype=torch.float64)
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-10)


def test_patch_corners_of_a_unified_camera_are_the_released_rays():
    arrays = released()
    view = unified_rays(arrays)
    places, dirs, valid = patch_rays(view, "patch_corner", "UCPE")
    theirs = arrays["ucpe_rays_cam"].flatten(1, 2)[:, None].expand_as(dirs)
    torch.testing.assert_close(dirs, theirs, rtol=0, atol=1e-12)
    assert valid.all()
    assert (view.dirs_cam - theirs).abs().max() > 0.1
    torch.testing.assert_close(places[5], torch.tensor([1.0, 1.0]).double())
    assert torch.equal(patch_rays(view, "patch_center", "UCPE")[1], view.dirs_cam)


def test_matrices_of_rays_are_the_released_ones():
    arrays = released()
    operator = UCPE(head_dim=HEAD_DIM, rays_at="patch_corner").operator(
        unified_rays(arrays), dtype=torch.float64
    )
    T_anchor_ray = operator.bands[0].right.values[:, 0, :, 0]
    T_world_anchor = arrays["c2w"][:, :1]
    ours = rigid_inverse(T_world_anchor @ T_anchor_ray).unflatten(1, (3, *RELEASED_GRID))
    torch.testing.assert_close(ours, arrays["ucpe_world_to_ray"], rtol=0, atol=1e-10)


# Against a second derivation


@pytest.mark.parametrize("name", [*SCENES, "random"])
def test_operator_equals_the_second_derivation(name):
    view = random_drive(2) if name == "random" else scene(name)
    encoding = UCPE(head_dim=16, scale=TranslationScale(per_metre=0.3))
    torch.testing.assert_close(exactly(encoding, view), derived(view, view, encoding), rtol=0, atol=1e-12)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    encoding = UCPE(head_dim=16)
    torch.testing.assert_close(
        exactly(encoding, queries, keys), derived(queries, keys, encoding), rtol=0, atol=1e-12
    )


def test_tokens_on_the_optical_axis_see_gta():
    view = random_drive(2)
    ahead = torch.tensor([0.0, 0, 1]).expand_as(view.dirs_cam)
    view = ViewRays.from_poses(matrices(view.R_world_cam, view.center_world), ahead, grid=GRID)
    torch.testing.assert_close(
        exactly(UCPE(head_dim=32), view), exactly(GTA(head_dim=32), view), rtol=0, atol=1e-13
    )


def test_one_token_of_a_view_that_looks_along_the_axis_sees_gta_s_block():
    view = scene("ray_at_epipole")
    ours, gta = exactly(UCPE(head_dim=8), view), exactly(GTA(head_dim=8), view)
    for a, b in ((1, 7), (13, 1)):
        torch.testing.assert_close(ours[:, a, b, :4, :4], gta[:, a, b, :4, :4], rtol=0, atol=1e-13)
    assert (ours[:, 0, 7, :4, :4] - gta[:, 0, 7, :4, :4]).abs().max() > 0.1


def test_corners_need_the_lens():
    view = scene("ray_at_antipode")
    with pytest.raises(ValueError, match="UCPE projects points into views and needs their lens"):
        UCPE(rays_at="patch_corner").operator(view)
    corners = UCPE(head_dim=8, rays_at="patch_corner")
    assert not torch.equal(exactly(corners, random_drive()), exactly(UCPE(head_dim=8), random_drive()))


# Frames of rays


def test_frames_are_rotations_that_carry_the_axis_onto_the_ray_with_a_level_x():
    dirs = torch.nn.functional.normalize(torch.randn(500, 3, dtype=torch.float64), dim=-1)
    near = torch.stack([direction(azimuth, 90 - 1e-5) for azimuth in range(0, 360, 7)])
    within = torch.stack([direction(azimuth, 90 - 1e-9) for azimuth in range(0, 360, 7)])
    dirs = torch.cat([dirs, near, -near, within, -within, UP[None], -UP[None]])
    frames = ray_frames(dirs)
    identity = torch.eye(3, dtype=torch.float64).expand_as(frames)
    torch.testing.assert_close(frames.mT @ frames, identity, rtol=0, atol=1e-14)
    assert (torch.det(frames) > 0).all()
    assert torch.equal(frames[..., 2], dirs)
    assert frames[:500, 1, 0].abs().max() == 0


def test_frames_equal_minimum_rotations_on_the_horizontal_meridian_and_roll_elsewhere():
    meridian = torch.stack([direction(azimuth, 0) for azimuth in range(-175, 180, 10)])
    torch.testing.assert_close(ray_frames(meridian), minrot(meridian), rtol=0, atol=1e-14)
    for azimuth, elevation, roll in ((40, 30, 11.14), (60, 50, 30.14)):
        ray = direction(azimuth, elevation)
        apart = minrot(ray).mT @ ray_frames(ray)
        torch.testing.assert_close(apart[2, 2], torch.ones_like(apart[2, 2]), rtol=0, atol=1e-14)
        assert abs(math.degrees(math.atan2(apart[0, 1], apart[0, 0])) - roll) < 0.01


@pytest.mark.parametrize("elevation", [90, -90])
def test_frames_spin_around_the_vertical_where_minimum_rotations_stay_put(elevation):
    # Two rays a hundredth of a degree from the vertical, on opposite sides of it.
    beside = 0.01 if elevation > 0 else -0.01
    one, other = direction(50, elevation - beside), direction(230, elevation - beside)
    assert torch.acos((one * other).sum()) < math.radians(0.021)
    assert turn_between(ray_frames(one), ray_frames(other)) > 179.9
    assert turn_between(minrot(one), minrot(other)) < 0.03


def test_minimum_rotations_spin_around_the_backward_direction_where_frames_stay_put():
    one, other = direction(179.99, 0), direction(180.01, 0)
    above, below = direction(180, 0.01), direction(180, -0.01)
    assert turn_between(ray_frames(one), ray_frames(other)) < 0.03
    assert turn_between(ray_frames(above), ray_frames(below)) < 0.03
    assert turn_between(minrot(one), minrot(above)) > 179.9
    assert turn_between(minrot(above), minrot(below)) < 0.03


def test_a_vertical_ray_has_a_frame_by_default_and_loses_two_axes_as_released():
    for vertical in (UP, -UP):
        whole, released_frame = ray_frames(vertical), ray_frames(vertical, degenerate="zero")
        assert torch.linalg.matrix_rank(whole) == 3
        assert torch.equal(whole[:, 0], torch.tensor([1.0, 0, 0]).double())
        assert torch.linalg.matrix_rank(released_frame) == 1
        assert torch.equal(released_frame[:, :2], torch.zeros(3, 2, dtype=torch.float64))
    elsewhere = direction(20, 88)
    whole, released_frame = ray_frames(elsewhere), ray_frames(elsewhere, degenerate="zero")
    torch.testing.assert_close(whole, released_frame, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degenerate", ["orthonormal", "zero"])
def test_gradients_of_frames_are_finite_on_the_vertical(degenerate):
    rays = torch.stack(
        [UP, -UP, direction(10, 90 - 1e-7), direction(10, 89), direction(0, 0)]
    ).requires_grad_()
    ray_frames(rays, degenerate=degenerate).sin().sum().backward()
    assert torch.isfinite(rays.grad).all()


def test_released_operator_of_a_vertical_ray_is_the_release_s_own_product():
    # One token of each view looks straight up. Its first camera is the world's origin, as in the release's data.
    lens_rays = pinhole_lens().pixel_rays()[0].flatten(0, 1)
    lens_rays[2] = UP
    rotations = turned().clone()
    rotations[:, 0] = torch.eye(3)
    centers = torch.tensor([[0.0, 0, 0], [1.0, -2.0, 0.5], [3.0, 1.0, 1.0]]).double().expand(2, 3, 3)
    view = ViewRays.from_poses(matrices(rotations, centers), lens_rays.expand(2, 3, -1, -1), grid=GRID)
    ours = exactly(UCPE(head_dim=8, degenerate="zero"), view)[0, :, :, :4, :4].numpy()

    def world_to_ray(view_index, token):
        d = lens_rays[token].numpy()
        x = np.cross([0, 1, 0], d)
        x = x / max(np.linalg.norm(x), 1e-6)
        y = np.cross(d, x)
        y = y / max(np.linalg.norm(y), 1e-6)
        rotation = np.stack([x, y, d], -1).T @ rotations[0, view_index].numpy().T
        out = np.eye(4)
        out[:3, :3], out[:3, 3] = rotation, -rotation @ centers[0, view_index].numpy()
        return out

    for a, b in ((8, 14), (14, 2), (3, 14), (2, 9), (0, 17)):
        V_a, V_b = world_to_ray(*divmod(a, 6)), world_to_ray(*divmod(b, 6))
        back = np.eye(4)
        back[:3, :3], back[:3, 3] = V_b[:3, :3].T, -V_b[:3, :3].T @ V_b[:3, 3]
        np.testing.assert_allclose(ours[a, b], V_a @ back, atol=1e-12)
    assert np.linalg.matrix_rank(ours[8, 14]) == 2
    proper = exactly(UCPE(head_dim=8), view)[0, 8, 14, :4, :4]
    assert torch.linalg.matrix_rank(proper) == 4


def test_tokens_without_a_ray_have_finite_operators_and_are_no_keys():
    view = scene("fisheye_200deg")
    for rays_at in ("patch_center", "patch_corner"):
        operator = UCPE(head_dim=16, rays_at=rays_at).operator(view)
        assert torch.isfinite(operator.dense()).all()
        assert torch.equal(operator.key_valid, view.valid.flatten(1))
    assert seen_through(pinhole_lens(), turned(), view.center_world).valid.all()
