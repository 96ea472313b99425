"""Theorem 1 measured: the measure can tell, descent finds what the theorem leaves, the encodings stand where claimed."""

import json
import math
from dataclasses import replace

import pytest
import torch

from merope.encodings import encoding_from_config
from merope.encodings.gta import GTA
from merope.encodings.scale import TranslationScale
from merope.evaluation.encodings import trilemma
from merope.evaluation.encodings.orthogonal_field import OrthogonalField, cayley, skew
from merope.evaluation.encodings.pose_pairs import (
    VIEWS,
    factor_residual,
    measure,
    of_encoding,
    per_token,
    sample_views,
)
from merope.evaluation.encodings.trilemma import (
    TrilemmaConfig,
    descend,
    place_encodings,
    placeable,
    rotation_alone,
    run_trilemma,
    three_sphere,
)
from merope.geometry.rotations import angle_from_identity

SMALL = TrilemmaConfig(seeds=1, dims=(4,), steps=60, samples=32, hidden=32)


def views(num=48, reach=20.0, seed=3):
    return sample_views(num, translation_range=reach, generator=torch.Generator().manual_seed(seed))


def homogeneous(T_world_cam):
    """U = T_i^-1 T_j itself: GTA's block, a representation that is not orthogonal."""

    def pair(query, key):
        at = [T_world_cam[..., VIEWS.index(name), :, :] for name in (query, key)]
        return torch.linalg.solve(*at)

    return pair


def test_samples_are_what_their_names_say():
    poses = views(300)
    origin, query, key, relative, shift, turn = poses.unbind(1)
    torch.testing.assert_close(query @ relative, key)
    assert torch.equal(origin, torch.eye(4, dtype=torch.float64).expand(300, 4, 4))
    assert (poses[:, :, :3, 3].norm(dim=-1)[:, [1, 3, 4]] <= 20).all()
    assert torch.equal(shift[:, :3, :3], origin[:, :3, :3])
    assert not turn[:, :3, 3].any()
    # A third of the relative poses without rotation, another without translation, neither in the rest.
    angle, offset = angle_from_identity(relative[:, :3, :3]), relative[:, :3, 3].norm(dim=-1)
    assert (angle == 0).sum() == 100 == (offset == 0).sum()
    assert ((angle > 0) & (offset > 0)).sum() == 100
    # Uniform on SO(3) the trace has mean 0, in the ball the radius has mean 3/4.
    assert abs(float(query[:, :3, :3].diagonal(dim1=-2, dim2=-1).sum(-1).mean())) < 0.2
    assert float(query[:, :3, 3].norm(dim=-1).mean()) == pytest.approx(15, abs=0.7)


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_field_is_a_rotation_whatever_its_weights(gain):
    field = OrthogonalField(
        num=2, dim=8, translation_range=20.0, hidden=16, generator=torch.Generator().manual_seed(1)
    ).double()
    with torch.no_grad():
        for weight in field.parameters():
            weight.mul_(gain)
        value = field(views(7).expand(2, -1, -1, -1, -1))
    assert value.shape == (2, 7, len(VIEWS), 8, 8)
    identity = torch.eye(8, dtype=torch.float64).expand_as(value)
    torch.testing.assert_close(value.mT @ value, identity, rtol=0, atol=1e-11)
    torch.testing.assert_close(torch.linalg.det(value), torch.ones_like(value[..., 0, 0]))
    # It is no constant: every map has its own weights, every pose its own value.
    assert (value[0] - value[1]).abs().max() > 0.1
    assert (value[:, 0] - value[:, 1]).abs().max() > 0.1


def test_cayley_of_a_plane_is_its_rotation():
    # tan of the half angle: cayley([[0, -a], [a, 0]]) turns by 2 atan(a).
    entries = torch.tensor([-math.tan(0.35), 0.0, 0.0], dtype=torch.float64)
    turned = cayley(skew(entries, 3))
    c, s = math.cos(0.7), math.sin(0.7)
    expected = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(turned, expected)


def test_rotation_alone_is_exact_sees_turns_and_no_translation():
    found = measure(per_token(rotation_alone)(views(600)))
    assert float(found.violation) < 1e-14
    assert float(found.norm) < 1e-14
    assert float(found.translation) < 1e-14
    # |R - I|^2 = 2 (3 - tr R), and the trace has mean 0.
    assert float(found.rotation) == pytest.approx(math.sqrt(2), abs=0.05)


def test_the_measure_can_tell_a_homomorphism_that_sees_translation():
    near, far = (measure(homogeneous(views(reach=reach))) for reach in (20.0, 200.0))
    assert float(near.violation) < 1e-13
    assert float(near.translation) > 1
    assert float(far.translation) == pytest.approx(10 * float(near.translation))
    assert float(near.norm) > 1


def test_the_measure_catches_an_operator_that_sees_translation_at_no_rotation_only():
    def field(T_world_cam):
        still = (T_world_cam[..., :3, :3] == torch.eye(3, dtype=torch.float64)).all(-1).all(-1)
        blind = T_world_cam.clone()
        blind[..., :3, 3] = 0
        sphere = three_sphere(20.0)
        return torch.where(still[..., None, None], sphere(T_world_cam), sphere(blind))

    found = measure(per_token(field)(views()))
    assert float(found.translation) > 0.4
    assert float(found.violation) > 0.5 * float(found.translation)


def test_the_three_sphere_pays_to_second_order_for_what_it_sees_to_first():
    one, two = (measure(per_token(three_sphere(radius))(views())) for radius in (200.0, 400.0))
    assert float(one.norm) < 1e-13
    assert float(one.translation / two.translation) == pytest.approx(2, rel=0.01)
    assert float(one.violation / two.violation) == pytest.approx(4, rel=0.01)
    assert float(one.rotation) > 1


