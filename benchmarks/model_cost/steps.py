"""A training step and a denoising loop, through the functions that training and generation call."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from diffusers import UniPCMultistepScheduler
from torch import Tensor

from merope.adapters import CameraSignals
from merope.adapters.flow import add_noise, predict_velocity, velocity_loss
from merope.generation.denoise import Conditions, denoise
from merope.generation.pipeline import MeropePipeline

from ..attention_cost.columns import Column
from .methods import Method, Prepared, Trains, prepare
from .sizes import ModelSize

Mode = Literal["training", "denoising"]
MODES: tuple[Mode, ...] = ("training", "denoising")

GUIDANCE = 5.0
PASSES = 2
"""Passes of a denoising step: with the prompt and without it."""


@dataclass(slots=True)
class Run:
    """A method's step or loop; each call adds to ``operator_seconds`` what the cameras took of it."""

    run: Callable[[], Tensor]
    operator_seconds: list[float] = field(default_factory=list)
    held: Callable[[], int] = lambda: 0
    """Bytes that stay between calls: weights, and the optimizer's state once it has made a step."""

    def __call__(self) -> Tensor:
        return self.run()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """The numbers that every method is given."""

    clean: Tensor
    noise: Tensor
    sigma: Tensor
    prompt: Tensor
    negative: Tensor

    @classmethod
    def random(cls, size: ModelSize, *, device: str, dtype: torch.dtype, seed: int = 0) -> "Clip":
        """Latents, two prompts of full length, and a noise level in the middle."""
        draw = torch.Generator().manual_seed(seed)
        shape = (1, *size.spec().latent_shape)
        clean, noise = (torch.randn(shape, generator=draw).to(device) for _ in range(2))
        prompt, negative = (
            torch.randn(1, size.text_tokens, size.text_dim, generator=draw).to(device, dtype)
            for _ in range(2)
        )
        return cls(
            clean=clean,
            noise=noise,
            sigma=torch.full((1,), 0.6, device=device),
            prompt=prompt,
            negative=negative,
        )


def make_runs(
    size: ModelSize,
    methods: Mapping[Method, Column | None],
    mode: Mode,
    *,
    trains: Trains,
    checkpointing: bool,
    compiled: bool,
    steps: int,
    dtype: torch.dtype,
    device: str,
    seed: int,
) -> dict[Method, Run]:
    """The methods' steps or loops. Training methods share the optimizer of the backbone, as they share its weights."""
    made = prepare(
        size,
        methods,
        purpose=mode,
        trains=trains,
        checkpointing=checkpointing,
        compiled=compiled,
        dtype=dtype,
        device=device,
        seed=seed,
    )
    clip = Clip.random(size, device=device, dtype=dtype, seed=seed)
    if mode == "denoising":
        return {name: denoising_loop(prepared, clip, steps=steps) for name, prepared in made.items()}
    first = next(iter(made.values()))
    own = {id(parameter) for parameter in first.branch_parameters()}
    shared = [
        parameter
        for parameter in first.transformer.parameters()
        if parameter.requires_grad and id(parameter) not in own
    ]
    backbone = [adamw(shared)] if shared else []
    runs = {}
    for name, prepared in made.items():
        branches = prepared.branch_parameters()
        optimizers = backbone + ([adamw(branches)] if branches else [])
        runs[name] = training_step(prepared, clip, optimizers=optimizers, dtype=dtype)
    return runs


def training_step(
    prepared: Prepared, clip: Clip, *, optimizers: Sequence[torch.optim.Optimizer], dtype: torch.dtype
) -> Run:
    """Cameras, forward, backward and AdamW of one clip."""
    spec = prepared.spec
    given = clip.clean[:, :, : spec.prefix_latents]
    made = Run(run=lambda: clip.sigma)

    def step() -> Tensor:
        signals = _timed_cameras(prepared, made.operator_seconds)
        noisy = add_noise(clip.clean, clip.noise, clip.sigma)
        with torch.autocast(prepared.device, dtype, enabled=dtype != torch.float32):
            velocity = predict_velocity(
                prepared.transformer,
                prepared.adapter,
                noisy,
                given,
                clip.sigma,
                signals,
                spec,
                text=clip.prompt,
            )
        loss = velocity_loss(velocity, clip.clean, clip.noise, clip.sigma, spec).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    made.run = step
    made.held = lambda: _parameter_bytes(prepared) + sum(_state_bytes(x) for x in optimizers)
    return made


def adamw(parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW as in B.1."""
    return torch.optim.AdamW(parameters, lr=1e-5, weight_decay=0.01, fused=True)


def denoising_loop(prepared: Prepared, clip: Clip, *, steps: int) -> Run:
    """Cameras once, then ``steps`` steps of two passes each, with the prefix held clean: the loop of `MeropePipeline`."""
    spec = prepared.spec
    # Any: diffusers' classes are untyped.
    pipe: Any = MeropePipeline(
        tokenizer=None,
        text_encoder=None,
        vae=None,
        transformer=prepared.transformer,
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=spec.shift
        ),
        expand_timesteps=spec.prefix_frames > 0,
    )
    pipe.adapter = prepared.adapter
    pipe.set_progress_bar_config(disable=True)
    # What a call sets for its loop.
    pipe._guidance_scale, pipe._interrupt = GUIDANCE, False
    made = Run(run=lambda: clip.sigma)

    @torch.no_grad()
    def loop() -> Tensor:
        given = Conditions(
            spec=spec,
            clean=clip.clean[:, :, : spec.prefix_latents],
            cameras=_timed_cameras(prepared, made.operator_seconds),
            text={"prompt_embeds": clip.prompt, "negative_prompt_embeds": clip.negative},
            generator=None,
        )
        pipe.scheduler.set_timesteps(steps, device=prepared.device)
        return denoise(pipe, clip.noise, given, None, [])

    made.run = loop
    made.held = lambda: _parameter_bytes(prepared)
    return made


def _timed_cameras(prepared: Prepared, seconds: list[float]) -> CameraSignals | None:
    started = time.perf_counter()
    signals = prepared.cameras()
    if prepared.device == "cuda":
        torch.cuda.synchronize()
    seconds.append(time.perf_counter() - started)
    return signals


def _parameter_bytes(prepared: Prepared) -> int:
    return sum(parameter.nbytes for parameter in prepared.transformer.parameters())


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )
