"""ViewRays: what they accept, what they mend (rounding), what they refuse and how they say it."""

import math
from dataclasses import replace

import pytest
import torch

from merope.cameras import Pinhole, TokenGrid
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import GRID, matrices, pinhole_dirs, pinhole_lens, random_drive, scene, turned


def some_matrices(dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    centers = 5 * torch.randn(2, 3, 3, generator=draw, dtype=torch.float64)
    return matrices(turned(), centers).to(dtype)


def some_dirs(dtype=torch.float64):
    return pinhole_dirs().expand(2, 3, -1, -1).to(dtype)


def test_tokens_are_ordered_camera_by_camera_and_row_by_row():
    view = random_drive(views=4)
    assert (view.batch, view.num_views, view.tokens_per_view, view.num_tokens) == (2, 4, 6, 24)
    assert view.row.tolist() == [0, 0, 0, 1, 1, 1]
    assert view.col.tolist() == [0, 1, 2, 0, 1, 2]
    assert view.time.tolist() == [[0, 1, 2, 3]] * 2


def test_without_a_grid_the_tokens_lie_in_one_row():
    view = ViewRays.from_poses(some_matrices(), some_dirs())
    assert view.row.tolist() == [0] * 6
    assert view.col.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("time", [[4.0, 8.0, 9.5], [[0.0, 1.0, 2.0], [5.0, 6.0, 7.0]]])
def test_time_is_given_for_all_clips_or_for_each(time):
    view = ViewRays.from_poses(some_matrices(), some_dirs(), time=torch.tensor(time))
    expected = torch.tensor(time, dtype=torch.float64).expand(2, 3)
    assert torch.equal(view.time, expected)


def test_everything_is_float64_whatever_comes_in():
    view = ViewRays.from_poses(some_matrices(torch.float32), some_dirs(torch.float32), time=torch.arange(3))
    for name in ("R_world_cam", "center_world", "dirs_cam", "time", "row", "col"):
        assert getattr(view, name).dtype == torch.float64


@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-7, 1e-6, 2e-5])
def test_rounded_rotations_are_brought_back_to_orthonormal(noise):
    exact = some_matrices()
    rounded = exact.clone()
    draw = torch.Generator().manual_seed(1)
    rounded[..., :3, :3] += noise * (2 * torch.rand(2, 3, 3, 3, generator=draw, dtype=torch.float64) - 1)
    view = ViewRays.from_poses(rounded, some_dirs())
    identity = torch.eye(3, dtype=torch.float64)
    assert (view.R_world_cam.mT @ view.R_world_cam - identity).abs().max() < 1e-14
    assert (view.R_world_cam - exact[..., :3, :3]).abs().max() < 3 * noise + 1e-14


def test_gradients_reach_poses_through_the_mending():
    given = some_matrices(torch.float32).double()
    given.requires_grad_()
    view = ViewRays.from_poses(given, some_dirs())
    view.R_world_cam.sin().sum().backward()
    assert torch.isfinite(given.grad).all()
    assert given.grad[..., :3, :3].abs().max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda T: T.mT, r"end in the row \[0, 0, 0, 1\].*transposed: pass T.mT"),
        (
            lambda T: torch.cat([T[:1], T[1:] * torch.tensor([1.0, 1, -1, 1])]),
            r"right-handed rotations; the one of batch 1, view 0 has determinant -1.*ReadOptions\(mirror=\)",
        ),
        (lambda T: T * torch.tensor([2.0, 2, 2, 1]), r"R\^T R is off by 3"),
        (lambda T: T / 0, r"T_world_cam must be finite"),
    ],
)
def test_matrices_that_are_no_poses_are_refused(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ViewRays.from_poses(change(some_matrices()), some_dirs())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (2, 4)}, r"grid 2 x 4 has 8 tokens; dirs_cam has 6"),
        ({"camera": pinhole_lens()}, r"which of the 6 tokens sees which part.*pass grid=\(rows, columns\)"),
        ({"time": torch.arange(4)}, r"time must have shape \[3\] or \[2, 3\]; got \[4\]"),
        ({"time": torch.tensor([0.0, math.nan, 1.0])}, r"time must be finite"),
    ],
)
def test_grids_and_clocks_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ViewRays.from_poses(some_matrices(), some_dirs(), **options)


