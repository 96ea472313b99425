"""``merope worlds render``: posed clips of procedural streets, as a folder that `merope data encode` takes."""

import os
from pathlib import Path
from typing import Literal


def render(
    *,
    count: int,
    out: Path,
    workers: int = 1,
    height: int = 288,
    width: int = 512,
    fov: float = 90.0,
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    frames: int = 49,
    fps: float = 12.0,
    seed: int = 0,
    turn_start: int = 8,
    samples: int = 2,
    depth: bool = False,
) -> None:
    """Render drives through procedural streets, with their cameras: three clips of each world.

    A world's clips are a random drive and its variants to either side, which share their first frames. The same
    bytes come out for any number of workers; run the same command again to go on where it was stopped, or with
    a larger count to add worlds. Machines share a data set by seeds: --seed 0 --count 1000, --seed 1000 --count 1000.
    The folder's format is docs/data.md.

    Args:
        count: Worlds to render; clips are three times as many.
        out: Folder of clips.
        workers: Processes that render, each on one core.
        height: Rows of a frame, pixels.
        width: Columns of a frame, pixels.
        fov: Horizontal field of view, degrees; below 180 for a pinhole.
        lens: Straight lines straight, or an equidistant fisheye with black corners.
        frames: Frames per clip.
        fps: Frames per second.
        seed: Seed of the first world; the others follow.
        turn_start: Last frame that the variants share with their drive.
        samples: Rays per pixel and side: 2 is four rays.
        depth: Write depth maps too, in metres along the ray.
    """
    # Before numpy: workers are processes, and threads inside each would fight for the cores.
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    from merope.cameras import KannalaBrandt, Pinhole
    from merope.files import require_folder
    from merope.recipes.rendered_clips import RenderedClipsConfig, render_clips

    # No type over both: `from_fov` is not part of what lenses share.
    made = Pinhole if lens == "pinhole" else KannalaBrandt
    camera = made.from_fov(fov_x_deg=fov, height=height, width=width)
    config = RenderedClipsConfig(
        lens=camera.to_dict(),
        num_frames=frames,
        fps=fps,
        turn_start=turn_start,
        samples=samples,
        depth=depth,
    )
    require_folder(out)
    rendered = render_clips(out, config, count=count, first_seed=seed, workers=workers)
    print(f"{out}: {rendered} clips rendered, {3 * count - rendered} were there")
