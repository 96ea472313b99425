"""Latents: video to normalised latents and back, by Wan's autoencoder or by a linear codec.

Both take video in [-1, 1] as [batch, 3, frames, height, width] with 1 + 4k frames, are causal (the first
9 frames alone encode to exactly the first 3 latent frames), and give latents of about unit variance.
"""

from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from diffusers.utils.torch_utils import get_module_execution_device
from jaxtyping import Float, UInt8
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from merope.errors import CheckpointMismatch
from merope.files import atomic_path

_FORMAT = "merope-linear-codec-1"


class LatentCodec(Protocol):
    """Video to normalised latents and back."""

    temporal_stride: int
    spatial_stride: int
    channels: int

    def encode(
        self, video: Float[Tensor, "batch rgb frame height width"]
    ) -> Float[Tensor, "batch chan time row col"]:
        """Normalised latents of video in [-1, 1]."""
        ...

    def decode(
        self, latents: Float[Tensor, "batch chan time row col"]
    ) -> Float[Tensor, "batch rgb frame height width"]:
        """Video in [-1, 1] of normalised latents."""
        ...


def video_from_frames(
    frames: UInt8[Tensor, "batch frame height width 3"],
) -> Float[Tensor, "batch 3 frame height width"]:
    """Byte frames to video in [-1, 1]."""
    return frames.movedim(-1, 1).float() / 127.5 - 1


