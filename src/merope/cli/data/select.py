"""``merope data select``: the few trajectories that stand for a data set in an evaluation, and their turns."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.data.trajectory_inputs import TrajectoryFlags, described, read_table
from merope.cli.extras import require
from merope.cli.pose_options import ReadFlags
from merope.errors import MeropeError, TrajectoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from merope.data.clips.clip import ClipError
    from merope.data.selection.prototypes import Trajectory
    from merope.geometry.poses import Poses


def select(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path,
    count: int = 128,
    turns: tuple[Literal["left", "right"], ...] = ("left", "right"),
    turn_start: int = 8,
    rate: float | None = None,
    threshold: float = 1.0,
    groups: int = 64,
    still: float | None = None,
    name: str = "evaluation",
    seed: int = 0,
    trajectories: Annotated[TrajectoryFlags, tyro.conf.arg(name="")] = TrajectoryFlags(),
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Pick trajectories that cover the geometries of a data set, and turn each to the left and to the right.

    Prototypes are found as by `merope data prototypes`, those that move are divided into COUNT groups by k-means in
    metres, and of each group the one nearest to its mean is taken. OUT/split.json names the clips, OUT/trajectories.npz
    holds their paths, and OUT/poses/SOURCE/CLIP_ID has the poses of each, original.json, left.json and right.json, in this
    project's own format.

    Args:
        inputs: Folders of clips, data sets (--reader), files of many trajectories (.npy, .npz), or pose files (--format).
        out: Folder that is written; it must not be there yet.
        count: Trajectories that are picked.
        turns: Sides to which each is turned as well; none leaves the originals alone.
        turn_start: Last frame before the turn begins; 8 where 9 frames are given.
        rate: Poses per second of inputs that have neither times nor a rate; turns need to know the speed.
        threshold: Frechet distance up to which a path is like a prototype, in the paths' unit.
        groups: Groups of shapes, from whose medoids prototypes are found.
        still: Displacement up to which a clip counts as static and is never picked; by default half the threshold.
        name: Name of the split.
        seed: Of k-means.
        trajectories: Which trajectories.
        read: How pose files are read.
    """
    require("sklearn", purpose="grouping trajectories")
    from merope.data.selection.prototypes import PrototypeConfig, find_prototypes, read_trajectories, split_of
    from merope.data.selection.prototypes import select as select_rows
    from merope.data.selection.prototypes.path_files import write_path_file
    from merope.data.selection.splits import write_split
    from merope.files import atomic_folder, require_new_folder
    from merope.geometry.turns import turn_variant

    config = PrototypeConfig(threshold=threshold, num_groups=groups, still=still, seed=seed)
    require_new_folder(out)
    if turns:
        _require_turnable(read_trajectories(inputs, trajectories.options(read)), rate)
    table = read_table(inputs, trajectories, read)
    found = find_prototypes(table.paths, config, progress=True)
    rows = found.kept[select_rows(table.paths[found.kept], count=count, seed=seed)].tolist()
    made = described(
        inputs,
        trajectories,
        read,
        command="data select",
        count=count,
        turns=list(turns),
        turn_start=turn_start,
        rate=rate,
        threshold=threshold,
        groups=groups,
        still=config.still_extent,
        seed=seed,
    )
    split = split_of(table, found, name=name, rows=rows, made=made)
    with atomic_folder(out) as folder:
        write_split(folder / "split.json", split)
        write_path_file(
            folder / "trajectories.npz",
            table.paths[rows],
            clip_ids=[table.clip_ids[row] for row in rows],
            sources=[table.sources[row] for row in rows],
            unit=table.unit,
        )
        turned: dict[str, Callable[..., Poses]] = {
            side: partial(turn_variant, side=side, start=turn_start) for side in turns
        }
        chosen = read_trajectories(inputs, trajectories.options(read), only=split)
        # A split of whole clips holds for their windows too, which are not what was chosen.
        names = {(clip.source, clip.clip_id) for clip in split.clips}
        with_poses = _write_poses(folder / "poses", chosen, names, turned, rate)
    print(f"{count} of {len(found.kept)} prototypes of {len(table)} trajectories")
    print(f"poses of {with_poses}: {', '.join(('original', *turns))}")
    if with_poses < count:
        print(f"no poses and no turns of {count - with_poses}: their files hold positions alone")
    print(f"written to {out}")


def _require_turnable(trajectories: "Iterable[Trajectory | ClipError]", rate: float | None) -> None:
    """Raise for the first trajectory with poses if its kind cannot be turned, before minutes go into the others.

    Raises:
        TrajectoryError: if it is not in metres, or says nothing of its speed.
    """
    from merope.data.clips.clip import ClipError

    for each in trajectories:
        if isinstance(each, ClipError) or each.load_poses is None:
            continue
        if each.unit != "m":
            raise TrajectoryError(
                f"{each.source}/{each.clip_id} is in unit {each.unit!r}, and turns need metres. Say so if they are metres "
                "(--unit m for files, --option unit=m for a data set that takes it), or leave turns out (--turns)."
            )
        if each.fps is None and rate is None and each.load_poses().times is None:
            raise TrajectoryError(
                f"{each.source}/{each.clip_id} has neither times nor a rate, and turns need the speed. Say the poses per "
                "second (--rate), or leave turns out (--turns)."
            )
        return


def _write_poses(
    folder: Path,
    chosen: "Iterable[Trajectory | ClipError]",
    names: set[tuple[str, str]],
    turned: "Mapping[str, Callable[..., Poses]]",
    rate: float | None,
) -> int:
    """The poses of the chosen clips, which are read again for them, and their turns; of how many there are any."""
    from merope.data.clips.clip import ClipError
    from merope.data.poses.files import write_poses
    from merope.data.selection.prototypes import with_variants

    written = 0
    for each in chosen:
        # Errors were reported when the clips were read first.
        if isinstance(each, ClipError) or each.load_poses is None:
            continue
        if (each.source, each.clip_id) not in names:
            continue
        known = {"fps": each.fps or rate, "up_world": each.up_world}
        variants = {side: partial(turn, **known) for side, turn in turned.items()}
        try:
            drives = with_variants(each.load_poses(), variants)
        except TrajectoryError as error:
            raise TrajectoryError(f"{each.source}/{each.clip_id}, {error}") from error
        for name, poses in drives.items():
            write_poses(_plain(folder, each.source, each.clip_id) / f"{name}.json", poses, format="merope")
        written += 1
    return written


def _plain(folder: Path, source: str, clip_id: str) -> Path:
    """The folder of a clip.

    Raises:
        MeropeError: if source or name would lead out of it.
    """
    for name in (source, clip_id):
        if not name.strip(". ") or any(sign in name for sign in "/\\:\0"):
            raise MeropeError(
                f"{source}/{clip_id} cannot be the name of a folder. Rename it, or give --source a plain name."
            )
    return folder / source / clip_id
