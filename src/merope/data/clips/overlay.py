"""Pictures for people: clips side by side, and the commanded path drawn into a corner.

Drawn with Pillow on the finished frames. None of this is measured on: metrics read the frames before.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, UInt8
from PIL import Image, ImageDraw, ImageFont

from merope.data.clips.video import Frames, require_frames
from merope.geometry.poses import Poses

PATH_COLOR = (120, 190, 255)
DONE_COLOR = (255, 255, 255)
HERE_COLOR = (255, 96, 64)
INSET_BACKGROUND = (16, 20, 28)
LABEL_HEIGHT = 18


def enlarge(frames: Frames, *, factor: int = 6) -> Frames:
    """Repeat every pixel ``factor`` times along both sides, for looking at small frames.

    Nearest neighbour on purpose: smoothing would hide what the model really made.
    """
    if factor < 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    return require_frames(frames).repeat(factor, axis=1).repeat(factor, axis=2)


def side_by_side(left: Frames, right: Frames, *, labels: tuple[str, str], gap: int = 6) -> Frames:
    """Two clips of equal length and height in one, each under its label.

    Sides of the result are even, so that it fits an mp4.

    Raises:
        ValueError: if the clips differ in length or height.
    """
    left, right = require_frames(left), require_frames(right)
    if left.shape[:2] != right.shape[:2]:
        raise ValueError(
            f"clips side by side need equal length and height, got {list(left.shape[:2])} and "
            f"{list(right.shape[:2])}. Cut the longer one, or enlarge the smaller one."
        )
    num_frames, height = left.shape[:2]
    width = left.shape[2] + gap + right.shape[2]
    canvas = np.zeros((num_frames, LABEL_HEIGHT + height + height % 2, width + width % 2, 3), dtype=np.uint8)
    right_start = left.shape[2] + gap
    canvas[:, LABEL_HEIGHT : LABEL_HEIGHT + height, : left.shape[2]] = left
    canvas[:, LABEL_HEIGHT : LABEL_HEIGHT + height, right_start : right_start + right.shape[2]] = right

    # The labels stand still: drawn once, copied into every frame.
    banner = Image.new("RGB", (canvas.shape[2], LABEL_HEIGHT))
    pen = ImageDraw.Draw(banner)
    for label, start in zip(labels, (0, right_start), strict=True):
        pen.text((start + 4, 2), label, fill=DONE_COLOR, font=ImageFont.load_default(size=12))
    canvas[:, :LABEL_HEIGHT] = np.asarray(banner)
    return canvas


def draw_path_inset(frames: Frames, poses: Poses, *, size: float = 0.3, margin: int = 4) -> Frames:
    """Copies of the frames with a bird's-eye view of the path in the upper right corner.

    The whole path is drawn, the part already travelled brighter, a dot and a short line at the current
    camera and along its optical axis. The first camera looks up; both axes have one scale, and a bar
    gives it in metres where the poses are metric. ``size`` is the inset's side as a part of the frame's
    shorter side.

    Raises:
        ValueError: if there is not one pose per frame, or the inset would be too small to draw.
    """
    frames = require_frames(frames)
    if len(poses) != len(frames):
        raise ValueError(
            f"the inset needs one pose per frame, got {len(poses)} poses for {len(frames)} frames"
        )
    side = round(size * min(frames.shape[1:3]))
    if side < 16 or side + 2 * margin > min(frames.shape[1:3]):
        raise ValueError(
            f"an inset of {side} pixels does not fit frames of {frames.shape[1]} x {frames.shape[2]}; "
            "enlarge the frames first, or change size"
        )
    points, headings = birds_eye(poses)
    places, metres_per_pixel = fit_into_square(points, side=side, border=max(4, side // 12))

    background = Image.new("RGB", (side, side), INSET_BACKGROUND)
    pen = ImageDraw.Draw(background)
    _draw_line(pen, places, PATH_COLOR)
    if poses.unit == "m":
        _draw_scale_bar(pen, side=side, metres_per_pixel=metres_per_pixel)

    drawn = frames.copy()
    column = frames.shape[2] - side - margin
    for index in range(len(frames)):
        inset = background.copy()
        pen = ImageDraw.Draw(inset)
        _draw_line(pen, places[: index + 1], DONE_COLOR)
        _draw_camera(pen, places[index], headings[index], radius=max(2.0, side / 32))
        drawn[index, margin : margin + side, column : column + side] = _over(
            drawn[index, margin : margin + side, column : column + side], np.asarray(inset)
        )
    return drawn


def birds_eye(poses: Poses) -> tuple[Float64[np.ndarray, "view 2"], Float64[np.ndarray, "view 2"]]:
    """Where each camera is and looks in the first camera's ground plane: (right, forward), in the poses' unit."""
    first = poses.rebase_to_first()
    centers = first.center_world.numpy()[:, [0, 2]]
    axes = first.R_world_cam.numpy()[:, [0, 2], 2]
    return centers, axes


def fit_into_square(
    points: Float64[np.ndarray, "view 2"], *, side: int, border: int
) -> tuple[Float64[np.ndarray, "view 2"], float]:
    """Pixel (column, row) of points given as (right, forward), one scale for both, and units per pixel.

    A camera that never moves gets a scale of one unit across the square, not a division by zero.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    extent = max(float((high - low).max()), 1.0)
    units_per_pixel = extent / (side - 1 - 2 * border)
    offsets = (points - (low + high) / 2) / units_per_pixel
    middle = (side - 1) / 2
    return np.stack([middle + offsets[:, 0], middle - offsets[:, 1]], axis=-1), units_per_pixel


def _draw_line(pen: ImageDraw.ImageDraw, places: np.ndarray, color: tuple[int, int, int]) -> None:
    if len(places) > 1:
        pen.line([tuple(place) for place in places.tolist()], fill=color, width=2)


def _draw_camera(pen: ImageDraw.ImageDraw, place: np.ndarray, heading: np.ndarray, *, radius: float) -> None:
    column, row = place.tolist()
    pen.ellipse((column - radius, row - radius, column + radius, row + radius), fill=HERE_COLOR)
    # A camera that looks straight down has no heading in the plane; the line shrinks with it.
    tip = (column + 3 * radius * float(heading[0]), row - 3 * radius * float(heading[1]))
    pen.line([(column, row), tip], fill=HERE_COLOR, width=2)


def _draw_scale_bar(pen: ImageDraw.ImageDraw, *, side: int, metres_per_pixel: float) -> None:
    """The longest round number of metres that fits a third of the square."""
    longest = side / 3 * metres_per_pixel
    metres = max((m for m in _round_lengths() if m <= longest), default=0.1)
    row = side - 4
    pen.line([(4, row), (4 + metres / metres_per_pixel, row)], fill=DONE_COLOR, width=1)
    if side >= 60:
        pen.text((4, row - 13), f"{metres:g} m", fill=DONE_COLOR, font=ImageFont.load_default(size=10))


def _round_lengths() -> Sequence[float]:
    return [digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5)]


def _over(
    below: UInt8[np.ndarray, "height width 3"], above: UInt8[np.ndarray, "height width 3"]
) -> UInt8[np.ndarray, "height width 3"]:
    """The inset's lines as they are, its background three quarters opaque."""
    is_background = (above == INSET_BACKGROUND).all(axis=-1, keepdims=True)
    mixed = (below.astype(np.uint16) + 3 * above.astype(np.uint16)) // 4
    return np.where(is_background, mixed, above).astype(np.uint8)
