import pytest
import torch

from merope.cameras import latent_pose_index, latent_poses
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix


def turning_drive(num: int) -> Poses:
    step = torch.arange(num, dtype=torch.float64)
    zero = torch.zeros_like(step)
    return Poses(
        R_world_cam=rotvec_to_matrix(torch.stack((zero, 0.01 * step, zero), -1)),
        center_world=torch.stack((0.1 * step**2, zero, 2 * step), -1),
        times=step / 10,
    )


def test_49_frames_become_13_latents():
    assert latent_pose_index(49).tolist() == list(range(0, 49, 4))
    assert latent_pose_index(49, "first").tolist() == [0, *range(1, 46, 4)]
    assert latent_pose_index(5, "first", stride=2).tolist() == [0, 1, 3]
    assert latent_pose_index(1).tolist() == [0]


def test_prefix_of_9_frames_is_the_first_three_latents():
    assert latent_pose_index(9).tolist() == latent_pose_index(49)[:3].tolist()


@pytest.mark.parametrize("num_frames", [0, 2, 48, 50])
def test_frames_that_do_not_fill_their_latents_are_refused(num_frames):
    with pytest.raises(ValueError, match="1 \\+ 4 k"):
        latent_pose_index(num_frames)


def test_first_and_last_take_whole_poses():
    poses = turning_drive(13)
    for policy, frames in (("last", [0, 4, 8, 12]), ("first", [0, 1, 5, 9])):
        latents = latent_poses(poses, policy=policy)
        assert torch.equal(latents.T_world_cam, poses.T_world_cam[frames])
        assert torch.equal(latents.times, poses.times[frames])


def test_mean_is_the_middle_of_a_steady_turn():
    poses = turning_drive(9)
    latents = latent_poses(poses, policy="mean")
    assert len(latents) == 3
    assert torch.allclose(latents.R_world_cam[0], poses.R_world_cam[0], atol=1e-14)
    middle = rotvec_to_matrix(torch.tensor([[0.0, 0.025, 0.0], [0.0, 0.065, 0.0]], dtype=torch.float64))
    assert (latents.R_world_cam[1:] - middle).abs().max() < 1e-12
    assert (latents.center_world[1] - poses.center_world[1:5].mean(0)).abs().max() < 1e-14
    assert latents.times.tolist() == pytest.approx([0.0, 0.25, 0.65])
    assert latents.unit == poses.unit


def test_mean_without_times_and_with_another_stride():
    poses = turning_drive(7)
    timeless = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world)
    latents = latent_poses(timeless, policy="mean", stride=2)
    assert len(latents) == 4
    assert latents.times is None
    assert latents.center_world[3].tolist() == pytest.approx([3.05, 0.0, 11.0])


def test_mean_needs_full_groups_too():
    with pytest.raises(ValueError, match="1 \\+ 4 k"):
        latent_poses(turning_drive(8), policy="mean")
