"""Frames of one lens as another would have seen them from the same place: `resample_frames`."""

import math

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from merope.cameras.base import CameraModel

# Bilinear taps at once, so that memory stays at some hundred megabytes however large the frames are.
_TAPS = 2**24


def resample_frames(
    frames: UInt8[np.ndarray, "time height width 3"], lens: CameraModel, into: CameraModel
) -> tuple[UInt8[np.ndarray, "time rows cols 3"], Bool[np.ndarray, "rows cols"]]:
    """Frames seen through ``lens`` as the raster of ``into``, and which of its pixels they cover.

    Every pixel of ``into`` goes along its ray to where ``lens`` sees that ray, and takes the bilinear value there.
    Where that shrinks the image, a pixel is the mean over a grid of points inside it, about one for each pixel of the
    source along each side, so that fine texture averages out and does not alias. Pixels that are not covered, for
    the most part, by rays that fall on the source are black and False in the mask.

    Only the lens changes: the camera stays where it is and looks where it looks.

    Raises:
        ValueError: if the frames are not of the lens's size, or a lens differs by view.
    """
    if (lens.height, lens.width) != frames.shape[1:3]:
        raise ValueError(
            f"lens must be for the frames' size, {frames.shape[1]} x {frames.shape[2]} (height x width); it is for "
            f"{lens.height} x {lens.width}. Use lens.resize(height=, width=)."
        )
    for name, camera in (("lens", lens), ("into", into)):
        if camera.view_shape != ():
            raise ValueError(
                f"{name} must be one lens for all frames; it has views {list(camera.view_shape)}."
            )
    places, seen, counts = _source_places(lens, into)
    share = seen.double().mean(dim=(1, 3))
    covered = share >= 0.5
    rows, cols = into.height, into.width
    # grid_sample's coordinates: -1 and 1 are the raster's edges.
    first = 0.0 if lens.pixel_origin == "corner" else -0.5
    size = torch.tensor([lens.width, lens.height], dtype=torch.float64)
    grid = (2 * (places - first) / size - 1).float().reshape(rows * counts[0], cols * counts[1], 2)
    weight = seen.float()
    per_pixel = weight.sum(dim=(1, 3)).clamp_min(1)
    out = np.zeros((len(frames), rows, cols, 3), dtype=np.uint8)
    chunk = max(1, _TAPS // (grid.shape[0] * grid.shape[1]))
    for start in range(0, len(frames), chunk):
        pixels = torch.from_numpy(np.ascontiguousarray(frames[start : start + chunk])).movedim(-1, 1).float()
        taken = grid_sample(
            pixels,
            grid.expand(len(pixels), -1, -1, -1),
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        taken = taken.reshape(len(pixels), 3, rows, counts[0], cols, counts[1])
        mean = (taken * weight).sum(dim=(3, 5)) / per_pixel
        mean = torch.where(covered, mean, 0).round().clamp(0, 255)
        out[start : start + chunk] = mean.movedim(1, -1).to(torch.uint8).numpy()
    return out, covered.numpy()


def _source_places(lens: CameraModel, into: CameraModel) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Source pixel of every point, [row, point row, col, point col, 2], whether there is one, and points along each side."""
    counts = _points_per_pixel(lens, into)
    offsets = [(torch.arange(count, dtype=torch.float64) + 0.5) / count - 0.5 for count in counts]
    centers = into.pixel_centers()
    v = (centers[:, 0, 1][:, None] + offsets[0]).flatten()
    u = (centers[0, :, 0][:, None] + offsets[1]).flatten()
    points = torch.stack(torch.meshgrid(u, v, indexing="xy"), -1)
    places, seen = _seen_at(points, lens, into)
    shape = (into.height, counts[0], into.width, counts[1])
    return places.reshape(*shape, 2), seen.reshape(shape), counts


def _seen_at(points: Tensor, lens: CameraModel, into: CameraModel) -> tuple[Tensor, Tensor]:
    dirs_cam, has_ray = into.unproject(points)
    places, mapped = lens.project(dirs_cam)
    return places, has_ray & mapped & lens.in_image(places)


def _points_per_pixel(lens: CameraModel, into: CameraModel) -> tuple[int, int]:
    """Source pixels across one pixel of ``into``, down and along, where the image shrinks most; at least one."""
    # Neighbours lie far apart across the seam and around the poles of a panorama too; the bound is on memory.
    most = max(2, math.isqrt(_TAPS // 4 // (into.height * into.width)))
    places, seen = _seen_at(into.pixel_centers(), lens, into)
    counts = []
    for axis in (0, 1):
        step = places.diff(dim=axis).norm(dim=-1)
        both = seen.narrow(axis, 1, seen.shape[axis] - 1) & seen.narrow(axis, 0, seen.shape[axis] - 1)
        largest = float(step[both].max()) if bool(both.any()) else 1.0
        # A hair less, so that an exact factor of 2 does not become 3 by rounding.
        counts.append(min(most, max(1, math.ceil(largest - 1e-6))))
    return counts[0], counts[1]
