"""The first training step on both generations of Wan: no bit of the output changes, and every gradient is there.

One time per clip for Wan2.1; one per token, zero on the given frames, for Wan2.2.
"""

import inspect

import pytest
import torch
from accelerate import cpu_offload
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.hooks import apply_group_offloading

from merope.adapters import attach, load_adapter, save_adapter
from merope.adapters.command import latent_matrices, latent_rays
from merope.adapters.flow import predict_velocity, token_timesteps, velocity_loss
from merope.adapters.spec import wan_spec
from merope.cameras import Pinhole
from merope.encodings import MeRoPE
from merope.geometry.poses import Poses
from merope.recipes.tiny_wan import make_tiny_wan

CPU = torch.device("cpu")


class Tiny:
    """A tiny pipeline's transformer as its folder gives it, and one clip's inputs."""

    def __init__(self, version, folder):
        self.folder = make_tiny_wan(folder, version=version, num_layers=2)
        cell = 16 if version == "2.1" else 32
        size = {"height": 2 * cell, "width": 3 * cell}
        lens = Pinhole.from_fov(fov_x_deg=90.0, **size)
        self.spec = wan_spec(
            WanTransformer3DModel.load_config(self.folder, subfolder="transformer"),
            AutoencoderKLWan.load_config(self.folder, subfolder="vae"),
            **size,
            num_frames=9,
            prefix_frames=0 if version == "2.1" else 5,
            fps=10.0,
            shift=5.0,
            camera=lens.to_dict(),
        )
        draw = torch.Generator().manual_seed(0)
        steps = torch.cumsum(0.5 * torch.rand(9, 3, generator=draw, dtype=torch.float64), 0)
        poses = Poses(R_world_cam=torch.eye(3).expand(9, 3, 3), center_world=steps)
        self.rays = latent_rays(latent_matrices([poses], self.spec), self.spec)
        self.clean, self.noise = torch.randn(2, 1, *self.spec.latent_shape, generator=draw)
        self.sigma = torch.tensor([0.6])
        self.text = torch.randn(1, 4, 32, generator=draw)

    def transformer(self, **options):
        return WanTransformer3DModel.from_pretrained(self.folder, subfolder="transformer", **options)

    def adapted(self, model):
        return attach(model, encoding=MeRoPE(head_dim=64), compression=4, schedule="every")

    def velocity(self, model, adapter):
        """What the model says; without an adapter the base."""
        noisy = 0.4 * self.clean + 0.6 * self.noise
        signals = None if adapter is None else adapter.signals(self.rays)
        # As a pipeline does it: latents and text in the precision of the transformer's own weights.
        dtype = model.patch_embedding.weight.dtype
        return predict_velocity(
            model,
            adapter,
            noisy,
            self.clean,
            self.sigma,
            signals,
            self.spec,
            text=self.text.to(dtype),
            dtype=dtype,
        )

    def loss(self, model, adapter):
        return velocity_loss(
            self.velocity(model, adapter), self.clean, self.noise, self.sigma, self.spec
        ).mean()


@pytest.fixture(scope="module")
def wans(tmp_path_factory):
    return {version: Tiny(version, tmp_path_factory.mktemp("wan") / version) for version in ("2.1", "2.2")}


@pytest.fixture(params=["2.1", "2.2"])
def wan(request, wans):
    return wans[request.param]


def checkpointed(model):
    model.enable_gradient_checkpointing()
    return model.train()


def grouped(model):
    apply_group_offloading(model, onload_device=CPU, offload_device=CPU, offload_type="leaf_level")
    return model


TREATMENTS = {
    "as it is": lambda model: model,
    "gradient checkpointing": checkpointed,
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "bfloat16 and back": lambda model: model.to(torch.bfloat16).float(),
    "bfloat16 and checkpointing": lambda model: checkpointed(model.to(torch.bfloat16)),
    "offloaded one by one": lambda model: cpu_offload(model, execution_device=CPU),
    "offloaded in groups": grouped,
}


def test_times_are_per_clip_in_one_generation_and_per_token_in_the_other(wans):
    assert token_timesteps(torch.tensor([0.6]), wans["2.1"].spec).shape == (1,)
    times = token_timesteps(torch.tensor([0.6]), wans["2.2"].spec)
    assert times.tolist() == [[0.0] * 12 + [600.0] * 6]


