"""`check_encoding` believes nobody: encodings that lie about themselves are caught, each at what it lies about."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE, Native, URoPE
from merope.encodings.base import Claims, Facts, offsets_query, required_lens
from merope.encodings.raynova import RayNova
from merope.encodings.rayrope import RayRoPE
from merope.encodings.registry import ENCODINGS
from merope.encodings.scale import TranslationScale
from merope.errors import MeropeError
from merope.operators import Rotate2
from merope.testing import EncodingCheckFailed, check_encoding
from tests.encodings.planted import (
    ORTHOGONAL_PER_TOKEN,
    Added,
    CutOff,
    Displacement,
    FirstView,
    GivenDepth,
    Heading,
    Homogeneous,
    OtherwiseFar,
    Parallax,
    Planted,
)

HONEST = (
    Displacement(),
    Displacement(acts_on="qk"),
    Displacement(stretch=1.5, claims=Claims(metric=True, per_token=False, norm_preserving=False)),
    Heading(claims=Claims(metric=False, per_token=False, norm_preserving=True)),
    Parallax(claims=Claims(metric=False, per_token=False, norm_preserving=True)),
    Homogeneous(),
    FirstView(),
    Added(),
    GivenDepth(),
    RayRoPE(num_rays=1),
    # Whole numbers of metres are metres.
    URoPE(depth_min=2, depth_max=20),
    MeRoPE(min_scene_depth=1.0, anchor_frames="transported"),
    MeRoPE(head_dim=64, components=frozenset(("trans",))),
    Native(acts_on="qk"),
)


def broken(encoding, **options):
    """Names of the broken properties; the numbers in brackets of the message go with them."""
    return [found.name for found in check_encoding(encoding, raises=False, **options).broken]


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_of_the_library_keeps_its_promises(name):
    check_encoding(ENCODINGS[name]())


@pytest.mark.parametrize("encoding", HONEST)
def test_an_honest_encoding_from_elsewhere_passes(encoding):
    # An orthogonal map that is stretched everywhere is not the identity where a token meets itself.
    expected = (
        ["a token meets its own camera and ray through the identity"]
        if getattr(encoding, "stretch", 1) != 1
        else []
    )
    assert broken(encoding) == expected


def claims(**changes):
    return replace(Claims(metric=True, per_token=False, norm_preserving=True), **changes)


@pytest.mark.parametrize(
    ("liar", "caught"),
    [
        # The three of Table 1, promised and not kept.
        (Displacement(stretch=1.01), "norms are kept: largest departure (claimed)"),
        (Displacement(claims=claims(per_token=True)), "per token: sigma_{d+1} / sigma_1 (claimed)"),
        (Heading(), "metric: sees all of the pose, whatever the scene's depth (claimed)"),
        (Parallax(), "metric: sees all of the pose, whatever the scene's depth (claimed)"),
        (FirstView(claims=claims(per_token=True)), "metric: a function of the relative pose alone (claimed)"),
        (GivenDepth(claims=claims()), "metric: a function of the relative pose alone (claimed)"),
        # Kept and not promised.
        (Displacement(claims=claims(metric=False)), "metric (not claimed)"),
        (
            Displacement(claims=claims(norm_preserving=False)),
            "norms are kept: largest departure (not claimed)",
        ),
        (
            Homogeneous(claims=claims(norm_preserving=False)),
            "per token: sigma_{d+1} / sigma_1 (not claimed)",
        ),
    ],
)
def test_a_false_claim_is_caught_and_nothing_else_is(liar, caught):
    expected = [caught]
    if getattr(liar, "stretch", 1) != 1:
        expected.insert(0, "a token meets its own camera and ray through the identity")
    assert broken(liar) == expected


class ShrinksFar(OtherwiseFar):
    def far(self, queries, keys, moved):
        return moved.map_tensors(lambda x: 0.5 * x)


class WorldFar(OtherwiseFar):
    def far(self, queries, keys, moved):
        phases = keys.center_world.repeat_interleave(len(self.wavelengths), -1)[:, None, None]
        return Rotate2(phases.cos().expand_as(moved.cos), phases.sin().expand_as(moved.sin))


class GroupedFar(Planted):
    """Rotations per token; displacements beyond 30 m only."""

    head_dim = 9

    def bands(self, queries, keys):
        turn, moved = Displacement(wavelengths=(7.0,)).bands(queries, keys)
        near = (offsets_query(queries, keys).norm(dim=-1) < 30)[:, None, :, :, None]
        right = Rotate2(moved.right.cos.where(~near, 1.0), moved.right.sin.where(~near, 0.0))
        return turn, replace(moved, right=right)


@dataclass(frozen=True, kw_only=True)
class WholeMetres(Displacement):
    """The depth that it assumes is a whole number."""

    assumed_depth: float = 4

    def coordinates(self, offsets):
        return offsets / self.assumed_depth


@pytest.mark.parametrize(
    ("liar", "caught"),
    [
        (CutOff(), "metric: sees all of the pose, whatever the scene's depth (claimed)"),
        (WholeMetres(), "metric: sees all of the pose, whatever the scene's depth (claimed)"),
        (WorldFar(), "metric: a function of the relative pose alone (claimed)"),
        (GroupedFar(claims=ORTHOGONAL_PER_TOKEN), "per token: sigma_{d+1} / sigma_1 (claimed)"),
        (ShrinksFar(), "norms are kept: largest departure (claimed)"),
    ],
)
def test_a_claim_that_holds_near_by_only_is_caught(liar, caught):
    assert broken(liar) == [caught]


def test_linear_growth_has_to_be_declared():
    @dataclass(frozen=True, kw_only=True)
    class Quiet(Homogeneous):
        facts: ClassVar[Facts] = Facts(title="planted", source="a test")

    assert broken(Quiet()) == [
        "logits are bounded to 10 km, or facts.needs_scale is set: exponent of growth",
        "facts.needs_scale is whether it has a field scale, which multiplies metres",
    ]


def test_a_scale_that_is_not_there_or_does_nothing_is_caught():
    @dataclass(frozen=True, kw_only=True)
    class Without(Displacement):
        facts: ClassVar[Facts] = Facts(title="planted", source="a test", needs_scale=True)

    @dataclass(frozen=True, kw_only=True)
    class Idle(Without):
        scale: TranslationScale = TranslationScale()

    for encoding in (Without(), Idle()):
        assert broken(encoding) == [
            "facts.needs_scale is whether it has a field scale, which multiplies metres"
        ]


def test_a_world_frame_shows_unless_it_is_declared_and_is_missed_if_it_is():
    assert broken(FirstView(world=True)) == ["a rigid motion of the world changes nothing"]
    assert broken(FirstView(world=True), frame_dependent=True) == []
    assert broken(RayNova(frame="world"), frame_dependent=True) == []
    assert broken(MeRoPE(), frame_dependent=True) == ["a rigid motion of the world shows (frame_dependent)"]


def test_a_code_by_the_order_of_views_is_caught():
    class ByOrder(Displacement):
        def bands(self, queries, keys):
            turn, moved = super().bands(queries, keys)
            order = torch.arange(keys.num_views, dtype=torch.float64)
            phases = (order - torch.arange(queries.num_views)[:, None])[None, None, :, :, None]
            right = Rotate2(*(x.expand_as(moved.right.cos) for x in (phases.cos(), phases.sin())))
            return turn, replace(moved, right=right)

    found = broken(ByOrder(claims=claims(metric=False)))
    assert "cameras in another order give the same output in that order" in found


def test_a_token_that_does_not_meet_itself_is_caught():
    class Offset(Displacement):
        def coordinates(self, offsets):
            return offsets + 0.1

    assert broken(Offset()) == ["a token meets its own camera and ray through the identity"]


def test_an_operator_that_ignores_acts_on_is_caught():
    class Always(Displacement):
        def operator(self, queries, keys=None, **options):
            return replace(super().operator(queries, keys, **options), acts_on=frozenset("qkvo"))

    found = check_encoding(Always(acts_on="qkvo"), raises=False)
    assert [p.name for p in found.broken] == ["acts on qk"]
    assert "the operator acts on ['k', 'o', 'q', 'v']" in str(found)


def test_facts_that_are_not_so_are_caught():
    class Lens(Displacement):
        def bands(self, queries, keys):
            required_lens(queries, "Lens")
            return super().bands(queries, keys)

    assert broken(Lens()) == ["works without a lens"]

    class Predicts(GivenDepth):
        facts = Facts(title="planted", source="a test")

    assert broken(Predicts()) == ["facts.needs_depth is whether it has operator_at"]


def test_geometry_in_low_precision_is_caught():
    class Low(Displacement):
        def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            if dtype == torch.float32:
                queries = replace(queries, center_world=queries.center_world.to(torch.bfloat16).double())
            return super().operator(queries, keys, dtype=dtype, device=device)

    assert broken(Low()) == [
        "float32 factors are rounded float64 geometry",
        "map coordinates, five million metres from the origin, lose nothing in float32",
    ]


@pytest.mark.parametrize("always", [True, False])
def test_single_precision_centres_are_caught(always):
    class Single(Displacement):
        def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            if always or dtype == torch.float32:
                queries = replace(queries, center_world=queries.center_world.float().double())
            return super().operator(queries, keys, dtype=dtype, device=device)

    # Long waves: near the origin nothing shows.
    found = broken(Single(wavelengths=(30.0, 50.0)))
    assert "map coordinates, five million metres from the origin, lose nothing in float32" in found


def test_a_depth_encoding_that_loses_digits_in_float32_is_caught():
    class Low(GivenDepth):
        def operator_at(self, relations, query_depth, key_depth):
            return super().operator_at(relations, query_depth, key_depth.bfloat16().to(key_depth.dtype))

        def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            made = super().operator(queries, keys, dtype=torch.float64)
            return made.map_tensors(lambda x: x.to(dtype)).to(device)

        def relations(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            if dtype == torch.float32:
                queries = replace(queries, center_world=queries.center_world.bfloat16().double())
            return super().relations(queries, keys, dtype=dtype, device=device)

    assert broken(Low()) == ["given depths in float32 are those in float64"]


def test_a_dtype_or_device_that_is_ignored_is_caught():
    class Here(Displacement):
        def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            return super().operator(queries, keys, dtype=dtype)

    class Double(Displacement):
        def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
            return super().operator(queries, keys, dtype=torch.float64, device=device)

    for encoding in (Here(), Double()):
        assert broken(encoding) == ["factors have the dtype and the device that were asked for"]


def test_the_first_clip_s_cameras_for_all_clips_are_caught():
    class FirstClip(Heading):
        def bands(self, queries, keys):
            def first(rays):
                names = ("R_world_cam", "center_world")
                return replace(rays, **{n: getattr(rays, n)[:1].expand_as(getattr(rays, n)) for n in names})

            return super().bands(first(queries), first(keys))

    assert broken(FirstClip(claims=claims(metric=False))) == ["clips of a batch do not see each other"]


def test_keys_that_are_taken_for_the_queries_are_caught():
    class NoKeys(FirstView):
        def bands(self, queries, keys):
            return super().bands(queries, queries)

    assert broken(NoKeys()) == ["keys of other cameras than the queries' are met as in the whole clip"]


def test_a_number_that_is_none_is_caught_by_the_scene_that_makes_it():
    class Divides(Heading):
        def coordinates(self, offsets):
            # 0 / 0 where two cameras coincide; measured scenes keep their diagonal.
            heading = super().coordinates(offsets)
            still = (offsets.abs().amax((-3, -2, -1), keepdim=True) == 0).expand_as(offsets)
            return torch.where(still, float("nan"), heading)

    with pytest.raises((EncodingCheckFailed, torch.linalg.LinAlgError)) as caught:
        check_encoding(Divides(claims=claims(metric=False)))
    assert "coincident_centres" in str(caught.value) or "linalg" in str(caught.value)


def test_keys_without_a_ray_have_to_be_masked():
    class Forgetful(Displacement):
        def operator(self, queries, keys=None, **options):
            return replace(super().operator(queries, keys, **options), key_valid=None)

    assert broken(Forgetful()) == ["keys that are masked are those without a ray"]


def test_an_invalid_key_that_is_not_masked_is_caught():
    class Unmasked(Displacement):
        def operator(self, queries, keys=None, **options):
            made = super().operator(queries, keys, **options)
            return made if made.key_valid is None else replace(made, key_valid=~made.key_valid)

    assert broken(Unmasked()) == ["keys that are masked are those without a ray"]


def test_all_that_is_broken_is_listed_at_once_with_its_numbers():
    with pytest.raises(EncodingCheckFailed) as caught:
        check_encoding(Displacement(stretch=1.5, claims=claims(per_token=True)))
    text = str(caught.value)
    assert "3 of" in text
    assert "norms are kept: largest departure (claimed): found 0.5, expected at most 1e-06" in text
    assert "per token" in text and "through the identity" in text
    assert isinstance(caught.value, MeropeError) and isinstance(caught.value, AssertionError)
    assert len(caught.value.report.broken) == 3


def test_a_report_has_a_line_per_property_and_names_refused_scenes():
    report = check_encoding(ENCODINGS["prope"]())
    lines = str(report).splitlines()
    assert lines[0] == repr(ENCODINGS["prope"]())
    assert len(lines) == 1 + len(report.properties) + 2
    assert sorted(report.refused_scenes) == ["fisheye_200deg", "ray_at_antipode"]
    assert "needs a pinhole" in report.refused_scenes["fisheye_200deg"]


def test_encodings_outside_the_registry_need_no_configuration():
    report = check_encoding(Displacement())
    (config,) = [found for found in report.properties if "JSON" in found.name]
    assert config.outcome == "not applicable"
    (config,) = [found for found in check_encoding(MeRoPE()).properties if "JSON" in found.name]
    assert config.outcome == "holds"


def test_checking_leaves_the_warning_of_the_translation_scale_for_later():
    encoding = Homogeneous(scale=replace(Homogeneous().scale, per_metre=0.987))
    check_encoding(encoding)
    with pytest.warns(UserWarning, match="leaves the 1 m"):
        encoding.operator(random_drive())
