"""``merope data motions``: what cameras do in a data set, from above and by source (Figure 4)."""

from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.data.trajectory_inputs import TrajectoryFlags, read_table
from merope.cli.extras import require
from merope.cli.pose_options import ReadFlags


def motions(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path,
    corridor: float = 3.5,
    title: str | None = None,
    trajectories: Annotated[TrajectoryFlags, tyro.conf.arg(name="")] = TrajectoryFlags(),
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Draw the motions of all clips from above, by source, and say what share of each leaves the corridor ahead.

    All paths start at the first camera, which looks up the page. A place is the darker the more clips pass through it, so
    hundreds of thousands of clips stay legible.

    Args:
        inputs: Folders of clips, data sets (--reader), files of many trajectories (.npy, .npz), or pose files (--format).
        out: Picture; its ending says the format: png, svg or pdf.
        corridor: Distance to either side within which a clip counts as going forward, in the paths' unit.
        title: Title of the picture.
        trajectories: Which trajectories.
        read: How pose files are read.
    """
    require("matplotlib", purpose="plotting")
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"out (--out) must end in .png, .svg or .pdf; got {out.name!r}.")
    if not corridor > 0:
        raise ValueError(f"corridor (--corridor) must be > 0; got {corridor}.")
    from merope.evaluation.plots.motions import plot_motions

    table = read_table(inputs, trajectories, read)
    found = plot_motions(out, table.paths, table.sources, unit=table.unit, corridor=corridor, title=title)
    for source, motion in found.items():
        print(f"{source}: {motion}")
    print(f"written to {out}")
