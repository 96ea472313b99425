"""Batches as a function of the step alone, so that a resumed run sees what an unbroken one would."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from merope.adapters.command import latent_matrices
from merope.adapters.flow import shifted
from merope.data.latents import LatentCodec, video_from_frames
from merope.geometry.poses import Poses
from merope.training.config import TrainConfig
from merope.training.street_clips import StreetClips


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


class BatchSource:
    """Training and probe batches of street clips, encoded on the fly."""

    def __init__(self, clips: StreetClips, codec: LatentCodec, config: TrainConfig) -> None:
        self.clips, self.codec, self.config = clips, codec, config
        self.num_training = len(clips) - config.num_probe_clips
        if self.num_training < config.batch_size:
            raise ValueError(
                f"{len(clips)} clips leave {self.num_training} for training after {config.num_probe_clips} probe clips; "
                f"a batch needs {config.batch_size}. Render more worlds."
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
        size = min(self.config.batch_size, self.config.num_probe_clips)
        first = self.num_training + index * size % self.config.num_probe_clips
        windows = [(clip, 2, False) for clip in range(first, min(first + size, len(self.clips)))]
        return self._batch(windows, seed=10_000 + index, stratified=True)

    @property
    def num_probes(self) -> int:
        """Different probe batches there are."""
        return max(1, self.config.num_probe_clips // min(self.config.batch_size, self.config.num_probe_clips))

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
