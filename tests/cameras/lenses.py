"""Lenses that the tests of this folder share: invented calibrations on rasters that are never square."""

import math
from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from merope.cameras import (
    CameraModel,
    DoubleSphere,
    Equirectangular,
    ExtendedUnified,
    Fisheye624,
    FTheta,
    KannalaBrandt,
    Mei,
    OCam,
    OpenCV,
    Pinhole,
    RadialPolynomial,
    UnifiedCamera,
)
from merope.cameras.radial import RadialLens

RASTER = {"fx": 41.0, "fy": 39.5, "cx": 38.7, "cy": 25.2, "width": 80, "height": 48, "pixel_origin": "corner"}
OPENCV_RASTER = RASTER | {"pixel_origin": "center"}

LENSES: dict[str, CameraModel] = {
    "pinhole": Pinhole(**RASTER),
    "radtan": OpenCV(**OPENCV_RASTER, k1=-0.28, k2=0.09, p1=1.1e-3, p2=-0.7e-3, k3=-0.01),
    "radtan_folding": OpenCV(**OPENCV_RASTER, k1=-0.45, k2=0.05, p1=-2e-3, p2=3e-3),
    "pincushion": OpenCV(**OPENCV_RASTER, k1=0.11, k2=0.03, p1=1e-3, k3=0.02),
    "rational": OpenCV(
        **OPENCV_RASTER, k1=0.31, k2=0.04, p1=4e-4, p2=-9e-4, k3=0.002, k4=0.66, k5=0.13, k6=0.004
    ),
    "kannala_brandt": KannalaBrandt(**RASTER, k1=-0.031, k2=0.012, k3=-0.009, k4=0.0016),
    "kannala_brandt_folding": KannalaBrandt(**OPENCV_RASTER, k1=-0.08, k2=-0.02, k3=0.01, k4=-0.006),
    "equidistant_200": KannalaBrandt.from_fov(fov_x_deg=200.0, height=48, width=80),
    "unified_pinhole": UnifiedCamera(**RASTER, xi=0.0),
    "unified_below_one": UnifiedCamera(**RASTER, xi=0.8),
    "unified_one": UnifiedCamera(**RASTER, xi=1.0),
    "unified_above_one": UnifiedCamera(**OPENCV_RASTER, xi=1.5),
    "unified_far": UnifiedCamera.from_fov(fov_x_deg=200.0, xi=2.3, height=48, width=80),
    "equirectangular": Equirectangular.full_sphere(height=48, width=80),
    "double_sphere": DoubleSphere(**OPENCV_RASTER, xi=-0.17, alpha=0.59),
    "double_sphere_whole_plane": DoubleSphere(**RASTER, xi=0.35, alpha=0.42),
    "double_sphere_folding": DoubleSphere(**RASTER, xi=0.6, alpha=0.86),
    "extended_unified": ExtendedUnified(**OPENCV_RASTER, alpha=0.63, beta=1.04),
    "extended_unified_whole_plane": ExtendedUnified(**RASTER, alpha=0.37, beta=0.8),
    "extended_unified_folding": ExtendedUnified(**RASTER, alpha=0.93, beta=1.2),
    "mei": Mei(**OPENCV_RASTER, xi=1.8, k1=-0.05, k2=0.54, p1=-4e-4, p2=-3e-4),
    "mei_folding": Mei(**RASTER, xi=0.9, k1=-0.34, k2=0.06, p1=1.3e-3, p2=-0.2e-3),
    "f_theta_of_radius": FTheta(
        **OPENCV_RASTER, polynomial_of="radius", k2=0.007, k3=-0.029, k4=0.065, k5=-0.022
    ),
    "f_theta_of_angle": FTheta(
        **OPENCV_RASTER, polynomial_of="angle", k2=0.049, k3=-0.105, k4=-0.003, k5=0.005
    ),
    "f_theta_folding": FTheta(**RASTER, polynomial_of="radius", k3=-0.4),
    "ocam": OCam(**OPENCV_RASTER, a2=-0.413, a3=0.157, a4=-0.116, shear_x=1e-3, shear_y=-2e-3),
    "ocam_folding": OCam(**RASTER, a2=1.1, a4=0.3, a5=-0.1, a6=0.02, shear_x=0.05, shear_y=0.01),
    "radial_polynomial": RadialPolynomial(**OPENCV_RASTER, k2=-0.094, k3=0.142, k4=-0.021),
    "radial_polynomial_folding": RadialPolynomial(**RASTER, k2=-0.2, k3=-0.1, k4=-0.05),
    "fisheye624": Fisheye624(
        **OPENCV_RASTER,
        k0=-0.026,
        k1=0.098,
        k2=-0.068,
        k3=0.0095,
        k4=0.0023,
        k5=-0.00057,
        p0=1.1e-3,
        p1=-1.5e-3,
        s0=-1.2e-3,
        s1=-1.2e-4,
        s2=2.3e-3,
        s3=-0.6e-4,
    ),
    "fisheye624_circle": Fisheye624(
        **RASTER, k0=-0.1, k1=-0.02, p0=0.03, p1=-0.02, s0=0.02, s1=0.01, s2=-0.04, s3=0.02, max_radius=0.8
    ),
}


