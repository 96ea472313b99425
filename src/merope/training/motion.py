"""The translation scale of training motion, for encodings in which metres enter linearly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from merope.adapters.command import latent_matrices
from merope.adapters.spec import VideoSpec
from merope.encodings.registry import encoding_from_config, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.geometry.poses import Poses
from merope.training.config import TrainConfig
from merope.training.street_clips import StreetClips


def with_motion_scale(config: TrainConfig, clips: StreetClips) -> TrainConfig:
    """The configuration with its encoding's translation scale estimated from the clips that are trained on.

    The first and the last window of every clip count, with the poses of their latent frames; probe clips do
    not. An encoding that takes raw metres is left as it is.
    """
    if not needs_scale(config.encoding):
        return config
    spec = config.spec
    starts = sorted({0, clips.config.num_frames - spec.num_frames})
    windows = [
        clips.poses(clip)[start : start + spec.num_frames]
        for clip in range(len(clips) - config.num_probe_clips)
        for start in starts
    ]
    return replace(config, encoding=with_scale_of(config.encoding, windows, spec))


def needs_scale(encoding: dict[str, Any]) -> bool:
    """Whether metres enter linearly in the encoding of this configuration."""
    return encoding_from_config(encoding).facts.needs_scale


def with_scale_of(encoding: dict[str, Any], windows: Sequence[Poses], spec: VideoSpec) -> dict[str, Any]:
    """An encoding's configuration with the translation scale of these clips' latent frames.

    Raises:
        ValueError: if no clip moves.
    """
    # Any: which options an encoding has is its own affair.
    made: Any = encoding_from_config(encoding)
    scale = TranslationScale.from_motion(list(latent_matrices(windows, spec)[:, :, :3, 3]))
    return encoding_to_config(replace(made, scale=scale))
