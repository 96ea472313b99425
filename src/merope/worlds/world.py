"""`build_world`: a metric street, seeded, that keeps clear of the paths driven through it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.worlds.furnish import furnish
from merope.worlds.layout import Grid, Ground, Light, Solids
from merope.worlds.palette import Palette, draw_light, draw_palette
from merope.worlds.plan import rectangle_gaps
from merope.worlds.props import Prop
from merope.worlds.seeds import seeded
from merope.worlds.street import CELL, CenterLine, follow, resample_plan, street_raster

# Metres between any obstacle and the path of any camera, in plan.
CLEARANCE = 2.0
# Metres that a camera must stay above the ground.
MIN_HEIGHT = 0.5
_GRID_CELL = 4.0
# An obstacle that is too close moves outward by at most this, in metres, before it is dropped.
_MAX_SHIFT = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A standing scene in metres: z up, ground plane z = 0, made by `build_world`, drawn by `render`."""

    seed: int
    solids: Solids
    grid: Grid
    ground: Ground
    light: Light
    line: CenterLine


def build_world(seed: int, *, paths: Sequence[Poses] = ()) -> World:
    """A street world in which every path can be driven.

    The street follows the first path: it is smoothed, extended straight at both ends, and driven in the right-hand
    lane; without paths it is straight and the x axis is that lane. Everything else, colours, textures,
    houses, trees, lamps, cars, side streets and the sun, is drawn from ``seed``. Obstacles keep
    2 m (in plan) from every camera of every path: those that come closer are moved back from the street or
    left out. Equal seeds and paths give equal worlds.

    Raises:
        TypeError: if ``paths`` is a single `Poses`.
        ValueError: if ``seed`` is negative.
        TrajectoryError: if a path is not in metres, a camera is less than 0.5 m above the ground, or the paths
            together cover more than about 3 km x 3 km.
    """
    if isinstance(paths, Poses):
        raise TypeError("paths must be a sequence of Poses; got one Poses. Pass paths=[poses].")
    for index, path in enumerate(paths):
        _check_path(path, f"paths[{index}]")
    rng = seeded(seed, 0x5733)
    palette, light = draw_palette(rng), draw_light(rng)
    plans = [path.center_world[:, :2].numpy() for path in paths]
    main = plans[0] if plans else np.array([[0.0, 0.0], [30.0, 0.0]])
    lane_width = float(rng.uniform(3.3, 3.7))
    num_lanes = int(rng.choice([1, 2], p=[0.7, 0.3]))
    offset = (num_lanes - 0.5) * lane_width
    heading = _heading(paths[0]) if paths else np.array([1.0, 0.0])
    line = follow(main, heading, offset=offset, slack=2.2)
    ground = _ground(rng, palette, line, np.concatenate([main, *plans]), lane_width, num_lanes)
    driven = [resample_plan(plan, 0.5) for plan in plans] or [resample_plan(main, 0.5)]
    points = np.concatenate(driven)
    props = keep_clear(furnish(rng, palette, line, ground), points, CLEARANCE + 0.25)
    solids = _solids(props)
    return World(
        seed=int(seed), solids=solids, grid=_grid(solids, ground), ground=ground, light=light, line=line
    )


def keep_clear(props: Sequence[Prop], points: np.ndarray, clearance: float) -> list[Prop]:
    """Move props outward, or drop them, until their footprints keep ``clearance`` metres from all plan points [N, 2]."""
    kept = []
    for prop, gap in zip(props, _gaps(props, points), strict=True):
        moved = 0.0
        while gap < clearance and prop.movable and moved < _MAX_SHIFT:
            prop, moved = prop.moved(2.0), moved + 2.0
            gap = _gaps([prop], points)[0]
        if gap >= clearance:
            kept.append(prop)
    return kept


def _gaps(props: Sequence[Prop], points: np.ndarray) -> np.ndarray:
    """Plan distance from each prop's rectangle to the nearest point."""
    if not props:
        return np.empty(0)
    center = np.array([prop.center for prop in props])
    yaw = np.array([prop.yaw for prop in props])
    half = np.array([[prop.half_length, prop.half_width] for prop in props])
    return rectangle_gaps(center, yaw, half, points)


def _check_path(path: Poses, name: str) -> None:
    if path.unit != "m":
        raise TrajectoryError(
            f"{name} must be in metres; its unit is {path.unit!r}. "
            "Scale it with Poses.scaled and set unit='m', or use another trajectory."
        )
    heights = path.center_world[:, 2]
    lowest = int(heights.argmin())
    if heights[lowest] < MIN_HEIGHT:
        raise TrajectoryError(
            f"{name} must stay at least {MIN_HEIGHT} m above the ground plane z = 0; camera {lowest} is at "
            f"z = {heights[lowest]:.2f} m. Pass it through place_on_ground first; if it climbs or falls by more "
            "than the camera's height, cut it into shorter windows."
        )


