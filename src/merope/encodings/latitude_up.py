"""Where a ray stands towards gravity: UCPE's absolute map of latitude and image-plane up (Zhang et al. 2026b)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import required_lens
from merope.encodings.ucpe import RaysAt, patch_rays, require_rays_at

# Radians by which a ray is moved towards the zenith to see which way up is (UCPE's own).
_STEP = 0.1
# Sine of the distance from zenith or nadir, and length of a step in patches, below which up has no direction.
_NOWHERE = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class LatitudeUpMap:
    """Three features of a token's ray: up in the image as a unit vector (x, y), and latitude in radians.

    Latitude is the ray's angle above the horizon. Up is the way its pixel moves when the ray is turned 0.1 rad towards
    the zenith. A component of a branch's input beside a relative encoding, which cannot see gravity; no encoding.

    The world must be aligned with gravity, and ``up_world`` must say where up is. Only the cameras' rotations are read.

    Degenerate: at zenith and nadir no way is up, and where the turned ray leaves the lens its pixel does not exist;
    both have a zero up vector and their latitude. Tokens without a ray are zero in all three.

    Raises:
        ValueError: if ``up_world`` is no direction; by ``features``, if the rays carry no lens.
    """

    up_world: tuple[float, float, float] = (0.0, -1.0, 0.0)
    """The zenith in the world of the rays; UCPE's has y down, the procedural streets' (0, 0, 1). The default is that of
    `latent_matrices(..., up_world=...)`, which fine-tuning and `MeropePipeline` use; of poses in the frame of a first
    camera, as in the small preset, it says that this camera stands level."""
    released_rodrigues: bool = False
    """Turn rays as the released code does, whose last term is wrong: up is off by 2 degrees on average."""
    rays_at: RaysAt = "patch_center"
    """"patch_corner" is the released grid, half a patch up and to the left."""

    def __post_init__(self) -> None:
        if len(self.up_world) != 3 or not 0 < math.hypot(*self.up_world) < math.inf:
            raise ValueError(f"up_world must be a direction of three numbers; got {self.up_world}.")
        require_rays_at(self.rays_at)

    @property
    def num_features(self) -> int:
        """Up (2) and latitude (1)."""
        return 3

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token 3"]:
        """Up x, up y and latitude of every token, in the order of the release."""
        with torch.autocast("cpu", enabled=False):
            pixels, dirs_cam, valid = patch_rays(rays, self.rays_at, "LatitudeUpMap")
            dirs_world = (rays.R_world_cam[:, :, None] @ dirs_cam[..., None])[..., 0]
            up_world = torch.tensor(self.up_world, dtype=torch.float64) / math.hypot(*self.up_world)
            across = torch.linalg.cross(dirs_world, up_world.expand_as(dirs_world))
            sine_sq = across.square().sum(-1)
            defined = sine_sq > _NOWHERE**2
            sine = torch.where(defined, sine_sq, 1).sqrt()
            latitude = torch.atan2(dirs_world @ up_world, torch.where(defined, sine, 0))
            turned_world = self._turned(dirs_world, across / sine[..., None])
            turned_cam = (rays.R_world_cam.mT[:, :, None] @ turned_world[..., None])[..., 0]
            pixels_up, seen = required_lens(rays, "LatitudeUpMap").project(turned_cam)
            step = pixels_up - pixels
            length_sq = step.square().sum(-1)
            defined = defined & seen & (length_sq > _NOWHERE**2)
            up_image = step / torch.where(defined, length_sq, 1).sqrt()[..., None]
            up_image = torch.where(defined[..., None], up_image, 0)
            found = torch.cat([up_image, latitude[..., None]], -1)
            found = torch.where(valid[..., None], found, 0)
        return found.flatten(1, 2).to(dtype).to(device)

    def _turned(self, dirs: Tensor, axis: Tensor) -> Tensor:
        """Rodrigues' formula for an axis across the ray, whose third term is zero."""
        turned = dirs * math.cos(_STEP) + torch.linalg.cross(axis, dirs) * math.sin(_STEP)
        if self.released_rodrigues:
            total = dirs.sum(-1, keepdim=True)
            turned = turned + axis * axis * total * (1 - math.cos(_STEP))
        return turned
