"""Conversions and distances of rotations, near zero, near 180 degrees, and against roma."""

import math

import pytest
import roma
import torch

from merope.geometry.rotations import (
    hat,
    matrix_to_quaternion,
    matrix_to_rotvec,
    mean_rotation,
    project_to_so3,
    quaternion_to_matrix,
    rotation_angle,
    rotvec_to_matrix,
    slerp,
)

ANGLES = (0.0, 1e-12, 1e-8, 1e-4, 1.0001e-4, 1e-3, 0.5, 3.0, math.pi - 1e-6, math.pi - 1e-12, math.pi)


def rotvecs(angle, num=30, seed=0):
    axis = torch.randn(num, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return angle * axis / axis.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("angle", ANGLES)
def test_rotation_vectors_become_the_matrices_that_roma_makes(angle):
    vectors = rotvecs(angle)
    matrices = rotvec_to_matrix(vectors)
    torch.testing.assert_close(matrices, roma.rotvec_to_rotmat(vectors), rtol=0, atol=1e-12)
    identity = torch.eye(3, dtype=torch.float64)
    assert (matrices.mT @ matrices - identity).abs().max() < 1e-14


@pytest.mark.parametrize("angle", ANGLES)
def test_matrices_become_rotation_vectors_and_back(angle):
    matrices = rotvec_to_matrix(rotvecs(angle))
    vectors = matrix_to_rotvec(matrices)
    torch.testing.assert_close(rotvec_to_matrix(vectors), matrices, rtol=0, atol=1e-14 * 4)
    torch.testing.assert_close(
        vectors.norm(dim=-1), torch.full((30,), angle, dtype=torch.float64), rtol=1e-6, atol=2e-15
    )


@pytest.mark.parametrize("angle", ANGLES)
def test_matrices_become_the_quaternions_that_roma_makes_up_to_sign(angle):
    matrices = rotvec_to_matrix(rotvecs(angle, seed=1))
    ours, theirs = matrix_to_quaternion(matrices), roma.rotmat_to_unitquat(matrices)
    assert (ours[:, 3] >= 0).all()
    sign = (ours * theirs).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(ours, sign * theirs, rtol=0, atol=1e-14 * 2)
    torch.testing.assert_close(quaternion_to_matrix(3.7 * ours), matrices, rtol=0, atol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_turns_about_the_axes_have_a_rotation_vector(axis):
    diagonal = [-1.0, -1.0, -1.0]
    diagonal[axis] = 1.0
    vector = matrix_to_rotvec(torch.diag(torch.tensor(diagonal, dtype=torch.float64)))
    assert vector[axis].abs().item() == pytest.approx(math.pi)
    assert vector.norm().item() == pytest.approx(math.pi)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("angle", ANGLES)
def test_gradients_are_finite_at_every_angle(dtype, angle):
    vectors = rotvecs(angle).to(dtype).requires_grad_()
    matrix_to_rotvec(rotvec_to_matrix(vectors)).sin().sum().backward()
    assert torch.isfinite(vectors.grad).all()


@pytest.mark.parametrize("angle", [0.0, 1e-5, 0.7, 2.5])
def test_gradcheck_of_the_exponential_and_of_the_logarithm(angle):
    assert torch.autograd.gradcheck(rotvec_to_matrix, (rotvecs(angle, num=3).requires_grad_(),))
    if angle > 1e-3:
        vectors = rotvecs(angle, num=3, seed=2).requires_grad_()
        assert torch.autograd.gradcheck(lambda v: matrix_to_rotvec(rotvec_to_matrix(v)), (vectors,))


@pytest.mark.parametrize("angle", [1e-12, 1e-9, 1e-6, 1e-3, 1.0, 3.1, math.pi])
def test_the_angle_between_rotations_keeps_its_digits_where_arccos_has_none(angle):
    base = rotvec_to_matrix(rotvecs(1.3, seed=3))
    turned = base @ rotvec_to_matrix(rotvecs(angle, seed=4))
    measured = rotation_angle(base, turned)
    torch.testing.assert_close(measured, torch.full((30,), angle, dtype=torch.float64), rtol=1e-9, atol=4e-16)
    trace = (base.mT @ turned).diagonal(dim1=-2, dim2=-1).sum(-1)
    by_arccos = torch.acos(((trace - 1) / 2).clamp(-1, 1))
    if angle < 1e-8:
        assert (by_arccos - angle).abs().max() > 1e-9


def test_float32_rotation_vectors_of_a_thousandth_of_a_radian_keep_their_second_order():
    vectors = rotvecs(1e-3).float()
    expected = rotvec_to_matrix(vectors.double()).float()
    torch.testing.assert_close(rotvec_to_matrix(vectors), expected, rtol=0, atol=1.2e-7)


def test_projection_finds_the_nearest_rotation():
    exact = rotvec_to_matrix(rotvecs(1.0, seed=5))
    noise = 1e-3 * torch.randn(30, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    projected = project_to_so3(exact + noise)
    torch.testing.assert_close(projected, roma.special_procrustes(exact + noise), rtol=0, atol=1e-13)
    torch.testing.assert_close(torch.det(projected), torch.ones(30, dtype=torch.float64))
    torch.testing.assert_close(project_to_so3(exact), exact, rtol=0, atol=1e-14)


def test_projection_of_a_reflection_is_still_a_rotation():
    mirrored = torch.diag(torch.tensor([1.0, 1.0, -1.1], dtype=torch.float64))
    assert torch.det(project_to_so3(mirrored)).item() == pytest.approx(1.0)


def test_slerp_goes_the_short_way_at_constant_speed():
    start = rotvec_to_matrix(rotvecs(0.4, seed=6))
    end = start @ rotvec_to_matrix(rotvecs(3.0, seed=7))
    fractions = torch.linspace(0, 1, 11, dtype=torch.float64)
    path = torch.stack([slerp(start, end, f.expand(30)) for f in fractions])
    steps = rotation_angle(path[:-1], path[1:])
    torch.testing.assert_close(steps, torch.full_like(steps, 0.3), rtol=0, atol=1e-13)
    torch.testing.assert_close(path[-1], end, rtol=0, atol=1e-14)
    theirs = roma.rotmat_slerp(start, end, fractions)
    torch.testing.assert_close(path, theirs, rtol=0, atol=1e-12)


def test_the_mean_of_rotations_about_one_axis_is_the_mean_angle():
    angles = torch.tensor([0.1, 0.2, 0.6], dtype=torch.float64)
    vectors = torch.zeros(2, 3, 3, dtype=torch.float64)
    vectors[..., 2] = angles
    mean = mean_rotation(rotvec_to_matrix(vectors))
    assert mean.shape == (2, 3, 3)
    # The chordal mean of unit phasors.
    expected = math.atan2(angles.sin().sum(), angles.cos().sum())
    torch.testing.assert_close(matrix_to_rotvec(mean)[:, 2], torch.full((2,), expected).double())


def test_hat_is_the_cross_product():
    v, w = torch.randn(2, 5, 3, dtype=torch.float64)
    torch.testing.assert_close((hat(v) @ w[..., None]).squeeze(-1), torch.linalg.cross(v, w))
