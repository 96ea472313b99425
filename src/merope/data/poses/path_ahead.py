"""The commanded path drawn into the scene: a ribbon on the ground ahead, through the lens, with marks that stay in place.

Where a video follows its command the ribbon lies on the road and the marks stick to it; where it does not, they slide.
Drawn with Pillow on the finished frames, as `merope.data.clips.overlay`; nothing is measured on them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from merope.cameras import CameraModel
from merope.data.clips.overlay import DONE_COLOR, PATH_COLOR
from merope.data.clips.video import Frames, require_frames
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.up_direction import common_up

# Metres between the ribbon's samples: short enough to be straight through any lens, except under the car itself.
_SAMPLE = 0.25
_MOST_SAMPLES = 2000
# Metres between marks across the ribbon, and how far along the path a mark reaches.
_MARK_EVERY = 5.0
_MARK_LENGTH = 0.3
# Drawn at twice the size and shrunk: edges without stairs.
_FINER = 2


@dataclass(frozen=True, slots=True)
class _Ribbon:
    """The path on the ground, sampled evenly, and the marks across it."""

    edges: Float64[Tensor, "sample 2 3"]
    """Left and right edge of every sample, world."""
    metres: Float64[Tensor, "sample"]
    """From the path's start."""
    marks: Float64[Tensor, "corner 2 3"]
    """Near and far end of each mark in turn, left and right."""
    marked: Float64[Tensor, "corner"]
    """Metres of these ends from the path's start."""
    at_frame: Float64[Tensor, "time"]
    """Metres from the start at every frame."""


def draw_path_ahead(
    frames: Frames, poses: Poses, lens: CameraModel, *, camera_height: float = 1.65, width: float = 1.8
) -> Frames:
    """Copies of the frames with the rest of the path on the ground, ``width`` metres wide, as the lens shows it.

    The ground lies ``camera_height`` metres below every camera, along the drive's common up direction. Bright marks cross
    the ribbon every 5 m of the path; their places in the world are the same in every frame. A camera that does not move
    has no ribbon.

    Raises:
        ValueError: if there is not one pose per frame, the lens is for another size or differs by view, or a length is
            not positive.
        TrajectoryError: if the poses are not in metres or have no common up direction.
    """
    frames = require_frames(frames)
    if len(poses) != len(frames):
        raise ValueError(f"one pose per frame is needed, got {len(poses)} poses for {len(frames)} frames.")
    if (lens.height, lens.width) != frames.shape[1:3] or lens.view_shape != ():
        raise ValueError(
            f"lens must be one lens for frames of {frames.shape[1]} x {frames.shape[2]} (height x width); got one for "
            f"{lens.height} x {lens.width} with views {list(lens.view_shape)}. Use lens.resize(height=, width=)."
        )
    if not (camera_height > 0 and width > 0):
        raise ValueError(f"camera_height and width must be > 0; got {camera_height} and {width}.")
    if poses.unit != "m":
        raise TrajectoryError(
            f"a path on the ground needs metres; the poses' unit is {poses.unit!r}. Say --unit m or give --scale."
        )
    ribbon = _ribbon(poses, camera_height, width)
    if ribbon is None:
        return frames.copy()
    return np.stack([_draw(frame, poses, index, lens, ribbon) for index, frame in enumerate(frames)])


