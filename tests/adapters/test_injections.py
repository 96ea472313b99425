"""What additive encodings learn: nothing at first, then what their equations say, in any precision."""

import math

import pytest
import torch
from torch import nn

from merope.adapters import attach
from merope.adapters.injections import (
    CameraCtrlInjection,
    Injection,
    ReCamMasterInjection,
    ScopeInjection,
    make_injection,
)
from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import CameraCtrl, ReCamMaster, SCoPE
from merope.encodings.scale import TranslationScale
from tests.support.wan import inputs, tiny_wan

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

DIM, HEADS, HEAD_DIM, TOKENS = 128, 2, 64, 18
SCALE = TranslationScale(per_metre=0.1, reach=100)
ADDITIVE = (
    CameraCtrl(head_dim=64, scale=SCALE),
    CameraCtrl(head_dim=64, scale=SCALE, rays_per_side=2),
    ReCamMaster(head_dim=64, scale=SCALE),
    SCoPE(head_dim=64, scale=SCALE),
)


def made(encoding):
    return make_injection(encoding, dim=DIM, num_heads=HEADS, head_dim=HEAD_DIM)


def drawn(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def through(injection, features, dtype=torch.float32):
    """Everything that passes an injection in a block: what q, k and v read, turned q and k, the output."""
    query, key = (drawn(seed, 2, TOKENS, HEADS, HEAD_DIM, dtype=dtype) for seed in (2, 3))
    return (
        *injection.inputs(drawn(1, 2, TOKENS, DIM, dtype=dtype), features),
        *injection.turned(query, key, features),
        injection.output(drawn(4, 2, TOKENS, DIM, dtype=dtype)),
    )


def untouched(dtype=torch.float32):
    return through(Injection(), None, dtype)


def awake(injection, seed=5):
    """The same injection with every parameter somewhere else."""
    with torch.no_grad():
        for number, parameter in enumerate(injection.parameters()):
            parameter += 0.1 * drawn(seed + number, *parameter.shape)
    return injection


# A new injection


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("encoding", ADDITIVE)
def test_a_new_injection_changes_no_bit(encoding, dtype):
    injection = made(encoding)
    assert injection.is_zero
    for got, plain in zip(
        through(injection, encoding.features(random_drive()), dtype), untouched(dtype), strict=True
    ):
        assert got.dtype == dtype and torch.equal(got, plain)


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_a_new_injection_changes_no_bit_under_autocast(encoding):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        passed = through(made(encoding), encoding.features(random_drive()), torch.bfloat16)
    for got, plain in zip(passed, untouched(torch.bfloat16), strict=True):
        assert got.dtype == torch.bfloat16 and torch.equal(got, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("encoding", ADDITIVE)
def test_a_transformer_with_new_injections_answers_with_the_same_bits(encoding, dtype):
    model = tiny_wan().to(dtype)
    before = model(**inputs(dtype=dtype))[0]
    adapter = attach(model, encoding=encoding, schedule="every")
    assert adapter.is_zero
    assert {parameter.dtype for parameter in adapter.parameters()} == {torch.float32}
    with adapter.cameras(random_drive()):
        assert torch.equal(model(**inputs(dtype=dtype))[0], before)


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_every_parameter_has_a_gradient_after_two_steps_at_most(encoding):
    model = tiny_wan().requires_grad_(False)
    adapter = attach(model, encoding=encoding, schedule=[1])
    injection = adapter.branches[1].requires_grad_()
    optimiser = torch.optim.AdamW(injection.parameters(), lr=1e-3)
    target = drawn(9, 2, 4, 3, 4, 6)
    reached, losses = set(), []
    for step in range(4):
        optimiser.zero_grad()
        with adapter.cameras(random_drive()):
            loss = (model(**inputs())[0] - target).square().mean()
        loss.backward()
        losses.append(loss.item())
        for name, parameter in injection.named_parameters():
            assert torch.isfinite(parameter.grad).all(), name
            if parameter.grad.any():
                reached.add(name)
        optimiser.step()
        if step == 1:
            assert reached == {name for name, _ in injection.named_parameters()}
    assert losses[-1] < losses[0]
    assert not injection.is_zero


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_one_number_that_is_not_zero_is_seen(encoding):
    for name, parameter in made(encoding).named_parameters():
        if "encoder" in name or "change" in name:
            injection = made(encoding)
            with torch.no_grad():
                injection.get_parameter(name).view(-1)[parameter.numel() // 2] = 1e-30
            assert not injection.is_zero, name


# What each adds, by hand


def test_cameractrl_adds_to_queries_and_keys_alone():
    encoding = CameraCtrl(head_dim=64, scale=SCALE)
    injection, features = awake(made(encoding)), encoding.features(random_drive())
    got, plain = through(injection, features), untouched()
    added = torch.einsum("df,bnf->bnd", injection.camera_encoder.weight, features)
    torch.testing.assert_close(got[0], plain[0] + added)
    torch.testing.assert_close(got[1], plain[1] + added)
    for place in (2, 3, 4, 5):
        assert torch.equal(got[place], plain[place])
    assert injection.camera_encoder.bias is None


def test_recammaster_adds_to_all_three_and_maps_the_output():
    encoding = ReCamMaster(head_dim=64, scale=SCALE)
    injection, features = awake(made(encoding)), encoding.features(random_drive())
    got, plain = through(injection, features), untouched()
    added = features @ injection.camera_encoder.weight.T + injection.camera_encoder.bias
    for place in (0, 1, 2):
        torch.testing.assert_close(got[place], plain[place] + added)
    for place in (3, 4):
        assert torch.equal(got[place], plain[place])
    square = torch.eye(DIM) + injection.projector_change.weight
    torch.testing.assert_close(got[5], plain[5] @ square.T + injection.projector_change.bias)
    # One camera, one embedding.
    assert torch.equal(added.unflatten(1, (3, 6))[:, :, :1].expand(2, 3, 6, DIM), added.unflatten(1, (3, 6)))


def test_scope_adds_a_gated_norm_to_turned_queries_and_keys():
    encoding = SCoPE(head_dim=64, scale=SCALE)
    injection, features = awake(made(encoding)), encoding.features(random_drive())
    got, plain = through(injection, features), untouched()
    for place in (0, 1, 2, 5):
        assert torch.equal(got[place], plain[place])
    d, m, s = features.split([3, 3, 1], dim=-1)
    widen, spread = injection.gate[0], injection.gate[2]
    inner = s * widen.weight[:, 0] + widen.bias
    inner = inner / (1 + (-inner).exp())
    gate = 1 / (1 + (-(inner @ spread.weight.T + spread.bias)).exp())
    for place, line, encoder, norm, amount in (
        (3, torch.cat([d, m, s], -1), injection.query_encoder, injection.query_norm, injection.query_amount),
        (4, torch.cat([m, d, s], -1), injection.key_encoder, injection.key_norm, injection.key_amount),
    ):
        x = line @ encoder.weight.T
        x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
        expected = plain[place] + (amount * gate * x).reshape(2, TOKENS, HEADS, HEAD_DIM)
        torch.testing.assert_close(got[place], expected)


def test_the_gate_is_a_half_for_a_moment_of_one():
    injection = ScopeInjection(dim=DIM)
    assert injection.gate[0].out_features == DIM // 4
    torch.testing.assert_close(injection.gate(torch.zeros(1)), torch.full((DIM,), 0.5))
    assert (injection.gate(torch.full((1,), -13.8)) - 0.5).abs().max() > 0.05


def test_equal_projections_and_the_flip_give_the_reciprocal_product_of_lines():
    injection = ScopeInjection(dim=DIM)
    with torch.no_grad():
        for encoder in (injection.query_encoder, injection.key_encoder):
            encoder.weight[torch.arange(6), torch.arange(6)] = 1
    unit = nn.functional.normalize
    d, m = unit(drawn(1, 1, 5, 3), dim=-1), unit(drawn(2, 1, 5, 3), dim=-1)
    lines = torch.cat([d, m, torch.zeros(1, 5, 1)], -1)
    nothing = torch.zeros(1, 5, 1, DIM)
    query, key = injection.turned(nothing, nothing, lines)
    # (d, m) has two units of square over DIM channels, and the gate is a half at s = 0.
    factor = (0.5 / math.sqrt(2 / DIM + 1e-6)) ** 2
    expected = torch.einsum("bax,bcx->bac", d, m) + torch.einsum("bax,bcx->bac", m, d)
    got = torch.einsum("bahx,bchx->bac", query, key) / factor
    torch.testing.assert_close(got, expected)
    # Without the flip it would be the sum of two cosines.
    assert (got - (d @ d.mT + m @ m.mT)).abs().max() > 0.1


def test_the_first_gradient_of_scope_is_a_thousand_times_that_of_plain_projections():
    injection = ScopeInjection(dim=DIM)
    lines = drawn(1, 1, 5, 7)
    lines[..., 6] = 0
    nothing = torch.zeros(1, 5, 1, DIM)
    injection.turned(nothing, nothing, lines)[0].sum().backward()
    plain = 0.5 * lines.sum((0, 1)).expand(DIM, 7)
    torch.testing.assert_close(injection.query_encoder.weight.grad, 1000 * plain, rtol=1e-5, atol=0)


@pytest.mark.parametrize("encoding", [CameraCtrl(head_dim=64), SCoPE(head_dim=64)])
def test_nothing_is_added_to_a_token_without_a_ray(encoding):
    view_rays = scene("fisheye_200deg")
    got = through(awake(made(encoding)), encoding.features(view_rays))
    without = ~view_rays.valid.flatten(1)
    for new, plain in zip(got, untouched(), strict=True):
        assert torch.equal(new[without], plain[without])


@pytest.mark.parametrize("name", SCENES)
def test_what_scope_adds_is_bounded_and_has_finite_gradients(name):
    encoding = SCoPE(head_dim=64, scale=SCALE)
    injection = awake(made(encoding))
    got = through(injection, encoding.features(scene(name)))
    added = [(got[place] - untouched()[place]).flatten(2).norm(dim=-1) for place in (3, 4)]
    # A gate below one and a unit root mean square, times weights and an amount that awake moved.
    for amount, norm, size in zip(
        (injection.query_amount, injection.key_amount),
        (injection.query_norm, injection.key_norm),
        added,
        strict=True,
    ):
        assert (size <= amount.abs() * norm.weight.abs().max() * math.sqrt(DIM) * (1 + 1e-5)).all()
    sum(part.sum() for part in got).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in injection.parameters())


# Precision


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("encoding", ADDITIVE)
def test_features_are_mapped_in_float32_and_rounded_once(encoding, autocast):
    # Beside a bfloat16 base, and under autocast, the sum is that of float32 rounded like its operands.
    injection, features = awake(made(encoding)), encoding.features(random_drive())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        got = through(injection, features, torch.bfloat16)
    plain = untouched(torch.bfloat16)
    exact = through(injection, features)
    for place in range(5):
        assert got[place].dtype == torch.bfloat16
        rounded = plain[place] + (exact[place] - untouched()[place]).to(torch.bfloat16)
        torch.testing.assert_close(got[place], rounded, rtol=2**-7, atol=2**-7)
    assert (got[5].float() - exact[5]).norm() / exact[5].norm() < 1e-2


def test_metres_are_not_rounded_to_bfloat16_before_they_are_mapped():
    # 1 + 2^-9 is 1 in bfloat16: two cameras that differ by it have to differ in what is added.
    injection = CameraCtrlInjection(num_features=6, dim=DIM)
    nn.init.constant_(injection.camera_encoder.weight, 512.0)
    features = torch.zeros(1, 2, 6)
    features[0, :, 0] = torch.tensor([1.0, 1.0 + 2**-9])
    features[0, :, 1] = -1.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        query, _, _ = injection.inputs(torch.zeros(1, 2, DIM, dtype=torch.bfloat16), features)
    assert torch.equal(query[0, :, 0].float(), torch.tensor([0.0, 1.0]))


def test_a_small_change_of_the_identity_survives_bfloat16():
    injection = ReCamMasterInjection(num_features=12, dim=DIM)
    with torch.no_grad():
        injection.projector_change.weight.copy_(2**-12 * torch.eye(DIM))
    out = torch.ones(1, 1, DIM)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(injection.output(out), torch.full((1, 1, DIM), 1 + 2**-12))


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_an_injection_in_bfloat16_runs_too(encoding):
    injection, features = awake(made(encoding)), encoding.features(random_drive())
    exact = through(injection, features)
    got = through(injection.to(torch.bfloat16), features, torch.bfloat16)
    for new, old in zip(got, exact, strict=True):
        assert new.dtype == torch.bfloat16
        assert (new.float() - old).norm() / old.norm() < 2e-2


# Making


def test_the_released_start_of_lyra_is_no_zero():
    torch.manual_seed(0)
    injection = made(CameraCtrl(head_dim=64, init="lyra", rays_per_side=4))
    weight = injection.camera_encoder.weight
    assert not injection.is_zero and weight.shape == (DIM, 96)
    assert weight.std().item() == pytest.approx(DIM**-0.5, rel=0.03)
    assert weight.abs().max() <= 3 * DIM**-0.5


def test_sizes_follow_the_encoding():
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in make_injection(e, dim=3072, num_heads=24, head_dim=128).parameters())
            for e in (CameraCtrl(), CameraCtrl(rays_per_side=2), ReCamMaster(), SCoPE())
        ]
    wide = 3072
    assert sizes == [
        6 * wide,
        24 * wide,
        13 * wide + wide * wide + wide,
        # Two encoders, two norms, the gate's two layers, two amounts.
        14 * wide + 2 * wide + 2 * 768 + 769 * wide + 2,
    ]


def test_what_is_no_additive_encoding_has_no_injection():
    class Other(SCoPE):
        """Close, yet nobody said what it learns."""

    with pytest.raises(
        TypeError, match=r"Other has no injection; known are \['CameraCtrl', 'ReCamMaster', 'SCoPE'\]"
    ):
        make_injection(Other(head_dim=64), dim=DIM, num_heads=HEADS, head_dim=HEAD_DIM)


def test_heads_have_to_make_up_the_width():
    with pytest.raises(ValueError, match=r"dim must be 2 x 64 = 128; got 192"):
        make_injection(SCoPE(head_dim=64), dim=192, num_heads=2, head_dim=64)


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_cameras_without_features_are_refused(encoding):
    injection = made(encoding)
    with pytest.raises(ValueError, match=r"hold no features; make them with CameraAdapter\.signals"):
        through(injection, None)