@pytest.mark.filterwarnings("ignore:.*should be kept in float32")
@pytest.mark.parametrize("treatment", TREATMENTS.values(), ids=TREATMENTS)
def test_a_new_adapter_changes_no_bit_whatever_is_done_to_the_model(wan, treatment):
    base = treatment(wan.transformer())
    expected = wan.velocity(base, None).detach()
    model = wan.transformer()
    adapter = wan.adapted(model)
    treatment(model)
    assert torch.equal(wan.velocity(model, adapter).detach(), expected)
    if treatment in (TREATMENTS["as it is"], TREATMENTS["gradient checkpointing"], TREATMENTS["bfloat16"]):
        assert torch.equal(wan.velocity(adapter.detach(), None).detach(), expected)


def test_a_new_adapter_changes_no_bit_of_a_model_in_half_precision(wan):
    expected = wan.velocity(wan.transformer(torch_dtype=torch.bfloat16), None)
    model = wan.transformer(torch_dtype=torch.bfloat16)
    assert torch.equal(wan.velocity(model, wan.adapted(model)), expected)


def test_a_new_adapter_changes_no_bit_after_both_were_saved_and_loaded(wan, tmp_path):
    model = wan.transformer()
    expected = wan.velocity(model, None)
    adapter = wan.adapted(model)
    save_adapter(tmp_path / "adapter.safetensors", adapter, spec=wan.spec)
    with adapter.taken_off() as bare:
        bare.save_pretrained(tmp_path / "transformer")
    again = WanTransformer3DModel.from_pretrained(tmp_path / "transformer")
    loaded = load_adapter(tmp_path, again)
    assert loaded.is_zero
    assert torch.equal(wan.velocity(again, loaded), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_trainable_parameter_has_a_gradient_in_the_first_backward_pass(wan, dtype):
    found = {}
    for checkpointing in (False, True):
        torch.manual_seed(1)
        model = wan.transformer(torch_dtype=dtype).requires_grad_(False)
        adapter = wan.adapted(model)
        if checkpointing:
            checkpointed(model)
        optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1)
        for step in (1, 2):
            optimizer.zero_grad(set_to_none=True)
            wan.loss(model, adapter).backward()
            trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
            assert len(trainable) == len(list(adapter.parameters())) == 2 * 8
            assert all(parameter.grad is not None for parameter in trainable.values())
            assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
            found[checkpointing, step] = {name: p.grad.clone() for name, p in trainable.items()}
            optimizer.step()
        for name, grad in found[checkpointing, 1].items():
            assert bool(grad.any()) == (".to_out." in name), name
        for name, grad in found[checkpointing, 2].items():
            assert grad.any(), name
    for step in (1, 2):
        for name, grad in found[False, step].items():
            torch.testing.assert_close(found[True, step][name], grad, rtol=1e-6, atol=1e-9)


def test_one_step_is_seen_in_the_output(wan):
    model = wan.transformer().requires_grad_(False)
    adapter = wan.adapted(model)
    before = wan.velocity(model, adapter).detach()
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-3)
    wan.loss(model, adapter).backward()
    optimizer.step()
    assert not adapter.is_zero
    given = wan.spec.prefix_latents
    assert (wan.velocity(model, adapter).detach() - before)[:, :, given:].abs().max() > 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: {"sigma": torch.full((1, 18), 0.6)},
            r"sigma must hold one number per clip, \[1\]; got \[1, 18\]",
        ),
        (lambda w: {"sigma": torch.tensor(0.6)}, r"sigma must hold one number per clip, \[1\]; got \[\]"),
        (
            lambda w: {"timestep": torch.zeros(1, 12)},
            r"timestep must hold one number per clip, .*token_timesteps",
        ),
        (
            lambda w: {"noisy": w.noise[:, :, :2]},
            r"noisy must have shape \[1, \d+, 3, 4, 6\].* for 9 frames of",
        ),
        (
            lambda w: {"clean": w.clean[:, :1]},
            r"clean must hold latents of the same clips, channels and size",
        ),
    ],
)
def test_levels_and_latents_of_another_shape_are_refused_before_the_network_sees_them(wan, change, message):
    model = wan.transformer()
    given = {"noisy": wan.noise, "clean": wan.clean, "sigma": wan.sigma, "cameras": None, "spec": wan.spec}
    # Without the shape checks of the test run, which a user does not have.
    plain = inspect.unwrap(predict_velocity)
    with pytest.raises(ValueError, match=message):
        plain(model, None, **{**given, **change(wan)})


def test_a_prefix_that_is_not_given_whole_is_refused(wans):
    wan = wans["2.2"]
    with pytest.raises(
        ValueError, match=r"clean must hold the 2 latent frames that are given \(5 frames\); got 1"
    ):
        predict_velocity(wan.transformer(), None, wan.noise, wan.clean[:, :, :1], wan.sigma, None, wan.spec)
