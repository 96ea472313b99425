"""What a video is asked to be, held against the model's configurations before any weight is read."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from merope.adapters.command import spec_lens
from merope.adapters.spec import VideoSpec, wan_spec
from merope.cameras import CameraModel
from merope.errors import MeropeError, TrajectoryError
from merope.generation.model_files import ModelConfigs
from merope.generation.trajectory import require_steps
from merope.geometry.gravity import Up, unit_up
from merope.geometry.poses import Poses, Unit

PrefixFrames = np.ndarray | Image.Image | Sequence[Any]
"""Frames that are given: bytes [n, H, W, 3] or one image for all clips; or one entry per clip, as a list of arrays
[n, H, W, 3], a list of lists of images, or an array [clip, n, H, W, 3]."""


class RequestWarning(UserWarning):
    """A request leaves what the adapter was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Clips that a model can be asked for: everything is there once per clip and fits."""

    spec: VideoSpec
    """Sizes, frames and prefix of every clip."""
    poses: tuple[Poses, ...]
    """One per frame of each clip."""
    lenses: tuple[CameraModel, ...]
    """The lens of each clip, for frames of the spec's size."""
    prefix: UInt8[np.ndarray, "clip given height width 3"] | None
    """The given frames of each clip."""
    up_world: tuple[Up, ...] | None = None
    """Against gravity in each clip's own world; None for an adapter without an input map, which does not ask."""

    @property
    def num_clips(self) -> int:
        """How many videos are asked for."""
        return len(self.poses)


