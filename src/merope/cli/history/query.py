"""``merope history query``: the frames of an index that saw what a camera on a path sees."""

import csv
import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from merope.cli.extras import require
from merope.cli.history.lens_flags import LensFlags
from merope.cli.pose_options import ReadFlags
from merope.cli.usage import UsageError
from merope.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from merope.data.history import HistoryIndex, Hit, Hits, QueryPath

_COLUMNS = (
    *("pose", "rank", "source", "clip_id", "frame", "time_s", "distance_m", "angle_deg", "overlap", "score"),
    *("x_m", "y_m", "z_m", "qx", "qy", "qz", "qw"),
)
# How many poses are printed; all are in the file.
_SHOWN = 20


def query(
    index: Annotated[Path, tyro.conf.Positional],
    *,
    poses: Path | None = None,
    clip: str | None = None,
    world: str | None = None,
    traversal: str | None = None,
    lens: Annotated[LensFlags, tyro.conf.arg(name="")] = LensFlags(),
    every: int = 1,
    k: int | None = None,
    distance: float = 10.0,
    angle_deg: float | None = None,
    overlap: float = 0.25,
    depths: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0),
    per_clip: int = 1,
    same_traversal_after: float | None = None,
    donors: bool = False,
    lateral: tuple[float, float] | None = None,
    min_share: float = 0.5,
    seed: int = 0,
    out: Path | None = None,
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Find frames of other traversals near each pose of a path, by distance, direction and overlap of views.

    The path is a pose file (--poses), or that of a clip of the index (--clip alone). Frames of its own clip never count,
    those of its own traversal only with --same-traversal-after. Of those within all bounds the ones with the smallest
    distance / --distance + angle / --angle-deg are taken.

    Args:
        index: Folder that `merope history index` wrote.
        poses: File with the poses of the path, in --format, in metres.
        clip: SOURCE/CLIP_ID of the path, as in the index. Without --poses it is the path itself.
        world: World that the poses are in, as in the index; that of --clip if the index has it.
        traversal: Drive that the path is of; that of --clip if the index has it.
        lens: Lens of the path, in place of the pose file's, or of the clip's where there is no pose file.
        every: Take every so many poses of the path.
        k: Frames for each pose, at most; 4, or 1 for donors.
        distance: Largest distance between the centres, metres.
        angle_deg: Largest angle between the optical axes, degrees; 45, or 20 for donors.
        overlap: Smallest share of the pose's view that a frame sees, 0 to 1.
        depths: Where along the pose's view rays this is measured, metres.
        per_clip: Frames of one clip for each pose, at most.
        same_traversal_after: Let frames of the same traversal count that are at least so many seconds earlier or later.
        donors: Take donors for lateral-conflict training: frames of one clip, drawn by --seed, that drove beside the path.
        lateral: Distance to the left or the right of the path, metres from and to; for donors 2 to 6 unless given.
        min_share: Share of the poses for which a donor clip must have a frame.
        seed: Of the choice among donor clips.
        out: CSV file for all hits, with the pose of each frame in the camera coordinates of the pose that it is for.
        read: How the pose file is read.
    """
    from merope.data.history import NEIGHBOURING_LANE, HistoryIndex, Search
    from merope.data.history import donors as find_donors

    usual = NEIGHBOURING_LANE if donors else Search()
    search = Search(
        k=usual.k if k is None else k,
        max_distance=distance,
        max_angle_deg=usual.max_angle_deg if angle_deg is None else angle_deg,
        min_overlap=overlap,
        depths=depths,
        max_per_clip=per_clip,
        min_time_apart=math.inf if same_traversal_after is None else same_traversal_after,
        lateral=usual.lateral if lateral is None else lateral,
    )
    require("scipy", purpose="searching an index of frames")
    opened = HistoryIndex.open(index)
    path = _path(opened, poses, clip, world, traversal, lens, read).every(every)
    if path.traversal is None and (path.clip is None or not opened.has_clip(*path.clip)):
        print("note: nothing says which frames are of the path's own drive, so these count too")
    if donors:
        found = find_donors(opened, path, search, min_share=min_share, seed=seed)
    else:
        found = opened.query(path, search)
    _tell(found, every)
    if out is not None:
        _write(out, found, every)
        print(f"written to {out}")


def _path(
    index: "HistoryIndex",
    poses: Path | None,
    clip: str | None,
    world: str | None,
    traversal: str | None,
    lens: LensFlags,
    read: ReadFlags,
) -> "QueryPath":
    """The path that was named, with what the index knows of its clip."""
    from dataclasses import replace

    from merope.data.history import QueryPath
    from merope.data.history.building import lens_of_file
    from merope.data.poses.files import load_pose_file

    name = None
    if clip is not None:
        source, sign, clip_id = clip.partition("/")
        if not (source and sign and clip_id):
            raise UsageError(f"--clip is SOURCE/CLIP_ID; got {clip!r}.")
        name = source, clip_id
    given = lens.given()
    if poses is None:
        if name is None:
            raise UsageError(
                "name the path: --poses FILE --format FORMAT, or --clip SOURCE/CLIP_ID of the index."
            )
        known = index.path_of(*name)
        return replace(
            known,
            lens=given or known.lens,
            world=world or known.world,
            traversal=traversal or known.traversal,
        )
    file = load_pose_file(poses, format=read.required_format(), options=read.options())
    for note in (file.projection_note, *file.notes):
        if note:
            print(f"note: {note}")
    own_lens = lens_of_file(file, given)
    return QueryPath(poses=file.poses, lens=own_lens, world=world, clip=name, traversal=traversal)


def _tell(found: "Hits", every: int) -> None:
    print("pose    distance m  angle deg  overlap  frame")
    for hit in islice(_all(found), _SHOWN):
        print(
            f"{hit.query * every:<7} {hit.distance:10.3f} {math.degrees(hit.angle):10.2f} {hit.overlap:8.2f}  "
            f"{hit.source}/{hit.clip_id} {hit.frame}"
        )
    total = int(found.counts.sum())
    if total > _SHOWN:
        print(f"... {total - _SHOWN} more")
    print(f"{total} frames for {int((found.counts > 0).sum())} of {len(found)} poses")


def _write(out: Path, found: "Hits", every: int) -> None:
    """All hits as CSV, numbers with every digit."""
    import torch

    from merope.geometry.rotations import matrix_to_quaternion

    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for query in range(len(found)):
            for rank, hit in enumerate(found[query]):
                quaternion = matrix_to_quaternion(torch.from_numpy(hit.R_query_hit.copy()))
                rows.writerow(
                    [
                        *(query * every, rank, hit.source, hit.clip_id, hit.frame, hit.time, hit.distance),
                        *(math.degrees(hit.angle), hit.overlap, hit.score),
                        *hit.offset_query.tolist(),
                        *quaternion.tolist(),
                    ]
                )


def _all(found: "Hits") -> "Iterator[Hit]":
    for query in range(len(found)):
        yield from found[query]
