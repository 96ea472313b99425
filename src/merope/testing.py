"""`check_encoding`: everything that an encoding promises, measured, for encodings of this library and your own.

from merope.testing import check_encoding

def test_my_encoding_keeps_its_promises():
    check_encoding(MyEncoding())
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from merope.attention import camera_attention
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings.base import CameraEncoding, DepthEncoding, FeatureEncoding
from merope.encodings.measures import (
    BOUNDED,
    FACTORS,
    KEEPS_NORMS,
    SEEN,
    UNCHANGED,
    Measured,
    measure,
)
from merope.encodings.pairwise import operator_of, views_of, without_warnings
from merope.encodings.registry import ENCODINGS, encoding_from_config, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.errors import MeropeError
from merope.operators import CameraOperator

# Logits of GTA's kind reach hundreds at these baselines, where softmax multiplies rounding.
_BACKENDS_AGREE = 1e-8
# float32 factors of float64 geometry; products of two.
_ROUNDING_32 = 1e-5
# Depths meet displacements in float32, where phases reach 15 000 radians (RayRoPE with one ray: found 1.5e-3).
# bfloat16 features round as much.
_ROUNDING_DEPTH_32 = 4e-3
# float64 has a nanometre left at five million metres, and phases of a millimetre's wave.
_FAR_ORIGIN, _ROUNDING_FAR = (5e6, -3e6, 120.0), 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One promise: what was found, and what had to be."""

    name: str
    outcome: Literal["holds", "broken", "not applicable"]
    found: float | None
    """The number behind the outcome, where there is one."""
    expected: str
    """What had to be found, in words; why not applicable."""

    def __str__(self) -> str:
        number = "" if self.found is None else f"found {self.found:.3g}, "
        return f"{self.outcome:<14}  {self.name}: {number}{self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingReport:
    """What `check_encoding` found."""

    encoding: str
    """The encoding, as it prints itself."""
    properties: tuple[Property, ...]
    refused_scenes: dict[str, str]
    """Standing scenes that the encoding does not take, and what it said."""

    @property
    def broken(self) -> tuple[Property, ...]:
        """The properties that do not hold."""
        return tuple(found for found in self.properties if found.outcome == "broken")

    def __str__(self) -> str:
        lines = [self.encoding, *(f"  {found}" for found in self.properties)]
        lines += [f"  {'refused':<14}  {name}: {reason}" for name, reason in self.refused_scenes.items()]
        return "\n".join(lines)


class EncodingCheckFailed(MeropeError, AssertionError):
    """An encoding does not do what it says; ``report`` has every property."""

    def __init__(self, report: EncodingReport) -> None:
        self.report = report
        broken = "\n".join(f"  {found}" for found in report.broken)
        super().__init__(
            f"{report.encoding}: {len(report.broken)} of {len(report.properties)} properties are broken\n{broken}"
        )


def check_encoding(
    encoding: CameraEncoding, *, frame_dependent: bool = False, raises: bool = True
) -> EncodingReport:
    """Hold an encoding to its claims and facts, and to what every encoding owes; a second or two on one core.

    Claims are checked in both directions: a property that is there and not claimed fails like one that is claimed
    and not there. The numbers are those of `merope.encodings.measures`. ``frame_dependent`` says that the operator is
    meant to change when the whole clip moves rigidly, which then has to show; otherwise it must not. With ``raises``
    False the report comes back whatever it holds.

    Raises:
        EncodingCheckFailed: if a property is broken; all of them are listed.
        ValueError: if the encoding takes none of the scenes.
    """
    given, encoding = encoding, without_warnings(encoding)
    measured = measure(encoding)
    checks: tuple[Callable[[], Iterable[Property]], ...] = (
        lambda: _identity(encoding),
        lambda: _claims(encoding, measured),
        lambda: _rigid_motion(measured, frame_dependent),
        lambda: _permutation(encoding),
        lambda: _growth(encoding, measured),
        lambda: _attention(encoding),
        lambda: _acts_on(encoding),
        lambda: _facts(encoding),
        lambda: _precision(encoding),
        lambda: _map_coordinates(encoding, frame_dependent),
        lambda: _parts(encoding),
        lambda: _scenes(encoding, measured),
        lambda: _config(encoding),
    )
    report = EncodingReport(
        encoding=repr(given),
        properties=tuple(found for check in checks for found in check()),
        refused_scenes=dict(measured.norm.refused),
    )
    if raises and report.broken:
        raise EncodingCheckFailed(report)
    return report