def check_request(
    model: ModelConfigs | str | Path,
    *,
    poses: Poses | Sequence[Poses],
    lens: CameraModel | Sequence[CameraModel] | None = None,
    prefix: PrefixFrames | None = None,
    up_world: Sequence[float] | Sequence[Sequence[float]] | None = None,
    height: int | None = None,
    width: int | None = None,
    num_frames: int | None = None,
    counts: Mapping[str, int] | None = None,
    adapter: str | Path | None = None,
    allow_untrained: bool = False,
) -> Request:
    """The request with its blanks filled in; all that can be refused without a weight is refused here.

    ``model`` is a pipeline's folder or hub name, of which the configuration files alone are read (with ``adapter`` as in
    `ModelConfigs.read`), or what was read. Blanks are filled by what the adapter was trained for, then by the lens
    (sizes) and the poses (frames). What there is one of serves all clips; ``counts`` says how many the call has of
    other things, by their names. ``up_world`` is the direction against gravity in the world of the poses; adapters without
    an input map do not read it.

    Raises:
        ValueError: if sizes, counts, prefix or lenses do not fit the model or each other, or ``up_world`` is no direction or
            missing for an adapter with an input map.
        TrajectoryError: if a trajectory has another number of poses, another unit, or jumps.
        MeropeError: if there is no adapter, so that the cameras would be ignored, unless ``allow_untrained``.
    """
    configs = model if isinstance(model, ModelConfigs) else ModelConfigs.read(model, adapter=adapter)
    if configs.adapter is None and not allow_untrained:
        raise MeropeError(
            "the model has no camera adapter, so the cameras would be ignored. Load one with "
            "MeropePipeline.from_pretrained(..., adapter=FILE), or pass allow_untrained=True to run the base model."
        )
    trained = configs.trained
    all_poses = [poses] if isinstance(poses, Poses) else list(poses)
    if not all_poses:
        raise ValueError("poses must hold at least one trajectory; got none.")
    lenses = _lenses(lens, trained)
    given = None if prefix is None else given_frames(prefix)
    ups = None if up_world is None else _ups(up_world)
    if ups is None and configs.needs_up:
        raise ValueError(
            "up_world is needed: this adapter's input map has to know which way is up. Say the direction against gravity in "
            "the world of the poses: up_world=(0, -1, 0) where y points down, (0, 0, 1) where z points up; 'up_world' in a "
            "manifest's trajectory, --up 0 0 1 on the command line."
        )
    there_are = {
        "poses": len(all_poses),
        "lens": len(lenses),
        "up_world": 1 if ups is None else len(ups),
        "prefix": 1 if given is None else len(given),
        **(counts or {}),
    }
    num_clips = max(there_are.values())
    for name, count in there_are.items():
        if count not in (1, num_clips):
            raise ValueError(
                f"{name} must be one for all clips or one per clip, {num_clips} here; got {count}."
            )
    spec = _spec(
        configs,
        height=_first(height, None if trained is None else trained.height, lenses[0].height),
        width=_first(width, None if trained is None else trained.width, lenses[0].width),
        num_frames=_first(num_frames, None if trained is None else trained.num_frames, len(all_poses[0])),
        prefix_frames=0 if given is None else given.shape[1],
    )
    if given is not None and given.shape[2:4] != (spec.height, spec.width):
        raise ValueError(
            f"prefix has frames of {given.shape[2]} x {given.shape[3]} (height x width), the video "
            f"{spec.height} x {spec.width}. Resize frames and lens alike (CameraModel.resize)."
        )
    for each in lenses:
        spec.require_size(each.height, each.width)
        if each.view_shape != ():
            raise ValueError(
                f"lens must be one lens for all frames of a clip; got one with views {list(each.view_shape)}. Give "
                "numbers, not lists, for its parameters."
            )
    for one in all_poses:
        _check_poses(one, spec, configs.pose_unit)
    _warn_beyond(spec, trained)
    return Request(
        spec=spec,
        poses=tuple(all_poses * num_clips if len(all_poses) == 1 else all_poses),
        lenses=tuple(lenses * num_clips if len(lenses) == 1 else lenses),
        prefix=given if given is None else np.broadcast_to(given, (num_clips, *given.shape[1:])),
        up_world=tuple(ups * (num_clips // len(ups))) if ups is not None and configs.needs_up else None,
    )


def given_frames(prefix: PrefixFrames) -> UInt8[np.ndarray, "clip given height width 3"]:
    """Frames that are given, one set per clip; or of length one, for all clips.

    Raises:
        TypeError: if an entry is neither bytes nor images.
        ValueError: if shapes or counts differ, or a flat list does not say whether it holds frames or clips.
    """
    if isinstance(prefix, np.ndarray) and prefix.ndim == 5:
        clips = [_frames(clip) for clip in prefix]
    elif isinstance(prefix, np.ndarray | Image.Image):
        clips = [_frames(prefix)]
    else:
        if any(isinstance(entry, Image.Image) or getattr(entry, "ndim", 4) == 3 for entry in prefix):
            raise ValueError(
                "prefix is a list of single frames, which may be one clip's frames or one frame of each clip. Say which: "
                "numpy.stack(frames) for the frames of one clip, [[frame], [frame], ...] for one frame per clip."
            )
        clips = [_frames(entry) for entry in prefix]
    if not clips:
        raise ValueError("prefix must hold frames; got an empty list. None stands for no given frames.")
    if len({clip.shape for clip in clips}) > 1:
        raise ValueError(
            f"prefix must have frames of one size and number in all clips; got {[list(clip.shape) for clip in clips]}."
        )
    return np.stack(clips)


def _frames(clip: Any) -> np.ndarray:
    """Frames of one clip as bytes [n, H, W, 3]."""
    if isinstance(clip, Image.Image):
        clip = [clip]
    if not isinstance(clip, np.ndarray):
        frames = list(clip) if isinstance(clip, Sequence) else [clip]
        if not frames or not all(isinstance(frame, Image.Image | np.ndarray) for frame in frames):
            kinds = sorted({type(frame).__name__ for frame in frames})
            raise TypeError(f"prefix must hold images or byte arrays [n, H, W, 3]; got a list of {kinds}.")
        frames = [
            np.asarray(frame.convert("RGB") if isinstance(frame, Image.Image) else frame) for frame in frames
        ]
        if len({frame.shape for frame in frames}) > 1:
            raise ValueError(
                f"prefix must have frames of one size; got {sorted({frame.shape for frame in frames})}."
            )
        clip = np.stack(frames)
    if clip.ndim == 3:
        clip = clip[None]
    if clip.dtype != np.uint8 or clip.ndim != 4 or clip.shape[-1] != 3 or 0 in clip.shape:
        raise ValueError(
            f"prefix must hold bytes (uint8, 0 to 255) of shape [n, H, W, 3]; got {clip.dtype} {list(clip.shape)}. "
            "Floats in [0, 1]: (frames * 255).round().astype('uint8')."
        )
    return clip


def _lenses(lens: CameraModel | Sequence[CameraModel] | None, trained: VideoSpec | None) -> list[CameraModel]:
    if lens is None:
        if trained is None or trained.camera is None:
            raise ValueError(
                "lens is needed: this model has no lens of its own. Pass a CameraModel for frames of the video's size, "
                "such as merope.Pinhole.from_fov(fov_x_deg=90, height=480, width=832)."
            )
        return [spec_lens(trained)]
    lenses = [lens] if isinstance(lens, CameraModel) else list(lens)
    if not lenses:
        raise ValueError("lens must hold at least one lens; got none.")
    return lenses


def _ups(up_world: Sequence[float] | Sequence[Sequence[float]]) -> list[Up]:
    """One direction, or one per clip."""
    # Any: which of the two it is, its entries tell.
    found: Any = up_world
    if all(np.ndim(entry) == 0 for entry in found):
        return [unit_up(found)]
    return [unit_up(one) for one in found]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _spec(configs: ModelConfigs, **asked: int) -> VideoSpec:
    """What the model makes of sizes and counts."""
    trained = configs.trained
    made = wan_spec(
        configs.transformer,
        configs.vae,
        height=asked["height"],
        width=asked["width"],
        num_frames=asked["num_frames"],
        prefix_frames=asked["prefix_frames"],
        fps=configs.fps,
        # Plays no part in sampling: the scheduler has its own.
        shift=1.0 if trained is None else trained.shift,
        pose_policy=configs.pose_policy,
    )
    longest = configs.transformer.get("rope_max_seq_len", 1024)
    if max(made.latent_frames, *made.token_grid) > longest:
        raise ValueError(
            f"the model takes at most {longest} latent frames, rows or columns of tokens (rope_max_seq_len); got "
            f"{made.latent_frames} latent frames of {made.token_grid[0]} x {made.token_grid[1]} tokens."
        )
    return made if trained is None else replace(made, prediction=trained.prediction)


def _check_poses(poses: Poses, spec: VideoSpec, unit: Unit) -> None:
    wanted, have = spec.num_frames, len(poses)
    if have != wanted:
        ways = [f"num_frames={have}"] if have % spec.temporal_stride == 1 else []
        if have > wanted:
            ways.append(f"the first ones, poses[:{wanted}]")
        else:
            ways.append("a longer trajectory")
            if have > 1:
                ways.append(f"poses.resample({wanted}), the same path in more frames")
        raise TrajectoryError(
            f"trajectory has {have} poses, {wanted} frames requested; use {', or '.join(ways)}."
        )
    if poses.unit != unit:
        raise TrajectoryError(
            f"the trajectory's unit is {poses.unit!r}, and the adapter was trained on {unit!r}. Multiply it by its scale "
            f"(Poses.scaled) and say unit={unit!r}."
        )
    require_steps(poses, spec.fps)


def _warn_beyond(spec: VideoSpec, trained: VideoSpec | None) -> None:
    """Warn where a request leaves what the adapter was trained on."""
    if trained is None:
        return
    beyond: Mapping[str, bool] = {
        f"{spec.num_frames} frames, trained with {trained.num_frames}": spec.num_frames > trained.num_frames,
        f"{spec.prefix_frames} given frames, trained with {trained.prefix_frames}": spec.prefix_frames
        != trained.prefix_frames,
        f"{spec.height} x {spec.width} pixels, trained with {trained.height} x {trained.width}": (
            (spec.height, spec.width) != (trained.height, trained.width)
        ),
    }
    if any(beyond.values()):
        parts = "; ".join(text for text, true in beyond.items() if true)
        warnings.warn(
            f"the request leaves what the adapter was trained on: {parts}. How well it follows cameras there is unknown.",
            RequestWarning,
            stacklevel=4,
        )
