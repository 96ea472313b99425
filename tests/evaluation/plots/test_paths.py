"""Paths from above: which way is up, what is on the axes, and files without a display."""

import numpy as np
import pytest
import torch

from merope.evaluation.plots.paths import choose_view, draw_paths, plot_paths
from merope.geometry.poses import Poses
from tests.support.drives import drive

TO_Z_UP = torch.tensor([[1, 0, 0], [0, 0, 1], [0, -1, 0]], dtype=torch.float64)
ZERO = torch.zeros(3, dtype=torch.float64)


def names(view):
    return [view.name(axis) for axis in (view.right, view.ahead, view.up)]


def lines(figure, index=0):
    return figure.axes[index].get_lines()


@pytest.mark.parametrize(
    ("R_new_world", "expected"),
    [
        (torch.eye(3, dtype=torch.float64), ["x", "z", "-y"]),
        (TO_Z_UP, ["x", "y", "z"]),
        (torch.diag(torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)), ["x", "-z", "y"]),
    ],
)
def test_up_is_that_of_the_cameras(R_new_world, expected):
    # A straight road has its smallest extent across, not in height.
    view = choose_view([drive(30).transformed(R_new_world, ZERO)])
    assert names(view) == expected
    assert view.reason == "up of the cameras"


@pytest.mark.parametrize(
    ("up", "expected"),
    [("x", ["y", "z", "x"]), ("-x", ["y", "-z", "-x"]), ("y", ["x", "-z", "y"]), ("-z", ["x", "-y", "-z"])],
)
def test_up_as_asked_gives_a_picture_from_above(up, expected):
    view = choose_view([drive(30)], up)
    assert names(view) == expected
    axes = np.eye(3)
    right, ahead, above = (sign * axes[index] for index, sign in (view.right, view.ahead, view.up))
    assert np.array_equal(np.cross(right, ahead), above)


def test_without_an_up_of_the_cameras_the_path_lies_in_its_two_largest_extents():
    poses = drive(60, turn_deg=90)
    rolling = torch.linspace(0, 6, 60, dtype=torch.float64)
    roll = torch.zeros(60, 3, 3, dtype=torch.float64)
    roll[:, 0, 0] = roll[:, 1, 1] = rolling.cos()
    roll[:, 1, 0], roll[:, 0, 1], roll[:, 2, 2] = rolling.sin(), -rolling.sin(), 1
    view = choose_view([Poses(R_world_cam=poses.R_world_cam @ roll, center_world=poses.center_world)])
    assert view.up[0] == 1
    assert view.reason == "smallest extent"


def test_a_left_turn_goes_left_on_the_page():
    poses = drive(41, length=20, turn_deg=90)
    view = choose_view([poses])
    figure = draw_paths({"a": poses}, view=view)
    x, y = lines(figure)[0].get_data()
    assert x[-1] == pytest.approx(-20 / (np.pi / 2), abs=0.01)
    assert y[-1] == pytest.approx(20 / (np.pi / 2), abs=0.01)
    assert figure.axes[0].get_aspect() == 1
    assert figure.axes[0].get_xlabel() == "x (m)"
    assert figure.axes[0].get_ylabel() == "z (m)"
    start, end = lines(figure)[1], lines(figure)[2]
    assert (start.get_marker(), end.get_marker()) == ("o", "s")
    assert np.array_equal(np.ravel(start.get_data()), [x[0], y[0]])
    assert np.allclose(np.ravel(end.get_data()), [x[-1], y[-1]])


def arrowhead(line):
    """The direction of an arrowhead on the page, degrees to the left of up."""
    turned = line.get_markeredgewidth() and line._marker.get_user_transform().get_matrix()
    return float(np.rad2deg(np.arctan2(turned[1, 0], turned[0, 0])))


def test_arrowheads_point_where_the_cameras_look():
    poses = drive(141, length=20, turn_deg=90)
    figure = draw_paths({"a": poses}, view=choose_view([poses]))
    heads = [arrowhead(line) for line in lines(figure)[3:]]
    assert len(heads) == 14
    assert heads == pytest.approx(90 * (np.arange(14) + 0.5) / 14, abs=1)


def test_a_camera_that_looks_down_has_no_heading_on_the_page():
    poses = drive(41, length=20)
    down = torch.tensor([[1, 0, 0], [0, 0, 1], [0, -1, 0]], dtype=torch.float64).expand(41, 3, 3)
    looking = Poses(R_world_cam=down, center_world=poses.center_world)
    assert len(lines(draw_paths({"a": looking}, view=choose_view([looking], "-y")))) == 3


def test_heights_are_up_and_speeds_are_per_second():
    poses = drive(21, length=20)
    climbing = Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world
        - torch.linspace(0, 3, 21, dtype=torch.float64)[:, None] * torch.tensor([0, 1, 0]),
        times=torch.arange(21, dtype=torch.float64) * 0.5,
    )
    figure = draw_paths({"a": climbing}, view=choose_view([climbing]), over="time")
    time, height = lines(figure, 1)[0].get_data()
    assert (height[0], height[-1]) == (0, 3)
    assert time[-1] == 10
    speed = lines(figure, 2)[0].get_data()[1]
    assert speed == pytest.approx(np.hypot(1.0, 0.15) / 0.5)
    assert figure.axes[2].get_ylabel() == "speed (m/s)"
    untimed = draw_paths({"a": poses}, view=choose_view([poses]))
    assert untimed.axes[2].get_ylabel() == "step (m a pose)"
    assert draw_paths({"a": poses}, view=choose_view([poses]), fps=10).axes[2].get_ylabel() == "speed (m/s)"
    with pytest.raises(ValueError, match="has no times to draw over"):
        draw_paths({"a": poses}, view=choose_view([poses]), over="time")


def test_a_world_far_from_its_origin_is_drawn_about_the_first_camera():
    poses = drive(41).transformed(
        torch.eye(3, dtype=torch.float64), torch.tensor([5e6, 0.0, -3e6], dtype=torch.float64)
    )
    figure = draw_paths({"a": poses}, view=choose_view([poses]))
    assert lines(figure)[0].get_data()[1][-1] == pytest.approx(20)
    assert figure.axes[0].get_xlabel() == "x - 5000000.0 (m)"
    assert figure.axes[0].get_ylabel() == "z + 3000000.0 (m)"


def test_paths_of_different_units_are_not_drawn_over_each_other():
    both = {"a": drive(5), "b": drive(5, unit="normalized")}
    with pytest.raises(ValueError, match="in one unit; got m, normalized"):
        draw_paths(both, view=choose_view(list(both.values())))


@pytest.mark.parametrize("still", [1, 5])
def test_standing_cameras_can_be_drawn(tmp_path, still):
    poses = drive(1)
    standing = Poses(
        R_world_cam=poses.R_world_cam.expand(still, 3, 3), center_world=poses.center_world.expand(still, 3)
    )
    plot_paths(tmp_path / "a.png", {"a": standing})
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_svg_is_the_same_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        plot_paths(tmp_path / name, {"drive": drive(41, turn_deg=60), "other": drive(41)})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "<svg" in (tmp_path / "a.svg").read_text()
