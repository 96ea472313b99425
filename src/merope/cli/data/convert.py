"""``merope data convert``: any data set with cameras into the plain folder of clips."""

from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.data.reader_options import Reader, reader_options, tell_notes
from merope.cli.telling import tell_first


def convert(
    root: Annotated[Path, tyro.conf.Positional],
    *,
    reader: Reader,
    out: Path,
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    frames: int | None = None,
    stride_windows: int | None = None,
    fps: float | None = None,
    height: int | None = None,
    width: int | None = None,
    crop: bool = False,
    allow_gaps: bool = False,
    interpolate_poses: bool = False,
    drop_depth: bool = False,
    source: str | None = None,
    workers: int = 2,
) -> int:
    """Write the clips of a data set as a plain folder of clips: lossless frames, poses, lens, times, caption.

    Run it again to go on where it was stopped. A clip that is broken, whose frames and poses do not belong together, or
    that is too short costs that clip alone: it is named at the end and in OUT/convert.json, and the rest goes on. The
    command fails if no clip at all went through. `merope data readers` lists the data sets, what they expect on disk, and
    their options.

    Args:
        root: Folder of the data set.
        reader: Kind of data set.
        out: Folder of clips that is written.
        option: An option of the reader, as NAME=VALUE; may be given several times.
        frames: Cut windows of this many frames; by default clips are kept whole.
        stride_windows: Frames from the start of a window to that of the next; by default windows share no frame.
        fps: Frames per second that faster clips are thinned to, the nearest frames with their own poses.
        height: Rows that frames and lens are resized to, pixels; by default as they are.
        width: Columns that frames and lens are resized to, pixels.
        crop: Cut clips of another shape about the middle, where they would be left out.
        allow_gaps: Let clips and windows reach over missing frames (steps of more than 1.5 frame periods).
        interpolate_poses: With --fps, put poses at even times, up to half a frame from when their frames were taken.
        drop_depth: Leave depth maps out; frames that are resized cannot keep theirs.
        source: Name of the data set that clips are given; by default the reader's.
        workers: Threads that decode and write.
    """
    from merope.data.checks.expected_clips import COMPARABLE
    from merope.data.datasets import open_dataset
    from merope.recipes.convert import REPORT, ConvertConfig, convert_clips

    config = ConvertConfig(
        num_frames=frames,
        window_stride=stride_windows,
        fps=fps,
        height=height,
        width=width,
        crop=crop,
        allow_gaps=allow_gaps,
        interpolate_poses=interpolate_poses,
        depth=not drop_depth,
    )
    options = reader_options(reader, option)
    clips = open_dataset(reader, root, **options)
    tell_notes([clips])
    report = convert_clips(
        clips,
        out,
        config,
        origin={"reader": reader, "root": str(root.resolve()), "options": options},
        source=source,
        workers=workers,
    )
    words = "clips" if frames is None else "windows"
    print(f"{out}: {report.written} {words} written, {report.there} were there")
    print(f"{report.through} of {len(clips)} clips of {root} went through")
    if report.through < COMPARABLE * len(clips):
        print(
            "note: fewer than 99 % are there, so results on them are not comparable with those on the whole set"
        )
    tell_first("note", report.notes, rest=f"more, in {REPORT}")
    tell_first("left out", report.broken, rest=f"more, named in {REPORT}")
    return 0 if report.written + report.there else 1
