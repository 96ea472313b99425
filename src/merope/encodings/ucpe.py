"""UCPE: rigid motions between the frames of single rays (Zhang et al. 2026b)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    key_rays,
    require_acts_on,
    required_lens,
)
from merope.encodings.projective import (
    anchored_poses,
    image_band,
    rigid,
    rigid_inverse,
    tile_band,
    tile_widths,
)
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.operators import CameraOperator

RaysAt = Literal["patch_center", "patch_corner"]
"""Where in its patch a token's ray goes through."""

Degenerate = Literal["orthonormal", "zero"]
"""What stands for the frame of a vertical ray."""

# The release divides by no sine below this (radians).
_VERTICAL = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class UCPE:
    """Unified camera positional encoding: ``U = (T_i^ray,p)^-1 T_j^ray,q`` in 4 x 4 blocks, for any lens.

    A ray's frame has its origin at the optical centre and its axes B(d) = [x y d] across and along the ray
    (`ray_frames`). Head of d channels: d/2 of ray frames, d/4 of columns, d/4 of rows.

    Degenerate: rays straight up or down in the camera, a vertical ray angle of +-90 degrees. No choice of frames is
    continuous on the whole sphere; this one gives way there, the minimum rotation straight behind.

    Raises:
        ValueError: if the head does not divide into the layout; by ``operator``, if ``rays_at="patch_corner"`` and
            the rays carry no lens.
    """

    facts: ClassVar[Facts] = Facts(title="UCPE", source="Zhang et al. 2026b", needs_scale=True)

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every translation."""
    degenerate: Degenerate = "orthonormal"
    """"zero" is the released code: a vertical ray has zero x and y axes, and a key's centre only its part along it."""
    rays_at: RaysAt = "patch_center"
    """"patch_corner" is the released grid, half a patch up and to the left; it needs the lens."""
    single_precision_image: bool = False
    """Make the image-plane rotations in float32 whatever ``dtype`` is, as the released code does."""
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        tile_widths(self.head_dim, "half")
        require_acts_on(self.acts_on)
        if self.degenerate not in ("orthonormal", "zero"):
            raise ValueError(f"degenerate must be 'orthonormal' or 'zero'; got {self.degenerate!r}.")
        require_rays_at(self.rays_at)

    @property
    def claims(self) -> Claims:
        """The whole relative pose, per token; norms grow with the baseline (Eq. 4)."""
        return Claims(metric=True, per_token=True, norm_preserving=False)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays; ``keys`` None means the queries themselves."""
        keys = key_rays(queries, keys)
        blocks, image = tile_widths(self.head_dim, "half")
        with torch.autocast("cpu", enabled=False):
            T_anchor_query, T_anchor_key = (self._ray_poses(queries, rays) for rays in (queries, keys))
            T_query_anchor = rigid_inverse(T_anchor_query)
            if self.degenerate == "zero":
                # The release inverts what is no rigid motion as if it were one.
                T_anchor_key = rigid_inverse(rigid_inverse(T_anchor_key))
            bands = (
                tile_band("ray", T_query_anchor.mT, T_anchor_key, width=blocks),
                image_band(queries, keys, width=image, single_precision=self.single_precision_image),
            )
            return assemble_scaled(
                "UCPE", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
            )

    def _ray_poses(self, queries: ViewRays, rays: ViewRays) -> Tensor:
        """``T_anchor_ray`` of every token, [B, N, 4, 4]."""
        _, dirs_cam, _ = patch_rays(rays, self.rays_at, "UCPE")
        T_anchor_cam = anchored_poses(queries, rays, self.scale)[:, :, None]
        T_cam_ray = ray_frames(dirs_cam, degenerate=self.degenerate)
        T_anchor_ray = rigid(
            T_anchor_cam[..., :3, :3] @ T_cam_ray,
            T_anchor_cam[..., :3, 3].expand(dirs_cam.shape),
        )
        return T_anchor_ray.flatten(1, 2)


def ray_frames(
    dirs: Float[Tensor, "*batch 3"], *, degenerate: Degenerate = "orthonormal"
) -> Float[Tensor, "*batch 3 3"]:
    """``B(d) = [x y d]`` of unit rays: x level, along e_y x d, and y = d x x.

    The identity on the optical axis; equal to `merope.geometry.sphere.minrot` on the horizontal meridian and rolled
    against it elsewhere.

    Degenerate: within 1e-6 rad of +-e_y nothing is level. "orthonormal" takes the x axis from the camera's; "zero"
    divides by 1e-6 instead of the sine, as the release does, which leaves x and y zero on the vertical itself.
    """
    x, y, z = dirs.unbind(-1)
    level = torch.stack([z, torch.zeros_like(y), -x], -1)
    sine_sq = x * x + z * z
    vertical = sine_sq < _VERTICAL**2
    sine = torch.where(vertical, torch.ones_like(sine_sq), sine_sq).sqrt()
    if degenerate == "zero":
        across = level / torch.where(vertical, _VERTICAL, sine)[..., None]
        up = torch.linalg.cross(dirs, across)
        length_sq = up.square().sum(-1, keepdim=True)
        short = length_sq < _VERTICAL**2
        length = torch.where(short, torch.ones_like(length_sq), length_sq).sqrt()
        up = up / torch.where(short, _VERTICAL, length)
        return torch.stack([across, up, dirs], -1)
    e_x = torch.zeros_like(dirs)
    e_x[..., 0] = 1
    fallback = e_x - x[..., None] * dirs
    fallback = fallback / torch.where(vertical[..., None], fallback, e_x).norm(dim=-1, keepdim=True)
    across = torch.where(vertical[..., None], fallback, level / sine[..., None])
    return torch.stack([across, torch.linalg.cross(dirs, across), dirs], -1)


def require_rays_at(rays_at: str) -> None:
    """Raise ValueError unless ``rays_at`` is one of the two words."""
    if rays_at not in ("patch_center", "patch_corner"):
        raise ValueError(f"rays_at must be 'patch_center' or 'patch_corner'; got {rays_at!r}.")


def patch_rays(
    rays: ViewRays, rays_at: RaysAt, name: str
) -> tuple[Float[Tensor, "token 2"], Float[Tensor, "batch view token 3"], Bool[Tensor, "batch view token"]]:
    """Place on the token raster, unit ray and validity of every token, through its patch's centre or corner.

    Raises:
        ValueError: if a corner is asked for and the rays carry no lens; ``name`` is the encoding that asks.
    """
    corners = torch.stack([rays.col, rays.row], -1)
    if rays_at == "patch_center":
        return corners + 0.5, rays.dirs_cam, rays.valid
    lens = required_lens(rays, name)
    dirs_cam, valid = lens.unproject(corners.expand(*lens.view_shape, *corners.shape))
    return corners, dirs_cam.expand(rays.dirs_cam.shape), valid & rays.valid
