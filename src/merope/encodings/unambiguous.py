"""How far a translation code tells distances apart: where it comes back to where it was, and where it stops telling.

The key camera moves along an axis of the query camera; directions between the two stay the same, so that whatever
changes in U_ab is the code of a distance. With ``U(t)`` the operator t metres after a start,

    kappa(t) = 1 - |U(t) - U(0)|^2 / mean over 10 km of |U(t) - U(0)|^2

is one where the code is what it was and zero where it is as different as it usually gets. Entries that never change
drop out. For a rotary code kappa is its kernel, the mean of ``cos(omega t)``.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import matrices, pinhole_lens
from merope.encodings.base import CameraEncoding, FeatureEncoding
from merope.encodings.pairwise import added_features, operator_of, views_of, without_warnings
from merope.geometry.rotations import rotvec_to_matrix

FARTHEST = 10_000.0
"""Metres up to which codes are followed."""

STARTS = (1.0, 100.0)
"""Metres between the cameras at a start. Near by, a code may also see where points of the scene go; far away
that has settled, and only what is metric still moves."""

AXES = {"ahead": (0.0, 0.0, 1.0), "right": (1.0, 0.0, 0.0), "down": (0.0, 1.0, 0.0)}
"""Axes of the query camera along which the key camera moves."""

_BACK, _FALLEN = 0.95, 0.5
# Of the usual change, the share below which doubling the distance changes nothing any more; a few places in a row
# can be still by chance.
_STILL, _STILL_PLACES = 0.05, 20
_SAMPLES = 1000
_MOST_PLACES = 100_000
_CHUNK = 4096
_GRID = (1, 1)
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRange:
    """How far the code of a translation along one axis is of use, metres; 10 km is as far as was looked."""

    sees: bool
    """Whether anything changes at all."""
    unambiguous: float | None
    """First distance from a start at which kappa is back at 0.95 after it fell below 0.5, the least over `STARTS`;
    None if it never is."""
    saturated: float | None
    """Distance from which on doubling it changes U by less than 5 % of its usual change; None if there is none."""
    followed: float
    """How far the code was followed: to its return, to 10 km, or less for a code too quick to follow."""


def translation_range(encoding: CameraEncoding, *, axis: str = "ahead") -> TranslationRange:
    """The range of the translation code along one of `AXES`."""
    encoding = without_warnings(encoding)
    near, *others = (_Walk(encoding, AXES[axis], start) for start in STARTS)
    usual = near.usual()
    if usual < _NOTHING:
        return TranslationRange(sees=False, unambiguous=None, saturated=None, followed=FARTHEST)
    back, followed = None, FARTHEST
    # Far starts first: a return that they find spares looking further from the near one.
    for walk in (*others, near):
        found, seen = walk.first_return(until=FARTHEST if back is None else back)
        back = back if found is None else found
        followed = min(followed, seen)
    return TranslationRange(
        sees=True,
        unambiguous=back,
        saturated=near.saturation(usual),
        followed=followed if back is None else back,
    )


def kernel(
    encoding: CameraEncoding, distances: Float[Tensor, " place"], *, axis: str = "ahead", start: float = 1.0
) -> Float[Tensor, " place"]:
    """kappa at distances in metres from the start; NaN for an encoding that sees no translation."""
    walk = _Walk(without_warnings(encoding), AXES[axis], start)
    return 1 - (walk.changes(distances) / walk.usual()).square()


@dataclass(frozen=True, slots=True)
class _Walk:
    """The codes of a key camera on its way along an axis."""

    encoding: CameraEncoding
    axis: tuple[float, float, float]
    start: float

    def usual(self) -> float:
        """Root mean square change over the whole distance."""
        draw = torch.Generator().manual_seed(17)
        shares = torch.rand(_SAMPLES, generator=draw, dtype=torch.float64)
        places = (torch.arange(_SAMPLES) + shares) * (FARTHEST / _SAMPLES)
        return float(self.changes(places).square().mean().sqrt())

    def changes(self, distances: Tensor) -> Float[Tensor, " place"]:
        """|U(t) - U(0)| at distances t."""
        found = []
        for part in distances.split(_CHUNK):
            codes = self.codes(torch.cat([torch.zeros(1, dtype=torch.float64), part]))
            found.append((codes[1:] - codes[0]).norm(dim=-1))
        return torch.cat(found)

    def first_return(self, *, until: float) -> tuple[float | None, float]:
        """Where the code first comes back, and how far it was followed.

        Scans in steps within which it cannot come back unseen, and looks more closely where it might. The speed
        of the code is sampled in every stretch: a projected coordinate slows down as it goes.
        """
        usual = self.usual()
        if usual < _NOTHING:
            return None, until
        back, fallen = usual * math.sqrt(1 - _BACK), usual * math.sqrt(1 - _FALLEN)
        has_fallen, looked = False, 0
        begin, length = 0.0, 1.0
        draw = torch.Generator().manual_seed(19)
        while begin < until:
            end = min(begin + length, until)
            sample = begin + (end - begin) * torch.rand(64, generator=draw, dtype=torch.float64)
            speed = 1.2 * float(self.speeds(sample).max())
            steps = max(8, math.ceil((end - begin) * speed / back))
            looked += steps
            if looked > _MOST_PLACES:
                return None, begin
            for part in torch.linspace(begin, end, steps + 1, dtype=torch.float64).split(_CHUNK):
                for place, change in zip(part.tolist(), self.changes(part).tolist(), strict=True):
                    has_fallen = has_fallen or change > fallen
                    # Half a step away the change is at most half of `back` smaller.
                    if has_fallen and change < 1.5 * back:
                        half = (end - begin) / steps / 2
                        near = torch.linspace(place - half, place + half, 401, dtype=torch.float64)
                        at_back = near[self.changes(near) <= back]
                        if len(at_back):
                            return float(at_back[0]), place
            begin, length = end, 1.5 * length
        return None, until

    def saturation(self, usual: float) -> float | None:
        """Distance between the cameras from which on twice as far is the same."""
        places = torch.logspace(0, math.log10(FARTHEST / 2.03), 400, dtype=torch.float64)
        near, far = self.codes(torch.cat([places, 2 * places]) - self.start).chunk(2)
        moving = ((far - near).norm(dim=-1) >= _STILL * usual).nonzero()
        first = int(moving.amax()) + 1 if len(moving) else 0
        return float(places[first]) if first <= len(places) - _STILL_PLACES else None

    def speeds(self, distances: Tensor) -> Float[Tensor, " place"]:
        """|dU / dt|, per metre."""
        step = 1e-4
        before, after = self.codes(torch.cat([distances, distances + step])).chunk(2)
        return (after - before).norm(dim=-1) / step

    def codes(self, distances: Tensor) -> Float[Tensor, "place entry"]:
        """Entries of U between a query token and that of a camera at every distance from the start.

        Repeated blocks appear once, weighted, so that norms are those of the whole matrix.
        """
        clip = _one_and_many((self.start + distances)[:, None] * torch.tensor(self.axis, dtype=torch.float64))
        operator = operator_of(self.encoding, views_of(clip, slice(1)), views_of(clip, slice(1, None)))
        rows = []
        for band in operator.bands:
            pairs = math.sqrt(band.copies) * operator.band_pairs(band)[0, :, 0]  # [H, Nk, M, s, s]
            rows.append(pairs.double().flatten(2).transpose(0, 1).flatten(1))  # [Nk, H M s s]
        if isinstance(self.encoding, FeatureEncoding):
            # The operator stays; what moves is the column U f of the bilinear form.
            rows.append(added_features(self.encoding, clip)[1][0, clip.tokens_per_view :])
        return torch.cat(rows, -1)


def _one_and_many(centers_key: Float[Tensor, "place 3"]) -> ViewRays:
    """A query camera first, then a key camera at every place, turned 0.3 rad against it; all at one time."""
    lens = pinhole_lens(_GRID)
    centers = torch.cat([torch.zeros(1, 3, dtype=torch.float64), centers_key])
    turns = torch.zeros_like(centers)
    turns[1:, 1] = 0.3
    return ViewRays.from_poses(
        matrices(rotvec_to_matrix(turns), centers)[None],
        lens.pixel_rays()[0].flatten(0, 1).expand(1, len(centers), -1, -1),
        grid=_GRID,
        camera=lens,
        time=torch.zeros(len(centers), dtype=torch.float64),
    )