def _identity(encoding: CameraEncoding) -> Iterable[Property]:
    view_rays = random_drive(2)
    poses, centers = view_rays.R_world_cam.clone(), view_rays.center_world.clone()
    poses[:, 2], centers[:, 2] = poses[:, 1], centers[:, 1]
    twins = replace(view_rays, R_world_cam=poses, center_world=centers, time=torch.zeros_like(view_rays.time))
    # An expected phasor is shorter than one wherever the depth is uncertain.
    operator = operator_of(encoding, twins, half_width=0.0)
    tokens = torch.arange(twins.num_tokens)
    views = tokens.view(twins.num_views, -1)
    worst = 0.0
    for band in operator.bands:
        pairs = operator.band_pairs(band).double()
        identity = torch.eye(band.size, dtype=torch.float64)
        for a, b in ((tokens, tokens), (views[1], views[2]), (views[2], views[1])):
            worst = max(worst, float((pairs[:, :, a, b] - identity).abs().max()))
    yield _at_most("a token meets its own camera and ray through the identity", worst, 1e-9)


def _claims(encoding: CameraEncoding, measured: Measured) -> Iterable[Property]:
    claims = encoding.claims
    depends = max(measured.dependence.largest, measured.dependence.far)
    sees = measured.sensitivity.metric
    if claims.metric and depends > UNCHANGED:
        yield _at_most("metric: a function of the relative pose alone (claimed)", depends, UNCHANGED)
    elif claims.metric:
        yield _more_than("metric: sees all of the pose, whatever the scene's depth (claimed)", sees, SEEN)
    else:
        metric = measured.claims.metric
        yield Property(
            name="metric (not claimed)",
            outcome="broken" if metric else "holds",
            found=sees if metric else None,
            expected="it depends on the relative pose alone and sees all of it; claims.metric should be True"
            if metric
            else "it depends on something else, or does not see all of the pose",
        )
    yield _claimed(
        "per token: sigma_{d+1} / sigma_1",
        claims.per_token,
        max(measured.factorisation, measured.factorisation_far),
        FACTORS,
        limit_not=SEEN,
    )
    yield _claimed(
        "norms are kept: largest departure", claims.norm_preserving, measured.norm.anywhere, KEEPS_NORMS
    )


def _rigid_motion(measured: Measured, frame_dependent: bool) -> Iterable[Property]:
    moved = measured.dependence.clip_moved / max(1.0, measured.dependence.largest_entry)
    if frame_dependent:
        yield _more_than("a rigid motion of the world shows (frame_dependent)", moved, UNCHANGED)
    else:
        yield _at_most("a rigid motion of the world changes nothing", moved, UNCHANGED)


def _permutation(encoding: CameraEncoding) -> Iterable[Property]:
    view_rays = random_drive(4, views=4)
    # The first view may be the encoding's world, so it keeps its place.
    order = torch.tensor([0, 2, 3, 1])
    operators = [operator_of(encoding, rays) for rays in (view_rays, _reordered(view_rays, order))]
    tokens = torch.arange(view_rays.num_tokens).view(view_rays.num_views, -1)[order].flatten()
    q, k, v = _features(operators[0])
    out = camera_attention(q, k, v, operators[0])[:, :, tokens]
    again = camera_attention(q[:, :, tokens], k[:, :, tokens], v[:, :, tokens], operators[1])
    yield _at_most(
        "cameras in another order give the same output in that order", _relative(again, out), _BACKENDS_AGREE
    )


