"""Our lenses in COLMAP's terms: the same projection where COLMAP has it, else a lens to resample frames into."""

import math
from collections.abc import Callable

import torch

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

Entry = tuple[str, list[float]]

# COLMAP's perspective lenses see what lies in front of the image plane. Just short of it, where slopes are still numbers.
_WIDEST = math.radians(85)
# Below this half angle straight lines stay straight at little cost, and features look the same everywhere.
_PINHOLE_UP_TO = math.radians(40)


def colmap_camera(camera: CameraModel) -> Entry:
    """COLMAP's name and parameters of a lens, its principal point counted from the raster's corner.

    Exact wherever COLMAP has the projection: pinholes, OpenCV's lenses, Kannala-Brandt, Project Aria's fisheye, the unified
    and the extended unified camera, whole panoramas; double sphere with xi or alpha 0, Mei without distortion, f-theta
    and radial polynomials that are odd, OCam with nothing but a2. The unified camera is COLMAP's EUCM with beta 1:
    alpha = xi / (1 + xi), focal lengths over 1 + xi.

    Raises:
        ValueError: if COLMAP has no such lens, or the parameters differ by view.
    """
    if camera.view_shape not in ((), (1,)):
        raise ValueError(
            f"COLMAP takes one lens for all frames; this one has views {list(camera.view_shape)}."
        )
    kind = type(camera)
    found = _KINDS[kind](camera) if kind in _KINDS else None
    if found is None:
        raise ValueError(
            f"COLMAP has no lens like this {kind.__name__}. Resample the frames into one that it has: "
            "merope.cameras.resampling.resample_frames with lens_for_colmap(camera) as the target."
        )
    return found


def lens_for_colmap(camera: CameraModel) -> CameraModel:
    """A lens that COLMAP has, for the field that ``camera`` sees in front: itself, a pinhole or an equidistant fisheye.

    The new one has the same raster and square pixels; the widest angle from the axis along the raster's middle row
    and column, at most 85 degrees, reaches its edges. Up to 40 degrees it is a pinhole.

    Raises:
        ValueError: if the parameters differ by view, or the lens sees nothing in front along its middle row and column.
    """
    try:
        colmap_camera(camera)
    except ValueError:
        if camera.view_shape not in ((), (1,)):
            raise
    else:
        return camera
    half_x, half_y = _half_angles(camera)
    widest = max(half_x, half_y)
    curve = math.tan if widest <= _PINHOLE_UP_TO else float
    focal_px = max(camera.width / 2 / curve(half_x), camera.height / 2 / curve(half_y))
    raster = {
        "fx": focal_px,
        "fy": focal_px,
        "cx": camera.width / 2,
        "cy": camera.height / 2,
        "width": camera.width,
        "height": camera.height,
    }
    if curve is math.tan:
        return Pinhole(**raster, pixel_origin="corner")  # type: ignore[arg-type]
    return KannalaBrandt(**raster, max_theta=math.pi / 2, pixel_origin="corner")  # type: ignore[arg-type]


def _half_angles(camera: CameraModel) -> tuple[float, float]:
    """Largest angle from the axis, at most ``_WIDEST``, of pixels along the middle row and along the middle column."""
    dirs_cam, valid = camera.pixel_rays()
    dirs_cam, valid = (
        dirs_cam.reshape(camera.height, camera.width, 3),
        valid.reshape(camera.height, camera.width),
    )
    row, col = camera.height // 2, camera.width // 2
    angles = []
    for dirs, seen in ((dirs_cam[row], valid[row]), (dirs_cam[:, col], valid[:, col])):
        theta = torch.acos(dirs[..., 2].clamp(-1, 1))
        theta = theta[seen & (theta <= _WIDEST)]
        if not len(theta) or float(theta.max()) == 0:
            raise ValueError(
                f"this {type(camera).__name__} sees nothing in front along the middle of its raster, so frames cannot be "
                "resampled for COLMAP. Turn or crop it so that the axis lies inside the frame."
            )
        angles.append(float(theta.max()))
    return angles[0], angles[1]