def test_rays_must_have_unit_length_and_be_finite():
    dirs = some_dirs().clone()
    dirs[1, 2, 3] *= 1.001
    with pytest.raises(
        ValueError, match=r"dirs_cam must have unit length; the worst is 1\.001000 \(ray 33\)"
    ):
        ViewRays.from_poses(some_matrices(), dirs)
    dirs[1, 2, 3] = math.nan
    with pytest.raises(ValueError, match=r"dirs_cam must be finite.*valid=False"):
        ViewRays.from_poses(some_matrices(), dirs)


def test_rays_built_by_hand_in_float32_are_refused_before_they_lose_centimetres():
    view = random_drive()
    values = {
        name: getattr(view, name) for name in ("R_world_cam", "dirs_cam", "valid", "time", "row", "col")
    }
    with pytest.raises(ValueError, match=r"center_world must be float64 on the CPU.*got torch.float32"):
        ViewRays(center_world=view.center_world.float(), **values)


def test_validity_is_kept_per_token():
    valid = torch.ones(2, 3, 6, dtype=torch.bool)
    valid[1, 0, 2] = False
    view = ViewRays.from_poses(some_matrices(), some_dirs(), valid=valid, grid=GRID)
    assert torch.equal(view.valid, valid)


# The lens of the rays


PER_CLIP = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")


def seen_by(camera, *, rays_of=None, grid=GRID):
    """Two clips of three views whose tokens have one camera's rays and carry another."""
    dirs, _ = TokenGrid(*grid).token_rays(camera if rays_of is None else rays_of)
    return ViewRays.from_poses(some_matrices(), dirs.expand(2, 3, -1, -1), grid=grid, camera=camera)


def frames(*, height=16, width=24, pixel_origin="corner", focal_px=15.0):
    """A lens for whole frames, its axis off their middle."""
    shift = 0.0 if pixel_origin == "corner" else 0.5
    return Pinhole(
        fx=focal_px,
        fy=1.1 * focal_px,
        cx=11.0 - shift,
        cy=9.0 - shift,
        width=width,
        height=height,
        pixel_origin=pixel_origin,
    )


@pytest.mark.parametrize("pixel_origin", ["corner", "center"])
def test_the_lens_lies_on_a_raster_of_one_pixel_per_token(pixel_origin):
    lens = seen_by(frames(pixel_origin=pixel_origin)).lens
    assert (lens.height, lens.width, lens.pixel_origin) == (*GRID, "corner")
    # 24 x 16 pixels on 3 x 2 tokens.
    for name, value in (("fx", 15 / 8), ("fy", 16.5 / 8), ("cx", 11 / 8), ("cy", 9 / 8)):
        assert getattr(lens, name) == pytest.approx(value, rel=1e-12)


def test_another_lens_than_the_tokens_is_refused():
    with pytest.raises(ValueError, match=r"camera and dirs_cam disagree by up to 0\.\d+ rad"):
        seen_by(frames(focal_px=16.0), rays_of=frames())


def test_rows_and_columns_or_height_and_width_that_are_swapped_are_refused():
    upright, flat = (Pinhole.from_fov(fov_x_deg=70.0, height=h, width=w) for h, w in ((24, 16), (16, 24)))
    with pytest.raises(ValueError, match="height and width, or rows and columns, swapped"):
        seen_by(upright, rays_of=flat)
    dirs, _ = TokenGrid(2, 3).token_rays(frames())
    with pytest.raises(ValueError, match="height and width, or rows and columns, swapped"):
        ViewRays.from_poses(some_matrices(), dirs.expand(2, 3, -1, -1), grid=(3, 2), camera=frames())


def test_a_lens_per_view_has_the_views_shape():
    zoom = torch.tensor([12.0, 15.0, 20.0], dtype=torch.float64)
    per_view = frames(focal_px=zoom.expand(2, 3))
    view = ViewRays.from_poses(
        some_matrices(), TokenGrid(*GRID).token_rays(per_view)[0], grid=GRID, camera=per_view
    )
    assert tuple(view.lens.view_shape) == (2, 3)
    with pytest.raises(ValueError, match=r"have shape \[batch, view\] = \[2, 3\]; got \[3\]"):
        seen_by(frames(focal_px=zoom))


