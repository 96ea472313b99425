"""RealEstate10K: the address of a video, then time, intrinsics as shares of the picture, world-to-camera matrix a line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from merope.cameras import CameraModel, Pinhole
from merope.data.poses.formats.inversion import offsets_of_centers
from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_line
from merope.data.poses.formats.recognition import are_rotations, first_lines, first_rows
from merope.data.poses.formats.stamped import require_increasing, seconds, whole_stamps
from merope.data.poses.table import PoseFileError, ReadOptions, Table, explain_columns, read_lines, read_rows
from merope.geometry.poses import Poses

_US = 10**6
# Focal lengths as shares of the picture: 20 is a field of view of 2.9 degrees, and less than any length in pixels.
_LONGEST_FOCAL = 20.0
# What stands for the address in a file written here: the address of an empty page.
_NO_ADDRESS = "about:blank"


@dataclass(frozen=True, slots=True)
class _File:
    address: str
    table: Table

    @property
    def intrinsics(self) -> Float[np.ndarray, "time 4"]:
        """fx fy cx cy of each line, as shares of width, height, width, height."""
        return self.table.values[:, 1:5]


def read_realestate10k(path: Path, options: ReadOptions) -> RawPoses:
    """RealEstate10K: an address, then lines of microseconds, fx fy cx cy, two zeros and the 12 numbers of T_cam_world.

    The poses are those of a reconstruction without a scale. The lens needs the size of the pictures: `realestate10k_lens`.
    """
    file = _read(path, options)
    places = by_line(file.table.lines)
    times = seconds(file.table.stamps, _US)
    require_increasing(path, places, file.table.stamps, times)
    notes = [f"the video is {file.address[:200]}"] if file.address != _NO_ADDRESS else []
    low, high = file.intrinsics.min(axis=0), file.intrinsics.max(axis=0)
    if (low != high).any():
        spans = ", ".join(
            f"{name} {a:g} to {b:g}"
            for name, a, b in zip(("fx", "fy", "cx", "cy"), low, high, strict=True)
            if a != b
        )
        notes.append(f"the intrinsics vary from line to line: {spans}")
    return RawPoses(
        matrices=file.table.values[:, 7:].reshape(-1, 3, 4), places=places, times=times, notes=tuple(notes)
    )


def realestate10k_lens(path: str | Path, *, height: int, width: int) -> Pinhole:
    """The lens of a RealEstate10K pose file for pictures of a size in pixels, with parameters per frame where they vary.

    The whole picture was resized to that size, so ``fx`` and ``cx`` are shares of its width and ``fy`` and ``cy`` of its
    height; 0.5 is its middle, which puts pixels' origin at the corner.

    Raises:
        PoseFileError: if the file cannot be read.
    """
    shares = _read(Path(path), ReadOptions()).intrinsics
    if (shares == shares[0]).all():
        fx, fy, cx, cy = shares[0].tolist()
        return _lens(fx, fy, cx, cy, height=height, width=width)
    per_frame = torch.from_numpy(shares.copy()).unbind(-1)
    return _lens(*per_frame, height=height, width=width)


def _lens(fx: Any, fy: Any, cx: Any, cy: Any, *, height: int, width: int) -> Pinhole:
    return Pinhole(
        fx=fx * width,
        fy=fy * height,
        cx=cx * width,
        cy=cy * height,
        height=height,
        width=width,
        pixel_origin="corner",
    )


def _read(path: Path, options: ReadOptions) -> _File:
    lines = read_lines(path)
    address = lines[0].strip() if lines else ""
    if len(address.split()) != 1 or address[0] in "{[":
        table = read_rows(path, enumerate(lines, start=1), options)
        if table.num_columns != 19:
            raise explain_columns(path, table, "RealEstate10K lines have 19, below the address of a video")
        raise PoseFileError(
            f"{path} begins with numbers; line 1 should be the address of the video, as in RealEstate10K's files. Put it, "
            "or any one word, in front."
        )
    table = read_rows(path, enumerate(lines[1:], start=2), options)
    if table.num_columns != 19:
        raise PoseFileError(
            f"{path}, line {table.lines[0]} has {table.num_columns} numbers; RealEstate10K lines have 19: microseconds, "
            "fx fy cx cy, two zeros and the 12 of the matrix. A file with 18 or 20 was cut or changed: fetch it again."
        )
    _check(path, table)
    return _File(address, table)


def _check(path: Path, table: Table) -> None:
    values = table.values
    for wrong, complaint in (
        (
            values[:, 0] != np.round(values[:, 0]),
            "the first number should be a time in whole microseconds. Multiply seconds by 1000000",
        ),
        (
            (values[:, 5:7] != 0).any(axis=1),
            "the numbers 6 and 7 should be zeros, which stand between the intrinsics and the matrix. Is there a lens "
            "distortion, or a column too many?",
        ),
        (
            (values[:, 1:5] > [_LONGEST_FOCAL, _LONGEST_FOCAL, 1, 1]).any(axis=1),
            "the intrinsics are those of pixels, where RealEstate10K has shares of the picture. Divide fx and cx by its "
            "width and fy and cy by its height",
        ),
        (
            (values[:, 1:3] <= 0).any(axis=1) | (values[:, 3:5] < 0).any(axis=1),
            "the numbers 2 to 5 should be fx fy cx cy, shares of the picture, and fx and fy above zero",
        ),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise PoseFileError(
                f"{path}, line {table.lines[row]}: {complaint}; got {' '.join(f'{v:g}' for v in values[row, :7])}."
            )


def write_realestate10k(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """An address that means none, and 19 numbers a line; times are rounded to microseconds.

    Raises:
        ValueError: if there are no times, no lens, or one that is no pinhole.
    """
    stamps = whole_stamps("realestate10k", poses, _US)
    shares = _shares(camera, len(poses))
    rotations = poses.R_world_cam.mT.contiguous().numpy()
    offsets = offsets_of_centers(rotations, poses.center_world.numpy())
    rows = np.concatenate([rotations, offsets[:, :, None]], axis=2).reshape(-1, 12).tolist()
    lines = [
        " ".join([str(stamp), *map(repr, lens), "0.0", "0.0", *map(repr, row)])
        for stamp, lens, row in zip(stamps, shares, rows, strict=True)
    ]
    return "\n".join([_NO_ADDRESS, *lines, ""]).encode()


def _shares(camera: dict[str, Any] | None, count: int) -> list[list[float]]:
    if camera is None:
        raise ValueError(
            "format 'realestate10k' needs a lens with the size of its pictures and got none. Pass camera=, the to_dict() "
            "of a Pinhole, to write_poses (merope poses convert: --lens FILE)."
        )
    lens = CameraModel.from_dict(camera).with_pixel_origin("corner")
    if not isinstance(lens, Pinhole):
        raise ValueError(
            f"format 'realestate10k' holds pinholes alone, got {lens.model!r}. Undistort the pictures first, or use format "
            "'merope', which keeps any lens."
        )
    if lens.view_shape not in ((), (count,)):
        raise ValueError(
            f"the lens must be one for all or one for each of {count} poses, got {lens.view_shape}."
        )
    sizes = (lens.width, lens.height, lens.width, lens.height)
    values = (lens.fx, lens.fy, lens.cx, lens.cy)
    columns = [
        torch.as_tensor(value, dtype=torch.float64).expand(count) / size
        for value, size in zip(values, sizes, strict=True)
    ]
    return torch.stack(columns, dim=1).tolist()


def recognise_realestate10k(path: Path) -> str | None:
    """One word in line 1, and 19 numbers a line with two zeros before a rotation."""
    lines = first_lines(path)
    if not lines or len(lines[0].split()) != 1:
        return None
    rows = first_rows(path, header=1)
    if rows.shape[1] != 19 or (rows[:, 5:7] != 0).any() or not are_rotations(rows[:, 7:].reshape(-1, 3, 4)):
        return None
    what = "an address" if lines[0].startswith("http") else "one word"
    return f"{what} in line 1, then 19 numbers a line: time, intrinsics, two zeros, 3 x 4 matrix"


FORMATS = {
    "realestate10k": PoseFormat(
        about="text, an address, then us fx fy cx cy 0 0 and 3 x 4 world-to-camera matrix a line",
        read=read_realestate10k,
        write=write_realestate10k,
        recognise=recognise_realestate10k,
        options=("delimiter", "skip_lines"),
        direction="world-to-camera",
    ),
}
