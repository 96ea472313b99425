"""Worlds are seeded, keep clear of their paths, and follow the first of them."""

import numpy as np
import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.turns import turn_variant
from merope.worlds import build_world, drive, random_drive
from merope.worlds.layout import BOX
from merope.worlds.surfaces import street_coordinates


def obstacle_gaps(world, points):
    """Plan distance of each solid to the polyline through points, by sampling it every 5 cm."""
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    dense = np.linspace(0.0, length[-1], max(2, int(length[-1] / 0.05)))
    samples = np.stack([np.interp(dense, length, points[:, axis]) for axis in range(2)], axis=1)
    gaps = []
    for shape, row in zip(world.solids.shape, world.solids.geometry, strict=True):
        delta = samples - row[:2]
        if shape == BOX:
            u = np.abs(delta @ np.array([row[4], row[5]])) - row[6]
            v = np.abs(delta @ np.array([-row[5], row[4]])) - row[7]
            gaps.append(np.hypot(u.clip(0.0), v.clip(0.0)).min())
        else:
            gaps.append(np.linalg.norm(delta, axis=1).min() - row[6])
    return np.array(gaps)


def test_obstacles_keep_two_metres_from_base_left_and_right_paths():
    shifted = 0
    for seed in range(12):
        base = random_drive(seed, 25, 10.0)
        left, right = (
            turn_variant(base, side=side, start=8, up_world=(0, 0, 1), fps=10.0) for side in ("left", "right")
        )
        world = build_world(seed, paths=[base, left, right])
        for path in (base, left, right):
            assert obstacle_gaps(world, path.center_world[:, :2].numpy()).min() >= 2.0
        alone = build_world(seed, paths=[base])
        shifted += min(obstacle_gaps(alone, p.center_world[:, :2].numpy()).min() for p in (left, right)) < 2.0
    # The variants do run into what a world that does not know them has there.
    assert shifted >= 3


def test_equal_seeds_and_paths_give_equal_worlds():
    path = random_drive(7, 25, 10.0)
    first, again = (build_world(7, paths=[path]) for _ in range(2))
    for one, two in ((first.solids, again.solids), (first.grid, again.grid), (first.ground, again.ground)):
        for name, value in one._asdict().items():
            np.testing.assert_array_equal(value, getattr(two, name), err_msg=name)
    assert first.light.sun == again.light.sun


def test_no_two_seeds_share_layout_colours_or_light():
    worlds = [build_world(seed) for seed in range(8)]
    assert len({world.light.sun for world in worlds}) == 8
    assert len({world.ground.asphalt for world in worlds}) == 8
    assert len({world.solids.geometry.tobytes() for world in worlds}) == 8
    assert len({world.light.table.tobytes() for world in worlds}) == 8


def test_a_world_holds_every_sort_of_thing():
    materials = np.unique(np.concatenate([build_world(seed).solids.material for seed in range(4)]))
    np.testing.assert_array_equal(materials, np.arange(8))


def test_without_paths_the_x_axis_is_the_right_hand_lane():
    ground = build_world(3).ground
    expected = -(ground.num_lanes - 0.5) * ground.lane_width
    for x in (-40.0, 0.0, 60.0):
        lateral, along, axis_x, axis_y = street_coordinates(ground, x, 0.0)
        assert lateral == pytest.approx(expected, abs=0.01)
        assert along == pytest.approx(x, abs=0.1)
        assert (axis_x, axis_y) == pytest.approx((0.0, 1.0), abs=1e-3)


@pytest.mark.parametrize("kind", ["curve", "turn", "roundabout", "lane_change"])
def test_the_street_follows_the_first_path(kind):
    for seed in range(6):
        path = drive(kind, seed=seed, num_frames=25, fps=10.0)
        ground = build_world(seed, paths=[path]).ground
        for x, y in path.center_world[:, :2].tolist():
            lateral, _, _, _ = street_coordinates(ground, x, y)
            assert abs(lateral) < ground.half_driven + 1.0


def test_a_lane_change_crosses_lanes_instead_of_bending_the_street():
    path = drive("lane_change", seed=9, num_frames=60, fps=10.0)
    sideways = float(path.center_world[:, 1].max() - path.center_world[:, 1].min())
    ground = build_world(9, paths=[path]).ground
    laterals = [street_coordinates(ground, x, y)[0] for x, y in path.center_world[:, :2].tolist()]
    assert sideways > 2.0
    # The clip may begin within the change, whose rest then tilts its frame.
    assert np.ptp(laterals) > 1.2


def test_a_path_below_the_ground_is_refused_with_the_way_out():
    path = drive("straight", seed=0, num_frames=5, fps=10.0)
    low = Poses(R_world_cam=path.R_world_cam, center_world=path.center_world - torch.tensor([0.0, 0.0, 1.5]))
    with pytest.raises(TrajectoryError, match=r"paths\[1\] must stay at least 0.5 m above.*place_on_ground"):
        build_world(0, paths=[path, low])


def test_paths_in_other_units_or_without_a_list_are_refused():
    path = drive("straight", seed=0, num_frames=5, fps=10.0)
    with pytest.raises(TrajectoryError, match=r"paths\[0\] must be in metres"):
        build_world(
            0, paths=[Poses(R_world_cam=path.R_world_cam, center_world=path.center_world, unit="unknown")]
        )
    with pytest.raises(TypeError, match="paths"):
        build_world(0, paths=path)


def test_a_path_across_a_country_is_refused_with_the_way_out():
    path = drive("straight", seed=0, num_frames=5, fps=10.0)
    far = Poses(R_world_cam=path.R_world_cam, center_world=path.center_world * torch.tensor([1e4, 1.0, 1.0]))
    with pytest.raises(TrajectoryError, match="shorter windows"):
        build_world(0, paths=[far])
