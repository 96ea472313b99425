"""Clips and captions through a Wan pipeline's autoencoder and text encoder, once, into a cache of latents."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from diffusers import WanPipeline
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from merope.adapters.spec import wan_spec
from merope.cameras import CameraModel
from merope.data.caches.cached_clip import CachedClip, CacheDescription, CacheError, LatentDtype
from merope.data.caches.latent_cache import LatentCache, LatentCacheWriter, finish_cache
from merope.data.caches.latents import WanLatents, video_from_frames
from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.given_frames import fit_view
from merope.data.clips.video import Frames
from merope.data.selection.splits import Split
from merope.errors import MeropeError
from merope.files import write_text_atomically
from merope.generation.model_files import ModelConfigs
from merope.recipes.ahead import ahead

# A file of each process that has ended, with the clips that it left out: "done-0-of-8.json".
_DONE = "done-{}-of-{}.json"
# Numbers of each weight that its fingerprint reads, spread evenly.
_SAMPLES = 1024
# What configurations say of files and versions, not of the model.
_INCIDENTAL = ("_name_or_path", "_diffusers_version", "transformers_version", "dtype", "torch_dtype")

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeConfig:
    """What is cut from each clip, and how it is stored.

    Raises:
        ValueError: if ``text_length`` or ``batch`` is not positive.
    """

    height: int = 288
    """Rows of an encoded frame, pixels."""
    width: int = 512
    """Columns of an encoded frame, pixels."""
    num_frames: int = 49
    """Frames per window."""
    fps: float | None = None
    """Frames per second that faster clips are thinned to; None keeps each clip's own."""
    window_stride: int | None = None
    """Frames from the start of a window to that of the next; None for windows that share no frame."""
    allow_gaps: bool = False
    """Whether windows may reach over missing frames, steps of more than 1.5 frame periods."""
    crop: bool = False
    """Whether clips of another shape are cut about the middle; else they are left out."""
    dtype: LatentDtype = "float16"
    """In which latents are stored."""
    text_length: int = 512
    """Words that a prompt is padded to; what generation uses."""
    batch: int = 1
    """Windows that go through the autoencoder together."""

    def __post_init__(self) -> None:
        if self.text_length < 1 or self.batch < 1:
            raise ValueError(f"text_length and batch must be positive; got {self.text_length}, {self.batch}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeReport:
    """What became of the clips that one process had."""

    encoded: int
    """Windows that were encoded now."""
    there: int
    """Windows that were in the cache already."""
    skipped: list[ClipError]
    """Clips and windows that could not be encoded, and why."""
    without_caption: int
    """Windows, of those encoded now, that have no caption: theirs is the empty prompt."""
    not_in_split: int
    """Windows that the split does not name."""
    cache: LatentCache | None
    """The finished cache; None while other processes still encode."""


class ClipEncoder:
    """The autoencoder, tokenizer and text encoder of a Wan pipeline; its transformer is not needed.

    Frames are encoded as `WanLatents.encode` does, captions as `WanPipeline.encode_prompt` does for generation, with
    ``config.text_length`` for its maximum.
    """

    def __init__(self, pipeline: Any, config: EncodeConfig) -> None:
        # Any: diffusers' classes are untyped.
        self._pipeline = pipeline
        self.config = config
        self.latents = WanLatents(self._pipeline.vae)
        tokenizer = self._pipeline.tokenizer
        self.description = CacheDescription(
            vae=module_identity(self._pipeline.vae),
            latents_mean=tuple(self._pipeline.vae.config.latents_mean),
            latents_std=tuple(self._pipeline.vae.config.latents_std),
            text_encoder={
                **module_identity(self._pipeline.text_encoder),
                "vocabulary_sha256": _sha256(sorted(tokenizer.get_vocab().items())),
            },
            text_length=config.text_length,
            height=config.height,
            width=config.width,
            num_frames=config.num_frames,
            temporal_stride=self.latents.temporal_stride,
            spatial_stride=self.latents.spatial_stride,
            dtype=config.dtype,
            windows={
                "fps": config.fps,
                "stride": config.window_stride,
                "crop": config.crop,
                **({"allow_gaps": True} if config.allow_gaps else {}),
            },
        )
        self.empty_text = self.text("")
        self._last = "", self.empty_text

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        config: EncodeConfig,
        *,
        device: str | torch.device = "cpu",
        text_dtype: torch.dtype = torch.bfloat16,
    ) -> Self:
        """From a pipeline's folder or hub name. The autoencoder computes in float32, as diffusers recommends for Wan.

        Raises:
            ValueError: if size or frames do not fit the model; found before weights load.
        """
        configs = ModelConfigs.read(model)
        wan_spec(
            configs.transformer,
            configs.vae,
            height=config.height,
            width=config.width,
            num_frames=config.num_frames,
            prefix_frames=0,
            fps=config.fps or 1.0,
            shift=1.0,
        )
        pipeline: Any = WanPipeline.from_pretrained(
            str(model), transformer=None, dtype={"vae": torch.float32, "default": text_dtype}
        )
        return cls(pipeline.to(device), config)

    def text(self, caption: str) -> Float[Tensor, "words dim"]:
        """Embedding of a caption without padding, on the CPU."""
        with torch.no_grad():
            padded, _ = self._pipeline.encode_prompt(
                caption, do_classifier_free_guidance=False, max_sequence_length=self.config.text_length
            )
        # Padding is exactly zero, and zeros come back when it is padded again.
        words = padded[0].abs().sum(1).nonzero()
        return padded[0, : int(words[-1]) + 1].cpu()

    def encode(self, windows: list[tuple[Clip, Frames, CameraModel]]) -> list[CachedClip]:
        """Windows with their frames and lenses at the size of the cache, encoded together."""
        frames = torch.stack([torch.from_numpy(frames) for _, frames, _ in windows])
        means, logvars = self.latents.posterior(video_from_frames(frames.to(self.latents.vae.device)))
        encoded = []
        for index, (clip, _, lens) in enumerate(windows):
            if clip.caption != self._last[0]:
                self._last = clip.caption, self.text(clip.caption)
            encoded.append(
                CachedClip(
                    clip_id=clip.clip_id,
                    mean=means[index].cpu(),
                    logvar=logvars[index].cpu(),
                    text=self._last[1],
                    T_world_cam=clip.poses.T_world_cam,
                    lens=lens,
                    fps=clip.fps,
                    unit=clip.unit,
                    caption=clip.caption,
                    source=clip.source,
                    cluster=clip.cluster,
                    up_world=clip.up_world,
                )
            )
        return encoded


