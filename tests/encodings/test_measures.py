"""Measurements of encodings against closed forms, on encodings made up for it; and MeRoPE's own numbers."""

import math
import warnings

import numpy as np
import pytest
import torch

from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import MeRoPE, Native, NoEncoding
from merope.encodings.measures import (
    BASELINES,
    DIRECTIONS,
    dependence,
    factorisation,
    growth,
    measure,
    norm_deviation,
    sensitivity,
)
from merope.encodings.pairwise import (
    added_features,
    depth_kind,
    norm_ratios,
    pair_matrices,
    with_scene_depth,
    without_warnings,
)
from merope.encodings.unambiguous import FARTHEST, STARTS, kernel, translation_range
from tests.encodings.planted import (
    Added,
    CutOff,
    Displacement,
    FirstView,
    GivenDepth,
    Heading,
    Homogeneous,
    Parallax,
    Settling,
)

RELATIVE = (MeRoPE(), Native(), NoEncoding(), Displacement(), Heading(), Parallax(), Homogeneous())


# (A)


@pytest.mark.parametrize("encoding", RELATIVE)
def test_a_relative_encoding_depends_on_nothing_but_the_pair(encoding):
    found = dependence(encoding)
    assert found.pair_moved < 1e-12
    assert found.clip_moved < 1e-12
    assert found.depth_doubled == 0


def test_coordinates_of_the_first_view_change_when_a_pair_moves_and_not_when_the_clip_does():
    found = dependence(FirstView())
    assert found.pair_moved > 0.5
    assert found.clip_moved < 1e-12
    assert dependence(FirstView(world=True)).clip_moved > 0.5


def test_a_predicted_depth_is_something_else_that_a_pair_depends_on():
    found = dependence(GivenDepth())
    assert found.depth_doubled > 0.5
    assert found.pair_moved < 1e-12


def test_rms_change_of_logits_is_that_of_the_turned_pairs():
    encoding = Displacement(wavelengths=(7.0,))
    found = sensitivity(encoding)
    # One pair of the head's 4.5 turns; 2.1 m become 1.21, 1.47 and 1.83 times as many.
    angles = [2 * math.pi * 2.1 * (factor - 1) / 7.0 for factor in (1.21, 1.47, 1.83)]
    largest = max(math.sqrt(4 * (1 - math.cos(angle)) / 9) for angle in angles)
    assert set(found.depth_kept) == set(DIRECTIONS)
    for value in found.depth_kept.values():
        assert value == pytest.approx(largest, rel=1e-9)
    # Right to left turns one pair by 4.2 m; right to down two pairs by 2.1 m.
    pairs = (4 * (1 - math.cos(2 * math.pi * 4.2 / 7)), 8 * (1 - math.cos(2 * math.pi * 2.1 / 7)))
    assert found.apart == pytest.approx(math.sqrt(min(pairs) / 9), rel=1e-9)
    # A rotation by 10 degrees in one of the three triplet-wide parts of nine channels.
    turned = math.sqrt(4 * (1 - math.cos(math.radians(10))) / 9)
    assert found.turned == pytest.approx(turned, rel=1e-6)
    assert found.metric == pytest.approx(min(largest, found.apart, turned), rel=1e-6)


def test_monte_carlo_logits_change_as_much_as_the_closed_form_says():
    encoding = without_warnings(Homogeneous())
    draw = torch.Generator().manual_seed(3)
    q, k = (torch.randn(20000, 8, generator=draw, dtype=torch.float64) for _ in "qk")
    one, two = (random_drive(seed, views=2) for seed in (1, 2))
    change = (pair_matrices(encoding, two) - pair_matrices(encoding, one))[0, 0, 0, -1]
    logits = torch.einsum("sd,de,se->s", q, change, k) / math.sqrt(8)
    expected = (change.square().sum() / 8).sqrt()
    assert logits.square().mean().sqrt() == pytest.approx(float(expected), rel=0.03)


