"""Attention mass by key frame: equal to what attention does, on random operators and on real transformers."""

import dataclasses
import json

import pytest
import torch

from merope.adapters import attach
from merope.adapters.wan import CameraAdapter
from merope.attention import camera_attention
from merope.encodings import MeRoPE, Native, NoEncoding, scale
from merope.encodings.registry import default_encoding
from merope.evaluation.encodings.attention_mass import (
    DriveMass,
    attention_mass,
    center_token,
    mass_along_drive,
    of_one_query,
    straight_drive,
)
from tests.support.operators import BATCH, CAMERAS, KEYS, PER_CAMERA, random_operator
from tests.support.oracles import tiny_adapter
from tests.support.tiny_run import tiny_spec, tiny_transformer

HEADS, TOKENS_PER_VIEW = 3, 2
VIEWS = KEYS // TOKENS_PER_VIEW


def random_features(seed=4, channels=46):
    draw = torch.Generator().manual_seed(seed)
    query = torch.randn(BATCH, HEADS, CAMERAS * PER_CAMERA, channels, generator=draw, dtype=torch.float64)
    key = torch.randn(BATCH, HEADS, KEYS, channels, generator=draw, dtype=torch.float64)
    return query, key


def by_attention(query, key, operator, *, views, tokens_per_view):
    """Masses of every query, as the output of attention over values that say which view they are of."""
    value = torch.zeros_like(key)
    for view in range(views):
        value[:, :, view * tokens_per_view : (view + 1) * tokens_per_view, view] = 1
    weighed = dataclasses.replace(operator, acts_on=operator.acts_on & frozenset("qk"))
    return camera_attention(query, key, value, weighed, backend="reference")[..., :views]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("acts_on", ["qkvo", "qk", "vo"])
def test_masses_are_what_attention_gives_to_each_view(grouped, heads, acts_on):
    operator = random_operator(heads=heads, grouped=grouped, acts_on=acts_on)
    query, key = random_features()
    expected = by_attention(query, key, operator, views=VIEWS, tokens_per_view=TOKENS_PER_VIEW)
    for token in range(CAMERAS * PER_CAMERA):
        mass = attention_mass(query, key, operator, query_token=token, tokens_per_view=TOKENS_PER_VIEW)
        torch.testing.assert_close(mass, expected[:, :, token], rtol=0, atol=1e-12)
        torch.testing.assert_close(mass.sum(-1), torch.ones(BATCH, HEADS, dtype=torch.float64))


def test_keys_without_a_ray_have_no_mass():
    valid = torch.ones(BATCH, KEYS, dtype=torch.bool)
    valid[0, 2:5] = False
    operator = dataclasses.replace(random_operator(), key_valid=valid)
    query, key = random_features()
    mass = attention_mass(query, key, operator, query_token=5, tokens_per_view=TOKENS_PER_VIEW)
    expected = by_attention(query, key, operator, views=VIEWS, tokens_per_view=TOKENS_PER_VIEW)
    torch.testing.assert_close(mass, expected[:, :, 5], rtol=0, atol=1e-12)
    # The second view has lost both of its tokens in the first clip, in the second clip none.
    assert not mass[0, :, 1].any() and mass[1, :, 1].all()


def test_without_an_operator_it_is_plain_attention():
    query, key = random_features()
    mass = attention_mass(query, key, None, query_token=7, tokens_per_view=TOKENS_PER_VIEW)
    logits = (query[:, :, 7, None] * key).sum(-1) / 46**0.5
    torch.testing.assert_close(mass, logits.softmax(-1).reshape(BATCH, HEADS, VIEWS, 2).sum(-1))


def test_a_part_of_a_view_is_refused():
    query, key = random_features()
    with pytest.raises(ValueError, match="no whole number of views"):
        attention_mass(query, key, None, query_token=0, tokens_per_view=3)


@pytest.mark.parametrize("grouped", [True, False])
def test_the_operator_of_one_query_is_its_row(grouped):
    operator = random_operator(heads=HEADS, grouped=grouped)
    dense = operator.dense()
    for token in (0, 6, 11):
        torch.testing.assert_close(of_one_query(operator, token).dense(), dense[:, :, token : token + 1])


def test_the_drive_goes_straight_by_the_step():
    spec = tiny_spec()
    rays = straight_drive(2.5, spec, clips=3)
    assert rays.batch == 3 and rays.num_views == spec.latent_frames
    steps = rays.center_world.diff(dim=1)
    torch.testing.assert_close(steps, torch.tensor([0, 0, 2.5], dtype=torch.float64).expand_as(steps))
    assert torch.equal(rays.R_world_cam, torch.eye(3, dtype=torch.float64).expand_as(rays.R_world_cam))


def test_the_query_is_the_middle_of_the_last_frame():
    spec = tiny_spec()
    rows, cols = spec.token_grid
    assert (rows, cols, spec.latent_frames) == (3, 4, 4)
    assert center_token(spec) == 3 * 12 + 1 * 4 + 2


def adapter_of(encoding) -> CameraAdapter:
    from diffusers import WanTransformer3DModel

    torch.manual_seed(5)
    model = WanTransformer3DModel(**tiny_transformer()).eval()
    return attach(model, encoding=encoding, compression=2, schedule="every")