def encode_clips(
    clips: Iterable[Clip | ClipError],
    encoder: ClipEncoder,
    folder: str | Path,
    *,
    rank: int = 0,
    world_size: int = 1,
    split: Split | None = None,
    total: int | None = None,
    workers: int = 2,
    progress: bool = True,
) -> EncodeReport:
    """Encode the windows of ``clips`` that are not in the cache yet; of these the ones of a ``split``, with its clusters.

    With several processes each has clips of its own; whichever of ``world_size`` ends while the others have ended writes
    the manifest, so that it is whole also where one of them was started later. A clip that is broken, or does not fit, is
    listed there and the rest goes on. ``workers`` threads decode ahead. ``total`` is the number of clips, for the
    progress bar.

    Raises:
        CheckpointMismatch: if the folder holds a cache that was made otherwise.
        CacheError: if there is nothing in the cache in the end.
    """
    folder, config = Path(folder), encoder.config
    done = folder / _DONE.format(rank, world_size)
    writer = LatentCacheWriter(folder, encoder.description, empty_text=encoder.empty_text)
    done.unlink(missing_ok=True)
    counts = {"encoded": 0, "there": 0, "without_caption": 0, "not_in_split": 0}
    skipped: list[ClipError] = []

    def missing() -> Iterator[Clip | ClipError]:
        """Windows that are not in the cache, and the error of each clip that gives none."""
        for clip in tqdm(clips, desc="encode", unit="clip", total=total, disable=not progress):
            for found in _windows(clip, config):
                window = _in_split(found, split)
                if window is None:
                    counts["not_in_split"] += 1
                elif isinstance(window, Clip) and writer.contains(window.source, window.clip_id):
                    counts["there"] += 1
                else:
                    yield window

    with writer:
        prepared = ahead(
            lambda window: _prepared(window, config), missing(), workers=workers, count=2 * config.batch
        )
        for batch in _batched(prepared, config.batch):
            ready = [item for item in batch if not isinstance(item, ClipError)]
            skipped.extend(item for item in batch if isinstance(item, ClipError))
            for clip in encoder.encode(ready) if ready else []:
                try:
                    writer.add(clip)
                except ValueError as error:
                    skipped.append(ClipError(clip.source, clip.clip_id, error))
                    continue
                counts["encoded"] += 1
                counts["without_caption"] += not clip.caption
    rows = [{"source": one.source, "clip_id": one.clip_id, "reason": one.reason} for one in skipped]
    write_text_atomically(done, json.dumps(rows))
    ended = [folder / _DONE.format(other, world_size) for other in range(world_size)]
    cache = None
    if all(path.exists() for path in ended):
        everywhere = [row for path in ended for row in json.loads(path.read_text(encoding="utf-8"))]
        try:
            cache = finish_cache(folder, skipped=everywhere)
        except CacheError as error:
            raise CacheError(f"{error} {_first(everywhere, counts['not_in_split'])}") from error
    return EncodeReport(skipped=skipped, cache=cache, **counts)