def parameter_names(camera: CameraModel) -> list[str]:
    """Fields that hold optical parameters, which may be tensors."""
    fixed = {"width", "height", "pixel_origin", "principal_point_outside", "polynomial_of"}
    return [field.name for field in fields(camera) if field.name not in fixed]


def with_tensor_parameters(camera: CameraModel, dtype: torch.dtype = torch.float64) -> CameraModel:
    """The same lens, each parameter a tensor that asks for its gradient."""
    values = {
        name: torch.tensor(getattr(camera, name), dtype=dtype, requires_grad=True)
        for name in parameter_names(camera)
    }
    return replace(camera, **values)


def random_pixels(camera: CameraModel, num: int, seed: int) -> Tensor:
    """Uniform on the raster, with a margin of a tenth around it."""
    random = torch.rand(num, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (random * 1.2 - 0.1) * torch.tensor([camera.width, camera.height], dtype=torch.float64)


def random_points(num: int, seed: int) -> Tensor:
    """All directions, distances from 0.1 m to 1000 m."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(num, 3, dtype=torch.float64, generator=generator)
    distance = 10 ** (4 * torch.rand(num, 1, dtype=torch.float64, generator=generator) - 1)
    return torch.nn.functional.normalize(directions, dim=-1) * distance


def boundary_pixels(camera: CameraModel) -> Iterator[Tensor]:
    """Pixels on, just inside and just outside the rim of a lens whose domain is a disc of the plane."""
    radius = rim_radius(camera)
    if radius is None:
        return
    for factor in (1.0, 1 - 1e-15, 1 + 1e-15, 1 - 1e-9, 1 + 1e-9, 1 - 1e-4, 1 + 1e-4):
        for turn in (0.0, 0.4, -2.0):
            x, y = radius * factor * math.cos(turn), radius * factor * math.sin(turn)
            yield torch.tensor([x * camera.fx + camera.cx, y * camera.fy + camera.cy], dtype=torch.float64)


def rim_radius(camera: CameraModel) -> float | None:
    """Largest valid radius on the plane, without tangential terms; None where the plane has no rim."""
    if isinstance(camera, RadialLens):
        return float(camera._radius(camera.theta_limit)[0])
    if isinstance(camera, UnifiedCamera) and camera.xi > 1:
        return 1 / math.sqrt(camera.xi**2 - 1)
    if isinstance(camera, DoubleSphere | ExtendedUnified) and camera.alpha > 0.5:
        return 1 / math.sqrt(getattr(camera, "beta", 1.0) * (2 * camera.alpha - 1))
    if isinstance(camera, OpenCV | Mei):
        r = float(camera.distortion.radius_limit)
        if isinstance(camera, Mei) and camera.xi > 1:
            r = min(r, 1 / math.sqrt(camera.xi**2 - 1))
        s = r * r
        k1, k2, _, _, k3, k4, k5, k6 = camera.distortion
        return r * (1 + k1 * s + k2 * s**2 + k3 * s**3) / (1 + k4 * s + k5 * s**2 + k6 * s**3)
    return None
