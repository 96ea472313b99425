"""The plain arrays a world is made of, in the shape that the compiled renderer reads them."""

from typing import NamedTuple

import numpy as np

Triple = tuple[float, float, float]

# Solid shapes.
BOX, CYLINDER, ELLIPSOID, CONE = 0, 1, 2, 3

# Surface materials.
WALL, CAR_BODY, CAR_CABIN, METAL, BARK, LEAF, SIGN, STONE = 0, 1, 2, 3, 4, 5, 6, 7


class Solids(NamedTuple):
    """N upright solids.

    ``geometry`` rows are center x, center y, bottom z, top z, cos(yaw), sin(yaw), half length along the yaw, half
    width across it (metres); round solids use the half length as radius.
    """

    shape: np.ndarray
    material: np.ndarray
    geometry: np.ndarray
    color: np.ndarray
    style: np.ndarray


class Grid(NamedTuple):
    """Uniform plan grid over the solids: cell (i, j) lists ``items[start[k]:start[k + 1]]``, k = j * columns + i."""

    origin_x: float
    origin_y: float
    cell: float
    columns: int
    rows: int
    start: np.ndarray
    items: np.ndarray
    top: np.ndarray
    highest: float


class Ground(NamedTuple):
    """Street coordinates sampled on a plan raster, plus straight side streets and the sizes of the road.

    ``lateral`` is the signed distance to the centre line (positive on its left) and ``along`` the arc length of the
    nearest point of it, both in metres at the raster's nodes. ``cross`` rows are a point x, y, a unit direction
    x, y, and the half width of a side street.
    """

    origin_x: float
    origin_y: float
    cell: float
    lateral: np.ndarray
    along: np.ndarray
    cross: np.ndarray
    lane_width: float
    num_lanes: int
    half_road: float
    half_driven: float
    sidewalk: float
    slab: float
    dash_length: float
    dash_period: float
    zebra_share: float
    asphalt: Triple
    paint: Triple
    kerb: Triple
    pavement: Triple
    grass: Triple


class Light(NamedTuple):
    """Sun, sky and haze."""

    sun: Triple
    ambient: float
    haze_range: float
    zenith: Triple
    horizon: Triple
    cloud: Triple
    ridge: Triple
    cloud_cover: float
    ridge_height: float
    table: np.ndarray
