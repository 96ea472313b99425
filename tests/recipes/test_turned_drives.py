"""Turned drives: bent to their side in any world, the same until the turn begins."""

import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3
from merope.recipes.turned_drives import turned_drive
from merope.worlds import drive, turn_variant


def unlike_any(poses: Poses) -> Poses:
    """The drive in a world of other axes, far from its origin."""
    rotation = project_to_so3(torch.randn(3, 3, dtype=torch.float64))
    return poses.transformed(rotation, torch.tensor([3.1e6, -2.2e6, 5.0e6], dtype=torch.float64))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_drive_turns_as_in_a_world_with_z_up_whatever_its_world(side):
    level = drive("curve", seed=3, num_frames=49, fps=12.0)
    expected = turn_variant(level, side=side, start=8, fps=12.0).rebase_to_first()
    turned = turned_drive(unlike_any(level), side=side, fps=12.0).rebase_to_first()
    # The up direction of a drive is estimated: a car that pitches is a fraction of a degree off.
    torch.testing.assert_close(turned.center_world, expected.center_world, rtol=0, atol=0.05)
    sideways = float(turned.center_world[-1, 0] - level.rebase_to_first().center_world[-1, 0])
    assert sideways * (-1 if side == "left" else 1) > 2


def test_given_frames_are_those_of_the_drive_to_the_bit():
    poses = unlike_any(drive("straight", seed=1, num_frames=30, fps=12.0))
    turned = turned_drive(poses, side="left", start=12, fps=12.0)
    torch.testing.assert_close(turned.center_world[:13], poses.center_world[:13], rtol=0, atol=0)
    torch.testing.assert_close(turned.R_world_cam[:13], poses.R_world_cam[:13], rtol=0, atol=0)
    assert (turned.center_world[20:] != poses.center_world[20:]).any()


def test_what_cannot_turn_is_refused():
    poses = drive("straight", seed=1, num_frames=30, fps=12.0)
    bare = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world)
    with pytest.raises(TrajectoryError, match="--rate"):
        turned_drive(bare, side="left")
    with pytest.raises(TrajectoryError, match="none behind frame 8"):
        turned_drive(bare[:9], side="left", fps=12.0)