def _heading(path: Poses) -> np.ndarray:
    """Plan direction in which the first camera looks, or x where it looks straight up or down."""
    forward = path.R_world_cam[0, :2, 2].numpy()
    norm = np.linalg.norm(forward)
    return forward / norm if norm > 1e-3 else np.array([1.0, 0.0])


def _ground(
    rng: np.random.Generator,
    palette: Palette,
    line: CenterLine,
    plans: np.ndarray,
    lane_width: float,
    num_lanes: int,
) -> Ground:
    origin_x, origin_y, lateral, along = street_raster(line, plans)
    half_driven = num_lanes * lane_width
    parking = float(rng.uniform(2.3, 2.6))
    cross = []
    position = float(rng.uniform(-60.0, 10.0))
    for _ in range(4):
        if rng.random() < 0.75:
            point, tangent, _ = line.at(position)
            angle = np.arctan2(tangent[1], tangent[0]) + 0.5 * np.pi + rng.normal(0.0, 0.12)
            cross.append([point[0], point[1], np.cos(angle), np.sin(angle), rng.uniform(3.5, 5.5)])
        position += float(rng.uniform(45.0, 90.0))
    return Ground(
        origin_x=origin_x,
        origin_y=origin_y,
        cell=CELL,
        lateral=lateral,
        along=along,
        cross=np.array(cross, dtype=np.float64).reshape(-1, 5),
        lane_width=lane_width,
        num_lanes=num_lanes,
        half_road=half_driven + parking,
        half_driven=half_driven,
        sidewalk=float(rng.uniform(2.4, 4.0)),
        slab=float(rng.uniform(0.7, 1.2)),
        dash_length=float(rng.uniform(2.0, 3.5)),
        dash_period=float(rng.uniform(6.0, 9.0)),
        zebra_share=float(rng.uniform(0.2, 0.7)),
        asphalt=palette.asphalt,
        paint=palette.paint,
        kerb=palette.kerb,
        pavement=palette.pavement,
        grass=palette.grass,
    )


def _solids(props: Sequence[Prop]) -> Solids:
    shapes, materials, geometry, colors, styles = [], [], [], [], []
    for prop in props:
        cos, sin = np.cos(prop.yaw), np.sin(prop.yaw)
        for part in prop.parts:
            x = prop.center[0] + cos * part.x - sin * part.y
            y = prop.center[1] + sin * part.x + cos * part.y
            shapes.append(part.shape)
            materials.append(part.material)
            geometry.append([x, y, part.bottom, part.top, cos, sin, part.half_length, part.half_width])
            colors.append(part.color)
            styles.append([*part.style, *([0.0] * (8 - len(part.style)))])
    return Solids(
        shape=np.array(shapes, dtype=np.int64),
        material=np.array(materials, dtype=np.int64),
        geometry=np.array(geometry, dtype=np.float64).reshape(-1, 8),
        color=np.array(colors, dtype=np.float64).reshape(-1, 3),
        style=np.array(styles, dtype=np.float64).reshape(-1, 8),
    )


def _grid(solids: Solids, ground: Ground) -> Grid:
    rows, columns = (int(np.ceil(size * ground.cell / _GRID_CELL)) for size in ground.lateral.shape)
    geometry = solids.geometry
    round_ = solids.shape != 0
    cos, sin = np.abs(geometry[:, 4]), np.abs(geometry[:, 5])
    reach_x = np.where(round_, geometry[:, 6], cos * geometry[:, 6] + sin * geometry[:, 7])
    reach_y = np.where(round_, geometry[:, 6], sin * geometry[:, 6] + cos * geometry[:, 7])
    low_i = ((geometry[:, 0] - reach_x - ground.origin_x) / _GRID_CELL).astype(int).clip(0, columns - 1)
    high_i = ((geometry[:, 0] + reach_x - ground.origin_x) / _GRID_CELL).astype(int).clip(0, columns - 1)
    low_j = ((geometry[:, 1] - reach_y - ground.origin_y) / _GRID_CELL).astype(int).clip(0, rows - 1)
    high_j = ((geometry[:, 1] + reach_y - ground.origin_y) / _GRID_CELL).astype(int).clip(0, rows - 1)
    pairs = [
        (j * columns + i, item)
        for item in range(len(geometry))
        for j in range(low_j[item], high_j[item] + 1)
        for i in range(low_i[item], high_i[item] + 1)
    ]
    listing = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    counts = np.bincount(listing[:, 0], minlength=rows * columns)
    top = np.full(rows * columns, -1.0)
    np.maximum.at(top, listing[:, 0], geometry[listing[:, 1], 3])
    return Grid(
        origin_x=ground.origin_x,
        origin_y=ground.origin_y,
        cell=_GRID_CELL,
        columns=columns,
        rows=rows,
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=np.ascontiguousarray(listing[:, 1]),
        top=top,
        highest=float(top.max(initial=0.1)),
    )
