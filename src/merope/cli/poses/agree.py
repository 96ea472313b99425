"""``merope poses agree``: whether poses and a video belong together."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from merope.cli.extras import require
from merope.cli.lens_options import Calibration as CalibrationName
from merope.cli.lens_options import flags_of_lens
from merope.cli.pose_options import ReadFlags
from merope.cli.usage import UsageError
from merope.errors import MeropeError

if TYPE_CHECKING:
    from merope.cameras import CameraModel
    from merope.data.checks.epipolar import Agreement, Residual
    from merope.data.lenses.calibration_files import Calibration
    from merope.data.poses.files import PoseFile
    from merope.geometry.poses import Poses


def agree(
    video: Annotated[Path, tyro.conf.Positional],
    poses: Annotated[Path, tyro.conf.Positional],
    *,
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    lens: Path | None = None,
    lens_format: CalibrationName | None = None,
    lens_camera: str | None = None,
    lens_height: int | None = None,
    lens_width: int | None = None,
    resize_lens: bool = False,
    start: int = 0,
    gap: int = 3,
    pairs: int = 24,
    max_shift: int = 2,
    json: bool = False,
) -> None:
    """Measure whether a file of poses belongs to a video, frame by frame: a shift, a wrong direction or wrong axes show.

    SIFT features are matched between frames --gap apart, and matches that fit no common motion are left out. Printed is the
    median distance, in pixels, of matches from the epipolar curves that the poses give: as read, shifted against the frames,
    and taken in other conventions. It needs motion: a camera that stands still fits any poses, and one that moves evenly
    fits shifted poses as well; then the last line says so.

    Args:
        video: Video file, or folder of pictures that are frames in the order of their names.
        poses: File of poses, one per frame.
        lens: Calibration file of the frames (docs/lenses.md), where the pose file has no lens. For poses of a vehicle, an
            IMU or a device it also says where the camera sits.
        lens_format: Its format; without it the file must look like exactly one.
        lens_camera: Which camera, in a calibration file of several.
        lens_height: Height of the calibrated images in pixels, where the calibration file does not say it.
        lens_width: Their width.
        resize_lens: The frames are the whole calibrated image at another size: resize the lens to them.
        start: Number of the pose that belongs to the first frame.
        gap: Frames between the two that are compared. A slow camera needs more.
        pairs: How many pairs of frames to compare, spread evenly.
        max_shift: Largest shift of poses against frames to try.
        json: Print one JSON object.
    """
    if start < 0 or max_shift < 0:
        raise UsageError(f"--start and --max-shift must be 0 or more, got {start} and {max_shift}.")
    require("cv2", purpose="matching frames")
    from merope.data.checks.epipolar import agreement, consistent, frame_pairs, match_frames
    from merope.data.clips.footage import open_footage
    from merope.data.lenses.calibration_files import load_calibration
    from merope.data.poses.files import load_pose_file

    found = load_pose_file(poses, format=read.required_format(), options=read.options())
    flags = {"format": lens_format, "camera": lens_camera, "height": lens_height, "width": lens_width}
    with flags_of_lens({name: f"lens-{name}" for name in flags}):
        calibration = None if lens is None else load_calibration(lens, **flags)  # type: ignore[arg-type]
    if calibration is None and found.camera is None and found.format != "realestate10k":
        raise UsageError(
            "the pose file has no lens. Name a calibration file of the frames: --lens (docs/lenses.md)."
        )
    cameras = _cameras(found, calibration, read)
    footage = open_footage(video)
    height, width = next(footage.frames([0])).shape[:2]
    view = _lens(found, calibration, resize=resize_lens, size=(height, width))
    if start >= len(found.poses):
        raise UsageError(f"--start {start} is beyond the {len(found.poses)} poses.")
    matches = match_frames(footage, frame_pairs(footage.count, gap=gap, at_most=pairs), progress=not json)
    matches = consistent(matches, view)
    shifts = range(-max_shift, max_shift + 1)
    result = agreement(matches, cameras, view, start=start, shifts=shifts)
    if json:
        print(
            dumps(
                {
                    "video": str(video),
                    "poses": str(poses),
                    "num_frames": footage.count,
                    "num_poses": len(found.poses),
                    "start": start,
                    "gap": gap,
                    "lens": view.to_dict(),
                    **result.to_dict(),
                },
                indent=2,
            )
        )
        return
    print(
        f"{footage.count} frames of {width} x {height}, {len(found.poses)} poses, gap {gap}, lens {view.model}"
    )
    if footage.count + start != len(found.poses):
        print(
            f"note: there are {footage.count} frames and {len(found.poses) - start} poses from number {start} on"
        )
    for note in filter(None, (found.projection_note, *found.notes)):
        print(f"note: {note}")
    print("\n".join(_table(result)))
    print(f"best: {_verdict(result, read, found.format, start)}")


def _cameras(poses: "PoseFile", calibration: "Calibration | None", read: ReadFlags) -> "Poses":
    """The cameras' poses: the file's, or those of the calibrated camera on the body that the file is of."""
    if poses.body == "camera":
        return poses.poses
    place = None if calibration is None else calibration.T_body_cam
    if place is None:
        raise MeropeError(
            f"{poses.source} has the poses of the {poses.body}, not of its camera. Name a calibration file that says where "
            "the camera sits (--lens; docs/lenses.md lists which do)."
        )
    import torch

    from merope.data.poses.formats import FORMATS
    from merope.data.poses.table import R_AXES_OPENCV

    # The body's poses have been turned to OpenCV axes; the calibration is in the body's own.
    axes = read.camera_axes or FORMATS[poses.format].axes
    R_opencv_body = torch.from_numpy(R_AXES_OPENCV[axes]).mT
    return poses.poses.mounted(R_opencv_body @ place[:3, :3], R_opencv_body @ place[:3, 3])


def _lens(
    poses: "PoseFile", calibration: "Calibration | None", *, resize: bool, size: tuple[int, int]
) -> "CameraModel":
    """The lens of the frames: the calibration file's, else the pose file's."""
    from merope.cameras import CameraModel
    from merope.data.poses.formats.realestate10k import realestate10k_lens

    height, width = size
    if calibration is not None:
        lens = calibration.lens
    elif poses.camera is not None:
        lens = CameraModel.from_dict(poses.camera)
    else:
        # RealEstate10K: its intrinsics are shares of the picture, whatever its size.
        lens = realestate10k_lens(poses.source, height=height, width=width)
    if lens.view_shape:
        raise MeropeError(
            f"{poses.source} has a lens for each of {tuple(lens.view_shape)} frames; one lens for all is needed: --lens."
        )
    if (lens.height, lens.width) != size and not resize:
        raise MeropeError(
            f"the lens is for images of height {lens.height}, width {lens.width}; the frames have height {height}, width "
            f"{width}. If they are the whole images at another size: --resize-lens. If they are a part of them, write the "
            "lens of that part (CameraModel.crop, to_dict) to a file."
        )
    return lens.resize(height=height, width=width) if resize else lens


def _table(result: "Agreement") -> list[str]:
    shifts = sorted({residual.shift for residual in result.residuals})
    names = list(dict.fromkeys(residual.reading for residual in result.residuals))
    at = {(residual.reading, residual.shift): residual for residual in result.residuals}
    lines = ["median epipolar residual in pixels, with pose i + shift for frame i:"]
    lines.append(f"{'shift':<18}" + "".join(f"{shift:>+9}" if shift else f"{0:>9}" for shift in shifts))
    lines += [
        f"{name:<18}" + "".join(f"{at[name, shift].median_px:>9.3f}" for shift in shifts) for name in names
    ]
    lines.append(f"{'matches':<18}" + "".join(f"{at[names[0], shift].num_matches:>9}" for shift in shifts))
    worst = max(result.pairs, key=lambda pair: pair.median_px)
    lines.append(
        f"worst pair: frames {worst.first} and {worst.second}, {worst.median_px:.3f} px, {worst.num_matches} matches"
    )
    lines.append(
        f"rays of a match are {result.unturned_deg:.2f} degrees apart, {result.turned_deg:.2f} after the poses' rotations"
    )
    return lines


def _verdict(result: "Agreement", read: ReadFlags, format: str, start: int) -> str:
    """What fits best, and the flags that say so."""
    from merope.data.checks.epipolar import MOST_PX
    from merope.data.poses.formats import FORMATS

    best = result.best
    if result.conclusion == "unclear":
        return f"cannot tell: {_why_unclear(result)}"
    if result.conclusion == "disagree":
        return (
            f"none fits: {_meaning(best)} is nearest and misses by {best.median_px:.3f} px, where poses of these frames "
            f"miss by less than {MOST_PX:g}. Are they of another clip, rate or lens?"
        )
    if result.conclusion == "agree":
        return f"as read, no shift ({best.median_px:.3f} px): poses and frames belong together{_untested(result)}"
    flags = []
    if best.shift:
        first = start + best.shift
        flags.append(f"--start {first}" if first >= 0 else f"without the first {-first} frames of the video")
    if "inverted" in best.reading:
        direction = read.direction or FORMATS[format].direction
        other = "camera-to-world" if direction == "world-to-camera" else "world-to-camera"
        flags.append(f"--direction {other}")
    if "opengl" in best.reading:
        axes = read.camera_axes or FORMATS[format].axes
        flags += [f"--camera-axes {'opencv' if axes == 'opengl' else 'opengl'}"] if axes in _TURNED else []
    stated = result.under()
    advice = f"; try {' '.join(flags)}" if flags else ""
    return (
        f"{_meaning(best)} ({best.median_px:.3f} px, against {stated.median_px:.3f} as read without shift)"
        f"{_untested(result)}{advice}"
    )


def _meaning(residual: "Residual") -> str:
    """A shift and a reading in words."""
    parts = [f"pose i {residual.shift:+d} for frame i"] if residual.shift else []
    if "inverted" in residual.reading:
        parts.append("matrices that map the other way")
    if "opengl" in residual.reading:
        parts.append("camera axes with y and z turned round")
    return " and ".join(parts) or "as read, no shift"


def _why_unclear(result: "Agreement") -> str:
    from merope.data.checks.epipolar import FEWEST_MATCHES

    if result.best.num_matches < FEWEST_MATCHES:
        return (
            f"there are {result.best.num_matches} matches, at least {FEWEST_MATCHES} are needed. Frames nearer to each "
            "other share more (--gap), and more pairs have more (--pairs); a picture without texture has none"
        )
    return (
        f"the picture stands still (matches move by {result.moved_px:.2f} px), and that fits any poses. Compare frames that "
        "are further apart: --gap"
    )


def _untested(result: "Agreement") -> str:
    """What the matches cannot tell, as the end of a sentence."""
    from merope.data.checks.epipolar import STILL_PX

    doubts = []
    if result.parallax_px < STILL_PX:
        doubts.append(
            f"rotations alone were tested, without parallax ({result.parallax_px:.2f} px) translations are not"
        )
    if result.equals:
        listed = ", ".join(_meaning(residual) for residual in result.equals[:4])
        more = f" and {len(result.equals) - 4} more" if len(result.equals) > 4 else ""
        doubts.append(f"these fit as well and cannot be told apart: {listed}{more}")
    return "".join(f"; {doubt}" for doubt in doubts)


_TURNED = ("opencv", "opengl")