def _numbers(camera: CameraModel, *names: str) -> list[float]:
    return [float(getattr(camera, name)) for name in names]


def _affine(camera: CameraModel, *, over: float = 1.0) -> list[float]:
    """Focal lengths divided by ``over``, and the principal point from the raster's corner."""
    fx, fy, cx, cy = _numbers(camera.with_pixel_origin("corner"), "fx", "fy", "cx", "cy")
    return [fx / over, fy / over, cx, cy]


def _plain(model: str, *names: str) -> Callable[[CameraModel], Entry]:
    return lambda camera: (model, _affine(camera) + _numbers(camera, *names))


def _unified(camera: CameraModel) -> Entry:
    (xi,) = _numbers(camera, "xi")
    return "EUCM", [*_affine(camera, over=1 + xi), xi / (1 + xi), 1.0]


def _opencv(camera: CameraModel) -> Entry:
    few, more = _numbers(camera, "k1", "k2", "p1", "p2"), _numbers(camera, "k3", "k4", "k5", "k6")
    if any(more):
        return "FULL_OPENCV", _affine(camera) + few + more
    return "OPENCV", _affine(camera) + few


def _mei(camera: CameraModel) -> Entry | None:
    return None if any(_numbers(camera, "k1", "k2", "p1", "p2")) else _unified(camera)


def _double_sphere(camera: CameraModel) -> Entry | None:
    xi, alpha = _numbers(camera, "xi", "alpha")
    if xi == 0:
        return "EUCM", [*_affine(camera), alpha, 1.0]
    return _unified(camera) if alpha == 0 and xi > 0 else None


def _f_theta(camera: CameraModel) -> Entry | None:
    assert isinstance(camera, FTheta)
    k2, k3, k4, k5 = _numbers(camera, "k2", "k3", "k4", "k5")
    if k2 or k4 or (camera.polynomial_of != "angle" and (k3 or k5)):
        return None
    return "OPENCV_FISHEYE", [*_affine(camera), k3, k5, 0.0, 0.0]


def _radial_polynomial(camera: CameraModel) -> Entry | None:
    k2, k3, k4 = _numbers(camera, "k2", "k3", "k4")
    return None if k2 or k4 else ("OPENCV_FISHEYE", [*_affine(camera), k3, 0.0, 0.0, 0.0])


def _ocam(camera: CameraModel) -> Entry | None:
    a2, *others = _numbers(camera, "a2", "a3", "a4", "a5", "a6", "shear_x", "shear_y")
    # A ray (x, y, 1 + a2 r^2) is the division model's.
    return None if any(others) else ("DIVISION", [*_affine(camera), a2])


def _equirectangular(camera: CameraModel) -> Entry | None:
    whole = Equirectangular.full_sphere(height=camera.height, width=camera.width)
    if camera.with_pixel_origin("corner") != whole:
        return None
    return "EQUIRECTANGULAR", [float(camera.width), float(camera.height)]


_ARIA = ("k0", "k1", "k2", "k3", "k4", "k5", "p0", "p1", "s0", "s1", "s2", "s3")
_KINDS: dict[type[CameraModel], Callable[[CameraModel], Entry | None]] = {
    Pinhole: _plain("PINHOLE"),
    OpenCV: _opencv,
    KannalaBrandt: _plain("OPENCV_FISHEYE", "k1", "k2", "k3", "k4"),
    Fisheye624: _plain("RAD_TAN_THIN_PRISM_FISHEYE", *_ARIA),
    ExtendedUnified: _plain("EUCM", "alpha", "beta"),
    UnifiedCamera: _unified,
    Mei: _mei,
    DoubleSphere: _double_sphere,
    FTheta: _f_theta,
    RadialPolynomial: _radial_polynomial,
    OCam: _ocam,
    Equirectangular: _equirectangular,
}
