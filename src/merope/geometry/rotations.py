"""Rotations in three dimensions: conversions, distances and means, stable at 0 and at 180 degrees.

Matrices act on column vectors. Rotation vectors are axis times angle in radians.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def hat(vectors: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """Cross-product matrices ``[v]x`` with ``hat(v) @ w == cross(v, w)``."""
    x, y, z = vectors.unbind(-1)
    zero = torch.zeros_like(x)
    rows = [zero, -z, y, z, zero, -x, -y, x, zero]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def rotvec_to_matrix(rotvecs: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """Rodrigues' formula; smooth through zero rotation, gradients included."""
    angle_sq = (rotvecs * rotvecs).sum(-1, keepdim=True)
    small = angle_sq < 1e-8
    angle = torch.where(small, torch.ones_like(angle_sq), angle_sq).sqrt()
    # Series to fourth order: below 1e-4 rad the next term is under 1e-20.
    sinc = torch.where(small, 1 - angle_sq / 6, angle.sin() / angle)
    # Half angles: 1 - cos has no digits left in float32 below 1e-3 rad.
    half_sinc = (angle / 2).sin() / (angle / 2)
    cosc = torch.where(small, 0.5 - angle_sq / 24, 0.5 * half_sinc * half_sinc)
    skew = hat(rotvecs)
    identity = torch.eye(3, dtype=rotvecs.dtype, device=rotvecs.device)
    return identity + sinc[..., None] * skew + cosc[..., None] * (skew @ skew)


def matrix_to_quaternion(matrices: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    """Unit quaternions in (x, y, z, w) order, w >= 0.

    The largest of the four components is found first and the others are divided by it, so no branch
    divides by a small number.
    """
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = matrices.flatten(-2).unbind(-1)
    candidates = torch.stack(
        [
            torch.stack([1 + m00 - m11 - m22, m01 + m10, m02 + m20, m21 - m12], -1),
            torch.stack([m01 + m10, 1 - m00 + m11 - m22, m12 + m21, m02 - m20], -1),
            torch.stack([m02 + m20, m12 + m21, 1 - m00 - m11 + m22, m10 - m01], -1),
            torch.stack([m21 - m12, m02 - m20, m10 - m01, 1 + m00 + m11 + m22], -1),
        ],
        dim=-2,
    )
    largest = candidates.diagonal(dim1=-2, dim2=-1).argmax(-1)
    chosen = torch.take_along_dim(candidates, largest[..., None, None], dim=-2).squeeze(-2)
    unit = chosen / chosen.norm(dim=-1, keepdim=True)
    return torch.where(unit[..., 3:] < 0, -unit, unit)


def quaternion_to_matrix(quaternions_xyzw: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotation matrices of quaternions in (x, y, z, w) order; the input is normalised."""
    unit = quaternions_xyzw / quaternions_xyzw.norm(dim=-1, keepdim=True)
    axis, w = unit[..., :3], unit[..., 3, None, None]
    skew = hat(axis)
    identity = torch.eye(3, dtype=unit.dtype, device=unit.device)
    return identity + 2 * w * skew + 2 * skew @ skew


def matrix_to_rotvec(matrices: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
    """Rotation vectors with angles in [0, pi]; exact digits near 0 and near 180 degrees."""
    quaternion = matrix_to_quaternion(matrices)
    axis, w = quaternion[..., :3], quaternion[..., 3:]
    sin_half_sq = (axis * axis).sum(-1, keepdim=True)
    small = sin_half_sq < 1e-16
    sin_half = torch.where(small, torch.ones_like(sin_half_sq), sin_half_sq).sqrt()
    factor = torch.where(small, torch.full_like(w, 2.0), 2 * torch.atan2(sin_half, w) / sin_half)
    return axis * factor


def rotation_angle(
    R_a: Float[Tensor, "*batch 3 3"], R_b: Float[Tensor, "*batch 3 3"]
) -> Float[Tensor, "*batch"]:
    """Geodesic distance in radians, by atan2 of the sine and cosine (Eq. 36 without its loss of digits).

    The arccos of Eq. 36 cannot tell angles below 1e-8 rad in float64 (0.02 degrees in float32) from zero.
    """
    return angle_from_identity(R_a.mT @ R_b)


def angle_from_identity(rotations: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch"]:
    """Angle in radians by which each rotation turns, exact near 0 and near 180 degrees."""
    vee = torch.stack(
        [
            rotations[..., 2, 1] - rotations[..., 1, 2],
            rotations[..., 0, 2] - rotations[..., 2, 0],
            rotations[..., 1, 0] - rotations[..., 0, 1],
        ],
        dim=-1,
    )
    trace = rotations.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.atan2(vee.norm(dim=-1), trace - 1)


def project_to_so3(matrices: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
    """The nearest rotation in the Frobenius norm (polar factor by SVD, determinant +1)."""
    left, _, right = torch.linalg.svd(matrices)
    sign = torch.det(left @ right).sign()
    scale = torch.ones_like(matrices[..., 0])
    scale[..., 2] = sign
    return left @ (scale[..., None] * right)


def slerp(
    R_a: Float[Tensor, "*batch 3 3"], R_b: Float[Tensor, "*batch 3 3"], fraction: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch 3 3"]:
    """Constant-speed interpolation along the shorter way from ``R_a`` (0) to ``R_b`` (1)."""
    return R_a @ rotvec_to_matrix(matrix_to_rotvec(R_a.mT @ R_b) * fraction[..., None])


def mean_rotation(matrices: Float[Tensor, "*batch view 3 3"]) -> Float[Tensor, "*batch 3 3"]:
    """The chordal mean over ``view``: the rotation nearest to the average matrix.

    Undefined where the average is singular, which needs rotations more than 90 degrees apart.
    """
    return project_to_so3(matrices.mean(-3))
