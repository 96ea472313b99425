"""MotionCtrl's camera files: a JSON list of world-to-camera matrices relative to the first."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.poses.formats.inversion import offsets_of_centers
from merope.data.poses.formats.json_entries import json_glimpse, read_json
from merope.data.poses.formats.raw import PoseFormat, RawPoses
from merope.data.poses.table import ReadOptions
from merope.geometry.poses import Poses

_NUMBER = r"\s*-?\d[\d.eE+-]*\s*"
_FIRST_ROW = re.compile(rf"\[\s*\[{_NUMBER}(?:,{_NUMBER}){{11}}\]")


def read_motionctrl(path: Path, options: ReadOptions) -> RawPoses:
    """A list of 12 numbers each, 3 x 4 row by row, world-to-camera; the world is the first camera, its scale that of SfM."""
    rows = read_json(path).items()
    matrices = np.stack([row.numbers(12).reshape(3, 4) for row in rows])
    notes: tuple[str, ...] = ()
    if np.abs(matrices[0] - np.eye(3, 4)).max() > 1e-3:
        notes = ("the first pose is not the identity, which MotionCtrl's own files begin with",)
    return RawPoses(matrices=matrices, places=tuple(row.place for row in rows), notes=notes)


def write_motionctrl(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The motion seen from the first camera, as MotionCtrl takes it; its place, times, lens and unit are lost."""
    relative = poses.rebase_to_first()
    R_cam_world = relative.R_world_cam.mT.numpy()
    offsets = offsets_of_centers(R_cam_world, relative.center_world.numpy())
    rows = np.concatenate([R_cam_world, offsets[:, :, None]], axis=2).reshape(-1, 12).tolist()
    return ("[" + ",\n ".join(map(json.dumps, rows)) + "]\n").encode()


def recognise_motionctrl(path: Path) -> str | None:
    """A JSON list that begins with a list of 12 numbers."""
    return "a JSON list of 12 numbers a pose" if _FIRST_ROW.match(json_glimpse(path)) else None


FORMATS = {
    "motionctrl": PoseFormat(
        about="MotionCtrl's JSON, a list of 12 numbers each: 3 x 4 world-to-camera relative to the first camera",
        read=read_motionctrl,
        write=write_motionctrl,
        recognise=recognise_motionctrl,
        direction="world-to-camera",
        keeps_world=False,
    ),
}
