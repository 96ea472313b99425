"""Training batches from cached latents: each clip of a step is a pure function of seed, step and its place in the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from merope.adapters.command import latent_matrices, latent_rays
from merope.adapters.flow import shifted
from merope.adapters.spec import VideoSpec
from merope.cameras.rays import ViewRays
from merope.data.caches.cached_clip import CachedClip, CacheDescription, padded_text
from merope.data.selection.sampling import BalancedSampler
from merope.errors import CheckpointMismatch, MeropeError
from merope.geometry.gravity import Up
from merope.training.finetune_config import FinetuneConfig

# Streams of the seed.
_TRAINING, _PROBE, _PROBE_CLIPS = 1, 2, 3
# As in training from scratch: nothing is learned from a clean clip.
_LEAST_SIGMA = 1e-3


class Clips(Protocol):
    """`LatentCache` or `LatentCaches`."""

    sources: list[str]
    clip_ids: list[str]
    clusters: list[str]
    up_worlds: list[Up | None]
    description: CacheDescription

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> CachedClip: ...

    @property
    def empty_text(self) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Clips of one forward pass."""

    latents: Tensor
    """[batch, channel, time, row, column]"""
    noise: Tensor
    """Standard normal, shaped like the latents."""
    sigma: Tensor
    """Noise level of each clip, [batch]."""
    text: Tensor
    """Prompt embeddings, padded, [batch, word, dim]."""
    rays: ViewRays
    """The clips' own cameras."""
    other_rays: ViewRays | None = None
    """Of a probe, the cameras of other clips."""

    def to(self, device: torch.device | str) -> "MicroBatch":
        """The same on another device; cameras stay on the CPU, where geometry is done."""
        return replace(
            self,
            latents=self.latents.to(device),
            noise=self.noise.to(device),
            sigma=self.sigma.to(device),
            text=self.text.to(device),
        )


@dataclass(frozen=True, slots=True)
class _Draw:
    """All that is random about one clip of a step."""

    sigma: float
    drops_text: bool
    noise: Tensor
    posterior: Tensor


