"""PanShot's tracks: arrays [81, 3, 4] in a level world, and the near depths that UCPE divides their translations by."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.formats.arrays import array_bytes, from_array, load_array
from merope.data.poses.formats.raw import PoseFormat, RawPoses
from merope.data.poses.formats.recognition import array_head
from merope.data.poses.table import PoseFileError, ReadOptions, read_bytes, read_lines
from merope.geometry.poses import Poses


def read_panshot(path: Path, options: ReadOptions) -> RawPoses:
    """One track: camera-to-world matrices [T, 3, 4] in a world whose y points down along gravity, in units of its video.

    What a length of 1 is differs from video to video; `divide_by_near_depth` brings them to comparable ones.
    """
    array = load_array(path, read_bytes(path))
    if array.ndim == 3 and array.shape[1:] == (4, 4):
        raise PoseFileError(
            f"{path} holds 4 x 4 matrices and PanShot's tracks are [T, 3, 4]. Use format='npy' (--format npy), or "
            "'rds-hq' (--format rds-hq) for poses of a vehicle."
        )
    raw = from_array(path, array, None, None)
    note = "gravity points along +y of the world: up_world is (0, -1, 0)"
    return RawPoses(matrices=raw.matrices, places=raw.places, notes=(note,))


def near_depth_key(path: str | Path) -> str:
    """The key of a track's video clip, VIDEO-CLIP, in the table of near depths: its name without its last two parts.

    Raises:
        ValueError: if the name has fewer than three parts between '-'.
    """
    stem = Path(path).stem
    key = stem.rsplit("-", 2)[0]
    if key == stem or stem.count("-") < 2:
        raise ValueError(f"a PanShot track is named VIDEO-CLIP-NUMBER-KIND.npy, got {Path(path).name!r}.")
    return key


def read_near_depths(path: str | Path) -> dict[str, float]:
    """Near depths by "VIDEO-CLIP", from lines of JSON with video_id, clip_id and near_depth.

    Raises:
        PoseFileError: for a line that has none of it, a depth that is not above zero, and a clip with two depths.
    """
    depths: dict[str, float] = {}
    for number, line in enumerate(read_lines(Path(path)), start=1):
        if not line.strip():
            continue
        try:
            entry = parse_json(line)
            key, depth = f"{entry['video_id']}-{entry['clip_id']}", entry["near_depth"]
            if isinstance(depth, bool) or not isinstance(depth, int | float):
                raise TypeError
            depth = float(depth)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise PoseFileError(
                f"{path}, line {number} is no JSON object with video_id, clip_id and a number near_depth."
            ) from None
        if not (0 < depth < math.inf):
            raise PoseFileError(f"{path}, line {number}: near_depth must be above 0, got {depth:g}.")
        if depths.setdefault(key, depth) != depth:
            raise PoseFileError(
                f"{path}, line {number}: the clip {key} has the near depth {depth:g} and, further up, {depths[key]:g}."
            )
    return depths


def divide_by_near_depth(poses: Poses, near_depths: Mapping[str, float], path: str | Path) -> Poses:
    """The track's poses in units of its clip's near depth, as UCPE feeds them to a model; ``path`` names the track.

    Raises:
        PoseFileError: if the table has no depth for the clip.
    """
    key = near_depth_key(path)
    if key not in near_depths:
        raise PoseFileError(
            f"the table of {len(near_depths)} near depths has none for {key} ({Path(path).name}). Use the table of the "
            "same part of the data set, or leave the track out."
        )
    return Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world / near_depths[key],
        times=poses.times,
        unit="normalized",
        projection_error=poses.projection_error,
    )


def without_first_yaw(poses: Poses) -> Poses:
    """The world turned about its y axis, so that the first camera looks along z but for its pitch; pitch and roll stay.

    The turn is about the world's origin, which stays where it is.

    Raises:
        ValueError: if the first camera looks straight up or down, where it has no yaw.
    """
    forward = poses.R_world_cam[0, :, 2]
    x, z = float(forward[0]), float(forward[2])
    length = math.hypot(x, z)
    if length < 1e-6:
        raise ValueError(
            "the first camera looks along the world's y axis and has no yaw to take out. Start at another frame."
        )
    sin, cos = x / length, z / length
    turn = torch.tensor([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]], dtype=torch.float64)
    return poses.transformed(turn, torch.zeros(3, dtype=torch.float64))


def write_panshot(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The matrices [T, 3, 4] in float64: PanShot's own float32 would not hold every digit. A lens has no place here."""
    return array_bytes(poses.T_world_cam[:, :3].numpy())


def recognise_panshot(path: Path) -> str | None:
    """An array [T, 3, 4] under a name of PanShot's kind."""
    head = array_head(path)
    if head is None or len(head.shape) != 3 or head.shape[1:] != (3, 4):
        return None
    parts = path.name.removesuffix(".gz").removesuffix(".npy").rsplit("-", 3)
    if len(parts) == 4 and parts[1].isdigit() and parts[2].isdigit() and "_aug_" in parts[3]:
        return (
            f"NumPy array of shape {list(head.shape)} named as PanShot names tracks, VIDEO-CLIP-NUMBER-KIND"
        )
    return None


FORMATS = {
    "panshot": PoseFormat(
        about="NumPy array [T, 3, 4] of PanShot: camera-to-world, y down, units of its video",
        read=read_panshot,
        write=write_panshot,
        recognise=recognise_panshot,
    ),
}