def module_identity(module: nn.Module) -> dict[str, str]:
    """Class, hash of the configuration and fingerprint of the weights, which is that of a bfloat16 copy too.

    The fingerprint reads name and shape of every weight and 1024 of its numbers, rounded to bfloat16.
    """
    # Any: torch types every attribute of a module as a tensor or a module.
    config: Any = module.config
    plain: Mapping[str, Any] = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    kept = {name: value for name, value in plain.items() if name not in _INCIDENTAL}
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(f"{name} {list(value.shape)} ".encode())
        flat = value.detach().flatten()
        places = torch.linspace(0, flat.numel() - 1, min(_SAMPLES, flat.numel()), dtype=torch.float64)
        chosen = flat[places.round().long().to(flat.device)].to("cpu", torch.bfloat16)
        digest.update(chosen.view(torch.uint8).numpy().tobytes())
    return {
        "class": type(module).__name__,
        "config_sha256": _sha256(kept),
        "weights_sha256": digest.hexdigest(),
    }


def _first(skipped: list[dict[str, str]], not_in_split: int) -> str:
    if not skipped and not_in_split:
        return f"None of {not_in_split} windows is in the split. Is it of the same source (--source), frames and stride?"
    if not skipped:
        return ""
    row = skipped[0]
    return (
        f"{len(skipped)} were left out, the first for this: {row['source']}/{row['clip_id']}: {row['reason']}"
    )


def _windows(clip: Clip | ClipError, config: EncodeConfig) -> list[Clip | ClipError]:
    """The windows of a clip, or the error that leaves it without any."""
    if isinstance(clip, ClipError):
        return [clip]
    try:
        return [
            *clip.windows(
                config.num_frames, stride=config.window_stride, fps=config.fps, allow_gaps=config.allow_gaps
            )
        ]
    except ClipError as error:
        return [error]


def _in_split(window: Clip | ClipError, split: Split | None) -> Clip | ClipError | None:
    """The window with its cluster in the split; None where that leaves it out."""
    if split is None or isinstance(window, ClipError):
        return window
    cluster = split.cluster_of(window.source, window.clip_id)
    return None if cluster is None else replace(window, cluster=cluster)


def _prepared(window: Clip | ClipError, config: EncodeConfig) -> tuple[Clip, Frames, CameraModel] | ClipError:
    """Decoded frames and their lens at the size of the cache."""
    if isinstance(window, ClipError):
        return window
    try:
        frames, lens, _ = fit_view(
            window.frames(), window.lens, height=config.height, width=config.width, crop=config.crop
        )
    except ClipError as error:
        return error
    except MeropeError as error:
        return window.error(error)
    assert frames is not None
    return window, frames, lens


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