def latents(clips=2, seed=6):
    draw = torch.Generator().manual_seed(seed)
    shape = (clips, *tiny_spec().latent_shape)
    return torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)


def test_masses_of_a_transformer_are_those_of_what_its_blocks_recorded():
    spec = tiny_spec()
    adapter = tiny_adapter()
    clean, noise = latents()
    result = mass_along_drive(adapter, clean, noise, sigma=0.6, spec=spec, steps=(1.0, 6.0))
    assert result.steps == (1.0, 6.0)
    assert sorted(result.blocks) == [0, 1]
    # By hand for the second block at 6 m.
    from merope.adapters.flow import predict_velocity

    signals = adapter.signals(straight_drive(6.0, spec, clips=2))
    with torch.no_grad(), adapter.recording_attention() as records:
        level = torch.full((2,), 0.6)
        predict_velocity(adapter.transformer, adapter, 0.4 * clean + 0.6 * noise, clean, level, signals, spec)
    record = records[1]
    whole = by_attention(record.query, record.key, record.operator, views=4, tokens_per_view=12)
    expected = whole[:, :, center_token(spec)].mean((0, 1))
    torch.testing.assert_close(torch.tensor(result.blocks[1][1]), expected, rtol=0, atol=1e-6)
    both = torch.tensor([result.blocks[0][1], result.blocks[1][1]]).mean(0)
    torch.testing.assert_close(torch.tensor(result.mass[1]), both)


def test_metres_move_the_mass_of_a_camera_encoding_and_not_that_of_none():
    clean, noise = latents()
    options = {"sigma": 0.5, "spec": tiny_spec(), "steps": (0.5, 4.0)}
    near, far = mass_along_drive(adapter_of(Native(head_dim=64)), clean, noise, **options).mass
    assert near == far
    near, far = mass_along_drive(adapter_of(MeRoPE(head_dim=64)), clean, noise, **options).mass
    assert max(abs(a - b) for a, b in zip(near, far, strict=True)) > 1e-4


def test_homogeneous_logits_send_the_mass_far_back_and_orthogonal_ones_do_not(monkeypatch):
    """Figure 1 on untrained weights: the longer the drive, the more one end of it wins under UCPE."""
    # It warns once per process and scale.
    monkeypatch.setattr(scale, "_WARNED", set())
    clean, noise = latents(clips=4)
    options = {"sigma": 0.5, "spec": tiny_spec(), "steps": (1.0, 300.0)}
    ucpe = default_encoding("ucpe", head_dim=64, num_heads=1)
    with pytest.warns(UserWarning, match="translation scale"):
        near, far = mass_along_drive(adapter_of(ucpe), clean, noise, **options).mass
    assert max(far) > 0.4 > max(near)
    near, far = mass_along_drive(adapter_of(MeRoPE(head_dim=64)), clean, noise, **options).mass
    assert max(far) < 0.4


@pytest.mark.parametrize("name", ["cameractrl", "rayrope"])
def test_attention_inside_the_backbone_and_predicted_depths_are_read_too(name):
    encoding = default_encoding(name, head_dim=64, num_heads=1)
    clean, noise = latents(clips=1)
    result = mass_along_drive(adapter_of(encoding), clean, noise, sigma=0.5, spec=tiny_spec(), steps=(0.3,))
    assert sum(result.mass[0]) == pytest.approx(1)


def test_a_model_without_cameras_has_nothing_to_read():
    clean, noise = latents(clips=1)
    with pytest.raises(ValueError, match="no attention meets cameras"):
        mass_along_drive(
            adapter_of(NoEncoding(head_dim=64)), clean, noise, sigma=0.5, spec=tiny_spec(), steps=(1.0,)
        )


def test_shares_are_those_of_the_preceding_frames():
    result = DriveMass(steps=(1.0,), mass=((0.1, 0.3, 0.6),), blocks={0: ((0.1, 0.3, 0.6),)})
    assert result.first == pytest.approx((0.25,))
    assert result.previous == pytest.approx((0.75,))
    assert result.age == pytest.approx((1.25,))
    content = json.loads(json.dumps(result.to_dict()))
    assert content["blocks"]["0"] == [[0.1, 0.3, 0.6]]


def test_the_plot_shows_every_model_in_full(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    from merope.evaluation.encodings.attention_mass import draw_attention_mass, plot_attention_mass

    flat = DriveMass(steps=(1.0, 2.0), mass=((0.3, 0.7), (0.5, 0.5)), blocks={})
    steep = DriveMass(steps=(1.0, 2.0), mass=((0.1, 0.9), (0.02, 0.98)), blocks={})
    figure = draw_attention_mass({"flat": flat, "steep": steep})
    first, second = figure.axes
    assert first.get_ylim()[0] == 0
    assert second.get_ylim()[1] > 0.98
    plot_attention_mass(tmp_path / "out" / "mass.png", {"flat": flat, "steep": steep})
    assert (tmp_path / "out" / "mass.png").stat().st_size > 5_000
    with pytest.raises(ValueError, match="no model to draw"):
        plot_attention_mass(tmp_path / "none.png", {})
