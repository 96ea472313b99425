"""Data sets of videos with cameras, a module for each kind; `DATASETS` holds them all by name.

`open_dataset` gives a `ClipSet`: clips by number, decoded when asked for. What a kind expects on disk and which options its
reader has stands in its `DataSet`.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from merope.data.datasets import folder, kitti_odometry, nuscenes, panorama, panshot, realestate10k, videos
from merope.data.datasets.clip_set import ClipSet, DataSet, opened_clips, require_distinct_clips

__all__ = [
    "DATASETS",
    "ClipSet",
    "DataSet",
    "dataset_named",
    "open_dataset",
    "opened_clips",
    "require_distinct_clips",
]

DATASETS: dict[str, DataSet] = {
    **folder.DATASETS,
    **videos.DATASETS,
    **realestate10k.DATASETS,
    **kitti_odometry.DATASETS,
    **nuscenes.DATASETS,
    **panshot.DATASETS,
    **panorama.DATASETS,
}


def dataset_named(name: str) -> DataSet:
    """The kind of data set with this name.

    Raises:
        ValueError: if there is none, with the names that there are.
    """
    if name not in DATASETS:
        raise ValueError(f"the data set must be one of {', '.join(DATASETS)}; got {name!r}.")
    return DATASETS[name]


def open_dataset(name: str, root: str | Path, **options: Any) -> ClipSet:
    """The clips of a data set under ``root``; ``options`` are the fields of its kind's options.

    Raises:
        ValueError: if there is no such kind, or it has no such option.
        FileNotFoundError: if there is no such root.
        MeropeError: if the root does not look like this data set; the message says what was looked for.
    """
    kind = dataset_named(name)
    known = [each.name for each in fields(kind.options)]
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(
            f"{name} has no option {', '.join(unknown)}; its options are {', '.join(known) or '(none)'}."
        )
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(2, "No such folder of clips", str(root))
    return kind.open(root, kind.options(**options))
