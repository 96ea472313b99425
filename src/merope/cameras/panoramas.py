"""What a lens sees in a full-sphere panorama, in any direction: `PanoramaView`, and `nearest_values` for depth."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from merope.cameras.base import CameraModel

# Points that are looked up at once, so that memory stays at some hundred megabytes.
_POINTS = 2**22
# Points along each side of a pixel, at most: beyond that a panorama should be made smaller first.
_MOST = 32
# Share of the pixels whose spacing is met; at the rim of a fisheye it may grow without bound.
_MET = 0.95


class PanoramaView:
    """A lens looking into equirectangular panoramas of one size: rays are worked out once for all directions.

    The axes of a panorama are those of `Equirectangular.full_sphere`: x right, y down, z forward at its middle, the seam
    behind.
    A pixel is the mean over a grid of points inside it, about one for each pixel of the panorama across it, so that fine
    texture averages out and does not alias. Each point has the bilinear value, across the seam and the poles too.

    Raises:
        ValueError: if the panorama is not twice as wide as high, or the lens differs by view.
    """

    def __init__(self, lens: CameraModel, *, height: int, width: int) -> None:
        _require_full_sphere(height, width)
        if lens.view_shape:
            raise ValueError(f"lens must be one lens for all frames; it has views {list(lens.view_shape)}.")
        self.lens, self.height, self.width = lens, height, width
        self._counts = _points_per_pixel(lens, math.pi / height)
        offsets = [(torch.arange(count, dtype=torch.float64) + 0.5) / count - 0.5 for count in self._counts]
        centers = lens.pixel_centers()
        v = (centers[:, 0, 1][:, None] + offsets[0]).flatten()
        u = (centers[0, :, 0][:, None] + offsets[1]).flatten()
        dirs_cam, has_ray = lens.unproject(torch.stack(torch.meshgrid(u, v, indexing="xy"), -1))
        # Directions in float32 are good to 1e-4 pixels of the largest panoramas.
        self._dirs_cam = dirs_cam.float()
        self._weight = self._by_pixel(has_ray).float()
        self._covered = self._weight.mean(dim=(1, 3)) >= 0.5

    @property
    def covered(self) -> Bool[np.ndarray, "rows cols"]:
        """Pixels that have a ray, for the most part; the others are black."""
        return self._covered.numpy()

    def frame(
        self, panorama: UInt8[np.ndarray, "height width 3"], R_pano_cam: Float[Tensor, "3 3"]
    ) -> UInt8[np.ndarray, "rows cols 3"]:
        """The picture in one direction; ``R_pano_cam`` maps camera axes into the panorama's.

        Raises:
            ValueError: if the panorama is of another size.
        """
        self._require_size(panorama)
        return self.frames(padded(panorama), R_pano_cam[None])[0]

    def frames(
        self,
        padded_panorama: Float[Tensor, "1 3 padded_height padded_width"],
        R_pano_cam: Float[Tensor, "time 3 3"],
    ) -> UInt8[np.ndarray, "time rows cols 3"]:
        """Pictures in several directions of one panorama, made ready by `padded`."""
        out = np.zeros((len(R_pano_cam), self.lens.height, self.lens.width, 3), dtype=np.uint8)
        rows = max(1, _POINTS // (self._dirs_cam.shape[1] * self._counts[0]))
        for number, rotation in enumerate(R_pano_cam):
            for start in range(0, self.lens.height, rows):
                part = slice(start, start + rows)
                out[number, part] = self._part(padded_panorama, rotation, part)
        return out

    def _part(self, panorama: Tensor, R_pano_cam: Tensor, part: slice) -> np.ndarray:
        down, along = self._counts
        dirs_cam = self._dirs_cam[part.start * down : part.stop * down]
        u, v = _places(dirs_cam @ R_pano_cam.float().mT, self.height, self.width)
        # One pixel of padding on each side; grid_sample's -1 and 1 are the padded raster's edges.
        grid = torch.stack([2 * (u + 1) / (self.width + 2) - 1, 2 * (v + 1) / (self.height + 2) - 1], -1)
        taken = grid_sample(panorama, grid[None], mode="bilinear", align_corners=False)[0]
        taken = taken.reshape(3, -1, down, self.lens.width, along)
        weight = self._weight[part]
        mean = (taken * weight).sum(dim=(2, 4)) / weight.sum(dim=(1, 3)).clamp_min(1)
        mean = torch.where(self._covered[part], mean, 0).round().clamp(0, 255)
        return mean.movedim(0, -1).to(torch.uint8).numpy()

    def _by_pixel(self, values: Tensor) -> Tensor:
        return values.reshape(self.lens.height, self._counts[0], self.lens.width, self._counts[1])

    def _require_size(self, panorama: np.ndarray) -> None:
        if panorama.shape[:2] != (self.height, self.width):
            raise ValueError(
                f"the panorama must be {self.height} x {self.width} (height x width); it is {panorama.shape[0]} x "
                f"{panorama.shape[1]}."
            )


def padded(panorama: UInt8[np.ndarray, "height width 3"]) -> Float[Tensor, "1 3 padded_height padded_width"]:
    """A panorama with a pixel more on each side: beyond the seam its other end, beyond a pole the meridian opposite."""
    pixels = torch.tensor(panorama).movedim(-1, 0).float()
    half = pixels.shape[2] // 2
    above, below = pixels[:, :1].roll(half, dims=2), pixels[:, -1:].roll(half, dims=2)
    pixels = torch.cat([above, pixels, below], dim=1)
    return torch.cat([pixels[:, :, -1:], pixels, pixels[:, :, :1]], dim=2)[None]


def nearest_values(
    panorama: Shaped[np.ndarray, "pano_height pano_width"],
    lens: CameraModel,
    R_pano_cam: Float[Tensor, "time 3 3"],
) -> Float[np.ndarray, "time rows cols"]:
    """Values of the pixels that the rays of a lens's pixel centres fall on, unmixed, for depth; 0 where there is no ray.

    Raises:
        ValueError: if the panorama is not twice as wide as high.
    """
    height, width = panorama.shape
    _require_full_sphere(height, width)
    dirs_cam, has_ray = lens.pixel_rays()
    out = np.zeros((len(R_pano_cam), lens.height, lens.width), dtype=np.float32)
    for number, rotation in enumerate(R_pano_cam):
        u, v = _places(dirs_cam @ rotation.to(torch.float64).mT, height, width)
        rows = v.floor().long().clamp(0, height - 1).numpy()
        cols = (u.floor().long() % width).numpy()
        out[number] = np.where(has_ray.numpy(), panorama[rows, cols], 0)
    return out


def _require_full_sphere(height: int, width: int) -> None:
    if width != 2 * height:
        raise ValueError(
            f"a panorama of the full sphere is twice as wide as high; this one is {height} x {width} (height x width)."
        )


def _places(dirs_pano: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Columns and rows, counted from the raster's corner, of directions."""
    x, y, z = dirs_pano.unbind(-1)
    u = (torch.atan2(x, z) / (2 * math.pi) + 0.5) * width
    v = (torch.atan2(y, torch.sqrt(x * x + z * z)) / math.pi + 0.5) * height
    return u, v


def _points_per_pixel(lens: CameraModel, pitch: float) -> tuple[int, int]:
    """Panorama pixels of ``pitch`` radians across one pixel of the lens, down and along."""
    dirs_cam, has_ray = lens.pixel_rays()
    counts = []
    for axis in (0, 1):
        length = dirs_cam.shape[axis] - 1
        both = has_ray.narrow(axis, 0, length) & has_ray.narrow(axis, 1, length)
        # Chord and arc agree to a fraction of a per cent for pixels of less than 10 degrees.
        steps = dirs_cam.diff(dim=axis).norm(dim=-1)[both].numpy() / pitch
        largest = float(np.quantile(steps, _MET)) if len(steps) else 1.0
        # A hair less, so that an exact factor of 2 does not become 3 by rounding.
        counts.append(min(_MOST, max(1, math.ceil(largest - 1e-6))))
    return counts[0], counts[1]
