"""The path on the ground: where the lens puts it, and marks that stay in place while the camera drives over them."""

import numpy as np
import pytest
import torch

from merope.cameras import Equirectangular, Pinhole
from merope.data.clips.overlay import DONE_COLOR
from merope.data.poses.path_ahead import draw_path_ahead, draw_readout
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix

LENS = Pinhole.from_fov(fov_x_deg=90, height=120, width=200)


def straight(num_frames=5, step=1.0, unit="m"):
    centers = torch.zeros(num_frames, 3, dtype=torch.float64)
    centers[:, 2] = step * torch.arange(num_frames)
    return Poses(
        R_world_cam=torch.eye(3, dtype=torch.float64).repeat(num_frames, 1, 1),
        center_world=centers,
        unit=unit,
    )


def gray(num_frames, height=120, width=200):
    return np.full((num_frames, height, width, 3), 90, dtype=np.uint8)


@pytest.mark.parametrize(("index", "metres"), [(0, 5.0), (0, 10.0), (5, 10.0), (4, 10.0)])
def test_marks_are_where_the_lens_sees_them_and_stay_there(index, metres):
    lens = Pinhole.from_fov(fov_x_deg=60, height=240, width=400)
    drawn = draw_path_ahead(gray(16, 240, 400), straight(16), lens, camera_height=1.5)
    # A mark reaches from 5 m (10, 15, ...) 0.3 m on; the horizon is in the middle.
    near, far = (120 + lens.fy * 1.5 / (metres + reach - index) for reach in (0.0, 0.3))
    ribbon = drawn[index, :, 200, 0].astype(int)
    inside = [row for row in range(240) if row - 0.5 > far and row + 1.5 < near]
    outside = [row for row in (int(far) - 2, int(near) + 2) if row < 240]
    for row in inside:
        assert ribbon[row] > 220
    assert ribbon[round((near + far) / 2 - 0.5)] > 140
    for row in outside:
        assert ribbon[row] < 110


def test_ribbon_is_as_wide_as_it_is_said_to_be():
    drawn = draw_path_ahead(gray(16), straight(16), LENS, camera_height=1.5, width=2.0)
    changed = np.flatnonzero((drawn[0] != 90).any(axis=-1)[100])
    # Row 100's centre is 40.5 px below the horizon: 1.5 m / 40.5 px * 100 px ahead.
    ahead = 1.5 * 100 / 40.5
    assert len(changed) == pytest.approx(2.0 * 100 / ahead, abs=2)
    assert (changed[0] + changed[-1]) / 2 == pytest.approx(99.5, abs=1)


def test_path_behind_and_the_input_stay_untouched():
    frames = gray(16)
    drawn = draw_path_ahead(frames, straight(16), LENS)
    assert (frames == 90).all()
    assert np.array_equal(drawn[-1], frames[-1])
    assert (drawn[:, :60] == 90).all()


# The lens sees the ground from 2.75 m on.
@pytest.mark.parametrize(("step", "seen"), [(0.02, False), (0.2, True), (0.35, True)])
def test_a_path_of_less_than_one_mark_is_a_ribbon_alone(step, seen):
    drawn = draw_path_ahead(gray(16), straight(16, step), LENS)
    assert (drawn[0] != 90).any() == seen
    assert drawn[0].max() < 200


def test_world_axes_do_not_matter():
    turned = straight(16).transformed(
        rotvec_to_matrix(torch.tensor([1.4, -0.3, 0.8], dtype=torch.float64)),
        torch.tensor([300.0, -20.0, 7.0], dtype=torch.float64),
    )
    one, other = (draw_path_ahead(gray(16), poses, LENS) for poses in (straight(16), turned))
    # An edge may fall to the other side of a pixel by rounding.
    assert (np.abs(one.astype(int) - other).max(axis=-1) > 3).mean() < 1e-3


def test_a_path_across_a_panoramas_seam_does_not_span_the_picture():
    lens = Equirectangular.full_sphere(height=100, width=200)
    path = straight(16)
    backwards = rotvec_to_matrix(torch.tensor([0.0, torch.pi, 0.0], dtype=torch.float64))
    looking_back = Poses(R_world_cam=path.R_world_cam @ backwards, center_world=path.center_world)
    drawn = draw_path_ahead(gray(16, 100, 200), path, lens)
    changed = (drawn[0] != 90).any(axis=(0, 2))
    assert changed[100]
    assert not changed[:40].any()
    assert not changed[160:].any()
    drawn = draw_path_ahead(gray(16, 100, 200), looking_back, lens)
    # Quads on both sides of the seam are left out, and none lies across the front.
    assert not (drawn[0] != 90).any(axis=(0, 2))[40:160].any()


def test_parked_camera_has_no_ribbon():
    assert np.array_equal(draw_path_ahead(gray(4), straight(4, step=0.0), LENS), gray(4))


@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (ValueError, "5 poses for 4 frames", (gray(4), straight(5), LENS)),
        (ValueError, "lens must be one lens for frames of 60 x 80", (gray(4, 60, 80), straight(4), LENS)),
        (TrajectoryError, "needs metres", (gray(4), straight(4, unit="unknown"), LENS)),
    ],
)
def test_what_does_not_fit_is_refused(error, words, arguments):
    with pytest.raises(error, match=words):
        draw_path_ahead(*arguments)


def test_readout_is_in_its_corner_and_only_where_there_is_room():
    drawn = draw_readout(gray(3), straight(3), fps=10.0)
    rows, columns = np.nonzero((drawn != 90).any(axis=(0, 3)))
    assert rows.min() > 90
    assert columns.min() >= 2
    assert (drawn[0] != drawn[2]).any()
    assert (np.abs(drawn.astype(int) - np.asarray(DONE_COLOR)).max(axis=-1) < 40).any()
    assert np.array_equal(draw_readout(gray(3, 60, 80), straight(3), fps=10.0), gray(3, 60, 80))
