"""One global translation scale for encodings in which metres enter linearly, and the warning when it is left."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import offsets_query
from merope.operators import CameraOperator

# Metres: a clip that moves less says nothing about the scale of motion.
_STANDING = 0.01
# Of the training clips, the share whose longest baseline is within reach.
_WITHIN_REACH = 0.99


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
        Eq. 3 grows with. ``reach`` is the longest baseline of all but one clip in a hundred.

        Raises:
            ValueError: if no clip moves.
        """
        typical, longest = [], []
        for centers in centers_world:
            apart = torch.pdist(centers.to(torch.float64))
            if apart.numel() and apart.max() > _STANDING:
                typical.append(apart.square().mean().sqrt())
                longest.append(apart.max())
        if not typical:
            raise ValueError(
                f"none of the {len(centers_world)} clips moves by more than {_STANDING} m, so they tell no scale. "
                "Pass TranslationScale(per_metre=..., reach=...)."
            )
        return cls(
            per_metre=1 / float(torch.stack(typical).median()),
            reach=float(torch.quantile(torch.stack(longest), _WITHIN_REACH)),
        )


_WARNED: set[tuple[str, TranslationScale]] = set()


def warn_beyond_reach(
    name: str, scale: TranslationScale, queries: ViewRays, keys: ViewRays, operator: CameraOperator
) -> None:
    """Warn, once per encoding and scale, if a baseline is out of reach: by how much norms can grow there.

    The ratio is measured on the operator, not predicted: the largest singular value of U_ab between the
    two cameras that are furthest apart.
    """
    baselines = offsets_query(queries, keys).detach().norm(dim=-1)
    longest = float(baselines.max())
    # A rounding of the reach itself is no departure.
    if longest <= scale.reach * (1 + 1e-9) or (name, scale) in _WARNED:
        return
    _WARNED.add((name, scale))
    clip, view, other = (int(place) for place in torch.unravel_index(baselines.argmax(), baselines.shape))
    pair = operator.pair(view * queries.tokens_per_view, other * keys.tokens_per_view)[clip]
    ratio = float(torch.linalg.svdvals(pair.detach().double()).max())
    warnings.warn(
        f"{name}: a baseline of {longest:.3g} m leaves the {scale.reach:.3g} m that the translation scale "
        f"({scale.per_metre:.3g} per metre) was made for; features there grow by up to {ratio:.3g} in norm. Estimate the "
        "scale from your own motion (TranslationScale.from_motion), or use an encoding that keeps norms.",
        ScaleWarning,
        stacklevel=3,
    )


def warn_features_beyond_reach(
    name: str, scale: TranslationScale, rays: ViewRays, features: Float[Tensor, "..."]
) -> None:
    """Warn, once per encoding and scale, if a view is out of reach of the first: how large features are there.

    For encodings whose numbers are read by a learned map, in place of `warn_beyond_reach`.
    """
    longest = float((rays.center_world - rays.center_world[:, :1]).detach().norm(dim=-1).max())
    if longest <= scale.reach * (1 + 1e-9) or (name, scale) in _WARNED:
        return
    _WARNED.add((name, scale))
    warnings.warn(
        f"{name}: a view {longest:.3g} m from the first leaves the {scale.reach:.3g} m that the translation scale "
        f"({scale.per_metre:.3g} per metre) was made for; its features reach {float(features.detach().abs().max()):.3g}. "
        "Estimate the scale from your own motion (TranslationScale.from_motion), or use an encoding that keeps norms.",
        ScaleWarning,
        stacklevel=3,
    )


def warn_repeats_beyond_reach(
    name: str, scale: TranslationScale, queries: ViewRays, keys: ViewRays, *, period: float
) -> None:
    """Warn, once per encoding and scale, if a baseline is out of reach: displacements look alike there.

    For encodings that turn by displacement with a longest period of ``period`` units, in place of
    `warn_beyond_reach`: their norms do not grow.
    """
    longest = float(offsets_query(queries, keys).norm(dim=-1).max())
    if longest <= scale.reach * (1 + 1e-9) or (name, scale) in _WARNED:
        return
    _WARNED.add((name, scale))
    warnings.warn(
        f"{name}: a baseline of {longest:.3g} m leaves the {scale.reach:.3g} m that the translation scale "
        f"({scale.per_metre:.3g} per metre) was made for; it is {longest * scale.per_metre:.3g} units, and displacements "
        f"look alike every {period:.3g}. Estimate the scale from your own motion (TranslationScale.from_motion), or use an "
        "encoding in metres.",
        ScaleWarning,
        stacklevel=3,
    )
