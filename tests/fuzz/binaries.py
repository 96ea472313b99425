"""Formats that are not text: arrays, archives of them, Feather tables, COLMAP's models; their meaning by definition."""

import ast
import io
import struct
import zipfile
from functools import lru_cache

import numpy as np

from tests.fuzz.outcome import (
    ANYTHING,
    REFUSED,
    Expected,
    Truth,
    posed,
    reads_or_refused,
    settled,
    turned,
)
from tests.fuzz.seeds import Seed
from tests.fuzz.texts import LINE_END, NUMBER

_FRD = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
_FLU = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
_COLUMNS = ("tx_m", "ty_m", "tz_m", "qx", "qy", "qz", "qw")
BOMB = 6 << 20
"""What the bombs unpack to; whoever runs the cases sets the limit below it."""
LIMIT = 4 << 20

BINARIES = (
    "npy",
    "npz",
    "panshot",
    "rds-hq",
    "rds-hq.tar",
    "comma2k19",
    "argoverse2",
    "colmap",
    "colmap-binary",
)


def array_of(content: bytes) -> np.ndarray:
    """The array in a .npy file that is exactly as long as its header says; ValueError for what is none."""
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError
    (size,) = struct.unpack("<H", content[8:10])
    try:
        header = ast.literal_eval(content[10 : 10 + size].decode("latin1"))
        if set(header) != {"descr", "fortran_order", "shape"}:
            raise ValueError
        flat = np.frombuffer(content[10 + size :], dtype=np.dtype(header["descr"]))
        return flat.reshape(header["shape"], order="F" if header["fortran_order"] else "C")
    except (SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError from error


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _of_matrices(array: np.ndarray, rows: tuple[int, ...], turn: np.ndarray | None = None) -> Truth | None:
    if array.ndim != 3 or array.shape[1] not in rows or array.shape[2] != 4 or len(array) == 0:
        return None
    if array.dtype.kind not in "fiu":
        return None
    array = array.astype(np.float64)
    if array.shape[1] == 4 and not (np.abs(array[:, 3] - [0, 0, 0, 1]).max() <= 1e-6):
        return None
    truth = settled(array[:, :3])
    if truth is None or turn is None:
        return truth
    return Truth(truth.R_world_cam @ turn, truth.center_world, truth.times)


def _npz(content: bytes) -> Truth | None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = {name: array_of(archive.read(name)) for name in archive.namelist()}
    truth = _of_matrices(arrays["T_world_cam.npy"], (3, 4))
    if truth is None or "times.npy" not in arrays:
        return truth
    return settled(arrays["T_world_cam.npy"][:, :3], arrays["times.npy"].astype(np.float64))


def _tar(content: bytes) -> Truth | None:
    matrices = {}
    at = 0
    while content[at : at + 512] != bytes(512):
        header = content[at : at + 512]
        total = sum(header[:148]) + 8 * 32 + sum(header[156:])
        if len(header) < 512 or _octal(header[148:156]) != total or header[156:157] not in b"0\0":
            raise ValueError
        name, size = header[:100].rstrip(b"\0").decode(), _octal(header[124:136])
        part = array_of(content[at + 512 : at + 512 + size])
        if part.shape != (4, 4) or part.dtype.kind not in "fiu":
            raise ValueError
        matrices[int(name.partition(".")[0])] = part.astype(np.float64)
        at += 512 + -(-size // 512) * 512
    return _of_matrices(np.array([matrix for _, matrix in sorted(matrices.items())]), (4,), _FLU)


def _octal(field: bytes) -> int:
    """A number in a header of tar: what comes behind its NUL means nothing."""
    return int(field.split(b"\0")[0].strip(b" "), 8)


def _comma2k19(files: dict[str, bytes]) -> Truth | None:
    arrays = {
        name.rsplit("/", 1)[-1].removesuffix(".npy"): array_of(content) for name, content in files.items()
    }
    centers, quaternions, times = (
        arrays[name] for name in ("frame_positions", "frame_orientations", "frame_times")
    )
    if any(array.dtype.kind not in "fiu" for array in arrays.values()) or len(centers) == 0:
        return None
    if centers.shape[1:] != (3,) or quaternions.shape[1:] != (4,) or times.shape != (len(centers),):
        return None
    xyzw = quaternions.astype(np.float64)[:, [1, 2, 3, 0]]
    truth = posed(turned(xyzw), centers.astype(np.float64), times.astype(np.float64))
    return None if truth is None else Truth(truth.R_world_cam @ _FRD, truth.center_world, truth.times)


@lru_cache(maxsize=64)
def _places(seed: Seed) -> dict[str, int]:
    """Where the writer put each column, in bytes from the start of the file."""
    import pyarrow as pa
    from pyarrow import feather

    (original,) = seed.files.values()
    buffer = pa.py_buffer(original)
    table = feather.read_table(pa.BufferReader(buffer), memory_map=False)
    return {
        name: table.column(name).chunk(0).buffers()[1].address - buffer.address for name in table.column_names
    }


def _feather(seed: Seed, content: bytes) -> Truth | None:
    """The columns at the places where the writer put them; there is no redundancy that would show a changed number."""
    count = len(seed.baseline.R_world_cam)
    values = {
        name: np.frombuffer(content, dtype="<i8" if name == "timestamp_ns" else "<f8", count=count, offset=at)
        for name, at in _places(seed).items()
    }
    order = np.argsort(values["timestamp_ns"], kind="stable")
    table = np.stack([values[name] for name in _COLUMNS], axis=1)[order]
    stamps = values["timestamp_ns"][order]
    keep = np.concatenate([[True], np.diff(stamps) != 0])
    if any((table[i] != table[i - 1]).any() for i in np.flatnonzero(~keep)):
        return None
    table, stamps = table[keep], stamps[keep]
    if not np.isfinite(table).all():
        return None
    truth = posed(
        turned(table[:, 3:]), table[:, :3], np.array([int(s) - int(stamps[0]) for s in stamps]) / 1e9
    )
    return None if truth is None else Truth(truth.R_world_cam @ _FLU, truth.center_world, truth.times)


def _outside_columns(seed: Seed, content: bytes) -> bool:
    """Whether damage reached beyond the numbers into the description of a table, which nothing protects."""
    (original,) = seed.files.values()
    if len(original) != len(content):
        return True
    rest = np.frombuffer(original, np.uint8) != np.frombuffer(content, np.uint8)
    for at in _places(seed).values():
        rest[at : at + 8 * len(seed.baseline.R_world_cam)] = False
    return bool(rest.any())


def _colmap_binary(files: dict[str, bytes]) -> Truth | None:
    content = next(part for name, part in files.items() if name.endswith("images.bin"))
    (count,) = struct.unpack_from("<Q", content)
    at, images = 8, {}
    for _ in range(count):
        values = struct.unpack_from("<I7dI", content, at)
        end = content.index(b"\0", at + 64)
        (points,) = struct.unpack_from("<Q", content, end + 1)
        name = content[at + 64 : end].decode()
        if name in images:
            raise ValueError
        images[name] = np.array(values[1:8])
        at = end + 9 + 24 * points
    if at != len(content):
        raise ValueError
    return _of_images(images)


def _colmap(files: dict[str, bytes]) -> Truth | None:
    text = next(part for name, part in files.items() if name.endswith("images.txt")).decode("utf-8-sig")
    lines, images = LINE_END.split(text), {}
    if "\0" in text:
        return None
    while lines:
        line = lines.pop(0)
        if not line.strip() or line.strip().startswith("#"):
            continue
        words = line.split(maxsplit=9)
        if len(words) != 10 or (lines and len(lines.pop(0).split()) % 3):
            return None
        name = words[9].rstrip()
        if not all(NUMBER.fullmatch(word) for word in words[1:8]) or name in images:
            return None
        int(words[0]), int(words[8])
        images[name] = np.array([float(word) for word in words[1:8]])
    return _of_images(images)


def _of_images(images: dict[str, np.ndarray]) -> Truth | None:
    values = np.array([images[name] for name in sorted(images)])
    if not np.isfinite(values).all():
        return None
    return posed(turned(values[:, [1, 2, 3, 0]]), values[:, 4:], inverted=True)


def meaning(kind: str, seed: Seed, files: dict[str, bytes]) -> Truth | None:
    """What the bytes mean by the format's definition, None for what no reader may read."""
    try:
        if kind == "comma2k19":
            return _comma2k19(files)
        if kind == "colmap-binary":
            return _colmap_binary(files)
        if kind == "colmap":
            return _colmap(files)
        (content,) = files.values()
        if kind == "npz":
            return _npz(content)
        if kind == "rds-hq.tar":
            return _tar(content)
        if kind == "argoverse2":
            return _feather(seed, content)
        rows, turn = {"npy": ((3, 4), None), "panshot": ((3,), None), "rds-hq": ((4,), _FLU)}[kind]
        return _of_matrices(array_of(content), rows, turn)
    except (
        ValueError,
        KeyError,
        IndexError,
        struct.error,
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,
    ):
        return None
    except (RuntimeError, OSError, OverflowError, MemoryError):
        return None


def of_damage(kind: str, seed: Seed, files: dict[str, bytes]) -> Expected:
    """Damage is refused, or changes the numbers that it hit, or hit what says nothing of poses."""
    truth = meaning(kind, seed, files)
    if kind == "argoverse2" and _outside_columns(seed, *files.values()):
        # An offset that points to another column is as good as the right one.
        return ANYTHING
    if kind == "npz":
        # Parts that say what others say too: dates, tables of contents.
        return reads_or_refused(seed.baseline, *([] if truth is None else [truth]))
    return REFUSED if truth is None else reads_or_refused(truth)