def test_a_lens_built_by_hand_is_for_tokens():
    view = seen_by(frames())
    for lens in (frames(), view.lens.with_pixel_origin("center")):
        with pytest.raises(ValueError, match=r"raster of one pixel per token.*6 pixels"):
            replace(view, lens=lens)


@pytest.mark.parametrize("per_view", [False, True])
def test_tokens_to_which_the_lens_gives_no_ray_are_marked_without_being_told(per_view):
    seen = scene("fisheye_200deg")
    lens = (
        replace(seen.lens, fx=torch.full((2, 3), seen.lens.fx, dtype=torch.float64))
        if per_view
        else seen.lens
    )
    poses = matrices(seen.R_world_cam, seen.center_world)
    untold = ViewRays.from_poses(poses, seen.dirs_cam, grid=GRID, camera=lens)
    assert torch.equal(untold.valid, seen.valid) and not seen.valid.all()
    told = ViewRays.from_poses(poses, seen.dirs_cam, grid=GRID, camera=lens, valid=seen.valid.roll(1, -1))
    assert torch.equal(told.valid, seen.valid.roll(1, -1))


# Runs of views


def assert_same_rays(ours, theirs):
    for name in ("R_world_cam", "center_world", "dirs_cam", "valid", "time", "row", "col"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.lens == theirs.lens


@pytest.mark.parametrize("name", ["far_origin", "ray_at_antipode", "fisheye_200deg"])
def test_a_clip_cut_into_runs_and_put_together_is_itself(name):
    clip = scene(name)
    runs = [clip.for_views(0, 1), clip.for_views(1, 3)]
    assert [run.num_views for run in runs] == [1, 2]
    assert torch.equal(runs[1].center_world, clip.center_world[:, 1:])
    assert_same_rays(ViewRays.cat(runs), clip)
    assert_same_rays(ViewRays.cat([clip]), clip)


def test_a_zoom_is_cut_and_put_together_with_its_views():
    focal_px = torch.tensor([[12.0, 15.0, 20.0], [13.0, 14.0, 16.0]], dtype=torch.float64)
    camera = frames(focal_px=focal_px)
    clip = ViewRays.from_poses(
        some_matrices(), TokenGrid(*GRID).token_rays(camera)[0], grid=GRID, camera=camera
    )
    runs = [clip.for_views(0, 2), clip.for_views(2, 3)]
    assert runs[0].lens.fx.shape == (2, 2)
    assert_same_rays(ViewRays.cat(runs), clip)


def test_two_focal_lengths_become_one_lens_with_a_number_per_view():
    wide, narrow = seen_by(frames(focal_px=12.0)), seen_by(frames(focal_px=20.0))
    both = ViewRays.cat([wide.for_views(0, 1), narrow.for_views(1, 3)])
    ratio = both.lens.fx / wide.lens.fx
    torch.testing.assert_close(ratio, torch.tensor([[1, 5 / 3, 5 / 3]] * 2, dtype=torch.float64))
    # What is the same for all views stays one number.
    assert both.lens.cx == wide.lens.cx


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda clip: [], "runs must hold at least one ViewRays; got none"),
        (
            lambda clip: [
                clip,
                replace(clip, lens=None, **{n: getattr(clip, n)[:1] for n in PER_CLIP}),
            ],
            "runs must have one batch; run 0 has 2 clips, run 1 has 1",
        ),
        (
            lambda clip: [clip, random_drive(grid=(3, 2))],
            r"one token grid; run 0 has 6 tokens per view on a grid of \(2, 3\), run 1 has 6 on \(3, 2\)",
        ),
        (lambda clip: [clip, replace(clip, lens=None)], r"one kind of lens.*'None'\].*Pass the same camera="),
    ],
)
def test_runs_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ViewRays.cat(change(random_drive()))


@pytest.mark.parametrize(("first", "last"), [(0, 4), (1, 1), (-1, 2)])
def test_views_that_are_not_there_are_refused(first, last):
    with pytest.raises(ValueError, match=rf"views {first} to {last} are no run of the 3 views"):
        random_drive().for_views(first, last)
