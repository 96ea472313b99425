"""Calibrations of driving data sets: KITTI, nuScenes, Argoverse 2, comma2k19; and a bare 3 x 3 matrix.

All of them count pixels from the centre of the first one.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from merope.cameras import Pinhole
from merope.data.lenses.calibrations.documents import (
    document_or_none,
    entry,
    intrinsic_matrix,
    lines_or_none,
    matrix_values,
    named,
    number,
    numbers,
    pixels,
    read_document,
    read_lines,
    rigid_from_quaternion,
    transform,
)
from merope.data.lenses.calibrations.raw import (
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)
from merope.data.poses.formats.argoverse2 import undistorted_note
from merope.errors import MissingDependency

_COMMA_SIZE = (874, 1164)
_VEHICLE = "vehicle (x forward, y left, z up)"


def read_kitti(path: Path, request: CalibrationRequest) -> Calibration:
    """A rectified camera of KITTI's calib.txt: P0 to P3, or rows of 12 numbers alone, which are P0, P1, ... in order.

    With P = K [I | t] the camera sits at -K^-1 P[:, 3] in the axes of camera P0, whose poses the trajectories are.
    """
    rows = _projections(read_lines(path))
    name = request.choose(path, list(rows))
    values = numbers(path, name, list(rows[name]), 12)
    affine = intrinsic_matrix(path, name, [values[index] for index in (0, 1, 2, 4, 5, 6, 8, 9, 10)])
    height, width = request.size(path)
    projection = torch.tensor(values, dtype=torch.float64).reshape(3, 4)
    if not (affine["fx"] > 0 and affine["fy"] > 0):
        raise CalibrationError(f"{path}: {name} must have positive focal lengths, got {affine}.")
    offset = -torch.linalg.solve(projection[:, :3], projection[:, 3])
    return Calibration(
        lens=Pinhole(**affine, height=height, width=width, pixel_origin="center"),
        name=name,
        T_body_cam=transform(torch.eye(3, dtype=torch.float64), offset),
        body="camera P0 (x right, y down, z forward)",
    )


def read_nuscenes(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of nuScenes' calibrated_sensor.json, by channel (sensor.json beside it) or by token.

    Where a table has several rows for one channel, one for each log, cameras go by their tokens. The image size is that of
    sample_data.json beside the table.
    """
    table = _nuscenes_cameras(read_document(path))
    if table is None:
        raise CalibrationError(f"{path} is no nuScenes table of calibrated sensors.")
    channels = _channels(path)
    labels = [channels.get(str(row.get("sensor_token")), str(row.get("token"))) for row in table]
    counts = Counter(labels)
    names = [
        label if counts[label] == 1 else str(row.get("token"))
        for label, row in zip(labels, table, strict=True)
    ]
    by_token = {str(row.get("token")): index for index, row in enumerate(table)}
    index = by_token.get(request.camera or "")
    if index is None:
        index = names.index(request.choose(path, names))
    row, name = table[index], names[index]
    affine = intrinsic_matrix(
        path, name, matrix_values(path, f"{name}.camera_intrinsic", row["camera_intrinsic"], 3, 3)
    )
    height, width = request.size(path, _nuscenes_size(path, str(row.get("token"))))
    w, x, y, z = numbers(path, f"{name}.rotation", entry(path, row, "rotation"), 4)
    offset = numbers(path, f"{name}.translation", entry(path, row, "translation"), 3)
    return Calibration(
        lens=Pinhole(**affine, height=height, width=width, pixel_origin="center"),
        name=name,
        T_body_cam=rigid_from_quaternion(path, name, (x, y, z, w), offset),
        body=_VEHICLE,
    )