def _parts(encoding: CameraEncoding) -> Iterable[Property]:
    """A part of the whole: one clip of the batch, and some of the views as queries and others as keys."""
    view_rays = random_drive(10, views=4)
    whole = operator_of(encoding, view_rays)
    clips = [operator_of(encoding, _clip(view_rays, clip)) for clip in range(view_rays.batch)]
    # The first view may be the encoding's world, so it stays the first query.
    views = operator_of(encoding, views_of(view_rays, slice(2)), views_of(view_rays, slice(1, None)))
    size = view_rays.tokens_per_view
    alone, cross = 0.0, 0.0
    for place, band in enumerate(whole.bands):
        pairs = whole.band_pairs(band).double()
        scale = max(1.0, float(pairs.abs().max()))
        single = torch.cat([clip.band_pairs(clip.bands[place]).double() for clip in clips])
        alone = max(alone, float((single - pairs).abs().max()) / scale)
        part = views.band_pairs(views.bands[place]).double()
        cross = max(cross, float((part - pairs[:, :, : 2 * size, size:]).abs().max()) / scale)
    yield _at_most("clips of a batch do not see each other", alone, 1e-9)
    yield _at_most("keys of other cameras than the queries' are met as in the whole clip", cross, 1e-9)


def _growth(encoding: CameraEncoding, measured: Measured) -> Iterable[Property]:
    slope = measured.growth.logit_slope
    if encoding.claims.norm_preserving:
        yield _at_most("logits are bounded to 10 km: exponent of growth", abs(slope), BOUNDED)
    elif encoding.facts.needs_scale:
        yield _not_applicable(
            "logits are bounded to 10 km", "facts.needs_scale says that metres enter linearly"
        )
    else:
        yield _at_most(
            "logits are bounded to 10 km, or facts.needs_scale is set: exponent of growth", slope, BOUNDED
        )


def _attention(encoding: CameraEncoding) -> Iterable[Property]:
    # Few tokens: the reference holds every U_ab, once for every head that has its own.
    operator = operator_of(encoding, random_drive(5, grid=(1, 2)))
    q, k, v = _features(operator)
    reference = camera_attention(q, k, v, operator, backend="reference")
    chunked = camera_attention(q, k, v, operator, backend="chunked")
    yield _at_most(
        "factored attention equals dense attention", _relative(chunked, reference), _BACKENDS_AGREE
    )
    yield Property(
        name="head_dim is the operator's",
        outcome="holds" if operator.head_dim == encoding.head_dim else "broken",
        found=float(operator.head_dim),
        expected=f"expected {encoding.head_dim}",
    )


def _acts_on(encoding: CameraEncoding) -> Iterable[Property]:
    words: list[tuple[str, CameraEncoding]] = [(encoding.acts_on, encoding)]
    if is_dataclass(encoding) and "acts_on" in encoding.__dataclass_fields__:
        other = "qk" if encoding.acts_on == "qkvo" else "qkvo"
        words.append((other, replace(cast(Any, encoding), acts_on=other)))
    for word, made in words:
        operator = operator_of(made, random_drive(6))
        holds = operator.acts_on == frozenset(word)
        yield Property(
            name=f"acts on {word}",
            outcome="holds" if holds else "broken",
            found=None,
            expected="as the operator says" if holds else f"the operator acts on {sorted(operator.acts_on)}",
        )