def frames_from_video(
    video: Float[Tensor, "batch 3 frame height width"],
) -> UInt8[Tensor, "batch frame height width 3"]:
    """Video in [-1, 1] to byte frames, rounded and clipped."""
    return ((video + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).movedim(1, -1)


class WanLatents:
    """diffusers' ``AutoencoderKLWan`` with the per-channel normalisation that the original code holds inside."""

    def __init__(self, vae: nn.Module) -> None:
        # Its config, dtype and encode are diffusers' own, which a type checker does not see in a Module.
        self.vae = cast(Any, vae)
        config = self.vae.config
        self.channels = int(config.z_dim)
        self.temporal_stride = 2 ** sum(config.temperal_downsample)
        self.spatial_stride = int(getattr(config, "scale_factor_spatial", 8))
        self.mean = torch.tensor(config.latents_mean).view(1, -1, 1, 1, 1)
        self.std = torch.tensor(config.latents_std).view(1, -1, 1, 1, 1)

    @torch.no_grad()
    def encode(
        self, video: Float[Tensor, "batch rgb frame height width"]
    ) -> Float[Tensor, "batch chan time row col"]:
        """Normalised means of the posterior.

        Raises:
            ValueError: if frames or size do not divide into latents; the autoencoder would drop the rest.
        """
        return self.posterior(video)[0]

    @torch.no_grad()
    def posterior(
        self, video: Float[Tensor, "batch rgb frame height width"]
    ) -> tuple[Float[Tensor, "batch chan time row col"], Float[Tensor, "batch chan time row col"]]:
        """Mean and log variance of the normalised latents: (mean - m) / s and logvar - 2 log s, float32.

        m and s are Wan's statistics per channel, so that mean + exp(logvar / 2) noise is a sample after normalisation.

        Raises:
            ValueError: as `encode`.
        """
        _require_whole_cells(video, self.temporal_stride, self.spatial_stride)
        there = get_module_execution_device(self.vae)
        posterior = self.vae.encode(video.to(there, self.vae.dtype)).latent_dist
        mean, logvar = posterior.mean.float(), posterior.logvar.float()
        std = self.std.to(mean.device)
        return (mean - self.mean.to(mean.device)) / std, logvar - 2 * std.log()

    @torch.no_grad()
    def decode(
        self, latents: Float[Tensor, "batch chan time row col"]
    ) -> Float[Tensor, "batch rgb frame height width"]:
        """Undo the normalisation and decode."""
        latents = latents.to(get_module_execution_device(self.vae))
        # Divided by the inverse, as diffusers' pipelines do: frames are then theirs to the bit.
        raw = latents / (1 / self.std).to(latents.device) + self.mean.to(latents.device)
        return self.vae.decode(raw.to(self.vae.dtype), return_dict=False)[0].float().clamp(-1, 1)


class LinearCodec:
    """Principal components of 8 x 8 patches: one frame for the first latent, four frames for each later one.

    A trained autoencoder would need as long as the model it serves; on frames of 40 x 64 pixels a linear
    map of 96 numbers per token reconstructs well enough for poses to be read off (see docs/model-card.md).
    Components are scaled by the square root of their deviation: full whitening would spend the model's
    effort on the faintest texture.
    """

    temporal_stride = 4
    spatial_stride = 8

    def __init__(self, *, first: dict[str, Tensor], later: dict[str, Tensor]) -> None:
        self.first, self.later = first, later
        self.channels = first["basis"].shape[1]

    @classmethod
    def fit(cls, frames: UInt8[np.ndarray, "clip frame height width 3"], *, channels: int) -> "LinearCodec":
        """Principal components of the given clips' patches.

        Raises:
            ValueError: if the clips do not divide into patches, or ``channels`` is more than the 192 numbers of a
                patch of the first frame.
        """
        video = video_from_frames(torch.from_numpy(frames))
        _require_whole_cells(video, cls.temporal_stride, cls.spatial_stride)
        if video.shape[2] == 1:
            raise ValueError(
                "frames must have 1 + 4k frames per clip with k >= 1 to fit later latents; got 1."
            )
        most = 3 * cls.spatial_stride**2
        if not 1 <= channels <= most:
            raise ValueError(f"channels must be between 1 and {most}; got {channels}.")
        return cls(
            first=_components(_patches(video[:, :, :1], 1), channels),
            later=_components(_patches(video[:, :, 1:], 4), channels),
        )

    def encode(
        self, video: Float[Tensor, "batch rgb frame height width"]
    ) -> Float[Tensor, "batch chan time row col"]:
        """Scaled component scores.

        Raises:
            ValueError: if frames or size do not divide into patches.
        """
        _require_whole_cells(video, self.temporal_stride, self.spatial_stride)
        first = _scores(_patches(video[:, :, :1], 1), self.first)
        if video.shape[2] == 1:
            return first
        return torch.cat([first, _scores(_patches(video[:, :, 1:], 4), self.later)], dim=2)

    def decode(
        self, latents: Float[Tensor, "batch chan time row col"]
    ) -> Float[Tensor, "batch rgb frame height width"]:
        """Sum of the components, clipped to [-1, 1]."""
        pieces = [_video(latents[:, :, :1], self.first, 1)]
        if latents.shape[2] > 1:
            pieces.append(_video(latents[:, :, 1:], self.later, 4))
        return torch.cat(pieces, dim=2).clamp(-1, 1)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file."""
        tensors = {
            f"{part}.{name}": value.half().contiguous() if name == "basis" else value.float().contiguous()
            for part, values in (("first", self.first), ("later", self.later))
            for name, value in values.items()
        }
        with atomic_path(path) as temporary:
            save_file(tensors, str(temporary), metadata={"format": _FORMAT})

    @classmethod
    def load(cls, path: str | Path) -> "LinearCodec":
        """Read what `save` wrote.

        Raises:
            CheckpointMismatch: if the file is something else.
        """
        try:
            with safe_open(str(path), framework="pt") as file:
                found = (file.metadata() or {}).get("format")
                if found != _FORMAT:
                    raise CheckpointMismatch(
                        f"{path} is not a linear codec: its format is {found!r}, expected {_FORMAT!r}."
                    )
                parts = {
                    part: {
                        name: file.get_tensor(f"{part}.{name}").float() for name in ("basis", "mean", "scale")
                    }
                    for part in ("first", "later")
                }
        except SafetensorError as error:
            raise CheckpointMismatch(f"{path} is damaged or no linear codec: {error}.") from error
        return cls(**parts)


def _require_whole_cells(video: Tensor, temporal_stride: int, spatial_stride: int) -> None:
    frames, height, width = video.shape[2:]
    if frames < 1 or (frames - 1) % temporal_stride:
        below = 1 + max(frames - 1, 0) // temporal_stride * temporal_stride
        raise ValueError(
            f"video must have 1 + {temporal_stride}k frames; got {frames}. Use {below} or {below + temporal_stride}."
        )
    if height % spatial_stride or width % spatial_stride:
        raise ValueError(
            f"video height and width must be multiples of {spatial_stride} pixels; got {height} x {width}."
        )


def _patches(video: Tensor, depth: int) -> Tensor:
    """[B, 3, F, H, W] to [B, F / depth, H / 8, W / 8, 3 * depth * 64]."""
    batch, _, frames, height, width = video.shape
    cells = video.reshape(batch, 3, frames // depth, depth, height // 8, 8, width // 8, 8)
    return cells.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)


def _components(patches: Tensor, channels: int) -> dict[str, Tensor]:
    flat = patches.flatten(0, -2).double()
    mean = flat.mean(0)
    centred = flat - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(flat))
    order = values.argsort(descending=True)[:channels]
    deviation = values[order].clamp_min(1e-8).sqrt()
    scale = deviation.sqrt()
    # Mean variance of the scores over channels is one.
    scale = scale * (deviation / scale).square().mean().sqrt()
    # The sign of a component is arbitrary; fix it so that equal data gives an equal file.
    basis = vectors[:, order]
    basis = basis * basis.gather(0, basis.abs().argmax(0, keepdim=True)).sign()
    return {"basis": basis.float(), "mean": mean.float(), "scale": scale.float()}


def _scores(patches: Tensor, part: dict[str, Tensor]) -> Tensor:
    scores = (patches - part["mean"]) @ part["basis"] / part["scale"]
    return scores.permute(0, 4, 1, 2, 3)


def _video(latents: Tensor, part: dict[str, Tensor], depth: int) -> Tensor:
    patches = (latents.permute(0, 2, 3, 4, 1) * part["scale"]) @ part["basis"].T + part["mean"]
    batch, frames, rows, cols, _ = patches.shape
    cells = patches.reshape(batch, frames, rows, cols, 3, depth, 8, 8)
    return cells.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(batch, 3, frames * depth, rows * 8, cols * 8)
