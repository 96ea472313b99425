"""A training step and a denoising loop, through the functions that training and generation call."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from diffusers import UniPCMultistepScheduler
from torch import Tensor

from merope.adapters import CameraSignals
from merope.adapters.flow import add_noise, impose_prefix, predict_velocity, velocity_loss

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
        return {
            name: denoising_loop(prepared, clip, steps=steps, dtype=dtype) for name, prepared in made.items()
        }
    first = next(iter(made.values()))
    own = {id(parameter) for parameter in first.adapter.parameters()}
    shared = [
        parameter
        for parameter in first.transformer.parameters()
        if parameter.requires_grad and id(parameter) not in own
    ]
    backbone = [adamw(shared)] if shared else []
    runs = {}
    for name, prepared in made.items():
        branches = list(prepared.adapter.parameters())
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


def denoising_loop(prepared: Prepared, clip: Clip, *, steps: int, dtype: torch.dtype) -> Run:
    """Cameras once, then ``steps`` steps of two passes each, with the prefix held clean."""
    spec = prepared.spec
    given = clip.clean[:, :, : spec.prefix_latents]
    made = Run(run=lambda: clip.sigma)

    @torch.no_grad()
    def loop() -> Tensor:
        signals = _timed_cameras(prepared, made.operator_seconds)
        solver: Any = UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=spec.shift
        )
        solver.set_timesteps(steps)
        latents = impose_prefix(clip.noise, given, spec)
        for index, timestep in enumerate(solver.timesteps):
            sigma = torch.full_like(clip.sigma, float(solver.sigmas[index]))
            asked, unasked = (
                predict_velocity(
                    prepared.transformer,
                    prepared.adapter,
                    latents.to(dtype),
                    given.to(dtype),
                    sigma,
                    signals,
                    spec,
                    text=text,
                )
                for text in (clip.prompt, clip.negative)
            )
            velocity = unasked + GUIDANCE * (asked - unasked)
            latents = solver.step(velocity, timestep, latents, return_dict=False)[0]
            latents = impose_prefix(latents, given, spec)
        return latents

    made.run = loop
    made.held = lambda: _parameter_bytes(prepared)
    return made


def _timed_cameras(prepared: Prepared, seconds: list[float]) -> CameraSignals:
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
