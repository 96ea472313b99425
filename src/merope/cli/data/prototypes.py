"""``merope data prototypes``: the motions that stand for all clips, and a split with the cluster of each."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.data.trajectory_inputs import TrajectoryFlags, described, read_table
from merope.cli.extras import require
from merope.cli.pose_options import ReadFlags


def prototypes(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path,
    threshold: float = 1.0,
    groups: int = 64,
    still: float | None = None,
    clusters: Literal["prototype", "shape"] = "prototype",
    keep_paths: bool = False,
    name: str = "train",
    seed: int = 0,
    trajectories: Annotated[TrajectoryFlags, tyro.conf.arg(name="")] = TrajectoryFlags(),
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Group trajectories by shape, keep those that no kept one resembles, and write which stands for which clip.

    Paths are resampled to equal steps, grouped by k-means on their shape, and thinned by non-maximum suppression with the
    discrete Frechet distance in three dimensions. OUT/split.json gives every clip its cluster, for balanced sampling;
    OUT/prototypes.npz holds the paths that were kept, and can be an input in its turn.

    Args:
        inputs: Folders of clips, data sets (--reader), files of many trajectories (.npy, .npz), or pose files (--format).
        out: Folder of the two files.
        threshold: Frechet distance up to which a path is like a prototype, in the paths' unit.
        groups: Groups of shapes.
        still: Displacement up to which a clip counts as static; by default half the threshold.
        clusters: What the cluster of a clip is: the prototype that stands for it, or its group of shapes, which is coarser.
        keep_paths: Write OUT/trajectories.npz too, all paths as they were resampled: an input that is read in seconds.
        name: Name of the split.
        seed: Of k-means.
        trajectories: Which trajectories.
        read: How pose files are read.
    """
    require("sklearn", purpose="grouping trajectories")
    from merope.data.selection.prototypes import PrototypeConfig, find_prototypes, split_of, write_prototypes
    from merope.data.selection.prototypes.path_files import write_path_file
    from merope.data.selection.splits import write_split
    from merope.files import require_folder

    config = PrototypeConfig(threshold=threshold, num_groups=groups, still=still, seed=seed)
    require_folder(out)
    table = read_table(inputs, trajectories, read)
    found = find_prototypes(table.paths, config, progress=True)
    made = described(
        inputs,
        trajectories,
        read,
        command="data prototypes",
        threshold=threshold,
        groups=groups,
        still=config.still_extent,
        seed=seed,
        clusters=clusters,
    )
    split = split_of(table, found, name=name, clusters=clusters, made=made)
    write_prototypes(out / "prototypes.npz", table, found)
    write_split(out / "split.json", split)
    if keep_paths:
        write_path_file(
            out / "trajectories.npz",
            table.paths,
            clip_ids=table.clip_ids,
            sources=table.sources,
            unit=table.unit,
        )
    for source in split.sources:
        count = sum(own == source for own in table.sources)
        print(f"{source}: {count} trajectories")
    print(f"static: {len(found.static)}, displacement of {config.still_extent:g} {table.unit} or less")
    print(
        f"{len(found.kept)} prototypes in {len(found.medoids)} groups of shapes, no two within {threshold:g} {table.unit}; "
        f"the largest stands for {int(found.sizes.max(initial=0))} trajectories"
    )
    print(f"written to {out}: split.json, prototypes.npz{', trajectories.npz' if keep_paths else ''}")
