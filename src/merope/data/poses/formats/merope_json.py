"""This project's own format: JSON that states its convention, unit, times, lens and which frames its poses stand for."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.poses.formats.json_entries import Entry, json_glimpse, read_json
from merope.data.poses.formats.raw import (
    CONVENTION,
    PoseFormat,
    PosePolicy,
    RawPoses,
    by_entry,
    checked_policy,
    checked_unit,
    require_as_many,
)
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses

_FORMAT = "merope-poses"
_VERSIONS = (1, 2)


def read_merope(path: Path, options: ReadOptions) -> RawPoses:
    """This project's JSON, version 1 or 2, which adds the pose policy."""
    content = read_json(path)
    if not isinstance(content.value, dict) or content.value.get("format") != _FORMAT:
        raise PoseFileError(
            f'{path} is JSON, but not this project\'s pose format (no "format": "{_FORMAT}").'
        )
    version = content.value.get("version")
    if isinstance(version, bool) or version not in _VERSIONS:
        raise PoseFileError(f"{path} has version {version!r:.40} of the format; this release reads 1 and 2.")
    if content.value.get("convention") != CONVENTION:
        raise PoseFileError(
            f"{path} states the convention {content.value.get('convention')!r:.200}; this format has one only: "
            f"{CONVENTION!r}. Write it with merope.data.write_poses."
        )
    rows = content["T_world_cam"].items()
    policy, camera = content.find("pose_policy"), content.find("camera")
    return RawPoses(
        matrices=np.stack([row.numbers(12).reshape(3, 4) for row in rows]),
        places=by_entry(len(rows)),
        times=_times(content, len(rows)),
        unit=checked_unit(path, content["unit"].text()),
        camera=None if camera is None else camera.object(),
        pose_policy=None if policy is None else checked_policy(path, policy.text()),
    )


def _times(content: Entry, count: int) -> np.ndarray | None:
    times = content.find("times")
    if times is None:
        return None
    require_as_many(content.path, count, len(times.items()))
    return np.array([time.number() for time in times.items()])


def write_merope(poses: Poses, camera: dict[str, Any] | None, pose_policy: PosePolicy | None = None) -> bytes:
    """One matrix per line, so that two versions of a file can be compared by eye."""
    head = {
        "format": _FORMAT,
        "version": 2,
        "convention": CONVENTION,
        "unit": poses.unit,
        "pose_policy": pose_policy,
        "camera": camera,
        "times": None if poses.times is None else poses.times.tolist(),
    }
    rows = ",\n".join("  " + json.dumps(row) for row in poses.T_world_cam[:, :3].flatten(1).tolist())
    return (json.dumps(head, allow_nan=False)[:-1] + ',\n "T_world_cam": [\n' + rows + "\n]}\n").encode()


def recognise_merope(path: Path) -> str | None:
    """JSON that names the format."""
    return f'JSON that says "{_FORMAT}"' if f'"{_FORMAT}"' in json_glimpse(path) else None


FORMATS = {
    "merope": PoseFormat(
        about="this project's JSON: convention, unit, times, lens and pose policy stand in the file",
        read=read_merope,
        write=write_merope,
        keeps_pose_policy=True,
        recognise=recognise_merope,
    ),
}
