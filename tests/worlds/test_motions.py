"""Free motions move the degrees of freedom that their names say."""

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.worlds import MOTIONS, build_world, free_motion, render


@pytest.mark.parametrize("kind", ["pan", "tilt", "roll"])
def test_turning_motions_stay_in_place(kind):
    poses = free_motion(kind, seed=2, num_frames=9, fps=10.0)
    assert poses.path_length == 0.0
    assert not torch.allclose(poses.R_world_cam[0], poses.R_world_cam[-1], atol=0.05)


@pytest.mark.parametrize(("kind", "axis"), [("dolly", 0), ("truck", 1), ("pedestal", 2)])
def test_moving_motions_move_along_one_axis_without_turning(kind, axis):
    poses = free_motion(kind, seed=2, num_frames=9, fps=10.0)
    moved = (poses.center_world[-1] - poses.center_world[0]).abs()
    assert moved[axis] >= 1.0
    assert moved.sum() == pytest.approx(float(moved[axis]))
    assert torch.equal(poses.R_world_cam[0], poses.R_world_cam[-1])


def test_an_orbit_keeps_its_target_in_the_middle():
    poses = free_motion("orbit", seed=1, num_frames=13, fps=10.0)
    forward = poses.R_world_cam[:, :2, 2].numpy()
    center = poses.center_world[:, :2].numpy()
    # Where the first and the last optical axis meet is on all the others too.
    reach = np.linalg.solve(np.stack([forward[0], -forward[-1]], axis=1), center[-1] - center[0])
    target = center[0] + reach[0] * forward[0]
    away = target - center
    across = away[:, 0] * forward[:, 1] - away[:, 1] * forward[:, 0]
    assert np.abs(across).max() < 1e-9
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), reach[0], rtol=1e-9)


def test_every_motion_can_be_rendered_in_a_world_built_for_it():
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=6, width=10)
    for kind in MOTIONS:
        for seed in range(6):
            poses = free_motion(kind, seed=seed, num_frames=7, fps=10.0)
            assert float(poses.center_world[:, 2].min()) >= 0.5
            rendered = render(build_world(seed, paths=[poses]), camera, poses, samples=1)
            assert rendered.rgb.shape == (7, 6, 10, 3)


def test_an_unknown_motion_names_the_known_ones():
    with pytest.raises(ValueError, match="kind must be one of pan, tilt"):
        free_motion("zoom", seed=0, num_frames=5, fps=10.0)
