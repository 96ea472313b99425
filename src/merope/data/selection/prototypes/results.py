"""What prototypes are stored as: a split with the cluster of every clip, and a file of the paths that stand for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from merope.data.selection.prototypes.finding import STATIC, Prototypes
from merope.data.selection.prototypes.path_files import write_path_file
from merope.data.selection.prototypes.table import PathTable
from merope.data.selection.splits import Split, SplitClip

Clusters = Literal["prototype", "shape"]


def split_of(
    table: PathTable,
    prototypes: Prototypes,
    *,
    name: str,
    clusters: Clusters = "prototype",
    rows: Sequence[int] | None = None,
    made: Mapping[str, Any] | None = None,
) -> Split:
    """The clips of a table, or these ``rows`` of it, each with its prototype or its group of shapes as its cluster."""
    labels = prototypes.labels() if clusters == "prototype" else prototypes.group_labels()
    chosen = range(len(table)) if rows is None else rows
    clips = tuple(SplitClip(table.sources[row], table.clip_ids[row], labels[row]) for row in chosen)
    return Split(name, clips, made=made or {})


def write_prototypes(path: str | Path, table: PathTable, prototypes: Prototypes) -> None:
    """Write the prototypes' paths as a file of trajectories (`merope.data.selection.prototypes.path_files`).

    Beside the paths: ``labels``, as clusters are called in the split; ``sizes``, how many trajectories each stands for;
    ``groups``, its group of shapes; ``medoid``, whether it is the medoid of that. Static clips have one path, the last:
    that of the clip which moves least, in group -1.
    """
    kept, sizes, groups = prototypes.kept, prototypes.sizes, prototypes.groups[prototypes.kept]
    labels = prototypes.labels()
    rows = [*kept.tolist(), *prototypes.static[:1].tolist()]
    still = len(rows) - len(kept)
    write_path_file(
        path,
        table.paths[rows],
        clip_ids=[table.clip_ids[row] for row in rows],
        sources=[table.sources[row] for row in rows],
        unit=table.unit,
        labels=np.asarray([labels[row] for row in kept] + still * [STATIC], dtype=np.str_),
        sizes=np.concatenate([sizes, still * [len(prototypes.static)]]).astype(np.int64),
        groups=np.concatenate([groups, still * [-1]]).astype(np.int32),
        medoid=np.isin(rows, prototypes.medoids),
    )
