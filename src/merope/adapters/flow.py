"""Flow matching as Wan trains and samples it, with a clean prefix; one set of functions for both.

``x_sigma = (1 - sigma) x_0 + sigma noise`` and the velocity is ``noise - x_0``. The given latent frames
are clean at every step and carry timestep 0 (Wan2.2 TI2V's per-token timesteps).
"""

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from merope.adapters.signals import CameraSignals
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter
from merope.operators import CameraOperator

NUM_TRAIN_TIMESTEPS = 1000
# Where the network predicts clean latents the velocity divides by sigma; below this it would amplify errors.
_SIGMA_FLOOR = 0.02
# The same division weights the loss by 1 / sigma^2; without a bound nearly all of it would come from nearly
# clean inputs, which say little about motion.
_WEIGHT_FLOOR = 0.4


def shifted(sigma: Float[Tensor, "*batch"], shift: float) -> Float[Tensor, "*batch"]:
    """Wan's time shift of noise levels in [0, 1]: shift s / (1 + (shift - 1) s)."""
    return shift * sigma / (1 + (shift - 1) * sigma)


def add_noise(
    clean: Float[Tensor, "batch chan time row col"],
    noise: Float[Tensor, "batch chan time row col"],
    sigma: Float[Tensor, "batch"],
) -> Float[Tensor, "batch chan time row col"]:
    """Latents at noise level ``sigma`` in [0, 1]; 1 is pure noise."""
    level = sigma[:, None, None, None, None]
    return (1 - level) * clean + level * noise


def impose_prefix(
    noisy: Float[Tensor, "batch chan time row col"],
    clean: Float[Tensor, "batch chan given row col"],
    spec: VideoSpec,
) -> Float[Tensor, "batch chan time row col"]:
    """``noisy`` with its first latent frames replaced by the given clean ones."""
    given = spec.prefix_latents
    return torch.cat([clean[:, :, :given], noisy[:, :, given:]], dim=2)


def token_timesteps(
    sigma: Float[Tensor, "batch"],
    spec: VideoSpec,
    *,
    timestep: Float[Tensor, "batch"] | None = None,
    per_token: bool = False,
) -> Float[Tensor, "batch token"] | Float[Tensor, "batch"]:
    """Timestep of every token: 0 in the given latent frames, 1000 sigma in the others.

    Where nothing is given, one per clip: the same numbers to the network, which then keeps one modulation per clip
    in place of one per token; ``per_token`` asks for one per token there too. ``timestep`` stands in for 1000 sigma:
    some samplers round it down to a whole number.
    """
    told = sigma * NUM_TRAIN_TIMESTEPS if timestep is None else timestep
    if spec.prefix_latents == 0 and not per_token:
        return told
    rows, cols = spec.token_grid
    per_frame = rows * cols
    steps = told[:, None].repeat(1, spec.latent_frames * per_frame)
    steps[:, : spec.prefix_latents * per_frame] = 0
    return steps


def predict_velocity(
    transformer: nn.Module,
    adapter: CameraAdapter | None,
    noisy: Float[Tensor, "batch chan time row col"],
    clean: Float[Tensor, "batch chan given row col"],
    sigma: Float[Tensor, "batch"],
    cameras: CameraSignals | CameraOperator | None,
    spec: VideoSpec,
    *,
    text: Float[Tensor, "batch words dim"] | None = None,
    timestep: Float[Tensor, "batch"] | None = None,
    per_token: bool = False,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "batch chan time row col"]:
    """Velocity that the model sees at noise level ``sigma``, given the clean prefix and the cameras, in float32.

    Training and sampling both call this, so the prefix cannot be noisy in one and clean in the other.
    The velocity of the prefix itself is meaningless and carries no loss. ``adapter`` and ``cameras`` None run the
    base model. ``timestep`` and ``per_token`` are those of `token_timesteps`; ``dtype`` is what a network of half
    precision takes its latents in.

    Raises:
        ValueError: if latents are not of the spec's shape, or levels and timesteps not one per clip.
    """
    _require_shapes(noisy, clean, sigma, timestep, spec)
    inputs = impose_prefix(noisy, clean, spec)
    if text is None:
        # Any: torch types every attribute of a module as a tensor or a module.
        config: Any = transformer.config
        text = inputs.new_zeros(inputs.shape[0], spec.text_tokens, config.text_dim)
    with nullcontext() if adapter is None or cameras is None else adapter.cameras(cameras):
        output = transformer(
            hidden_states=inputs if dtype is None else inputs.to(dtype),
            timestep=token_timesteps(sigma, spec, timestep=timestep, per_token=per_token),
            encoder_hidden_states=text,
            return_dict=False,
        )[0].float()
    if spec.prediction == "velocity":
        return output
    level = sigma.clamp_min(_SIGMA_FLOOR)[:, None, None, None, None]
    return (inputs - output) / level


def _require_shapes(
    noisy: Tensor, clean: Tensor, sigma: Tensor, timestep: Tensor | None, spec: VideoSpec
) -> None:
    """What the network itself would refuse deep inside, or broadcast in silence."""
    wanted = (len(noisy), *spec.latent_shape)
    if tuple(noisy.shape) != wanted:
        raise ValueError(
            f"noisy must have shape {list(wanted)} (clip, channel, latent frame, row, column) for {spec.num_frames} frames "
            f"of {spec.height} x {spec.width}; got {list(noisy.shape)}."
        )
    channels, _, *cells = spec.latent_shape
    if (len(clean), clean.shape[1], *clean.shape[3:]) != (len(noisy), channels, *cells):
        raise ValueError(
            f"clean must hold latents of the same clips, channels and size as noisy, {list(wanted)}; got "
            f"{list(clean.shape)}."
        )
    if clean.shape[2] < spec.prefix_latents:
        raise ValueError(
            f"clean must hold the {spec.prefix_latents} latent frames that are given ({spec.prefix_frames} frames); got "
            f"{clean.shape[2]}."
        )
    for name, levels in (("sigma", sigma), ("timestep", timestep)):
        if levels is not None and tuple(levels.shape) != (len(noisy),):
            raise ValueError(
                f"{name} must hold one number per clip, [{len(noisy)}]; got {list(levels.shape)}. Timesteps of single "
                "tokens are made from it: 0 in the given frames (token_timesteps)."
            )


def velocity_loss(
    velocity: Float[Tensor, "batch chan time row col"],
    clean: Float[Tensor, "batch chan time row col"],
    noise: Float[Tensor, "batch chan time row col"],
    sigma: Float[Tensor, "batch"],
    spec: VideoSpec,
) -> Float[Tensor, "batch"]:
    """Mean squared velocity error of each clip over the frames that are not given.

    Where the network predicts clean latents the error is that of the clean latents over
    ``max(sigma, 0.4)^2``: the velocity error with its weight bounded at low noise.
    """
    target = noise - clean
    if spec.prediction == "clean":
        target = target * (sigma / sigma.clamp_min(_SIGMA_FLOOR))[:, None, None, None, None]
    error = (velocity - target)[:, :, spec.prefix_latents :].square().flatten(1).mean(1)
    if spec.prediction == "velocity":
        return error
    return error * (sigma.clamp_min(_SIGMA_FLOOR) / sigma.clamp_min(_WEIGHT_FLOOR)) ** 2
