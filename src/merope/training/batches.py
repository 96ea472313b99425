"""Batches as a function of the step alone, so that a resumed run sees what an unbroken one would."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from merope.adapters.command import latent_matrices, spec_lens
from merope.adapters.flow import shifted
from merope.cameras import CameraModel
from merope.data.caches.latents import LatentCodec, video_from_frames
from merope.errors import CheckpointMismatch
from merope.geometry.poses import Poses
from merope.training.config import TrainConfig
from merope.training.street_clips import StreetClips

# Probe windows start here where the clips are long enough: late enough to hold the variants' turns.
_PROBE_START = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Clean latents, their cameras, and the noise of one training step."""

    latents: Tensor
    """[batch, channel, time, row, column]"""
    T_world_cam: Tensor
    """Pose of each latent frame, [batch, time, 4, 4] float64."""
    noise: Tensor
    """Standard normal, shaped like the latents."""
    sigma: Tensor
    """Noise level of each clip, [batch]."""

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on another device; poses stay on the CPU, where geometry is done."""
        return replace(
            self, latents=self.latents.to(device), noise=self.noise.to(device), sigma=self.sigma.to(device)
        )


class BatchSource:
    """Training and probe batches of street clips, encoded on the fly.

    Raises:
        CheckpointMismatch: if the clips are of another lens, rate or length, or the codec of another width, than
            the model's.
        ValueError: if there are too few clips, or ``config.mirror`` meets a lens without mirror symmetry.
    """

    def __init__(self, clips: StreetClips, codec: LatentCodec, config: TrainConfig) -> None:
        self.clips, self.codec, self.config = clips, codec, config
        wanted = {"camera": config.spec.camera, "fps": config.spec.fps, "num_frames": config.clip_frames}
        for name, value in wanted.items():
            if getattr(clips.config, name) != value:
                raise CheckpointMismatch(
                    f"{clips.folder} holds clips with {name} {getattr(clips.config, name)}; the run needs {value}. "
                    "Choose another folder of clips."
                )
        if codec.channels != config.spec.latent_channels:
            raise CheckpointMismatch(
                f"the codec has {codec.channels} channels, the model takes {config.spec.latent_channels}."
            )
        if config.mirror and not _is_symmetric(spec_lens(config.spec)):
            raise ValueError(
                "mirror needs a lens that is symmetric about its middle column; this one is not. Use mirror=False."
            )
        self.num_training = len(clips) - config.num_probe_clips
        if self.num_training < config.batch_size:
            raise ValueError(
                f"{len(clips)} clips leave {max(self.num_training, 0)} for training after {config.num_probe_clips} probe "
                f"clips; a batch needs {config.batch_size}. Render more worlds, three clips each."
            )

    def training(self, step: int) -> Batch:
        """The batch of a step: every clip once per epoch, each time with another window."""
        config = self.config
        per_epoch = self.num_training // config.batch_size
        order = np.random.default_rng([config.seed, step // per_epoch, 1]).permutation(self.num_training)
        first = step % per_epoch * config.batch_size
        rng = np.random.default_rng([config.seed, step, 2])
        latest = self.clips.config.num_frames - config.spec.num_frames
        windows = [
            (int(clip), int(rng.integers(latest + 1)), config.mirror and bool(rng.integers(2)))
            for clip in order[first : first + config.batch_size]
        ]
        return self._batch(windows, seed=int(rng.integers(2**62)))

    def probe(self, index: int) -> Batch:
        """Batches of clips that are never trained on, with fixed windows and noise."""
        size = self._probe_size
        first = self.num_training + index * size
        start = min(_PROBE_START, self.clips.config.num_frames - self.config.spec.num_frames)
        windows = [(clip, start, False) for clip in range(first, first + size)]
        return self._batch(windows, seed=10_000 + index, stratified=True)

    @property
    def num_probes(self) -> int:
        """Different probe batches there are."""
        return self.config.num_probe_clips // self._probe_size

    @property
    def _probe_size(self) -> int:
        # Two at least: with one clip there are no other cameras to give it.
        return min(max(2, self.config.batch_size), self.config.num_probe_clips)

    def _batch(self, windows: list[tuple[int, int, bool]], *, seed: int, stratified: bool = False) -> Batch:
        spec = self.config.spec
        pieces = [
            self.clips.window(clip, start=start, num_frames=spec.num_frames, mirror=mirror)
            for clip, start, mirror in windows
        ]
        latents = self.codec.encode(video_from_frames(torch.stack([frames for frames, _ in pieces])))
        poses = latent_matrices([Poses.from_matrices(matrices) for _, matrices in pieces], spec)
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(len(windows), generator=generator)
        if stratified:
            uniform = (torch.arange(len(windows)) + 0.5) / len(windows)
        return Batch(
            latents=latents,
            T_world_cam=poses,
            noise=torch.randn(latents.shape, generator=generator),
            sigma=shifted(uniform, spec.shift).clamp(1e-3, 1),
        )


def _is_symmetric(camera: CameraModel) -> bool:
    dirs, valid = camera.pixel_rays()
    mirrored = dirs.flip(-2) * dirs.new_tensor([-1.0, 1.0, 1.0])
    both = (valid & valid.flip(-1))[..., None]
    return bool((valid == valid.flip(-1)).all() and ((mirrored - dirs) * both).abs().max() < 1e-6)
