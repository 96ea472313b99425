"""The denoising loop of `MeropePipeline`: diffusers' schedulers and callbacks, the given frames clean at every step."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters import CameraSignals
from merope.adapters.flow import impose_prefix, predict_velocity
from merope.adapters.spec import VideoSpec
from merope.generation.flow_schedule import noise_levels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditions:
    """What the latents of a call are made under, on the device where the transformer computes."""

    spec: VideoSpec
    clean: Float[Tensor, "clip chan given row col"]
    """Latents of the given frames."""
    cameras: CameraSignals | None
    """Shared by all steps and both passes of guidance; None runs the base model."""
    text: dict[str, Tensor]
    """``prompt_embeds``, and ``negative_prompt_embeds`` where there is guidance, one row per clip."""
    generator: torch.Generator | list[torch.Generator] | None
    """For schedulers that draw noise in every step."""


def denoise(
    pipe: Any,
    noise: Float[Tensor, "clip chan time row col"],
    conditions: Conditions,
    on_step_end: Callable[..., Any] | None,
    wanted: list[str],
) -> Float[Tensor, "clip chan time row col"]:
    """Latents of whole clips; those that are given come back unchanged.

    ``pipe`` is a `MeropePipeline` whose scheduler has its timesteps. ``on_step_end`` is diffusers'
    ``callback_on_step_end`` and ``wanted`` its tensors: what it returns in their place is used, but for the given latents.
    The transformer is told the scheduler's own timesteps, which UniPC and DPM++ round down, as by diffusers.
    """
    scheduler, text, spec = pipe.scheduler, dict(conditions.text), conditions.spec
    levels = noise_levels(scheduler)
    scheduler.set_begin_index(0)
    pipe._num_timesteps = len(scheduler.timesteps)
    # Those that draw noise in every step take it from the clips' own generators.
    draws = {"generator": conditions.generator} if "generator" in signature(scheduler.step).parameters else {}
    latents = impose_prefix(noise, conditions.clean, spec)
    with pipe.progress_bar(total=len(scheduler.timesteps)) as bar:
        for index, timestep in enumerate(scheduler.timesteps):
            if pipe.interrupt:
                break
            pipe._current_timestep = timestep
            step = {"index": index, "timestep": timestep, "sigma": levels[index]}
            predicted = _velocity(pipe, latents, conditions, text["prompt_embeds"], "cond", **step)
            if pipe.do_classifier_free_guidance:
                without = _velocity(
                    pipe, latents, conditions, text["negative_prompt_embeds"], "uncond", **step
                )
                predicted = without + pipe.guidance_scale * (predicted - without)
            latents = scheduler.step(predicted, timestep, latents, return_dict=False, **draws)[0]
            latents = impose_prefix(latents, conditions.clean, spec)
            if on_step_end is not None:
                tensors = {"latents": latents, **text}
                changed = on_step_end(pipe, index, timestep, {name: tensors.get(name) for name in wanted})
                latents = impose_prefix(changed.pop("latents", latents), conditions.clean, spec)
                text |= {name: changed[name] for name in text if name in changed}
            bar.update()
    pipe._current_timestep = None
    return latents


def _velocity(
    pipe: Any,
    latents: Tensor,
    conditions: Conditions,
    text: Tensor,
    kind: str,
    *,
    index: int,
    timestep: Tensor,
    sigma: float,
) -> Tensor:
    """One pass of the transformer."""
    told = timestep.to(latents.device, torch.float32).expand(len(latents))
    with pipe.transformer.cache_context(
        kind, step_index=index, sigma=sigma, num_inference_steps=pipe.num_timesteps
    ):
        return predict_velocity(
            pipe.transformer,
            pipe.adapter,
            latents,
            conditions.clean,
            torch.full_like(told, sigma),
            conditions.cameras,
            conditions.spec,
            text=text,
            timestep=told,
            per_token=pipe.config.expand_timesteps,
            dtype=pipe.transformer.dtype,
        )