def draw_readout(frames: Frames, poses: Poses, *, fps: float) -> Frames:
    """Copies of the frames with time, distance driven, speed and turn in the lower left corner.

    Lengths are in metres where the poses are metric, plain numbers otherwise. Frames less than 100 pixels high have no
    room for it and come back as they are.
    """
    frames = require_frames(frames)
    if len(poses) != len(frames):
        raise ValueError(f"one pose per frame is needed, got {len(poses)} poses for {len(frames)} frames.")
    height = frames.shape[1]
    if height < 100:
        return frames.copy()
    travelled = np.concatenate([[0.0], poses.step_lengths.cumsum(0).numpy()])
    forward = poses.rebase_to_first().R_world_cam[:, :, 2]
    turn = np.degrees(np.unwrap(torch.atan2(forward[:, 0], forward[:, 2]).numpy()))
    steps = poses.step_lengths.numpy()
    unit, speed_unit = ("m", "m/s") if poses.unit == "m" else ("units", "units/s")
    size = max(10, height // 36)
    font = ImageFont.load_default(size=size)
    drawn = []
    for index, frame in enumerate(frames):
        # The step that led here; the first frame has the one that leads on.
        speed = steps[max(index - 1, 0)] * fps if len(steps) else 0.0
        side = "right" if turn[index] > 0 else "left"
        text = (
            f"{index / fps:.2f} s   {travelled[index]:.1f} {unit}   {speed:.1f} {speed_unit}   "
            f"{abs(turn[index]):.1f} deg {side}"
        )
        image = Image.fromarray(frame)
        pen = ImageDraw.Draw(image)
        pen.text(
            (size // 2, height - 2 * size),
            text,
            fill=DONE_COLOR,
            font=font,
            stroke_width=max(1, size // 10),
            stroke_fill=(0, 0, 0),
        )
        drawn.append(np.asarray(image))
    return np.stack(drawn)


def _ribbon(poses: Poses, camera_height: float, width: float) -> _Ribbon | None:
    up = common_up(poses)
    ground = poses.center_world - camera_height * up
    at_frame = torch.cat([torch.zeros(1, dtype=torch.float64), ground.diff(dim=0).norm(dim=-1).cumsum(0)])
    length = float(at_frame[-1])
    if length < _SAMPLE:
        return None
    # Standing frames repeat a place, which has no direction.
    moving = torch.cat([torch.ones(1, dtype=torch.bool), at_frame.diff() > 1e-6])
    stops, places = at_frame[moving], ground[moving]
    metres = torch.linspace(0, length, min(_MOST_SAMPLES, int(length / _SAMPLE) + 2), dtype=torch.float64)
    after = torch.searchsorted(stops, metres, right=True).clamp(1, len(stops) - 1)
    fraction = (metres - stops[after - 1]) / (stops[after] - stops[after - 1])
    middle = torch.lerp(places[after - 1], places[after], fraction[:, None])
    # Over two metres, so that jitter of the poses does not twist the ribbon.
    reach = max(1, round(1.0 / float(metres[1])))
    ahead = middle[(torch.arange(len(middle)) + reach).clamp_max(len(middle) - 1)]
    behind = middle[(torch.arange(len(middle)) - reach).clamp_min(0)]
    along = ahead - behind
    side = torch.linalg.cross(along, up.expand_as(along))
    side = side / side.norm(dim=-1, keepdim=True).clamp_min(1e-9) * (width / 2)
    edges = torch.stack([middle - side, middle + side], dim=1)
    # No mark on a path that ends before the first one would.
    starts = _MARK_EVERY * torch.arange(
        1, max(1.0, (length - _MARK_LENGTH) / _MARK_EVERY), dtype=torch.float64
    )
    marked = torch.stack([starts, starts + _MARK_LENGTH], dim=1).flatten()
    place = (marked / metres[1]).clamp_max(len(metres) - 1 - 1e-9)
    below = place.long()
    marks = torch.lerp(edges[below], edges[below + 1], (place - below)[:, None, None])
    return _Ribbon(edges, metres, marks, marked, at_frame)


def _draw(frame: np.ndarray, poses: Poses, index: int, lens: CameraModel, ribbon: _Ribbon) -> np.ndarray:
    height, width = frame.shape[:2]
    out: np.ndarray = frame.astype(np.float32)
    layers = (
        (ribbon.edges, ribbon.metres, 1, PATH_COLOR, 0.35),
        (ribbon.marks, ribbon.marked, 2, DONE_COLOR, 0.9),
    )
    for edges, metres, stride, color, strength in layers:
        mask = Image.new("L", (width * _FINER, height * _FINER))
        pen = ImageDraw.Draw(mask)
        seen, valid = lens.project((edges - poses.center_world[index]) @ poses.R_world_cam[index])
        # Pillow counts from the first pixel's corner here.
        first = 0.0 if lens.pixel_origin == "corner" else -0.5
        pixels = ((seen - first) * _FINER - 0.5).numpy()
        near = (np.abs(pixels / _FINER - [width / 2, height / 2]) < 2 * max(height, width)).all(axis=(1, 2))
        usable = valid.all(dim=1).numpy() & near & (metres >= ribbon.at_frame[index]).numpy()
        for start in range(0, len(usable) - 1, stride):
            quad = np.concatenate([pixels[start], pixels[start + 1, ::-1]])
            # A quad across the seam of a panorama would span the whole picture.
            if usable[start] and usable[start + 1] and np.ptp(quad[:, 0]) < width * _FINER / 2:
                pen.polygon([tuple(corner) for corner in quad.tolist()], fill=255)
        share = np.asarray(mask.resize((width, height), Image.Resampling.BOX), dtype=np.float32) / 255
        share = strength * share[..., None]
        out = out * (1 - share) + np.asarray(color, dtype=np.float32) * share
    return out.round().astype(np.uint8)