def test_a_per_token_form_has_no_residual_and_a_query_frame_phase_has_one():
    left, right = torch.randn(2, 5, 4, 4, dtype=torch.float64)
    assert factor_residual(left.mT[:, None] @ right[None, :]) < 1e-14
    # Rotary phases of the displacement in the query's frame, axis by axis: MeRoPE's translation band.
    query = views(5)[:, VIEWS.index("query")]
    offsets = (torch.linalg.inv(query)[:, None] @ query[None, :])[..., :2, 3] / 10
    pairs = torch.zeros(5, 5, 4, 4, dtype=torch.float64)
    for axis in range(2):
        c, s = offsets[..., axis].cos(), offsets[..., axis].sin()
        block = torch.stack([c, -s, s, c], dim=-1).unflatten(-1, (2, 2))
        pairs[..., 2 * axis : 2 * axis + 2, 2 * axis : 2 * axis + 2] = block
    assert factor_residual(pairs) > 0.1


def test_descent_takes_violation_and_translation_down_together_and_leaves_rotation():
    (free,) = descend(SMALL, dim=4, seed=0, levels=())
    start, end = free.places[0], free.places[-1]
    assert (free.steps[0], free.steps[-1]) == (0, SMALL.steps)
    assert start.violation > 0.5
    assert end.violation < start.violation / 5
    assert end.translation < start.translation / 5
    assert end.rotation == pytest.approx(math.sqrt(1.5), abs=0.05)
    assert max(place.norm for place in free.places) < 1e-5


def test_a_demanded_sensitivity_costs_violation():
    free, little, much = descend(SMALL, dim=4, seed=1, levels=(0.2, 0.8))
    assert [run.demanded for run in (free, little, much)] == [None, 0.2, 0.8]
    for run in (little, much):
        assert run.places[-1].translation == pytest.approx(run.demanded, rel=0.15)
    violations = [run.places[-1].violation for run in (free, little, much)]
    assert violations == sorted(violations)
    assert violations[2] > 3 * violations[0]


def test_equal_seeds_give_equal_numbers_and_others_do_not():
    config = replace(SMALL, steps=5)
    one, two, other = (descend(config, dim=4, seed=seed) for seed in (2, 2, 3))
    assert one == two
    assert one[0].places != other[0].places


@pytest.mark.parametrize("name", placeable())
def test_no_encoding_has_all_three_and_each_gives_up_what_it_says(name, monkeypatch):
    monkeypatch.setattr(trilemma, "_HELD_OUT", 12)
    monkeypatch.setattr(trilemma, "_RESIDUAL_CAMERAS", 3)
    (entry,) = place_encodings(TrilemmaConfig(), [name])
    relative, keeps, factors = (
        value < 1e-9 for value in (entry.place.violation, entry.place.norm, entry.factor_residual)
    )
    assert not (relative and keeps and factors and entry.place.translation > 1e-9)
    claims = encoding_from_config({"name": name}).claims
    assert (keeps, factors) == (claims.norm_preserving, claims.per_token)
    if claims.metric:
        assert relative
        assert entry.place.translation > 0.1


def test_the_encodings_of_the_paper_stand_on_their_sides(monkeypatch):
    monkeypatch.setattr(trilemma, "_HELD_OUT", 12)
    monkeypatch.setattr(trilemma, "_RESIDUAL_CAMERAS", 3)
    names = ["gta", "merope", "raynova", "viewrope", "native"]
    gta, merope, raynova, viewrope, native = place_encodings(TrilemmaConfig(), names)
    assert gta.place.norm > 0.1
    assert gta.far_translation == pytest.approx(10 * gta.place.translation, rel=0.3)
    assert merope.factor_residual > 0.1
    assert merope.far_translation < 2
    assert raynova.place.violation > 0.1
    assert viewrope.place.translation < 1e-9 < 1 < viewrope.place.rotation
    assert max(native.place.translation, native.place.rotation) < 1e-9


def test_an_encoding_is_measured_between_the_views_of_one_clip():
    # GTA's block of the pair, wherever the clip's other views are.
    poses = views(4)
    pair = of_encoding(GTA(head_dim=64, scale=TranslationScale(reach=1000.0)))(poses)
    torch.testing.assert_close(pair("query", "key")[:, :4, :4], homogeneous(poses)("query", "key"))


def test_the_whole_result_is_plain_json_and_a_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    from merope.evaluation.encodings.trilemma_plot import plot_trilemma

    monkeypatch.setattr(trilemma, "_HELD_OUT", 12)
    monkeypatch.setattr(trilemma, "placeable", lambda: ["gta", "merope", "viewrope"])
    result = run_trilemma(replace(SMALL, steps=2, dims=(4, 8)), progress=False)
    assert len(result.descents) == 2 * (1 + len(trilemma.LEVELS))
    content = json.loads(json.dumps(result.to_dict()))
    assert content["config"]["dims"] == [4, 8]
    assert [entry["name"] for entry in content["encodings"]] == ["gta", "merope", "viewrope"]
    plot_trilemma(tmp_path / "out" / "trilemma.png", result)
    assert (tmp_path / "out" / "trilemma.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": (4, 6)}, "multiples of 4"),
        ({"dims": ()}, "multiples of 4"),
        ({"translation_range": 0.0}, "translation_range"),
        ({"translation_range": math.inf}, "translation_range"),
        ({"seeds": 0}, "seeds"),
        ({"steps": 0}, "steps"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)
