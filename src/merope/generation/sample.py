"""Prefix frames and cameras to video: the flow sampler with the prefix held clean at every step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from jaxtyping import Float, UInt8
from torch import Tensor
from tqdm import tqdm

from merope.adapters.command import latent_matrices, latent_rays
from merope.adapters.flow import NUM_TRAIN_TIMESTEPS, impose_prefix, predict_velocity
from merope.adapters.signals import CameraSignals
from merope.data.caches.latents import frames_from_video, video_from_frames
from merope.errors import MeropeError
from merope.generation.flow_schedule import require_flow_scheduler
from merope.generation.model import VideoModel
from merope.generation.trajectory import check_command
from merope.geometry.poses import Poses
from merope.operators import CameraOperator


def generate(
    model: VideoModel,
    prefix: UInt8[np.ndarray, "clip given height width 3"],
    cameras: Sequence[Poses],
    *,
    seeds: Sequence[int],
    steps: int = 16,
    scheduler: Any | None = None,
    autocast: bool = True,
    progress: bool = True,
    allow_untrained: bool = False,
) -> UInt8[np.ndarray, "clip time height width 3"]:
    """Videos that continue ``prefix`` along commanded ``cameras``.

    ``prefix`` holds the given frames of each clip, ``cameras`` one pose per frame of the whole video, metres. Noise
    is drawn per clip on the CPU from its seed, so a clip does not depend on what it is generated beside.
    ``scheduler`` is any diffusers flow scheduler (such as UniPCMultistepScheduler with ``use_flow_sigmas``); by
    default Euler with the model's own time shift.

    Raises:
        ValueError: if counts, sizes or the prefix's type do not fit the model.
        TrajectoryError: if a trajectory has the wrong number of poses, unit or step.
        MeropeError: if the camera branches are all zero, so that the cameras would be ignored.
    """
    spec = model.spec
    _check(model, prefix, cameras, seeds, steps, allow_untrained)
    given = model.codec.encode(video_from_frames(torch.from_numpy(np.ascontiguousarray(prefix))))
    signals = model.adapter.signals(latent_rays(latent_matrices(cameras, spec), spec), device="cpu")
    noise = torch.stack(
        [torch.randn(spec.latent_shape, generator=torch.Generator().manual_seed(int(seed))) for seed in seeds]
    )
    latents = sample_latents(
        model, given, noise, signals, steps=steps, scheduler=scheduler, autocast=autocast, progress=progress
    )
    return frames_from_video(model.codec.decode(latents.cpu())).numpy()


@torch.no_grad()
def sample_latents(
    model: VideoModel,
    given: Float[Tensor, "clip chan given row col"],
    noise: Float[Tensor, "clip chan time row col"],
    cameras: CameraSignals | CameraOperator,
    *,
    steps: int,
    scheduler: Any | None = None,
    autocast: bool = True,
    progress: bool = True,
) -> Float[Tensor, "clip chan time row col"]:
    """Latents of whole clips from noise; the given latent frames come back unchanged."""
    spec = model.spec
    solver: Any = scheduler
    if solver is None:
        solver = FlowMatchEulerDiscreteScheduler(num_train_timesteps=NUM_TRAIN_TIMESTEPS, shift=spec.shift)
        # Wan's own levels. By itself this scheduler ends at the shifted level of its first training step, 0.004 at a
        # shift of 2, and so spends one of the model calls on latents that are clean already.
        solver.set_timesteps(sigmas=[1 - step / steps for step in range(steps)])
    else:
        solver.set_timesteps(steps)
    require_flow_scheduler(solver)
    device = next(model.transformer.parameters()).device
    given, cameras = given.to(device), cameras.to(device)
    latents = impose_prefix(noise.to(device), given, spec)
    for index, timestep in enumerate(
        tqdm(solver.timesteps, desc="generating", unit="step", disable=not progress)
    ):
        # Not timestep / 1000: some schedulers round their timesteps down to whole numbers.
        sigma = torch.full((len(latents),), float(solver.sigmas[index]), device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            velocity = predict_velocity(
                model.transformer, model.adapter, latents, given, sigma, cameras, spec
            )
        latents = solver.step(velocity, timestep, latents, return_dict=False)[0]
        latents = impose_prefix(latents, given, spec)
    return latents


def _check(
    model: VideoModel,
    prefix: np.ndarray,
    cameras: Sequence[Poses],
    seeds: Sequence[int],
    steps: int,
    allow_untrained: bool,
) -> None:
    spec = model.spec
    if not cameras:
        raise ValueError("cameras must hold at least one trajectory; got none.")
    if prefix.dtype != np.uint8:
        raise ValueError(f"prefix must hold bytes (uint8, 0 to 255); got {prefix.dtype}.")
    wanted = (len(cameras), spec.prefix_frames, spec.height, spec.width, 3)
    if prefix.shape != wanted:
        raise ValueError(
            f"prefix must have shape {list(wanted)}, one clip per trajectory; got {list(prefix.shape)}."
        )
    if len(seeds) != len(cameras):
        raise ValueError(f"seeds must hold one number per trajectory, {len(cameras)}; got {len(seeds)}.")
    if steps < 1:
        raise ValueError(f"steps must be >= 1; got {steps}.")
    for poses in cameras:
        check_command(poses, spec)
    if model.adapter.is_zero and not allow_untrained:
        raise MeropeError(
            "the camera branches are all zero, so the cameras would be ignored. Load a trained adapter, or pass "
            "allow_untrained=True to run the base model."
        )
