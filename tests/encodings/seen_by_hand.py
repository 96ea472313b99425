"""Lenses in numpy, written from their textbook equations: where a view sees a point, and what a pixel sees."""

import math

import numpy as np

from merope.cameras import KannalaBrandt, Pinhole, UnifiedCamera
from merope.cameras.rays import ViewRays


def affine(view_rays: ViewRays, clip: int, view: int) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy of one view, in patches."""
    lens = view_rays.lens
    return tuple(of_view(value, clip, view) for value in (lens.fx, lens.fy, lens.cx, lens.cy))


def of_view(parameter, clip: int, view: int) -> float:
    """One view's number of a lens parameter."""
    return float(parameter[clip, view]) if getattr(parameter, "ndim", 0) else float(parameter)


def pixel_ray(view_rays: ViewRays, clip: int, view: int, u: float, v: float) -> np.ndarray:
    """The ray of a pixel: with z = 1 for a pinhole, of unit length for the other lenses."""
    lens = view_rays.lens
    fx, fy, cx, cy = affine(view_rays, clip, view)
    x, y = (u - cx) / fx, (v - cy) / fy
    if isinstance(lens, Pinhole):
        return np.array([x, y, 1.0])
    if isinstance(lens, KannalaBrandt):
        angle, azimuth = math.hypot(x, y), math.atan2(y, x)
        return np.array(
            [math.sin(angle) * math.cos(azimuth), math.sin(angle) * math.sin(azimuth), math.cos(angle)]
        )
    assert isinstance(lens, UnifiedCamera)
    xi, squared = of_view(lens.xi, clip, view), x * x + y * y
    stretch = (xi + math.sqrt(1 + (1 - xi**2) * squared)) / (1 + squared)
    return np.array([stretch * x, stretch * y, stretch - xi])


def seen_at(
    view_rays: ViewRays, clip: int, view: int, point: np.ndarray, *, near: float, margin: float
) -> np.ndarray:
    """Pixel of a point in the camera's frame under the rules for what the lens does not see."""
    lens = view_rays.lens
    fx, fy, cx, cy = affine(view_rays, clip, view)
    x, y, z = point
    if isinstance(lens, Pinhole):
        z = max(z, near)
        place = np.array([x / z, y / z])
    elif isinstance(lens, KannalaBrandt):
        angle, azimuth = math.atan2(math.hypot(x, y), z), math.atan2(y, x)
        if angle > lens.max_theta * (1 + 1e-12):
            angle = lens.max_theta - 1e-5
        place = angle * np.array([math.cos(azimuth), math.sin(azimuth)])
    else:
        assert isinstance(lens, UnifiedCamera)
        xi = of_view(lens.xi, clip, view)
        widest = math.acos(-min(xi, 1 / xi))
        angle, azimuth = math.atan2(math.hypot(x, y), z), math.atan2(y, x)
        if angle > widest:
            angle = widest - 1e-5
        place = math.sin(angle) / (math.cos(angle) + xi)
        place = place * np.array([math.cos(azimuth), math.sin(azimuth)])
    pixel = np.array([fx * place[0] + cx, fy * place[1] + cy])
    size = np.array([lens.width, lens.height])
    return np.clip(pixel, -margin * size, (1 + margin) * size)


def in_query(queries: ViewRays, clip: int, view: int, point_world: np.ndarray) -> np.ndarray:
    """A world point in the frame of a query camera."""
    return queries.R_world_cam[clip, view].numpy().T @ (
        point_world - queries.center_world[clip, view].numpy()
    )


def turn(phase: float, length: float = 1.0) -> np.ndarray:
    """A plane rotation, shrunk to ``length``."""
    return length * np.array([[math.cos(phase), -math.sin(phase)], [math.sin(phase), math.cos(phase)]])
