"""`render`: a world seen through any lens."""

from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.worlds.raycast import render_view
from merope.worlds.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """What T cameras see."""

    rgb: np.ndarray
    """Colours [T, H, W, 3], uint8; black where ``valid`` is False."""
    depth: np.ndarray
    """Metres along the ray of the pixel's centre [T, H, W], float32: infinity in the sky, 0 where not ``valid``."""
    valid: np.ndarray
    """Whether the pixel's centre has a ray [T, H, W], bool."""


def render(
    world: World, camera: CameraModel, poses: Poses, *, samples: int = 2, progress: bool = False
) -> Rendered:
    """Ray-cast one image per pose.

    Each pixel is the mean of ``samples`` x ``samples`` rays at evenly spaced positions inside it, unprojected by the
    lens itself, so any `CameraModel` works, also beyond 180 degrees. Textures are filtered to the width of a
    sample. The result depends on the arguments alone. The camera's parameters hold for all views, or lead with
    one entry per pose.

    Raises:
        ValueError: if ``samples`` is not positive, or the camera has another number of views than ``poses``.
        TrajectoryError: if the poses are not in metres, or a camera is below the ground or inside a solid.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1; got {samples}.")
    num_views = len(poses)
    views = camera.view_shape
    if len(views) > 1 or (len(views) == 1 and views[0] not in (1, num_views)):
        raise ValueError(
            f"camera must have no view axis or one of {num_views} views to match poses; got {list(views)}. "
            "Take the camera of one view, or render views in groups."
        )
    _check_cameras(world, poses)
    R_world_cam, center_world = poses.R_world_cam.numpy(), poses.center_world.numpy()
    rays = _Rays(camera, samples)
    height, width = camera.height, camera.width
    rgb = np.empty((num_views, height, width, 3), dtype=np.uint8)
    depth = np.empty((num_views, height, width), dtype=np.float32)
    valid = np.empty((num_views, height, width), dtype=bool)
    for index in tqdm(range(num_views), desc="render", unit="frame", disable=not progress):
        view = rays.view(index)
        render_view(
            world.solids,
            world.grid,
            world.ground,
            world.light,
            np.ascontiguousarray(R_world_cam[index]),
            np.ascontiguousarray(center_world[index]),
            *view,
            rgb[index],
            depth[index],
        )
        valid[index] = view[3]
    return Rendered(rgb=rgb, depth=depth, valid=valid)


class _Rays:
    """Sub-pixel rays of a lens, as the compiled loop reads them."""

    def __init__(self, camera: CameraModel, samples: int) -> None:
        pixels = camera.pixel_centers().to(torch.float64)
        shifts = (torch.arange(samples, dtype=torch.float64) + 0.5) / samples - 0.5
        self.center_dirs_cam, self.center_valid = self._unproject(camera, pixels)
        pieces = [
            self._unproject(camera, pixels + torch.stack([across, down]))
            for down in shifts
            for across in shifts
        ]
        self.dirs_cam = np.stack([dirs_cam for dirs_cam, _ in pieces], axis=1)
        self.valid = np.stack([valid for _, valid in pieces], axis=1)
        self.angles = self._sample_angles(camera, pixels, samples)

    @staticmethod
    def _unproject(camera: CameraModel, pixels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Directions [views, H, W, 3] and validity [views, H, W]; one view where the lens is shared."""
        dirs_cam, valid = camera.unproject(pixels.expand(*camera.view_shape, *pixels.shape))
        shape = pixels.shape[:-1]
        return dirs_cam.reshape(-1, *shape, 3).numpy(), valid.reshape(-1, *shape).numpy()

    def _sample_angles(self, camera: CameraModel, pixels: torch.Tensor, samples: int) -> np.ndarray:
        """Width in radians [views, H, W] of one of the samples of each pixel: the larger of across and down."""
        angles = np.zeros(self.center_valid.shape)
        for axis in range(2):
            shift = torch.zeros(2, dtype=torch.float64)
            shift[axis] = 0.25
            before, before_valid = self._unproject(camera, pixels - shift)
            after, after_valid = self._unproject(camera, pixels + shift)
            chord = 2.0 * np.linalg.norm(after - before, axis=-1)
            angles = np.maximum(angles, np.where(before_valid & after_valid, chord, 0.0))
        seen = angles[angles > 0.0]
        typical = float(np.median(seen)) if len(seen) else 1e-2
        return np.where(angles > 0.0, angles, typical) / samples

    def view(self, index: int) -> tuple[np.ndarray, ...]:
        """Directions, validity, centre directions, centre validity and angles of one view."""
        index = index if len(self.dirs_cam) > 1 else 0
        return (
            np.ascontiguousarray(self.dirs_cam[index]),
            np.ascontiguousarray(self.valid[index]),
            np.ascontiguousarray(self.center_dirs_cam[index]),
            np.ascontiguousarray(self.center_valid[index]),
            np.ascontiguousarray(self.angles[index]),
        )


def _check_cameras(world: World, poses: Poses) -> None:
    if poses.unit != "m":
        raise TrajectoryError(f"poses must be in metres to be rendered; their unit is {poses.unit!r}.")
    center_world = poses.center_world.numpy()
    geometry = world.solids.geometry
    delta = center_world[:, None, :2] - geometry[None, :, :2]
    cos, sin = geometry[:, 4], geometry[:, 5]
    u = np.abs(cos * delta[..., 0] + sin * delta[..., 1]) < geometry[:, 6]
    v = np.abs(cos * delta[..., 1] - sin * delta[..., 0]) < geometry[:, 7]
    height = center_world[:, None, 2]
    tall = (height > geometry[:, 2]) & (height < geometry[:, 3])
    bad = (u & v & tall).any(axis=1) | (center_world[:, 2] <= 0.0)
    if bad.any():
        index = int(bad.argmax())
        raise TrajectoryError(
            f"poses[{index}] is inside an object or below the ground, at {center_world[index].round(2).tolist()}. "
            "Name this trajectory among the paths of build_world; it then stays clear."
        )
