"""The translation scale of training motion, for encodings in which metres enter linearly."""

from dataclasses import replace
from typing import Any

from merope.adapters.command import latent_matrices
from merope.encodings.registry import encoding_from_config, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.training.config import TrainConfig
from merope.training.street_clips import StreetClips


def with_motion_scale(config: TrainConfig, clips: StreetClips) -> TrainConfig:
    """The configuration with its encoding's translation scale estimated from the clips that are trained on.

    The first and the last window of every clip count, with the poses of their latent frames; probe clips do
    not. An encoding that takes raw metres is left as it is.
    """
    encoding: Any = encoding_from_config(config.encoding)
    if not encoding.facts.needs_scale:
        return config
    spec = config.spec
    starts = sorted({0, clips.config.num_frames - spec.num_frames})
    windows = [
        clips.poses(clip)[start : start + spec.num_frames]
        for clip in range(len(clips) - config.num_probe_clips)
        for start in starts
    ]
    scale = TranslationScale.from_motion(list(latent_matrices(windows, spec)[:, :, :3, 3]))
    return replace(config, encoding=encoding_to_config(replace(encoding, scale=scale)))
