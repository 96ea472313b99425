"""Umeyama's alignment: a known similarity is found, a mirror is never used, a line is refused."""

import numpy as np
import pytest
import torch
from evo.core import geometry
from scipy.spatial.transform import Rotation

from merope.evaluation.metrics.alignment import AlignmentUndefined, align, why_no_rotation
from tests.evaluation.trajectories import perturbed, straight, turning, wandering


def similar(center, *, scale, seed=1, far=0.0):
    """The centres under a known similarity, and its rotation and offset."""
    rotation = torch.from_numpy(Rotation.random(random_state=seed).as_matrix())
    offset = torch.tensor([far + 3.0, -2.0, 7.0], dtype=torch.float64)
    return scale * center @ rotation.T + offset, rotation, offset


@pytest.mark.parametrize("scale", [0.05, 1.0, 21.0])
def test_a_known_similarity_is_found(scale):
    source = wandering(20, 3).center_world
    target, rotation, offset = similar(source, scale=scale)
    found = align(target, source, with_scale=True)
    assert found.scale == pytest.approx(scale, rel=1e-12)
    torch.testing.assert_close(found.R_target_source, rotation, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.offset_target, offset, atol=1e-11 * max(scale, 1), rtol=0)
    torch.testing.assert_close(found.apply(source), target, atol=1e-11 * max(scale, 1), rtol=0)


def test_a_rigid_alignment_keeps_the_scale():
    source = wandering(20, 3).center_world
    target, rotation, _ = similar(source, scale=2.0)
    found = align(target, source, with_scale=False)
    assert found.scale == 1.0
    torch.testing.assert_close(found.R_target_source, rotation, atol=1e-12, rtol=0)


@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_alignment_equals_that_of_evo(with_scale, seed):
    target, source = wandering(15, seed).center_world, wandering(15, seed + 50).center_world
    found = align(target, source, with_scale=with_scale)
    rotation, offset, scale = geometry.umeyama_alignment(source.numpy().T, target.numpy().T, with_scale)
    np.testing.assert_allclose(found.R_target_source.numpy(), rotation, atol=1e-10)
    np.testing.assert_allclose(found.offset_target.numpy(), offset, atol=1e-9)
    assert found.scale == pytest.approx(scale, rel=1e-10)


def test_a_mirrored_path_is_not_aligned_by_a_mirror():
    source = wandering(30, 5, noise=2.0).center_world
    mirrored = source * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    found = align(mirrored, source, with_scale=True)
    assert float(torch.det(found.R_target_source)) == pytest.approx(1.0, abs=1e-12)
    assert float((found.apply(source) - mirrored).norm(dim=-1).mean()) > 0.5


def test_no_other_rotation_or_scale_is_closer():
    target = turning(20).center_world
    source = perturbed(turning(20), 4, shift=0.5, scale=0.3).center_world
    found = align(target, source, with_scale=True)
    least = float((found.apply(source) - target).square().sum())
    centred_target, centred_source = target - target.mean(0), source - source.mean(0)
    for turn in np.eye(3):
        for step in (-1e-3, 1e-3):
            nudged = torch.from_numpy(Rotation.from_rotvec(step * turn).as_matrix()) @ found.R_target_source
            for scale in (found.scale, found.scale * (1 + step)):
                error = scale * centred_source @ nudged.T - centred_target
                assert float(error.square().sum()) > least


def test_map_coordinates_of_millions_of_metres_keep_their_digits():
    source = wandering(20, 3).center_world
    target, rotation, _ = similar(source, scale=2.0, far=4.65e6)
    found = align(target, source, with_scale=True)
    # 4.65e6 in float64 is good to 1e-9, over a path of 10.
    assert found.scale == pytest.approx(2.0, abs=1e-9)
    torch.testing.assert_close(found.R_target_source, rotation, atol=1e-9, rtol=0)


@pytest.mark.parametrize("with_scale", [False, True])
def test_a_straight_path_is_refused_since_its_roll_is_free(with_scale):
    line, other = straight(10).center_world, wandering(10, 1).center_world
    for target, source, who in ((line, other, "commanded"), (other, line, "recovered")):
        with pytest.raises(
            AlignmentUndefined, match=f"{who} path.*rotation about the path axis is unobservable"
        ):
            align(target, source, with_scale=with_scale)


@pytest.mark.parametrize(("sideways", "refused"), [(0.9e-3, True), (1.1e-3, False)])
def test_the_second_singular_value_decides_at_a_thousandth_of_the_first(sideways, refused):
    # Sideways by a pattern that is orthogonal to the way along: singular values are the norms of the columns.
    along = torch.tensor([-2.0, -1, 0, 1, 2], dtype=torch.float64)
    across = torch.tensor([2.0, -1, -2, -1, 2], dtype=torch.float64)
    across = across * along.norm() / across.norm()
    center = torch.stack([sideways * across, 0 * along, along], dim=-1)
    assert (why_no_rotation(center) is not None) == refused


def test_points_that_stand_or_are_too_few_are_refused_in_words():
    moving = wandering(5, 2).center_world
    with pytest.raises(AlignmentUndefined, match="recovered path stays at one point"):
        align(moving, moving[:1].expand(5, 3), with_scale=True)
    with pytest.raises(AlignmentUndefined, match="has 2 centres"):
        align(moving[:2], moving[:2], with_scale=True)
    with pytest.raises(ValueError, match="got 5 and 4"):
        align(moving, moving[:4], with_scale=True)
