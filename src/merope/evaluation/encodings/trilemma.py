"""Theorem 1 as a measurement: what an orthogonal, relative, per-token operator can know of translation.

Gradient descent looks for the operator that the theorem forbids, at several dimensions and from several
starts; the encodings of the library stand on the same axes. docs/trilemma.md has the argument.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from merope.encodings.registry import ENCODINGS, default_encoding
from merope.encodings.scale import TranslationScale
from merope.evaluation.encodings.orthogonal_field import OrthogonalField
from merope.evaluation.encodings.pose_pairs import (
    Measures,
    encoding_factor_residual,
    measure,
    of_encoding,
    per_token,
    sample_views,
)

LEVELS = (0.1, 0.2, 0.4, 0.8)
"""Translation sensitivities that are demanded, one operator each, beside one that is free."""

_HELD_OUT = 256
_HELD_OUT_SEED = 1_000_000
_FAR = 10.0
_HEADS = 4
# The residual needs the singular values of a matrix of this many heads side by side.
_RESIDUAL_CAMERAS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TrilemmaConfig:
    """How much is searched, and over what poses."""

    seeds: int = 5
    """Starts per dimension."""
    dims: tuple[int, ...] = (4, 8, 16)
    """Dimensions d of the operators, multiples of 4."""
    translation_range: float = 20.0
    """Radius in metres of the ball that translations come from."""
    steps: int = 600
    """Descent steps."""
    samples: int = 48
    """Pairs of poses per step."""
    hidden: int = 64
    """Width of the perceptron that gives an operator."""
    learning_rate: float = 3e-2
    """Of Adam, warmed up over a tenth of the steps, then down along a cosine."""
    penalty: float = 10.0
    """Weight of the squared departure from a demanded sensitivity, beside the squared violation."""
    head_dim: int = 64
    """Head size of the encodings that are placed on the same axes."""

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "samples", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 < self.translation_range < math.inf:
            raise ValueError(f"translation_range must be > 0 m; got {self.translation_range}.")
        if not self.dims or any(dim < 4 or dim % 4 for dim in self.dims):
            raise ValueError(f"dims must be multiples of 4; got {list(self.dims)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an operator lies, in the units of `Measures`."""

    violation: float
    translation: float
    rotation: float
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """One operator as gradient descent changed it; every place is on poses that were never trained on."""

    dim: int
    seed: int
    demanded: float | None
    """Translation sensitivity that the penalty asked for; None where nothing was asked."""
    steps: tuple[int, ...]
    places: tuple[Place, ...]
    """One per entry of ``steps``; the last is the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingPlace:
    """An encoding of the library on the same axes."""

    name: str
    place: Place
    far_translation: float
    """Translation sensitivity at ten times the range."""
    factor_residual: float
    """How far the operator is from every per-token form L_i^T K_j, relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trilemma:
    """All that the demonstration measured."""

    config: TrilemmaConfig
    descents: tuple[Descent, ...]
    three_sphere: tuple[tuple[float, Place], ...]
    """Radius in units of the range, and the place of `three_sphere` of that radius."""
    encodings: tuple[EncodingPlace, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def run_trilemma(config: TrilemmaConfig, *, progress: bool = True) -> Trilemma:
    """Search, and place the encodings; the same config gives the same numbers on the same machine."""
    from tqdm import tqdm

    descents: list[Descent] = []
    with tqdm(total=len(config.dims) * config.seeds * config.steps, unit="step", disable=not progress) as bar:
        for dim in config.dims:
            for seed in range(config.seeds):
                bar.set_description(f"dimension {dim}, start {seed}")
                descents.extend(descend(config, dim=dim, seed=seed, tick=bar.update))
    return Trilemma(
        config=config,
        descents=tuple(descents),
        three_sphere=tuple(_sphere_places(config)),
        encodings=tuple(place_encodings(config)),
    )


def descend(
    config: TrilemmaConfig,
    *,
    dim: int,
    seed: int,
    levels: Sequence[float] = LEVELS,
    tick: Callable[[int], Any] = lambda steps: None,
) -> list[Descent]:
    """Operators ``V(T_i)^T V(T_j)`` with the least violation: one free, one per demanded sensitivity.

    Every V is orthogonal by construction (`OrthogonalField`), so (B) and (C) hold exactly and only (A) is sought.
    Each step draws fresh poses, the same for all levels. The free one starts sensitive to everything and is asked for
    nothing but relative dependence.
    """
    generator = torch.Generator().manual_seed(seed)
    field = OrthogonalField(
        num=1 + len(levels),
        dim=dim,
        translation_range=config.translation_range,
        hidden=config.hidden,
        generator=generator,
    )
    demanded = torch.tensor([math.nan, *levels])
    held_out = _held_out(config)
    optimizer = torch.optim.Adam(field.parameters(), lr=config.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, config.steps))
    logged = sorted({round(config.steps * (k / 12) ** 2) for k in range(13)})
    rows = []
    for step in range(config.steps + 1):
        if step in logged:
            with torch.no_grad():
                rows.append(_places(measure(_pair_of(field, held_out))))
        if step == config.steps:
            break
        views = sample_views(config.samples, translation_range=config.translation_range, generator=generator)
        found = measure(_pair_of(field, views))
        departure = torch.nan_to_num(found.translation - demanded)
        loss = (found.violation.square() + config.penalty * departure.square()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tick(1)
    return [
        Descent(
            dim=dim,
            seed=seed,
            demanded=wanted,
            steps=tuple(logged),
            places=tuple(row[index] for row in rows),
        )
        for index, wanted in enumerate([None, *levels])
    ]


def _pair_of(field: OrthogonalField, views: Tensor) -> Any:
    num = field.first.shape[0]
    return per_token(field)(views.expand(num, *views.shape))


def _rate(step: int, steps: int) -> float:
    warm = min(1.0, 10 * (step + 1) / steps)
    return warm * 0.5 * (1 + math.cos(math.pi * step / steps))


def _held_out(config: TrilemmaConfig, *, reach: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(_HELD_OUT_SEED)
    return sample_views(_HELD_OUT, translation_range=reach * config.translation_range, generator=generator)


def _places(found: Measures) -> list[Place]:
    columns = (found.violation, found.translation, found.rotation, found.norm)
    rows = torch.stack([torch.atleast_1d(column) for column in columns], dim=-1).tolist()
    return [Place(violation=v, translation=t, rotation=r, norm=n) for v, t, r, n in rows]


def rotation_alone(T_world_cam: Tensor) -> Tensor:
    """V(R, t) = R: an exact orthogonal representation that turns with the camera and is blind to where it is."""
    return T_world_cam[..., :3, :3]


def three_sphere(radius: float) -> Callable[[Tensor], Tensor]:
    """V(R, t) in SO(4): space as the neighbourhood of a point on a sphere of this radius in four dimensions.

    A translation becomes a rotation of the sphere by |t| / radius, along the great circle in its direction. Rotations
    about the point are exact; two translations fail to commute by the curvature, to second order in |t| / radius,
    while they are seen to first order. On a bounded range this is the way out that the theorem leaves.
    """

    def field(T_world_cam: Tensor) -> Tensor:
        generator = torch.zeros_like(T_world_cam)
        generator[..., :3, 3] = T_world_cam[..., :3, 3] / radius
        turned = torch.zeros_like(T_world_cam)
        turned[..., :3, :3] = T_world_cam[..., :3, :3]
        turned[..., 3, 3] = 1
        return torch.matrix_exp(generator - generator.mT) @ turned

    return field


def _sphere_places(config: TrilemmaConfig) -> Iterator[tuple[float, Place]]:
    views = _held_out(config)
    for radius in torch.logspace(2, -0.5, 26, dtype=torch.float64).tolist():
        field = three_sphere(radius * config.translation_range)
        yield radius, _places(measure(per_token(field)(views)))[0]


def placeable() -> list[str]:
    """Registered encodings that turn poses and rays alone into an operator of a branch."""
    return [
        name
        for name, kind in ENCODINGS.items()
        if kind.facts.placement == "branch"
        and not hasattr(kind, "operator_at")
        and not hasattr(kind, "features")
    ]


def place_encodings(config: TrilemmaConfig, names: Sequence[str] | None = None) -> Iterator[EncodingPlace]:
    """Encodings on the held-out poses; ``names`` None means all of `placeable`.

    Where metres enter linearly a typical baseline of these poses is the unit, so that sensitivities compare.
    """
    near, far = _held_out(config), _held_out(config, reach=_FAR)
    typical = TranslationScale.from_motion(list(near[:, :3, :3, 3]))
    # No two views are further apart. The far poses are meant to go there; nobody need be warned.
    scale = TranslationScale(per_metre=typical.per_metre, reach=4 * _FAR * config.translation_range)
    for name in placeable() if names is None else names:
        encoding = default_encoding(name, head_dim=config.head_dim, num_heads=_HEADS, scale=scale)
        operator = of_encoding(encoding)
        yield EncodingPlace(
            name=name,
            place=_places(measure(operator(near)))[0],
            far_translation=float(measure(operator(far)).translation),
            factor_residual=encoding_factor_residual(
                encoding,
                num=_RESIDUAL_CAMERAS,
                translation_range=config.translation_range,
                seed=_HELD_OUT_SEED,
            ),
        )
