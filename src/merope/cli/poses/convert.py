"""``merope poses convert``: poses in another format, convention, window, world or unit."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.pose_options import Axes, Direction, Format, ReadFlags, Unit


def convert(
    source: Path,
    target: Path,
    /,
    *,
    to: Format,
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    times: Path | None = None,
    lens: Path | None = None,
    start: int = 0,
    count: int | None = None,
    step: int = 1,
    mount: Path | None = None,
    mount_axes: Literal["opencv", "opengl", "flu", "frd"] | None = None,
    rebase: bool = False,
    scale: float | None = None,
    to_unit: Unit | None = None,
    to_direction: Direction | None = None,
    to_axes: Axes | None = None,
    overwrite: bool = False,
) -> None:
    """Write poses in another format, convention, window, world or unit.

    Poses are written with every digit and read again; what the new file cannot hold (times, lens, unit) is said. Formats
    other than kitti and npy state their convention and have one only.

    Args:
        source: A pose file, or a folder in a format of several files.
        target: File to write, or a folder for a format of several files; an ending in .gz compresses.
        to: Format to write.
        read: How to read the source.
        times: File with the time of each pose in seconds, one a line, for sources without times.
        lens: File with the lens (this project's JSON, such as a clip's lens.json), in place of the source's; COLMAP, AC3D,
            DGP and RealEstate10K files need one.
        start: First pose that is kept.
        count: How many poses are kept; by default all that follow.
        step: Keep every step-th pose.
        mount: For poses of a vehicle: text file with the 3 x 4 matrix that takes a camera's coordinates (OpenCV axes) to
            the vehicle's; the camera's poses are written.
        mount_axes: Axes of the vehicle in that file; by default those of the source's format.
        rebase: Make the first camera the world.
        scale: What every length is multiplied by (0.001: millimetres to metres, 0.01: centimetres); goes with --to-unit.
        to_unit: What a length of 1 is after that.
        to_direction: Which way written matrices map (kitti, npy); camera-to-world by default.
        to_axes: Axes of what written matrices turn (kitti, npy); opencv by default.
        overwrite: Replace a file that is there.
    """
    from merope.data.lenses.files import read_lens
    from merope.data.poses.conversion import Changes, convert_poses
    from merope.data.poses.files import FORMATS, read_times

    format = read.required_format()
    done = convert_poses(
        source,
        target,
        format=format,
        to=to,
        options=read.options(),
        times=None if times is None else read_times(times),
        changes=Changes(
            mount=mount,
            mount_axes=mount_axes or read.camera_axes or FORMATS[format].axes,
            start=start,
            count=count,
            step=step,
            rebase=rebase,
            scale=scale,
            to_unit=to_unit,
        ),
        lens=None if lens is None else read_lens(lens),
        to_direction=to_direction,
        to_axes=to_axes,
        overwrite=overwrite,
    )
    for note in done.notes:
        print(note)
    poses = done.poses
    print(
        f"{target}: {len(poses)} poses as {to}, path {poses.path_length:.6g} {poses.unit}, read again with a largest "
        f"difference of {done.difference:.1g}"
    )
    for clause in done.lost:
        print(f"{target}: {clause}")
