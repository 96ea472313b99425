"""Frames as a feed-forward model wants them, and their lens through the same crop and resize (`prepare_frames`)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from merope.cameras import CameraModel, Pinhole
from merope.cameras.resampling import resample_frames
from merope.evaluation.estimators.checks import check_frames

# The widest pinhole that frames of another lens are resampled into: its rim is already stretched threefold.
_MAX_FOV_DEG = 110.0
# Off-centre principal points up to this share of the raster are noise of a calibration.
_OFF_CENTER = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePlan:
    """How a model was shown images when it was trained."""

    patch: int
    """Both sides are multiples of this many pixels."""
    resolution: int
    """What ``sizing`` refers to, pixels; a multiple of ``patch``."""
    sizing: Literal["width", "longest", "area"]
    """"width": as wide as ``resolution``, and cut where higher than that. "longest": the longer side is ``resolution``.
    "area": about as many patches as a square of ``resolution`` has."""
    aspect_limits: tuple[float, float] = (0.0, math.inf)
    """Height over width beyond which the image is cut in its middle."""

    def __post_init__(self) -> None:
        if self.resolution < self.patch or self.resolution % self.patch:
            raise ValueError(
                f"resolution must be a multiple of the model's patch of {self.patch} pixels, got {self.resolution}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFrames:
    """Frames of the model's size, the pinhole that took them, and what was done, for the reader of a report."""

    frames: UInt8[np.ndarray, "time height width 3"]
    camera: Pinhole
    notes: tuple[str, ...] = ()


def prepare_frames(
    frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, plan: FramePlan
) -> PreparedFrames:
    """Crop and resize frames, and the lens with them: a scene point keeps its ray.

    These models know a camera as two fields of view about the middle of the image. So other lenses are resampled into a
    pinhole first, a principal point that is off the middle becomes the middle of a crop, and the resize makes pixels square.

    Raises:
        ValueError: if the frames are not bytes of the lens's size, or the lens differs by view.
        RecoveryFailed: if there are fewer than two.
    """
    check_frames(frames, camera)
    notes = []
    if isinstance(camera, Pinhole):
        pinhole = camera
    else:
        pinhole = _pinhole_within(camera)
        frames, covered = resample_frames(frames, camera, pinhole)
        notes.append(
            f"{type(camera).__name__} frames resampled into a pinhole of {_fov_x_deg(pinhole):.1f} degrees"
            + (f", {covered.mean():.0%} covered" if not covered.all() else "")
        )
    pinhole = pinhole.with_pixel_origin("corner")
    frames, pinhole = _centred(frames, pinhole, notes)
    frames, pinhole = _limited(frames, pinhole, plan, notes)
    height, width = _size(pinhole, plan)
    shape = f"{pinhole.height} x {pinhole.width}"
    frames = _resized(frames, height=height, width=width)
    pinhole = pinhole.resize(height=height, width=width)
    if plan.sizing == "width" and height > plan.resolution:
        top = (height - plan.resolution) // 2
        frames, pinhole = _cropped(frames, pinhole, top=top, left=0, height=plan.resolution, width=width)
        notes.append(f"rows beyond the middle {plan.resolution} of {height} cut")
    notes.append(f"{shape} frames shown to the model as {pinhole.height} x {pinhole.width}")
    return PreparedFrames(frames=frames, camera=pinhole, notes=tuple(notes))


def _fov_x_deg(camera: Pinhole) -> float:
    return math.degrees(2 * math.atan(camera.width / 2 / float(camera.fx)))


def _pinhole_within(camera: CameraModel) -> Pinhole:
    """A pinhole of the lens's size that looks along its axis, as wide as the lens sees left and right."""
    middle = camera.height / 2 - (0.0 if camera.pixel_origin == "corner" else 0.5)
    first = 0.0 if camera.pixel_origin == "corner" else -0.5
    edges = torch.tensor([[first, middle], [first + camera.width, middle]], dtype=torch.float64)
    dirs, valid = camera.unproject(edges)
    half = [
        math.degrees(math.atan2(abs(float(ray[0])), float(ray[2]))) if bool(seen) else _MAX_FOV_DEG / 2
        for ray, seen in zip(dirs, valid, strict=True)
    ]
    fov = min(2 * min(half), _MAX_FOV_DEG)
    return Pinhole.from_fov(fov_x_deg=fov, height=camera.height, width=camera.width)


def _centred(frames: np.ndarray, camera: Pinhole, notes: list[str]) -> tuple[np.ndarray, Pinhole]:
    """The largest part of the image whose middle is the principal point, to half a pixel."""
    height, width = camera.height, camera.width
    cx, cy = float(camera.cx), float(camera.cy)
    if abs(cx / width - 0.5) <= _OFF_CENTER and abs(cy / height - 0.5) <= _OFF_CENTER:
        return frames, camera
    new_width = max(1, math.floor(2 * min(cx, width - cx)))
    new_height = max(1, math.floor(2 * min(cy, height - cy)))
    if min(new_width / width, new_height / height) < 0.5:
        notes.append(
            f"the principal point, ({cx:.0f}, {cy:.0f}) of {width} x {height}, is too far from the middle to crop to; "
            "the model takes it for the middle"
        )
        return frames, camera
    left = min(max(round(cx - new_width / 2), 0), width - new_width)
    top = min(max(round(cy - new_height / 2), 0), height - new_height)
    notes.append(f"cut to the middle {new_height} x {new_width} about the principal point")
    return _cropped(frames, camera, top=top, left=left, height=new_height, width=new_width)


def _limited(
    frames: np.ndarray, camera: Pinhole, plan: FramePlan, notes: list[str]
) -> tuple[np.ndarray, Pinhole]:
    """The middle of the image within the plan's limits on height over width, in square pixels."""
    low, high = plan.aspect_limits
    # What the image spans, in units of the focal lengths: its shape once pixels are square.
    across, down = camera.width / float(camera.fx), camera.height / float(camera.fy)
    height, width = camera.height, camera.width
    if down / across > high:
        height = max(1, round(height * high * across / down))
    elif down / across < low:
        width = max(1, round(width * down / (low * across)))
    if (height, width) == (camera.height, camera.width):
        return frames, camera
    notes.append(f"cut to the middle {height} x {width}, the most oblong that the model takes")
    top, left = (camera.height - height) // 2, (camera.width - width) // 2
    return _cropped(frames, camera, top=top, left=left, height=height, width=width)


def _size(camera: Pinhole, plan: FramePlan) -> tuple[int, int]:
    """Height and width shown to the model."""
    aspect = (camera.height / float(camera.fy)) / (camera.width / float(camera.fx))

    def whole(pixels: float) -> int:
        return max(1, round(pixels / plan.patch)) * plan.patch

    if plan.sizing == "width":
        return whole(plan.resolution * aspect), plan.resolution
    if plan.sizing == "longest":
        scale = plan.resolution / max(1.0, aspect)
        return whole(scale * aspect), whole(scale)
    return whole(plan.resolution * math.sqrt(aspect)), whole(plan.resolution / math.sqrt(aspect))


def _cropped(
    frames: np.ndarray, camera: Pinhole, *, top: int, left: int, height: int, width: int
) -> tuple[np.ndarray, Pinhole]:
    cut = camera.crop(top=top, left=left, height=height, width=width)
    return frames[:, top : top + height, left : left + width], cut


def _resized(frames: np.ndarray, *, height: int, width: int) -> np.ndarray:
    if frames.shape[1:3] == (height, width):
        return frames
    size = (width, height)
    return np.stack(
        [
            np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize(size, Image.Resampling.BICUBIC))
            for frame in frames
        ]
    )
