"""``merope history index``: where and how the frames of many clips were taken, in an index on disk."""

from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.data.reader_options import Reader, reader_options
from merope.cli.extras import require
from merope.cli.history.lens_flags import LensFlags
from merope.cli.pose_options import ReadFlags
from merope.cli.telling import tell_first
from merope.cli.usage import UsageError


def index(
    clips: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path,
    reader: Reader = "folder",
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    world: str | None = None,
    traversal: str | None = None,
    source: str | None = None,
    every: int = 1,
    lens: Annotated[LensFlags, tyro.conf.arg(name="")] = LensFlags(),
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Index the poses of clips, for `merope history query` and for training with history; no frame is decoded.

    Run it again to add clips; those that are there are passed over. Everything of one run appears at once, or nothing. Poses
    must be in metres, and each clip must say which world they are in: clips of different worlds are never compared.
    Whole clips are indexed, whatever windows are trained on.

    Args:
        clips: Folders of clips, roots of another data set with --reader, or pose files with --format, a clip each.
        out: Folder of the index.
        reader: Kind of data set; `merope data readers` lists them.
        option: An option of the reader, as NAME=VALUE; may be given several times.
        world: Name of the world that all these poses are in; by default "world" in the provenance of each clip.
        traversal: Name of the drive that all these clips are of, such as cameras of one car; by default "traversal" in the
            provenance, else each clip is a drive of its own.
        source: Name of the data set; by default what clips say, or the name of the file's folder.
        every: Index every so many frames of a clip.
        lens: Lens of pose files.
        read: How pose files are read.
    """
    if not clips:
        raise UsageError("name at least one folder of clips or pose file.")
    if lens.lens is not None and read.format is None:
        raise UsageError("--lens is for pose files (--format); clips have lenses of their own.")
    require("scipy", purpose="searching an index of frames")
    from merope.data.history import HistoryIndex, IndexOptions, add_to_index

    report = add_to_index(
        out,
        clips,
        IndexOptions(
            reader=reader,
            reader_options=reader_options(reader, option),
            format=read.format,
            read=read.options(),
            lens=lens.given(),
            world=world,
            traversal=traversal,
            source=source,
            every=every,
        ),
        progress=True,
    )
    tell_first("note", report.notes)
    tell_first("left out", report.skipped)
    print(f"{report.frames} frames of {report.clips} clips added, {report.there} clips were there")
    made = HistoryIndex.open(out)
    worlds = "1 world" if len(made.worlds) == 1 else f"{len(made.worlds)} worlds"
    print(f"{out}: {len(made)} frames of {made.num_clips} clips in {worlds}")