def _facts(encoding: CameraEncoding) -> Iterable[Property]:
    refused = None
    try:
        operator_of(encoding, replace(random_drive(7), lens=None))
    except ValueError as error:
        refused = str(error)
    needs = encoding.facts.needs_lens
    yield Property(
        name="works without a lens" if not needs else "asks for a lens (facts.needs_lens)",
        outcome="holds" if (refused is not None) == needs else "broken",
        found=None,
        expected="it said: " + refused if refused is not None else "it ran without one",
    )
    predicts = isinstance(encoding, DepthEncoding)
    yield Property(
        name="facts.needs_depth is whether it has operator_at",
        outcome="holds" if predicts == encoding.facts.needs_depth else "broken",
        found=None,
        expected=f"facts.needs_depth is {encoding.facts.needs_depth}",
    )
    scale = getattr(encoding, "scale", None)
    name = "facts.needs_scale is whether it has a field scale, which multiplies metres"
    if not is_dataclass(encoding) or not isinstance(scale, TranslationScale):
        yield Property(
            name=name,
            outcome="broken" if encoding.facts.needs_scale else "holds",
            found=None,
            expected=f"facts.needs_scale is {encoding.facts.needs_scale}, and there is no TranslationScale",
        )
        return
    view_rays = random_drive(7)
    doubled = replace(cast(Any, encoding), scale=replace(scale, per_metre=2 * scale.per_metre))
    twice_as_far = replace(view_rays, center_world=2 * view_rays.center_world)
    apart = _largest_change(operator_of(doubled, view_rays), operator_of(encoding, twice_as_far))
    if isinstance(encoding, FeatureEncoding):
        two = encoding.features(twice_as_far, dtype=torch.float64)
        apart = max(apart, _relative(doubled.features(view_rays, dtype=torch.float64), two))
    yield Property(
        name=name,
        outcome="holds" if encoding.facts.needs_scale and apart <= UNCHANGED else "broken",
        found=apart,
        expected=f"twice the scale is twice the metres, within {UNCHANGED:.0e}, and facts.needs_scale is set",
    )


def _precision(encoding: CameraEncoding) -> Iterable[Property]:
    view_rays = random_drive(8, reach=100.0)
    exact, single = (encoding.operator(view_rays, dtype=dtype) for dtype in (torch.float64, torch.float32))
    of_keys = encoding.operator(view_rays, view_rays, dtype=torch.float64)
    yield _at_most(
        "float32 factors are rounded float64 geometry", _largest_change(exact, single), _ROUNDING_32
    )
    yield _at_most("keys that are the queries may be left out", _largest_change(exact, of_keys), 1e-9)
    if isinstance(encoding, DepthEncoding):
        made = [operator_of(encoding, view_rays, dtype=dtype) for dtype in (torch.float64, torch.float32)]
        yield _at_most(
            "given depths in float32 are those in float64", _largest_change(*made), _ROUNDING_DEPTH_32
        )
    asked = [
        (torch.float64, "cpu", exact.tensors()),
        (torch.float32, "cpu", single.tensors()),
        (torch.float32, "meta", encoding.operator(view_rays, dtype=torch.float32, device="meta").tensors()),
    ]
    if isinstance(encoding, FeatureEncoding):
        asked += [
            (dtype, device, [encoding.features(view_rays, dtype=dtype, device=device)])
            for dtype, device, _ in asked
        ]
    holds = all(
        tensor.dtype == dtype and tensor.device.type == device
        for dtype, device, tensors in asked
        for tensor in tensors
    )
    yield Property(
        name="factors have the dtype and the device that were asked for",
        outcome="holds" if holds else "broken",
        found=None,
        expected="float64 and float32 on the CPU, float32 on a device without data",
    )


def _map_coordinates(encoding: CameraEncoding, frame_dependent: bool) -> Iterable[Property]:
    name = "map coordinates, five million metres from the origin, lose nothing in float32"
    if frame_dependent:
        yield _not_applicable(name, "the operator is meant to depend on the world (frame_dependent)")
        return
    here = random_drive(8)
    there = replace(here, center_world=here.center_world + torch.tensor(_FAR_ORIGIN, dtype=torch.float64))
    lost = _largest_change(encoding.operator(here, dtype=torch.float64), encoding.operator(there))
    if isinstance(encoding, FeatureEncoding):
        near = encoding.features(here, dtype=torch.float64)
        change = (encoding.features(there).double() - near).abs().max() / near.abs().max().clamp(min=1)
        lost = max(lost, float(change))
    yield _at_most(name, lost, _ROUNDING_FAR)


