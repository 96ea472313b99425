"""`OrthogonalField`: a learned map from poses to rotations of R^d, orthogonal by construction."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu


class OrthogonalField(nn.Module):
    """Maps V from SE(3) to SO(d), several at once: ``V(R, t) = cayley(S(R, t)) diag(R, 1, R, 1, ...)``.

    S is skew-symmetric, given by a perceptron that reads the nine numbers of R, t and R^T t (over
    ``translation_range``). (I - S)^-1 (I + S) is then a rotation for every weight: no penalty keeps it
    one. Any continuous V can be written so up to rotations of exactly half a turn, since V diag(R, 1, ...)^T is one
    more map to SO(d). The fixed factor spares the perceptron what no smooth S reaches, R itself at half a turn;
    it favours no answer to the question of translation.

    Raises:
        ValueError: if 4 does not divide ``dim``.
    """

    def __init__(
        self, *, num: int, dim: int, translation_range: float, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        if dim < 4 or dim % 4:
            raise ValueError(f"dim must be a multiple of 4, blocks diag(R, 1); got {dim}.")
        self.dim = dim
        self.translation_range = translation_range
        features, entries = 15, dim * (dim - 1) // 2

        def weights(rows: int, columns: int, gain: float) -> nn.Parameter:
            drawn = torch.randn(num, rows, columns, generator=generator, dtype=torch.float64)
            return nn.Parameter((gain / math.sqrt(rows) * drawn).float())

        self.first = weights(features, hidden, 1.5)
        self.first_bias = nn.Parameter(torch.zeros(num, 1, hidden))
        self.second = weights(hidden, hidden, 1.5)
        self.second_bias = nn.Parameter(torch.zeros(num, 1, hidden))
        # The norm of a random skew matrix grows with the root of its side.
        self.last = weights(hidden, entries, 1 / math.sqrt(dim))

    def forward(self, T_world_cam: Float[Tensor, "num *batch 4 4"]) -> Float[Tensor, "num *batch d d"]:
        """V of every pose, each map its own poses."""
        batch = T_world_cam.shape[1:-2]
        poses = T_world_cam.to(self.first.dtype).flatten(1, -3)  # [num, pose, 4, 4]
        R, t = poses[..., :3, :3], poses[..., :3, 3:]
        near = torch.cat([t, R.mT @ t], dim=-2).flatten(-2) / self.translation_range
        hidden = silu(torch.cat([R.flatten(-2), near], dim=-1) @ self.first + self.first_bias)
        hidden = silu(hidden @ self.second + self.second_bias)
        turned = cayley(skew(hidden @ self.last, self.dim)).unflatten(-1, (self.dim // 4, 4))
        three = torch.einsum("npack,npkl->npacl", turned[..., :3], R.contiguous())
        value = torch.cat([three, turned[..., 3:]], dim=-1).flatten(-2)
        return value.unflatten(1, batch)


def skew(entries: Float[Tensor, "*batch entry"], dim: int) -> Float[Tensor, "*batch d d"]:
    """The skew-symmetric matrix with these numbers above its diagonal, row by row."""
    rows, columns = torch.triu_indices(dim, dim, 1, device=entries.device)
    upper = entries.new_zeros(*entries.shape[:-1], dim * dim)
    upper = upper.index_copy(-1, rows * dim + columns, entries).unflatten(-1, (dim, dim))
    return upper - upper.mT


def cayley(matrices: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """The rotation (I - S)^-1 (I + S) of a skew-symmetric S; it reaches all that turn no plane by half a turn."""
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.solve(identity - matrices, identity + matrices)
