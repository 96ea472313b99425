"""How an operator U depends on the poses of two cameras: the quantities of Theorem 1, for any U."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.pinhole import Pinhole
from merope.cameras.rays import ViewRays
from merope.encodings.base import CameraEncoding
from merope.geometry.rotations import quaternion_to_matrix

VIEWS = ("identity", "query", "key", "relative", "shift", "turn")
"""The cameras of one sample: the origin, two poses T_i and T_j, T_i^-1 T_j, a pure translation, a pure rotation."""

Pair = Callable[[str, str], Tensor]
"""U between two of `VIEWS`, by name, for every sample: [*batch, sample, d, d]."""

PoseOperator = Callable[[Tensor], Pair]
"""From camera-to-world matrices [*batch, sample, view, 4, 4] of `VIEWS` to U between them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measures:
    """Root mean squares over samples of Frobenius norms per channel, |X|_F / sqrt(d): I itself has 1."""

    violation: Tensor
    """Of exact relative-pose dependence: U(T_i, T_j) - U(I, T_i^-1 T_j) (H2, Eq. 14)."""
    translation: Tensor
    """Sensitivity to pure translation: U(I, (I, t)) - U(I, I); zero is the blindness of Eq. 16."""
    rotation: Tensor
    """Sensitivity to pure rotation: U(I, (R, 0)) - U(I, I)."""
    norm: Tensor
    """Of norm preservation: U^T U - I (H3, Eq. 15)."""


def sample_views(
    num: int, *, translation_range: float, generator: torch.Generator
) -> Float[Tensor, "sample view 4 4"]:
    """Poses of `VIEWS` in metres, float64: rotations uniform on SO(3), translations uniform in a ball.

    T_i and T_i^-1 T_j are drawn, T_j follows. A third of the relative poses are pure translations and a third
    pure rotations. Uniform draws alone would leave out what the sensitivities are measured on: an operator that
    sees translation only where R = I exactly would pass.
    """

    def draw() -> Tensor:
        dirs = torch.randn(num, 3, generator=generator, dtype=torch.float64)
        reach = translation_range * torch.rand(num, 1, generator=generator, dtype=torch.float64) ** (1 / 3)
        poses = torch.eye(4, dtype=torch.float64).repeat(num, 1, 1)
        quaternions = torch.randn(num, 4, generator=generator, dtype=torch.float64)
        poses[:, :3, :3] = quaternion_to_matrix(quaternions)
        poses[:, :3, 3] = reach * dirs / dirs.norm(dim=-1, keepdim=True)
        return poses

    query, relative, shift, turn = draw(), draw(), draw(), draw()
    third = num // 3
    identity = torch.eye(3, dtype=torch.float64)
    relative[:third, :3, :3] = identity
    relative[third : 2 * third, :3, 3] = 0
    shift[:, :3, :3] = identity
    turn[:, :3, 3] = 0
    origin = torch.eye(4, dtype=torch.float64).expand(num, 4, 4)
    return torch.stack([origin, query, query @ relative, relative, shift, turn], dim=1)


def measure(pair: Pair) -> Measures:
    """The quantities of Theorem 1; gradients flow."""
    still, between = pair("identity", "identity"), pair("query", "key")
    identity = torch.eye(between.shape[-1], dtype=between.dtype, device=between.device)
    return Measures(
        violation=_rms(between - pair("identity", "relative")),
        translation=_rms(pair("identity", "shift") - still),
        rotation=_rms(pair("identity", "turn") - still),
        norm=_rms(between.mT @ between - identity),
    )


def _rms(matrices: Float[Tensor, "*batch sample d d"]) -> Float[Tensor, "*batch"]:
    mean = (matrices.square().sum((-2, -1)) / matrices.shape[-1]).mean(-1)
    # The gradient of a root at zero is infinite; 1e-15 is below every number that is reported.
    return (mean + 1e-30).sqrt()


def per_token(field: Callable[[Tensor], Tensor]) -> PoseOperator:
    """U(T_i, T_j) = V(T_i)^T V(T_j) of a map V from poses [..., 4, 4] to matrices [..., d, d] (H1, Eq. 13)."""

    def operator(T_world_cam: Tensor) -> Pair:
        values = field(T_world_cam)
        return lambda query, key: (
            values[..., VIEWS.index(query), :, :].mT @ values[..., VIEWS.index(key), :, :]
        )

    return operator


def of_encoding(encoding: CameraEncoding) -> PoseOperator:
    """U of an encoding between two cameras, for one fixed ray of both, at one time."""

    def operator(T_world_cam: Tensor) -> Pair:
        made = encoding.operator(one_ray(T_world_cam), dtype=torch.float64)

        def pair(query: str, key: str) -> Tensor:
            matrices = made.pair(VIEWS.index(query), VIEWS.index(key))
            # Where heads differ they are samples too.
            return matrices.flatten(0, -3)

        return pair

    return operator


def one_ray(T_world_cam: Float[Tensor, "batch view 4 4"]) -> ViewRays:
    """One token per view, all with the same ray (0.3, 0.2, 1) and at the same time."""
    lens = Pinhole(fx=1.0, fy=1.0, cx=0.2, cy=0.3, width=1, height=1, pixel_origin="corner")
    dirs = lens.pixel_rays()[0].flatten(0, 1)  # [1, 3]
    batch, views = T_world_cam.shape[:2]
    return ViewRays.from_poses(
        T_world_cam,
        dirs.expand(batch, views, 1, 3),
        grid=(1, 1),
        time=torch.zeros(views, dtype=torch.float64),
        camera=lens,
    )


def factor_residual(pairs: Float[Tensor, "query key d d"]) -> float:
    """How far U is from every per-token form L_i^T K_j with d x d factors (H1): relative Frobenius error of the best.

    As one matrix of query and key blocks such a form has rank d, so the best one is the truncated singular
    value decomposition (Eckart and Young) and its error is what the other singular values hold.
    """
    d = pairs.shape[-1]
    values = torch.linalg.svdvals(pairs.transpose(1, 2).flatten(2, 3).flatten(0, 1))
    return math.sqrt(float(values[d:].square().sum() / values.square().sum()))


def encoding_factor_residual(
    encoding: CameraEncoding, *, num: int, translation_range: float, seed: int
) -> float:
    """`factor_residual` of an encoding's U between ``num`` sampled cameras, the mean over heads."""
    generator = torch.Generator().manual_seed(seed)
    poses = sample_views(num, translation_range=translation_range, generator=generator)[
        :, VIEWS.index("query")
    ]
    dense = encoding.operator(one_ray(poses[None]), dtype=torch.float64).dense()
    heads = dense.flatten(0, -5)  # [H, query, key, d, d]
    return sum(factor_residual(head) for head in heads) / len(heads)
