"""``merope poses plot``: paths from above, with their height and speed."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.extras import require
from merope.cli.pose_options import Format, ReadFlags
from merope.cli.usage import UsageError


def plot(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path,
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    formats: tuple[Format, ...] = (),
    times: Path | None = None,
    labels: tuple[str, ...] = (),
    start: int = 0,
    count: int | None = None,
    step: int = 1,
    rebase: bool = False,
    up: Literal["auto", "x", "-x", "y", "-y", "z", "-z"] = "auto",
    over: Literal["distance", "time", "frame"] = "distance",
    fps: float | None = None,
    title: str | None = None,
) -> None:
    """Draw the paths of pose files over each other: from above, their height, and their speed.

    Rings are first poses, squares last ones, arrowheads where the cameras look. Lengths are equal on both axes of the view
    from above. No display is needed.

    Args:
        files: Pose files.
        out: Picture to write: .png, .svg or .pdf.
        read: How to read the files, all of them.
        formats: Formats of the files in their order, where they differ.
        times: File with the time of each pose in seconds, one a line, for files without times.
        labels: Names for the legend; by default those of the files.
        start: First pose that is drawn.
        count: How many poses are drawn; by default all that follow.
        step: Draw every step-th pose.
        rebase: Draw each path in the axes of its own first camera.
        up: World axis that points up. auto takes the one that the cameras' own up is near to, as it is for upright cameras;
            where there is none, the path lies in the plane of its two largest extents. The title says which.
        over: What heights and speeds are drawn over.
        fps: Poses a second, for speeds without times.
        title: Title of the picture.
    """
    require("matplotlib", purpose="drawing paths")
    if not files:
        raise UsageError("FILES must name at least one pose file.")
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--out must end in .png, .svg or .pdf; got {out}.")
    if formats and len(formats) != len(files):
        raise UsageError(f"--formats names {len(formats)} formats for {len(files)} files; name one for each.")
    if labels and len(set(labels)) != len(files):
        raise UsageError(f"--labels must be {len(files)} different names, one for each file.")
    if fps is not None and fps <= 0:
        raise UsageError(f"--fps must be > 0; got {fps:g}.")
    kinds = formats or (read.required_format(),) * len(files)

    from merope.data.poses.files import read_poses, read_times, window
    from merope.evaluation.plots.paths import SMALLEST, plot_paths

    stamps = None if times is None else read_times(times)
    names = labels or _names(files)
    trajectories = {}
    for name, file, kind in zip(names, files, kinds, strict=True):
        poses = window(
            read_poses(file, format=kind, options=read.options(), times=stamps),
            start=start,
            count=count,
            step=step,
        )
        trajectories[name] = poses.rebase_to_first() if rebase else poses
    if title is None:
        (name, only), *others = trajectories.items()
        title = "" if others else f"{name}: {len(only)} poses, path {only.path_length:.5g} {only.unit}"
    view = plot_paths(out, trajectories, up=up, over=over, fps=fps, title=title)
    paths = "1 path" if len(files) == 1 else f"{len(files)} paths"
    print(f"{out}: {paths} {view.words}")
    if view.reason == SMALLEST:
        print(
            "note: --up x (y, z, -x, ...) says which way is up; --rebase draws in the axes of the first camera"
        )


def _names(files: tuple[Path, ...]) -> list[str]:
    """Names of files that tell them apart: the last parts of their paths, as many as it takes."""
    for parts in range(1, max(len(file.parts) for file in files) + 1):
        names = ["/".join(file.parts[-parts:]) for file in files]
        if len(set(names)) == len(names):
            return names
    return [f"{file} ({number})" for number, file in enumerate(files, start=1)]
