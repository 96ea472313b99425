"""Flags of the commands that read many trajectories, and what they read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from merope.cli.data.reader_options import Reader, reader_options
from merope.cli.pose_options import ReadFlags
from merope.cli.telling import tell_first
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.selection.prototypes import InputOptions, PathTable
    from merope.data.selection.splits import Split


@dataclass(frozen=True, kw_only=True)
class TrajectoryFlags:
    """Which trajectories are taken, and how they are cut."""

    frames: int = 49
    """Frames in a window of a clip or of a pose file; arrays of trajectories are taken as they are."""
    stride_windows: int | None = None
    """Frames from the start of a window to that of the next; by default windows share no frame."""
    whole: bool = False
    """Take every clip and every pose file as one trajectory, whatever its length."""
    fps: float | None = None
    """Frames per second that faster clips are thinned to; by default each keeps its own."""
    source: str | None = None
    """Name of the data set; by default what clips say, or the name of the file's folder."""
    reader: Reader = "folder"
    """What a folder holds: a kind of data set; `merope data readers` lists them."""
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """An option of the reader, as NAME=VALUE; may be given several times."""
    allow_gaps: bool = False
    """Let windows reach over missing frames (steps of more than 1.5 frame periods)."""
    split: Path | None = None
    """Take only the clips that this split names."""
    points: int = 49
    """Points that every path is resampled to, with equal steps."""

    def options(self, read: ReadFlags) -> "InputOptions":
        """The same as the library takes it.

        Raises:
            UsageError: if flags contradict each other.
        """
        from merope.data.selection.prototypes import InputOptions

        if self.whole and self.stride_windows is not None:
            raise UsageError("--whole takes no windows; leave --stride-windows out, or --whole.")
        if self.whole and self.fps is not None:
            raise UsageError("--fps thins windows; leave it out, or --whole.")
        return InputOptions(
            num_frames=None if self.whole else self.frames,
            stride=self.stride_windows,
            fps=self.fps,
            source=self.source,
            format=read.format,
            read=read.options(),
            reader=self.reader,
            reader_options=reader_options(self.reader, self.option),
            allow_gaps=self.allow_gaps,
        )

    def only(self) -> "Split | None":
        """The split that was named."""
        from merope.data.selection.splits import read_split

        return None if self.split is None else read_split(self.split)


def read_table(inputs: Sequence[Path], flags: TrajectoryFlags, read: ReadFlags) -> "PathTable":
    """Read all inputs, with a bar; what was left out is printed."""
    import torch

    from merope.data.selection.prototypes import read_trajectories, tabulate

    # One small matrix after another: threads would wait for each other, for milliseconds where other programs run.
    torch.set_num_threads(1)
    if not inputs:
        raise UsageError("name at least one folder of clips, data set or file of trajectories.")
    notes: list[str] = []
    found = read_trajectories(inputs, flags.options(read), only=flags.only(), tell=notes.append)
    table = tabulate(found, num_points=flags.points, progress=True)
    tell_first("note", notes, rest="more like these")
    tell_first("left out", table.skipped)
    return table


def described(inputs: Sequence[Path], flags: TrajectoryFlags, read: ReadFlags, **more: Any) -> dict[str, Any]:
    """What a split notes about how it was made: names of inputs, not where they lie, and the options."""
    return {
        "inputs": sorted(path.name or str(path) for path in inputs),
        "frames": None if flags.whole else flags.frames,
        "stride_windows": flags.stride_windows,
        "fps": flags.fps,
        "reader": flags.reader,
        "option": list(flags.option),
        "allow_gaps": flags.allow_gaps,
        "format": read.format,
        "split": None if flags.split is None else flags.split.name,
        "points": flags.points,
        **more,
    }
