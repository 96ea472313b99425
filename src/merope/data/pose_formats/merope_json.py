"""This project's own format: JSON that states its convention, unit, times and lens."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.pose_formats.arrays import from_array
from merope.data.pose_formats.raw import CONVENTION, PoseFormat, RawPoses
from merope.data.pose_table import PoseFileError, ReadOptions, read_text
from merope.geometry.poses import Poses

_FORMAT = "merope-poses"


def read_merope(path: Path, options: ReadOptions) -> RawPoses:
    """This project's JSON: convention, unit, optional times and lens stand in the file itself."""
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise PoseFileError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise PoseFileError(
            f'{path} is JSON, but not this project\'s pose format (no "format": "{_FORMAT}").'
        )
    if content.get("version") != 1:
        raise PoseFileError(
            f"{path} has version {content.get('version')!r} of the format; this release reads 1."
        )
    if content.get("convention") != CONVENTION:
        raise PoseFileError(
            f"{path} states the convention {content.get('convention')!r}; this format has one only: "
            f"{CONVENTION!r}. Write it with merope.data.write_poses."
        )
    try:
        matrices = np.asarray(content["T_world_cam"], dtype=np.float64).reshape(-1, 3, 4)
        times = None if content.get("times") is None else np.asarray(content["times"], dtype=np.float64)
        if times is not None and times.ndim != 1:
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise PoseFileError(
            f"{path}: T_world_cam must be a list of rows of 12 numbers, times a list of seconds."
        ) from None
    raw = from_array(path, matrices, times, str(content.get("unit")))
    return RawPoses(
        matrices=raw.matrices, places=raw.places, times=raw.times, unit=raw.unit, camera=content.get("camera")
    )


def write_merope(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """One matrix per line, so that two versions of a file can be compared by eye."""
    head = {
        "format": _FORMAT,
        "version": 1,
        "convention": CONVENTION,
        "unit": poses.unit,
        "camera": camera,
        "times": None if poses.times is None else poses.times.tolist(),
    }
    rows = ",\n".join("  " + json.dumps(row) for row in poses.T_world_cam[:, :3].flatten(1).tolist())
    return (json.dumps(head, allow_nan=False)[:-1] + ',\n "T_world_cam": [\n' + rows + "\n]}\n").encode()


FORMATS = {
    "merope": PoseFormat(
        about="this project's JSON: convention, unit, times and lens stand in the file",
        read=read_merope,
        write=write_merope,
    ),
}
