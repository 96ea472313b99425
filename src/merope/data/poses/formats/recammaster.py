"""ReCamMaster's camera files: JSON of text matrices in the conventions of the Unreal Engine.

A matrix "[a b c d] [..] [..] [..]" is the transpose of a camera-to-world one, so its last bracket is the position. Axes are
x forward, y right, z up, left-handed, of cameras and world alike; lengths are centimetres.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merope.data.poses.formats.choosing import chosen_camera
from merope.data.poses.formats.json_entries import Entry, json_glimpse, read_json
from merope.data.poses.formats.raw import PoseFormat, RawPoses, require_metres
from merope.data.poses.table import R_AXES_OPENCV, PoseFileError, ReadOptions, plain_number
from merope.geometry.poses import Poses

_CENTIMETRES = 100.0
_FRAME = re.compile(r"frame(\d{1,15})")
_MATRIX = re.compile(r"\s*" + r"\[([^\[\]]*)\]\s*" * 4)
_GLIMPSE = re.compile(r'\{\s*"frame\d+"\s*:\s*\{\s*"[^"]*"\s*:\s*"\s*\[')


def read_recammaster(path: Path, options: ReadOptions) -> RawPoses:
    """Frames "frame0", "frame1", ... by their numbers, each with a text matrix for every camera."""
    numbered: dict[int, Entry] = {}
    for name, frame in read_json(path).members():
        match = _FRAME.fullmatch(name)
        if match is None:
            raise PoseFileError(
                f"{path}: the names of this format are frame0, frame1, ...; got {name[:60]!r}."
            )
        number = int(match[1])
        if number in numbered:
            raise PoseFileError(f"{path} has frame {number} twice, as {numbered[number].place} and {name}.")
        numbered[number] = frame
    if not numbered:
        raise PoseFileError(f"{path} holds no frames.")
    ids = tuple(sorted(numbered))
    camera = chosen_camera(path, options, [name for name, _ in numbered[ids[0]].members()])
    entries = [numbered[number][camera] for number in ids]
    return RawPoses(
        matrices=np.stack([_matrix(entry) for entry in entries]),
        places=tuple(entry.place for entry in entries),
        frame_ids=ids,
    )


def _matrix(entry: Entry) -> Float[np.ndarray, "3 4"]:
    match = _MATRIX.fullmatch(entry.text())
    rows = [] if match is None else [group.split() for group in match.groups()]
    try:
        values = np.array([[plain_number(field) for field in row] for row in rows], dtype=np.float64)
    except ValueError:
        values = np.zeros(0)
    if values.shape != (4, 4):
        raise entry.refused("four brackets of four numbers, '[..] [..] [..] [..]'")
    if not np.isfinite(values).all():
        raise PoseFileError(f"{entry.where} holds a value that is not finite. Remove frames without a pose.")
    if np.abs(values[:, 3] - [0, 0, 0, 1]).max() > 1e-6:
        raise PoseFileError(
            f"{entry.where}: the last numbers of the brackets must be 0 0 0 1, got {values[:, 3].tolist()}. The position "
            "is the last bracket in this format; here the matrices seem not to be transposed."
        )
    matrix = values.T[:3].copy()
    matrix[:, 3] /= _CENTIMETRES
    return matrix


def write_recammaster(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The same with every digit, of a camera named cam01; times and lens are lost.

    Raises:
        ValueError: if the poses are not in metres.
    """
    require_metres("recammaster", poses)
    axes = R_AXES_OPENCV["unreal"]
    columns = np.zeros((len(poses), 4, 4))
    columns[:, :3, :3] = axes @ poses.R_world_cam.numpy() @ axes.T
    columns[:, :3, 3] = poses.center_world.numpy() @ axes.T * _CENTIMETRES
    columns[:, 3, 3] = 1
    frames = {}
    for index, matrix in enumerate(columns):
        brackets = [" ".join(map(repr, column)) for column in matrix.T.tolist()]
        frames[f"frame{index}"] = {"cam01": " ".join(f"[{bracket}]" for bracket in brackets)}
    return (json.dumps(frames, indent=1) + "\n").encode()


def recognise_recammaster(path: Path) -> str | None:
    """JSON that begins with the matrix text of a camera in a numbered frame."""
    return "JSON with text matrices of numbered frames" if _GLIMPSE.match(json_glimpse(path)) else None


FORMATS = {
    "recammaster": PoseFormat(
        about="ReCamMaster's JSON: a text matrix for each frame and camera, Unreal Engine axes, centimetres",
        read=read_recammaster,
        write=write_recammaster,
        recognise=recognise_recammaster,
        options=("camera",),
        unit="m",
        axes="unreal",
    ),
}
