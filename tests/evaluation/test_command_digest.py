"""The digest of a command: one for one path, whatever the world frame; another for another path."""

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from merope.evaluation import ClipPair, evaluate_clip, evaluate_clips
from merope.evaluation.command_digest import digest_of_command
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import perturbed, turning, wandering


def test_another_world_frame_and_rounding_in_a_file_keep_the_digest():
    commanded = wandering(30, 1)
    turned = commanded.transformed(
        torch.as_tensor(Rotation.from_rotvec([0.3, -1.0, 2.0]).as_matrix()), torch.tensor([10.0, -4.0, 7.0])
    )
    assert digest_of_command(turned) == digest_of_command(commanded)
    # What a text file of nine digits keeps.
    matrices = np.vectorize(lambda value: float(f"{value:.9g}"))(commanded.T_world_cam.numpy())
    read = Poses.from_matrices(torch.as_tensor(matrices))
    assert digest_of_command(read) == digest_of_command(commanded)


def test_another_path_has_another_digest():
    digests = {digest_of_command(wandering(30, seed)) for seed in range(20)}
    assert len(digests) == 20
    millimetre = turning(12).center_world.clone()
    millimetre[5, 0] += 1e-3
    moved = Poses(R_world_cam=turning(12).R_world_cam, center_world=millimetre)
    assert digest_of_command(moved) != digest_of_command(turning(12))
    assert digest_of_command(turning(12)[:11]) != digest_of_command(turning(12))


def test_the_digest_is_the_commands_and_not_the_estimates():
    one, other = (evaluate_clip(turning(), perturbed(turning(), seed)) for seed in (1, 2))
    assert one.commanded_digest == other.commanded_digest == digest_of_command(turning())
    lost = evaluate_clips([ClipPair(clip_id="lost", commanded=turning(), estimated=None)], on_failure="worst")
    assert lost.clips[0].commanded_digest == one.commanded_digest