@pytest.mark.parametrize("encoding", [Heading(), Parallax(), GivenDepth(plain=False)])
def test_scene_and_translation_grown_together_are_invisible_without_metres(encoding):
    found = sensitivity(encoding)
    assert max(found.depth_scaled.values()) < 1e-12
    # Except for a heading, what is fixed is the scene: then the translation shows.
    assert (min(found.depth_kept.values()) > 0.1) == (not isinstance(encoding, Heading))


def test_a_band_of_metres_beside_one_of_parallax_is_seen_whatever_the_depth():
    assert sensitivity(GivenDepth()).metric > 0.04
    assert sensitivity(MeRoPE()).metric > 0.05
    assert sensitivity(Native()).metric == 0


def test_options_in_metres_of_depth_scale_with_the_scene():
    twice = with_scene_depth(Parallax(), 2.0)
    assert (twice.assumed_depth, twice.depths, twice.wavelengths) == (8.0, (2.0, 4.0), (3.0, 5.0))
    assert [depth_kind(e) for e in (Parallax(), GivenDepth(), MeRoPE())] == ["fixed", "predicted", "none"]
    assert depth_kind(MeRoPE(min_scene_depth=1.0)) == "fixed"


def test_a_code_that_is_cut_off_sees_metres_near_by_only():
    found = sensitivity(CutOff(end=50.0))
    assert min(found.depth_scaled.values()) > 0.1
    assert max(found.depth_scaled_far.values()) < 1e-12
    assert found.metric < 1e-12
    assert min(sensitivity(CutOff(end=1e5)).depth_scaled_far.values()) > 0.1


def test_what_an_encoding_claims_is_not_read():
    assert measure(Displacement(claims=None)).claims == measure(Displacement()).claims


# (B)


@pytest.mark.parametrize(
    ("encoding", "per_token"),
    [
        (MeRoPE(), False),
        (MeRoPE(components=frozenset(("rot",))), True),
        (MeRoPE(components=frozenset(("disp",))), False),
        (MeRoPE(components=frozenset(("trans",))), False),
        (Displacement(), False),
        (Homogeneous(), True),
        # What an operator says of itself does not matter.
        (Homogeneous(grouped=True), True),
        (FirstView(), True),
        (Native(), True),
        (Added(), True),
    ],
)
def test_rank_tells_whether_maps_factor_per_token(encoding, per_token):
    ratio = factorisation(encoding)
    assert (ratio < 1e-12) == per_token
    assert ratio < 1e-12 or ratio > 0.05


# (C)


@pytest.mark.parametrize("stretch", [1.0, 1.25, 0.5])
def test_norm_deviation_is_the_stretch(stretch):
    found = norm_deviation(Displacement(stretch=stretch))
    assert set(found.by_scene) == {"random", *SCENES}
    for value in found.by_scene.values():
        assert value == pytest.approx(abs(stretch - 1), abs=1e-12)


@pytest.mark.parametrize("encoding", [Homogeneous(), MeRoPE(head_dim=64), FirstView()])
def test_norm_ratios_are_the_singular_values_of_the_dense_operator(encoding):
    encoding, view_rays = without_warnings(encoding), scene("straight_drive")
    values = torch.linalg.svdvals(encoding.operator(view_rays, dtype=torch.float64).dense())
    low, high = norm_ratios(encoding, view_rays)
    assert float(low.min()) == pytest.approx(float(values.min()), rel=1e-12)
    assert float(high.max()) == pytest.approx(float(values.max()), rel=1e-12)


def test_tokens_without_a_ray_do_not_count():
    class Broken(Displacement):
        def bands(self, queries, keys):
            turn, moved = super().bands(queries, keys)
            weight = torch.where(keys.valid.flatten(1), 1.0, 9.0)[:, None, None, :, None]
            right = moved.right.map_tensors(
                lambda x: x.repeat_interleave(keys.tokens_per_view, dim=3) * weight
            )
            return turn, type(moved)(**{**{f: getattr(moved, f) for f in moved.__slots__}, "right": right})

    assert not scene("fisheye_200deg").valid.all()
    low, high = norm_ratios(Broken(), scene("fisheye_200deg"))
    assert float(high.max()) == pytest.approx(1)