class ClipBatches:
    """Micro batches of the global batches that a sampler draws.

    Everything random is drawn on the CPU from seed, step and place in the global batch, so neither the number of processes
    nor the way a batch is cut changes a clip's noise, noise level, prompt or posterior sample.

    Under an input map cameras are in the level world of each clip's first camera, without one in that camera's own.

    Raises:
        CheckpointMismatch: if the cached latents are of another size than the model's.
        MeropeError: if the run has an input map and a clip does not say which way is up.
    """

    def __init__(
        self, clips: Clips, config: FinetuneConfig, *, sampler: BalancedSampler | None = None
    ) -> None:
        self.clips, self.config = clips, config
        self.sampler = sampler_of(clips, config) if sampler is None else sampler
        _require_size(clips.description, config.spec)
        if config.input_map is not None:
            require_up(clips)
        self._empty_text = clips.empty_text

    def micro_batches(self, step: int, *, rank: int, size: int) -> list[list[tuple[int, int]]]:
        """Place in the global batch and clip number of what one of ``size`` processes takes in a step."""
        drawn = list(enumerate(self.sampler.batch(step, self.config.global_batch)))
        return self._cut(drawn, rank, size)

    def load(self, step: int, chosen: Sequence[tuple[int, int]]) -> MicroBatch:
        """Read the clips of one micro batch and draw their noise.

        Raises:
            CheckpointMismatch: if a clip has another frame rate or unit of length than the run.
        """
        clips = [self._clip(number) for _, number in chosen]
        draws = [self._draw(_TRAINING, step, place) for place, _ in chosen]
        return self._batch(clips, draws)

    def probe_batches(self, *, rank: int, size: int) -> list[list[tuple[int, int]]]:
        """Place and clip number of what one process takes of the probe's batch, which is always the same one."""
        rng = np.random.default_rng([self.config.seed, _PROBE_CLIPS])
        count, number = self.config.global_batch, len(self.clips)
        order = np.concatenate([rng.permutation(number) for _ in range(-(-count // number))])
        return self._cut([(place, int(clip)) for place, clip in enumerate(order[:count])], rank, size)

    def load_probe(self, chosen: Sequence[tuple[int, int]]) -> MicroBatch:
        """Clips at evenly spread noise levels, with their own cameras and those of the clips that follow them."""
        count = self.config.global_batch
        following = {place: clip for part in self.probe_batches(rank=0, size=1) for place, clip in part}
        others = [self._clip(following[(place + 1) % count]) for place, _ in chosen]
        draws = [self._draw(_PROBE, 0, place) for place, _ in chosen]
        even = [
            _Draw((place + 0.5) / count, False, draw.noise, draw.posterior)
            for (place, _), draw in zip(chosen, draws, strict=True)
        ]
        return self._batch([self._clip(number) for _, number in chosen], even, others)

    def _cut(self, drawn: list[tuple[int, int]], rank: int, size: int) -> list[list[tuple[int, int]]]:
        micro, share = self.config.micro_batch, self.config.global_batch // size
        mine = drawn[rank * share : (rank + 1) * share]
        return [mine[first : first + micro] for first in range(0, share, micro)]

    def _clip(self, number: int) -> CachedClip:
        clip, config = self.clips[number], self.config
        # A recorder's 11.99 Hz is 12 Hz.
        same_rate = math.isclose(clip.fps, config.spec.fps, rel_tol=0.01)
        for name, have, wanted, agree in (
            ("fps", clip.fps, config.spec.fps, same_rate),
            ("unit", clip.unit, config.pose_unit, clip.unit == config.pose_unit),
        ):
            if not agree:
                raise CheckpointMismatch(
                    f"clip {clip.source}/{clip.clip_id} has {name} {have}; the run takes {wanted}. Encode its data again, "
                    "or train on it with a recipe of its own."
                )
        return clip

    def _draw(self, stream: int, step: int, place: int) -> _Draw:
        config = self.config
        seed = np.random.SeedSequence([config.seed, stream, step, place]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(seed[0]))
        # Always all four and always in this order: an option that is off changes none of the others.
        level = torch.rand((), generator=generator, dtype=torch.float64)
        gaussian = torch.randn((), generator=generator, dtype=torch.float64)
        dropped = torch.rand((), generator=generator, dtype=torch.float64) < config.text_dropout
        noise = torch.randn(config.spec.latent_shape, generator=generator)
        posterior = torch.randn(config.spec.latent_shape, generator=generator)
        sigma = level if config.noise_levels == "uniform" else gaussian.sigmoid()
        return _Draw(float(sigma), bool(dropped), noise, posterior)

    def _batch(
        self,
        clips: Sequence[CachedClip],
        draws: Sequence[_Draw],
        others: Sequence[CachedClip] | None = None,
    ) -> MicroBatch:
        config = self.config
        latents = [
            clip.sample(draw.posterior) if config.sample_posterior else clip.mean
            for clip, draw in zip(clips, draws, strict=True)
        ]
        texts = [
            self._empty_text if draw.drops_text else clip.text
            for clip, draw in zip(clips, draws, strict=True)
        ]
        sigma = shifted(torch.tensor([draw.sigma for draw in draws]), config.spec.shift)
        return MicroBatch(
            latents=torch.stack(latents),
            noise=torch.stack([draw.noise for draw in draws]),
            sigma=sigma.clamp(_LEAST_SIGMA, 1),
            text=padded_text(texts, self.clips.description.text_length),
            rays=_rays(clips, config),
            other_rays=None if others is None else _rays(others, config),
        )


def _rays(clips: Sequence[CachedClip], config: FinetuneConfig) -> ViewRays:
    up_world = None if config.input_map is None else [clip.up_world for clip in clips if clip.up_world]
    poses = latent_matrices([clip.poses for clip in clips], config.spec, up_world=up_world)
    return latent_rays(poses, config.spec, [clip.lens for clip in clips])


def sampler_of(clips: Clips, config: FinetuneConfig) -> BalancedSampler:
    """What a run draws its clips with.

    Raises:
        ValueError: if ``config.source_weights`` does not name exactly the sources of the clips.
    """
    return BalancedSampler(clips.clusters, config.seed, sources=clips.sources, weights=config.source_weights)


def require_up(clips: Clips) -> None:
    """Raise unless every clip says which way is up, which an input map needs to know.

    Raises:
        MeropeError: naming the first clip that does not, and the way out.
    """
    without = [index for index, up in enumerate(clips.up_worlds) if up is None]
    if without:
        first = without[0]
        raise MeropeError(
            f"the input map needs to know which way is up, and clip {clips.sources[first]}/{clips.clip_ids[first]} does "
            f"not say ({len(without)} of {len(clips)} do not). Say 'up_world', the unit vector against gravity in the "
            "world of its poses, in the meta.json of each clip and encode into a new folder, or train with input_map=None."
        )


def _require_size(have: CacheDescription, spec: VideoSpec) -> None:
    wanted = {
        "height": spec.height,
        "width": spec.width,
        "num_frames": spec.num_frames,
        "latent_shape": spec.latent_shape,
    }
    different = [
        f"{name} is {getattr(have, name)} in the cache, {value} in the run"
        for name, value in wanted.items()
        if getattr(have, name) != value
    ]
    if different:
        raise CheckpointMismatch(
            f"the cached latents do not fit: {'; '.join(different)}. Encode the clips for this model and size."
        )