def _largest_change(one: CameraOperator, two: CameraOperator) -> float:
    """Between U_ab of two operators with the same bands, relative to the largest entry where that is over one."""
    worst = 0.0
    for band, other in zip(one.bands, two.bands, strict=True):
        pairs = one.band_pairs(band).double()
        scale = max(1.0, float(pairs.abs().max()))
        worst = max(worst, float((two.band_pairs(other).double() - pairs).abs().max()) / scale)
    return worst


def _scenes(encoding: CameraEncoding, measured: Measured) -> Iterable[Property]:
    broken, masked = [], True
    for name in SCENES:
        if name in measured.norm.refused:
            continue
        view_rays = scene(name)
        operator = operator_of(encoding, view_rays, dtype=torch.float32)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in operator.tensors()):
            broken.append(name)
        if operator.key_valid is not None:
            masked = masked and bool((operator.key_valid.cpu() == view_rays.valid.flatten(1)).all())
        elif encoding.facts.placement == "branch":
            masked = masked and bool(view_rays.valid.all())
    yield Property(
        name="finite in float32 on the standing scenes",
        outcome="broken" if broken else "holds",
        found=float(len(broken)),
        expected=f"a factor is not a number on {', '.join(broken)}" if broken else "scenes where one is not",
    )
    yield Property(
        name="keys that are masked are those without a ray",
        outcome="holds" if masked else "broken",
        found=None,
        expected="key_valid is the rays' own validity; outside a branch it may be left out",
    )


def _config(encoding: CameraEncoding) -> Iterable[Property]:
    name = "its configuration survives JSON"
    if type(encoding) not in ENCODINGS.values():
        yield _not_applicable(name, "not in merope.encodings.registry.ENCODINGS")
        return
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    again = encoding_from_config(stored)
    view_rays = random_drive(9)
    tensors = [operator_of(made, view_rays).tensors() for made in (encoding, again)]
    same = all(torch.equal(one, two) for one, two in zip(*tensors, strict=True))
    yield Property(
        name=name, outcome="holds" if same else "broken", found=None, expected="the same operator, bit by bit"
    )


def _clip(view_rays: ViewRays, clip: int) -> ViewRays:
    names = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")
    return replace(view_rays, **{name: getattr(view_rays, name)[clip : clip + 1] for name in names})


def _reordered(view_rays: ViewRays, order: Tensor) -> ViewRays:
    names = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")
    return replace(view_rays, **{name: getattr(view_rays, name)[:, order] for name in names})


def _features(operator: CameraOperator) -> list[Tensor]:
    draw = torch.Generator().manual_seed(23)
    heads = operator.num_heads if operator.num_heads > 1 else 3
    return [
        torch.randn(operator.batch, heads, tokens, operator.head_dim, generator=draw, dtype=torch.float64)
        for tokens in (operator.num_queries, operator.num_keys, operator.num_keys)
    ]


def _relative(one: Tensor, two: Tensor) -> float:
    return float((one - two).abs().max() / two.abs().max())


def _at_most(name: str, found: float, limit: float) -> Property:
    holds = found <= limit
    return Property(
        name=name,
        outcome="holds" if holds else "broken",
        found=found,
        expected=f"expected at most {limit:.0e}",
    )


def _more_than(name: str, found: float, limit: float) -> Property:
    holds = found > limit
    return Property(
        name=name,
        outcome="holds" if holds else "broken",
        found=found,
        expected=f"expected more than {limit:.0e}",
    )


def _claimed(name: str, claimed: bool, found: float, limit: float, limit_not: float = math.nan) -> Property:
    if claimed:
        return _at_most(f"{name} (claimed)", found, limit)
    return _more_than(f"{name} (not claimed)", found, limit if math.isnan(limit_not) else limit_not)


def _not_applicable(name: str, reason: str) -> Property:
    return Property(name=name, outcome="not applicable", found=None, expected=reason)