def test_scenes_that_an_encoding_refuses_are_named_with_its_reason():
    class Choosy(Displacement):
        def bands(self, queries, keys):
            if not queries.valid.all():
                raise ValueError("every token needs a ray")
            return super().bands(queries, keys)

    class Stubborn(Displacement):
        def bands(self, queries, keys):
            raise ValueError("never")

    found = norm_deviation(Choosy())
    assert found.refused == {"fisheye_200deg": "every token needs a ray"}
    assert "fisheye_200deg" not in found.by_scene
    with pytest.raises(ValueError, match="takes none of the scenes: never"):
        norm_deviation(Stubborn())


# Growth


def test_homogeneous_norms_grow_as_their_closed_form_and_logits_linearly():
    found = growth(Homogeneous())
    # The largest singular value of [R, t; 0, 1] with |t| = b.
    expected = [(b + math.sqrt(b * b + 4)) / 2 for b in BASELINES]
    assert found.norms == pytest.approx(expected, rel=1e-9)
    assert found.logit_slope == pytest.approx(1, abs=0.01)
    assert found.norm_slope == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("encoding", [MeRoPE(), Displacement(), FirstView()])
def test_rotations_keep_norms_and_bound_logits_from_1_m_to_10_km(encoding):
    found = growth(encoding)
    assert (BASELINES[0], BASELINES[-1]) == (1.0, 10_000.0)
    assert found.norms == pytest.approx([1.0] * len(BASELINES), abs=1e-12)
    assert abs(found.logit_slope) < 0.1


def test_measuring_in_raw_metres_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        growth(Homogeneous())
        norm_deviation(Homogeneous())


# Additive encodings


