"""One global translation scale for encodings in which metres enter linearly, and the warning when it is left."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import ActsOn, assemble, offsets_query
from merope.operators import Band, CameraOperator

STANDING = 0.01
"""Metres: a clip no two of whose views are further apart says nothing about the scale of motion."""


class ScaleWarning(UserWarning):
    """A clip's baseline is longer than the translation scale of its encoding was made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationScale:
    """Units per metre by which an encoding multiplies every translation, and how far that was meant to reach.

    Encodings with homogeneous matrices (CaPE, GTA, PRoPE, UCPE) and those that read positions linearly need
    one. It is the same for every clip, so ratios between clips survive; MeRoPE, URoPE and RayNova take metres.
    """

    per_metre: float = 1.0
    """Units per metre."""
    reach: float = 1.0
    """Longest baseline, in metres, that the scale was made for; beyond it the encoding warns."""

    def __post_init__(self) -> None:
        for name in ("per_metre", "reach"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite; got {value}.")

    @classmethod
    def from_motion(cls, centers_world: Sequence[Float[Tensor, "view 3"]]) -> Self:
        """The scale of training motion: a typical baseline becomes one unit.

        A clip's baseline is the root mean square distance between the centres of its views, metres; the
        scale is one over the median of it over the clips that move (by a centimetre at least). The median
        does not follow a few long drives as a maximum would, and the root mean square is what a logit under
        Eq. 3 grows with. ``reach`` is the longest baseline of all, so that the clips themselves are within it.

        Raises:
            ValueError: if no clip moves.
        """
        pairs = [pair for centers in centers_world if (pair := baselines(centers)) is not None]
        if not pairs:
            raise ValueError(
                f"none of the {len(centers_world)} clips moves by more than {STANDING} m, so they tell no scale. "
                "Pass TranslationScale(per_metre=..., reach=...)."
            )
        return cls.from_baselines(*zip(*pairs, strict=True))

    @classmethod
    def from_baselines(cls, typical: Sequence[float], longest: Sequence[float]) -> Self:
        """The same scale from the `baselines` of the clips that move, one or more."""
        return cls(
            per_metre=1 / float(torch.tensor(typical, dtype=torch.float64).median()),
            reach=max(longest),
        )


def baselines(centers_world: Float[Tensor, "view 3"]) -> tuple[float, float] | None:
    """Root mean square and largest distance between the views of a clip; None where it stands, within `STANDING`."""
    apart = torch.pdist(centers_world.to(torch.float64))
    if apart.numel() == 0 or not apart.max() > STANDING:
        return None
    return float(apart.square().mean().sqrt()), float(apart.max())


_WARNED: set[tuple[str, TranslationScale]] = set()


def assemble_scaled(
    name: str,
    scale: TranslationScale,
    bands: Sequence[Band | None],
    queries: ViewRays,
    keys: ViewRays,
    *,
    acts_on: ActsOn,
    dtype: torch.dtype,
    device: torch.device | str,
) -> CameraOperator:
    """`assemble`, for bands in which metres enter linearly: warns, once per encoding and scale, beyond the reach.

    The warning says by how much norms can grow there. The ratio is measured on the operator, not predicted: the
    largest singular value of U_ab between the two cameras that are furthest apart.
    """
    # On the CPU first: a device may lack the float64 of the measurement.
    operator = assemble(bands, queries, keys, acts_on=acts_on, dtype=dtype, device="cpu")
    baselines = offsets_query(queries, keys).norm(dim=-1)

    def growth(longest: float) -> str:
        places = torch.unravel_index(baselines.argmax(), baselines.shape)
        clip, view, other = (int(place) for place in places)
        pair = operator.pair(view * queries.tokens_per_view, other * keys.tokens_per_view)[clip]
        ratio = float(torch.linalg.svdvals(pair.detach().double()).max())
        return f"features there grow by up to {ratio:.3g} in norm"

    _warn_once(name, scale, baselines, growth, "that keeps norms")
    return operator.to(device)


def warn_features_beyond_reach(
    name: str, scale: TranslationScale, rays: ViewRays, features: Float[Tensor, "..."]
) -> None:
    """The warning for numbers in the first view's frame that a learned map reads: how large they are there."""
    baselines = (rays.center_world - rays.center_world[:, :1]).norm(dim=-1)
    _warn_once(
        name,
        scale,
        baselines,
        lambda longest: f"its features reach {float(features.detach().abs().max()):.3g}",
        "that keeps norms",
    )


def warn_repeats_beyond_reach(
    name: str, scale: TranslationScale, queries: ViewRays, keys: ViewRays, *, period: float
) -> None:
    """The warning for phases of displacements with a longest period of ``period`` units: what looks alike there."""
    _warn_once(
        name,
        scale,
        offsets_query(queries, keys).norm(dim=-1),
        lambda longest: (
            f"it is {longest * scale.per_metre:.3g} units, and displacements look alike every {period:.3g}"
        ),
        "in metres",
    )


def _warn_once(
    name: str,
    scale: TranslationScale,
    baselines: Float[Tensor, "..."],
    consequence: Callable[[float], str],
    other: str,
) -> None:
    """Warn, once per encoding and scale, of a baseline out of reach: what follows, and which ``other`` encoding to use."""
    longest = float(baselines.detach().max())
    # A rounding of the reach itself is no departure.
    if longest <= scale.reach * (1 + 1e-9) or (name, scale) in _WARNED:
        return
    _WARNED.add((name, scale))
    warnings.warn(
        f"{name}: a baseline of {longest:.3g} m leaves the {scale.reach:.3g} m that the translation scale "
        f"({scale.per_metre:.3g} per metre) was made for; {consequence(longest)}. Estimate the scale from your own motion "
        f"(TranslationScale.from_motion), or use an encoding {other}.",
        ScaleWarning,
        stacklevel=4,
    )
