"""An index of nuScenes' tables on disk: their columns as arrays, so that a gigabyte of JSON is read once."""

import json
from pathlib import Path

import numpy as np

from merope.data.nuscenes.records import TableColumns
from merope.data.nuscenes.tables import NuScenesTables
from merope.errors import MeropeError
from merope.files import atomic_path

_FORMAT = "merope-nuscenes-index-2"
_TABLES = ("sample_data", "ego_pose", "calibrated_sensor", "sensor", "sample", "scene")


def read_tables_indexed(folder: Path, index: Path) -> NuScenesTables:
    """The tables in a folder, from their index if it is of these very files; else from the files, and the index is written.

    Which files they are is told by sizes and times of change.

    Raises:
        PoseFileError: if the tables cannot be read.
        MeropeError: if ``index`` is a file of another kind, which is never overwritten.
    """
    stamp = _stamp(folder)
    if index.exists():
        try:
            with np.load(index, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            if str(arrays.pop("format")) != _FORMAT:
                raise ValueError("another format")
            if str(arrays.pop("tables")) == stamp:
                return NuScenesTables(columns=TableColumns.from_arrays(arrays))
        # A damaged archive raises whatever its bytes lead zipfile and NumPy to.
        except Exception as error:
            raise MeropeError(
                f"{index} is no index of nuScenes' tables ({error!s:.100}). Delete it, or name another "
                "file (--option index=FILE)."
            ) from None
    tables = NuScenesTables.read(folder)
    with atomic_path(index) as temporary, temporary.open("wb") as file:
        arrays = {"format": np.asarray(_FORMAT), "tables": np.asarray(stamp), **tables.columns.to_arrays()}
        np.savez(file, allow_pickle=False, **arrays)
    return tables


def _stamp(folder: Path) -> str:
    found = {name: (folder / f"{name}.json") for name in _TABLES}
    return json.dumps(
        {
            name: [path.stat().st_size, path.stat().st_mtime_ns]
            for name, path in found.items()
            if path.exists()
        }
    )