def test_an_additive_encoding_is_a_bilinear_form_with_one_row_and_column_more():
    encoding, view_rays = Added(), random_drive(5)
    pairs = pair_matrices(encoding, view_rays)[:, 0]
    added_query, added_key = added_features(encoding, view_rays)
    tokens = view_rays.num_tokens
    q, k = (torch.randn(2, tokens, 10, dtype=torch.float64) for _ in "qk")
    turn = encoding.operator(view_rays, dtype=torch.float64).dense()
    expected = torch.einsum("bad,bacde,bce->bac", q + added_query, turn, k + added_key)
    one = torch.ones(2, tokens, 1, dtype=torch.float64)
    found = torch.einsum("bad,bacde,bce->bac", torch.cat([q, one], -1), pairs, torch.cat([k, one], -1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_is_added_is_absolute_and_grows():
    found = dependence(Added())
    assert found.pair_moved > 1
    assert found.clip_moved < 1e-9
    assert growth(Added()).logit_slope == pytest.approx(1, abs=0.01)
    assert growth(Added()).norm_slope == pytest.approx(1, abs=0.01)
    assert norm_deviation(Added()).largest > 0.5


# How far a code reaches


def first_return(wavelengths, until):
    """Brute force on the kernel's closed form, millimetre by millimetre."""
    t = np.arange(0, until, 1e-3)
    kappa = np.mean([np.cos(2 * np.pi * t / length) for length in wavelengths], axis=0)
    fallen = np.maximum.accumulate(kappa < 0.5)
    return float(t[np.argmax(fallen & (kappa >= 0.95))])


@pytest.mark.parametrize("wavelengths", [(3.0, 5.0), (2.0, 2.9), (40.0, 70.0, 90.0)])
def test_a_rotary_code_is_back_where_its_kernel_is(wavelengths):
    found = translation_range(Displacement(wavelengths=wavelengths))
    assert found.sees and found.saturated is None
    assert found.unambiguous == pytest.approx(first_return(wavelengths, 1e4), rel=2e-3, abs=5e-3)


def test_the_default_translation_band_is_back_by_188_metres():
    found = translation_range(MeRoPE())
    assert found.unambiguous == pytest.approx(first_return(MeRoPE().wavelengths, 300.0), abs=0.01)
    assert 187.5 < found.unambiguous < 188.0
    assert found.saturated is None


def test_the_kernel_is_the_mean_cosine_of_the_phases():
    distances = torch.tensor([0.0, 0.31, 2.0, 50.0, 188.0, 597.0], dtype=torch.float64)
    expected = torch.stack(
        [torch.cos(2 * math.pi * distances / length) for length in MeRoPE().wavelengths]
    ).mean(0)
    for axis in ("right", "ahead"):
        # The mean over 10 km in the definition is that of the cosines within one in a hundred.
        torch.testing.assert_close(kernel(MeRoPE(), distances, axis=axis), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("encoding", [Homogeneous(), Added()])
def test_a_linear_code_never_comes_back_and_never_settles(encoding):
    found = translation_range(encoding)
    assert found.sees
    assert (found.unambiguous, found.saturated, found.followed) == (None, None, FARTHEST)


def test_a_code_that_settles_says_where():
    found = translation_range(Settling())
    # |U(2 t) - U(t)| = 2 sqrt(2) sin(atan(2 t / 10) - atan(t / 10)) for the one pair that moves.
    t = np.linspace(1, 5000, 400_000)
    change = 2 * np.sqrt(2) * np.sin(np.arctan(2 * t / 10) - np.arctan(t / 10))
    begin = 2 * math.atan(STARTS[0] / 10)
    far = 2 * np.arctan((STARTS[0] + np.linspace(0, FARTHEST, 100_000)) / 10)
    usual = np.sqrt(np.mean(4 * (1 - np.cos(far - begin))))
    expected = t[np.nonzero(change >= 0.05 * usual)[0].max()]
    assert found.unambiguous is None
    assert found.saturated == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("encoding", [Native(), NoEncoding(), Heading()])
def test_an_encoding_that_sees_no_distance_says_so(encoding):
    assert not translation_range(encoding).sees


def test_a_code_that_is_metric_only_far_away_is_found_from_far_away():
    class Both(Settling):
        """Near by it sees how much a camera is displaced by; a short wave tells metres as well."""

        @property
        def head_dim(self):
            return 3 + 6 + 6

        def bands(self, queries, keys):
            wave = Displacement(wavelengths=(4.0,)).bands(queries, keys)[1]
            return (*super().bands(queries, keys), wave)

    # At 4 m from 1 m the settling part has changed; from 100 m on it has not.
    assert kernel(Both(), torch.tensor([4.0]).double(), start=1.0) < 0.95
    assert translation_range(Both()).unambiguous == pytest.approx(4.0, abs=0.25)


# Verdicts


@pytest.mark.parametrize(
    ("encoding", "claims"),
    [
        (Displacement(), (True, False, True)),
        (Displacement(stretch=1.1), (True, False, False)),
        (Heading(), (False, False, True)),
        (Parallax(), (False, False, True)),
        (GivenDepth(), (False, False, True)),
        (Homogeneous(), (True, True, False)),
        (Homogeneous(grouped=True), (True, True, False)),
        (FirstView(), (False, True, True)),
        (Added(), (False, True, False)),
        (MeRoPE(components=frozenset(("disp", "rot"))), (False, False, True)),
        # Displacement without the key camera's rotation is not the whole pose.
        (MeRoPE(components=frozenset(("trans",))), (False, False, True)),
    ],
)
def test_verdicts_are_those_that_the_construction_implies(encoding, claims):
    found = measure(encoding).claims
    assert (found.metric, found.per_token, found.norm_preserving) == claims