def read_argoverse2(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of Argoverse 2's intrinsics.feather, with its place from egovehicle_SE3_sensor.feather beside it.

    The images are published without distortion, so the lens is a pinhole; k1, k2, k3 are of the glass, as a note says.
    """
    table = _feather(path)
    names = [str(name) for name in table.get("sensor_name", [])]
    row = names.index(request.choose(path, names))
    fields = ("fx_px", "fy_px", "cx_px", "cy_px", "k1", "k2", "k3")
    found = {field: table[field][row] if field in table else None for field in fields}
    fx, fy, cx, cy, *distortion = named(path, names[row], found, *fields)
    sides = {
        side: pixels(path, side, entry(path, table, side)[row]) if side in table else None
        for side in ("height_px", "width_px")
    }
    if None in sides.values():
        raise CalibrationError(f"{path} has no column height_px or width_px.")
    height, width = request.size(path, (int(sides["height_px"] or 0), int(sides["width_px"] or 0)))
    lens = Pinhole(fx=fx, fy=fy, cx=cx, cy=cy, height=height, width=width, pixel_origin="center")
    beside = path.parent / "egovehicle_SE3_sensor.feather"
    T_body_cam = None
    if beside.is_file():
        places = _feather(beside)
        sensors = [str(name) for name in places.get("sensor_name", [])]
        if names[row] in sensors:
            columns = ("qx", "qy", "qz", "qw", "tx_m", "ty_m", "tz_m")
            at = {column: places[column][sensors.index(names[row])] for column in columns if column in places}
            numbers_at = named(beside, names[row], at, *columns)
            T_body_cam = rigid_from_quaternion(beside, names[row], numbers_at[:4], numbers_at[4:])
    return Calibration(
        lens=lens,
        name=names[row],
        T_body_cam=T_body_cam,
        body=None if T_body_cam is None else _VEHICLE,
        notes=(undistorted_note(*distortion),) if any(distortion) else (),
    )


def read_comma2k19(path: Path, request: CalibrationRequest) -> Calibration:
    """comma2k19's camera_intrinsics.txt: one 3 x 3 matrix for all its cameras, whose images are 1164 x 874."""
    affine = _matrix_file(path)
    if (affine["cx"], affine["cy"]) != (_COMMA_SIZE[1] / 2, _COMMA_SIZE[0] / 2):
        raise CalibrationError(
            f"{path} is not the camera of comma2k19, whose axis is at (582, 437) of 1164 x 874 pixels. Read it as a plain "
            "matrix: format='matrix' (--format matrix) with height and width."
        )
    height, width = request.size(path, _COMMA_SIZE)
    return Calibration(lens=Pinhole(**affine, height=height, width=width, pixel_origin="center"), name="")


def read_matrix(path: Path, request: CalibrationRequest) -> Calibration:
    """A calibration matrix [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in a text file, alone."""
    affine = _matrix_file(path)
    height, width = request.size(path)
    return Calibration(lens=Pinhole(**affine, height=height, width=width, pixel_origin="center"), name="")


def _projections(lines: list[str]) -> dict[str, list[str]]:
    """Rows of 12 by name; without names they are P0, P1 and so on."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        name, colon, rest = line.partition(":")
        fields = (rest if colon else line).split()
        if colon and name.strip()[:1] == "P" and name.strip()[1:].isdigit() and len(fields) == 12:
            rows[name.strip()] = fields
        elif not colon and len(fields) == 12 and all(row == f"P{i}" for i, row in enumerate(rows)):
            rows[f"P{len(rows)}"] = fields
    return rows


def _ends_in_001(row: list[str]) -> bool:
    """Whether the last row of the 3 x 3 part is 0 0 1, as of a calibration matrix."""
    try:
        return [float(field) for field in row[8:11]] == [0, 0, 1]
    except ValueError:
        return False


def _matrix_file(path: Path) -> dict[str, Any]:
    fields = _matrix_fields(read_lines(path))
    if fields is None:
        raise CalibrationError(f"{path} must hold one 3 x 3 matrix and nothing else.")
    return intrinsic_matrix(path, "the matrix", [number(path, "the matrix", field) for field in fields])


def _matrix_fields(lines: list[str] | None) -> list[str] | None:
    """The nine fields of a 3 x 3 matrix of numbers; brackets and commas count as spaces."""
    rows = [line.translate(str.maketrans("[],;", "    ")).split() for line in lines or []]
    rows = [row for row in rows if row]
    if len(rows) != 3 or any(len(row) != 3 for row in rows):
        return None
    return [field for row in rows for field in row]


def _nuscenes_cameras(content: Any) -> list[dict[str, Any]] | None:
    """The rows of sensors with an intrinsic matrix; lidar and radar have an empty one."""
    if not isinstance(content, list) or not all(
        isinstance(row, dict) and "camera_intrinsic" in row for row in content
    ):
        return None
    return [row for row in content if row["camera_intrinsic"]]


def _channels(path: Path) -> dict[str, str]:
    """Channel names by sensor token, from sensor.json beside the table; empty without it."""
    table = document_or_none(path.parent / "sensor.json")
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    return {str(row["token"]): str(row["channel"]) for row in rows if {"token", "channel"} <= row.keys()}


def _nuscenes_size(path: Path, token: str) -> tuple[int, int] | None:
    # That table of the whole data set is too large to open for a size; then the caller gives it.
    beside = path.parent / "sample_data.json"
    table = document_or_none(beside)
    for row in table if isinstance(table, list) else []:
        if isinstance(row, dict) and row.get("calibrated_sensor_token") == token and row.get("height"):
            return pixels(beside, "height", row["height"]), pixels(beside, "width", row.get("width"))
    return None


def _feather(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import ArrowException, feather
    except ModuleNotFoundError:
        raise MissingDependency.for_extra(
            "pyarrow", extra="data", purpose="reading Argoverse 2's feather files"
        ) from None
    if not path.is_file():
        raise CalibrationError(f"{path} does not exist.")
    try:
        return feather.read_table(str(path), memory_map=False).to_pydict()
    except (ArrowException, OSError, ValueError) as error:
        raise CalibrationError(f"{path} is no feather file that can be read: {error}.") from None


def _recognise_kitti(path: Path) -> str | None:
    rows = _projections(lines_or_none(path) or [])
    # Rows of rigid transforms without names are poses.
    if not rows or any(not _ends_in_001(row) for row in rows.values()):
        return None
    return f"rows of 12 numbers for {', '.join(rows)}"


def _recognise_nuscenes(path: Path) -> str | None:
    rows = _nuscenes_cameras(document_or_none(path))
    return f"a table with camera_intrinsic of {len(rows)} cameras" if rows else None


def _recognise_argoverse2(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            magic = file.read(6)
    except OSError:
        return None
    return "a feather file of intrinsics" if magic == b"ARROW1" and "intrinsics" in path.name else None


def _comma(path: Path) -> bool | None:
    """Whether a 3 x 3 matrix is comma2k19's; None for what is no such matrix."""
    fields = _matrix_fields(lines_or_none(path))
    try:
        values = None if fields is None else np.asarray([float(field) for field in fields])
    except ValueError:
        return None
    if values is None:
        return None
    return bool((values[[2, 5]] == (_COMMA_SIZE[1] / 2, _COMMA_SIZE[0] / 2)).all())


FORMATS = {
    "kitti": CalibrationFormat(
        about="KITTI's calib.txt: rows P0 to P3 of 12 numbers; with the place beside camera P0; needs height and width",
        read=read_kitti,
        recognise=_recognise_kitti,
    ),
    "nuscenes": CalibrationFormat(
        about="nuScenes' table calibrated_sensor.json (channels from sensor.json, sizes from sample_data.json beside it)",
        read=read_nuscenes,
        recognise=_recognise_nuscenes,
    ),
    "argoverse2": CalibrationFormat(
        about="Argoverse 2's intrinsics.feather; with the place on the vehicle from egovehicle_SE3_sensor.feather beside it",
        read=read_argoverse2,
        recognise=_recognise_argoverse2,
    ),
    "comma2k19": CalibrationFormat(
        about="comma2k19's camera_intrinsics.txt: its one 3 x 3 matrix, for 1164 x 874 pixels",
        read=read_comma2k19,
        recognise=lambda path: "the 3 x 3 matrix of comma2k19's camera" if _comma(path) else None,
    ),
    "matrix": CalibrationFormat(
        about="a 3 x 3 calibration matrix in a text file; needs height and width",
        read=read_matrix,
        recognise=lambda path: "a 3 x 3 matrix" if _comma(path) is False else None,
    ),
}
