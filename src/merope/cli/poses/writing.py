"""Where commands that make trajectories put them: shared flags, and the lines that are printed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.pose_options import Format
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.poses.files import PoseFile
    from merope.geometry.poses import Poses


@dataclass(frozen=True, kw_only=True)
class WriteFlags:
    """The file that is written."""

    out: Path
    """File to write, or a folder for a format of several files; an ending in .gz compresses."""
    to: Format = "merope"
    """Format to write. merope keeps times, unit and lens."""
    overwrite: bool = False
    """Replace a file that is there."""

    def require_free(self, *targets: Path) -> None:
        """Refuse before anything is written what one of several files would be refused for."""
        from merope.data.poses.conversion import require_free

        for target in targets:
            require_free(target, self.overwrite)

    def write(self, file: "PoseFile", *, target: Path | None = None, notes: bool = True) -> None:
        """Write the file, read it again, and print what it is, what it cannot hold and, with ``notes``, where it is from."""
        from merope.data.poses.conversion import write_pose_file

        target = target or self.out
        done = write_pose_file(target, file, to=self.to, overwrite=self.overwrite)
        for note in done.notes if notes else ():
            print(note)
        print(f"{target}: {described(file)}, as {self.to}")
        for clause in done.lost:
            print(f"{target}: {clause}")


def clocked(file: "PoseFile", fps: float | None) -> "Poses":
    """The poses of a file, at ``fps`` (--trajectory-fps) where it is given.

    Raises:
        UsageError: if the file has times already, or ``fps`` is not positive.
    """
    poses = file.poses
    if fps is None:
        return poses
    if poses.times is not None:
        raise UsageError(
            f"--trajectory-fps is for poses without times, and those of {file.source} have them; leave it out."
        )
    if not 0 < fps < float("inf"):
        raise UsageError(f"--trajectory-fps must be > 0; got {fps:g}.")
    import torch

    return poses.with_times(torch.arange(len(poses), dtype=torch.float64) / fps)


def described(file: "PoseFile") -> str:
    """Count, length, and speed of the poses in a few words."""
    poses = file.poses
    unit = "m" if poses.unit == "m" else f"{poses.unit} units"
    text = f"{len(poses)} poses, path {poses.path_length:.6g} {unit}"
    if poses.times is not None and len(poses) > 1:
        seconds = float(poses.times[-1] - poses.times[0])
        text += f" in {seconds:.4g} s ({poses.path_length / seconds:.4g} {unit}/s)"
    return text
