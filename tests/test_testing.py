"""`check_encoding` believes nobody: encodings that lie about themselves are caught, each at what it lies about."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE, Native
from merope.encodings.base import Claims, Facts, required_lens
from merope.encodings.raynova import RayNova
from merope.encodings.registry import ENCODINGS
from merope.errors import MeropeError
from merope.operators import Rotate2
from merope.testing import EncodingCheckFailed, check_encoding
from tests.encodings.planted import (
    Added,
    Displacement,
    FirstView,
    GivenDepth,
    Heading,
    Homogeneous,
    Parallax,
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


def test_linear_growth_has_to_be_declared():
    @dataclass(frozen=True, kw_only=True)
    class Quiet(Homogeneous):
        facts: ClassVar[Facts] = Facts(title="planted", source="a test")

    assert broken(Quiet()) == ["logits are bounded to 10 km, or facts.needs_scale is set: exponent of growth"]


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

    assert broken(Low()) == ["float32 factors are rounded float64 geometry"]


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
