"""The global translation scale: estimated from motion, and a warning, once, where a clip leaves it."""

import math
import warnings

import pytest
import torch

from merope.cameras.scenes import pinhole_dirs, pinhole_lens, rays, seen_through
from merope.encodings import scale as scale_module
from merope.encodings.registry import ENCODINGS, default_encoding, encoding_from_config, encoding_to_config
from merope.encodings.scale import ScaleWarning, TranslationScale

NEEDS_SCALE = [name for name, kind in ENCODINGS.items() if kind.facts.needs_scale]
LINEAR = ("cape", "gta", "prope", "ucpe")


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(scale_module, "_WARNED", set())


def line(step, views=3):
    centers = torch.zeros(views, 3, dtype=torch.float64)
    centers[:, 2] = step * torch.arange(views)
    return centers


def drive(step):
    return seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), line(step).expand(2, -1, -1))


def test_a_typical_baseline_becomes_one_unit():
    # Distances 1, 1, 2 times the step: root mean square sqrt(2) steps. Median of three clips.
    scale = TranslationScale.from_motion([line(1.0), line(4.0), line(100.0)])
    assert scale.per_metre == pytest.approx(1 / (4 * math.sqrt(2)), rel=1e-12)


def test_the_clips_that_a_scale_is_made_of_are_within_its_reach():
    clips = [line(0.01 * step) for step in range(1, 200)]
    scale = TranslationScale.from_motion([*clips, line(500.0)])
    assert scale.reach == 1000.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        default_encoding("gta", head_dim=64, num_heads=1, scale=scale).operator(drive(500.0))


def test_standing_clips_do_not_count():
    moving = [line(2.0), line(3.0), line(5.0)]
    standing = [line(0.0), line(1e-4), line(2.0, views=1)]
    assert TranslationScale.from_motion(moving + standing) == TranslationScale.from_motion(moving)
    with pytest.raises(ValueError, match=r"none of the 3 clips moves by more than 0.01 m"):
        TranslationScale.from_motion(standing)


def test_the_scale_does_not_depend_on_the_world_and_follows_the_unit():
    clips = [torch.randn(5, 3, dtype=torch.float64) for _ in range(7)]
    moved = [clip + torch.tensor([5.0, -3.0, 1.0], dtype=torch.float64) for clip in clips]
    assert TranslationScale.from_motion(moved).per_metre == pytest.approx(
        TranslationScale.from_motion(clips).per_metre, rel=1e-12
    )
    centimetres = TranslationScale.from_motion([100 * clip for clip in clips])
    assert centimetres.per_metre == pytest.approx(TranslationScale.from_motion(clips).per_metre / 100)


@pytest.mark.parametrize("field", ["per_metre", "reach"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_no_scale_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} must be > 0 and finite"):
        TranslationScale(**{field: value})


@pytest.mark.parametrize("name", NEEDS_SCALE)
def test_the_scale_multiplies_every_translation(name):
    small = default_encoding(
        name, head_dim=128, num_heads=1, scale=TranslationScale(per_metre=0.25, reach=99.0)
    )
    plain = default_encoding(name, head_dim=128, num_heads=1, scale=TranslationScale(reach=99.0))
    if not hasattr(small, "features"):
        one, other = (
            encoding.operator(drive(step), dtype=torch.float64).dense()
            for encoding, step in ((small, 4.0), (plain, 1.0))
        )
    else:
        one, other = (
            encoding.features(drive(step), dtype=torch.float64)
            for encoding, step in ((small, 4.0), (plain, 1.0))
        )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NEEDS_SCALE)
def test_the_scale_is_stored_with_the_encoding(name):
    encoding = default_encoding(
        name, head_dim=128, num_heads=1, scale=TranslationScale(per_metre=0.125, reach=40.0)
    )
    stored = encoding_to_config(encoding)
    assert stored["scale"] == {"per_metre": 0.125, "reach": 40.0}
    again = encoding_from_config(stored)
    assert again.scale == encoding.scale and encoding_to_config(again) == stored


@pytest.mark.parametrize("name", LINEAR)
def test_a_baseline_out_of_reach_warns_once_with_the_measured_ratio(name):
    encoding = default_encoding(
        name, head_dim=128, num_heads=1, scale=TranslationScale(per_metre=0.5, reach=10.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.operator(drive(5.0))
    with pytest.warns(ScaleWarning, match=r"baseline of 80 m leaves the 10 m") as caught:
        operator = encoding.operator(drive(40.0), dtype=torch.float64)
    dense = operator.dense()
    ratio = float(str(caught[0].message).split("by up to ")[1].split(" ")[0])
    # The token between the two furthest cameras whose ratio was measured is one of all.
    largest = float(torch.linalg.svdvals(dense).max())
    assert 0.5 * largest < ratio <= largest * 1.01
    # 80 m are 40 units: the largest singular value of [I t; 0 1] is (t + sqrt(t^2 + 4)) / 2.
    if name in ("cape", "gta", "ucpe"):
        assert ratio == pytest.approx((40 + math.sqrt(1604)) / 2, rel=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.operator(drive(100.0))


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name not in NEEDS_SCALE])
def test_encodings_in_metres_say_nothing_at_ten_kilometres(name):
    encoding = default_encoding(name, head_dim=128, num_heads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.operator(drive(5e3))


def test_rays_without_lens_are_enough_to_warn():
    view = rays(torch.eye(3, dtype=torch.float64), line(50.0).expand(2, -1, -1), pinhole_dirs())
    with pytest.warns(ScaleWarning):
        default_encoding("gta", head_dim=64, num_heads=1).operator(view)
