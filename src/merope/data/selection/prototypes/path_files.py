"""Files of many trajectories at once: one array, and what each path is called.

An ``.npz`` file holds ``centers`` [N, T, 3] or ``T_world_cam`` [N, T, 3 or 4, 4], and beside it ``ids`` [N], ``sources``
([N] or one for all) and ``unit``, each of which may be missing. An ``.npy`` file is such an array alone. Centres are in
the axes of the first camera of their path; matrices are camera-to-world, in OpenCV axes and any world.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jaxtyping import Float

from merope.data.selection.prototypes.arc_length import FARTHEST, relative_centers_of_matrices
from merope.errors import MeropeError
from merope.files import atomic_path
from merope.geometry.poses import Unit

PATH_SUFFIXES = (".npy", ".npz")
# Numbers of paths whose matrices become float64 at once.
_CHUNK = 4096


class PathFileError(MeropeError):
    """A file of trajectories cannot be used; the message names the file and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathFile:
    """Many paths with the same number of poses."""

    centers: Float[np.ndarray, "path time 3"]
    """Relative to the first camera of each path, in its axes."""
    sources: Sequence[str]
    clip_ids: Sequence[str]
    unit: Unit
    """What a length of 1 is."""
    matrices: np.ndarray | None = None
    """Camera-to-world, as the file holds them, where it holds more than centres."""


def read_path_file(path: str | Path, *, source: str | None = None, unit: Unit | None = None) -> PathFile:
    """The trajectories in an ``.npy`` or ``.npz`` file (see this module).

    ``source`` goes before what the file says, and the file's name after it; ids that it lacks are numbers. A unit that
    it lacks is "unknown" unless ``unit`` says it.

    Raises:
        PathFileError: if the file is damaged or of another layout, its unit is another one than ``unit``, or its numbers are
            of a precision that has lost the path.
    """
    path = Path(path)
    try:
        with np.errstate(all="ignore"):
            content = np.load(path, allow_pickle=False, mmap_mode="r" if path.suffix == ".npy" else None)
            if isinstance(content, np.ndarray):
                arrays = {"T_world_cam" if content.ndim == 4 else "centers": content}
            else:
                with content:
                    arrays = {name: content[name] for name in content.files}
    # A damaged archive raises whatever its bytes lead zipfile, zlib and NumPy to.
    except Exception as error:
        raise PathFileError(f"{path} is no NumPy file that can be read: {error}") from None
    present = [name for name in ("centers", "T_world_cam") if name in arrays]
    if len(present) != 1:
        raise PathFileError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; it needs one of centers [N, T, 3] and T_world_cam [N, T, 4, 4]."
        )
    values = arrays[present[0]]
    _require_shape(path, present[0], values)
    count = len(values)
    stated = str(arrays["unit"]) if "unit" in arrays else None
    if stated is not None and stated not in get_args(Unit):
        raise PathFileError(f"{path}: unit is {stated!r:.40} and none of {', '.join(get_args(Unit))}.")
    if unit is not None and stated not in (None, "unknown", unit):
        raise PathFileError(
            f"{path} says that its unit is {stated!r}, not {unit!r}. Leave unit (--unit) out."
        )
    sources = _texts(path, "sources", arrays, count) or [path.name.split(".")[0]] * count
    return PathFile(
        centers=_centers(path, present[0], values),
        sources=[source] * count if source is not None else sources,
        clip_ids=_texts(path, "ids", arrays, count) or [f"{number:07d}" for number in range(count)],
        unit=unit or stated or "unknown",  # type: ignore[arg-type]
        matrices=values if present[0] == "T_world_cam" else None,
    )


def write_path_file(
    path: str | Path,
    centers: Float[np.ndarray, "path time 3"],
    *,
    clip_ids: Sequence[str],
    sources: Sequence[str],
    unit: Unit,
    **more: np.ndarray,
) -> None:
    """Write paths as an ``.npz`` file that `read_path_file` reads, in one step; ``more`` arrays go beside them."""
    arrays: dict[str, Any] = {
        "centers": centers,
        "ids": np.asarray(clip_ids, dtype=np.str_),
        "sources": np.asarray(sources, dtype=np.str_),
        "unit": np.asarray(unit),
        **more,
    }
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _require_shape(path: Path, name: str, values: np.ndarray) -> None:
    shape = values.shape
    fits = shape[2:] == (3,) if name == "centers" else shape[2:] in ((3, 4), (4, 4))
    if len(shape) < 3 or not fits or 0 in shape or values.dtype.kind != "f" or values.dtype.itemsize < 4:
        raise PathFileError(
            f"{path}: {name} is {values.dtype} {list(shape)}; paths are float64 or float32 of shape [N, T, 3] (centres) or "
            "[N, T, 4, 4] or [N, T, 3, 4] (matrices)."
        )


def _centers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    positions = values if name == "centers" else values[:, :, :3, 3]
    for start in range(0, len(values), _CHUNK):
        part = positions[start : start + _CHUNK]
        finite = np.isfinite(part).all(axis=(1, 2))
        if not finite.all():
            raise PathFileError(
                f"{path}: path {start + int(np.argmin(finite))} holds a value that is not finite."
            )
        if values.dtype.itemsize < 8 and (farthest := float(np.abs(part).max())) > FARTHEST:
            step = np.spacing(np.float32(farthest))
            raise PathFileError(
                f"{path}: positions reach {farthest:.6g} and are {values.dtype}, whose steps are {step:.2g} there: the "
                "paths are lost. Save float64, or centres relative to the first camera."
            )
    if name == "centers":
        return values
    centers = np.empty((*values.shape[:2], 3))
    for start in range(0, len(values), _CHUNK):
        part = np.asarray(values[start : start + _CHUNK], dtype=np.float64)
        try:
            centers[start : start + _CHUNK] = relative_centers_of_matrices(part)
        except ValueError as error:
            raise PathFileError(f"{path}, paths {start} to {start + len(part) - 1}: {error}") from None
    return centers


def _texts(path: Path, name: str, arrays: dict[str, np.ndarray], count: int) -> list[str] | None:
    if name not in arrays:
        return None
    values = arrays[name]
    if (
        values.dtype.kind not in "Uiu"
        or values.shape not in ((), (count,))
        or (name == "ids" and not values.shape)
    ):
        raise PathFileError(
            f"{path}: {name} is {values.dtype} {list(values.shape)}; it needs a text for each of {count} paths."
        )
    return [str(value) for value in np.broadcast_to(values, (count,)).tolist()]
