"""What stands where: walks along the street and draws houses, trees, lamps, signs, cars and hedges."""

from collections.abc import Iterator, Sequence

import numpy as np

from merope.worlds import props
from merope.worlds.layout import Ground
from merope.worlds.palette import Palette
from merope.worlds.plan import edge_distance
from merope.worlds.props import Prop
from merope.worlds.street import CenterLine


def furnish(rng: np.random.Generator, palette: Palette, line: CenterLine, ground: Ground) -> list[Prop]:
    """All props of a street, none of them standing on a carriageway but the parked cars at its edge."""
    low, high = _furnished_arc(line, ground)
    things: list[Prop] = []
    for side in (1.0, -1.0):
        place = _Placer(line, ground, side)
        things += _houses(rng, palette, place, low, high)
        things += _edge(rng, palette, place, low, high)
        things += _parked(rng, palette, place, low, high)
    return things


def _furnished_arc(line: CenterLine, ground: Ground) -> tuple[float, float]:
    """Arc range of the centre line that lies on the raster."""
    rows, columns = ground.lateral.shape
    inside = (
        (line.points[:, 0] > ground.origin_x)
        & (line.points[:, 0] < ground.origin_x + (columns - 1) * ground.cell)
        & (line.points[:, 1] > ground.origin_y)
        & (line.points[:, 1] < ground.origin_y + (rows - 1) * ground.cell)
    )
    arcs = line.along[inside]
    return float(arcs.min()), float(arcs.max())


class _Placer:
    """Places props on one side of the street and checks the ground that they cover."""

    def __init__(self, line: CenterLine, ground: Ground, side: float) -> None:
        self.line, self.ground, self.side = line, ground, side
        self.edge = ground.half_road + ground.sidewalk

    def put(
        self,
        made: dict,
        along: float,
        lateral: float,
        *,
        clear: float,
        turn: float = 0.0,
        movable: bool = False,
    ) -> Iterator[Prop]:
        """The prop at ``lateral`` metres from the centre line, if its outline is ``clear`` metres off every carriageway."""
        point, tangent, normal = self.line.at(along)
        outward = self.side * normal
        yaw = float(np.arctan2(tangent[1], tangent[0])) + turn
        prop = Prop(center=point + lateral * outward, yaw=yaw, outward=outward, movable=movable, **made)
        if self._edge_distance(prop) >= clear:
            yield prop

    def _edge_distance(self, prop: Prop) -> float:
        """Metres from the nearest carriageway's edge to the prop's outline, negative on it."""
        ground, (x, y) = self.ground, prop.center
        return edge_distance(
            ground.lateral,
            ground.origin_x,
            ground.origin_y,
            ground.cell,
            ground.half_road,
            ground.cross,
            x,
            y,
            prop.yaw,
            prop.half_length,
            prop.half_width,
        )


def _houses(
    rng: np.random.Generator, palette: Palette, place: _Placer, low: float, high: float
) -> Iterator[Prop]:
    """A first row of houses with gaps and small parks, and a second, taller row behind."""
    setback = float(rng.uniform(0.5, 6.0))
    typical = float(rng.uniform(7.0, 16.0))
    open_share = float(rng.uniform(0.08, 0.3))
    along = low
    while along < high:
        length = float(rng.uniform(9.0, 20.0))
        middle = along + 0.5 * length
        if rng.random() < open_share:
            for _ in range(int(rng.integers(2, 6))):
                spot = middle + float(rng.uniform(-0.5, 0.5)) * length
                lateral = place.edge + float(rng.uniform(2.5, 16.0))
                made = props.tree(rng, palette.leaf, scale=float(rng.uniform(0.9, 1.5)))
                yield from place.put(made, spot, lateral, clear=1.5)
        else:
            depth = float(rng.uniform(8.0, 13.0))
            height = float(np.clip(typical * rng.uniform(0.7, 1.5), 6.0, 30.0))
            made = props.building(rng, palette.walls, length=length, depth=depth, height=height)
            lateral = place.edge + setback + float(rng.choice([0.0, 0.0, 1.5])) + 0.5 * depth
            yield from place.put(made, middle, lateral, clear=2.5, movable=True)
            if setback > 2.5 and rng.random() < 0.6:
                made = props.block(
                    rng, palette.leaf, length=length * 0.8, width=0.7, height=float(rng.uniform(0.7, 1.3))
                )
                yield from place.put(made, middle, place.edge + 0.6, clear=1.5)
        along += length + float(rng.choice([0.0, 0.6, 3.0, 6.0]))
    along = low
    while along < high:
        length = float(rng.uniform(14.0, 26.0))
        if rng.random() < 0.5:
            height = float(np.clip(typical * rng.uniform(1.0, 2.4), 8.0, 40.0))
            made = props.building(rng, palette.walls, length=length, depth=14.0, height=height)
            lateral = place.edge + float(rng.uniform(32.0, 60.0))
            yield from place.put(
                made, along, lateral, clear=4.0, turn=float(rng.normal(0.0, 0.2)), movable=True
            )
        along += length + float(rng.uniform(4.0, 16.0))


def _edge(
    rng: np.random.Generator, palette: Palette, place: _Placer, low: float, high: float
) -> Iterator[Prop]:
    """The kerb side of the sidewalk: trees, lamps, signs, bollards, planters."""
    half = place.ground.half_road
    if rng.random() < 0.75:
        step = float(rng.uniform(8.0, 14.0))
        for along in np.arange(low + float(rng.uniform(0.0, step)), high, step):
            if rng.random() < 0.85:
                made = props.tree(rng, palette.leaf)
                yield from place.put(made, float(along + rng.normal(0.0, 0.4)), half + 1.9, clear=-1.0)
    step = float(rng.uniform(18.0, 30.0))
    height = float(rng.uniform(5.0, 7.5))
    inward = np.pi if place.side > 0 else 0.0
    for along in np.arange(low + float(rng.uniform(0.0, step)), high, step):
        made = props.lamp(rng, palette.metal, height=height)
        yield from place.put(made, float(along), half + 0.6, clear=-1.2, turn=inward)
    step = float(rng.uniform(16.0, 40.0))
    for along in np.arange(low + float(rng.uniform(0.0, step)), high, step):
        made = props.sign(rng)
        yield from place.put(made, float(along + rng.normal(0.0, 3.0)), half + 0.7, clear=0.1)
    along = low
    while along < high:
        stretch = float(rng.uniform(10.0, 30.0))
        kind = rng.random()
        if kind < 0.25:
            for spot in np.arange(along, along + stretch, 2.5):
                yield from place.put(props.bollard(rng, palette.metal), float(spot), half + 0.45, clear=0.2)
        elif kind < 0.55:
            made = props.block(
                rng,
                ((0.5, 0.3, 0.2), (0.55, 0.54, 0.52), palette.leaf)[rng.integers(3)],
                length=float(rng.uniform(0.7, 2.2)),
                width=0.7,
                height=float(rng.uniform(0.6, 1.3)),
            )
            yield from place.put(made, along + 0.5 * stretch, place.edge - 0.6, clear=0.3)
        along += stretch


def _parked(
    rng: np.random.Generator, palette: Palette, place: _Placer, low: float, high: float
) -> Iterator[Prop]:
    """Cars in the bays of the parking lane."""
    share = float(rng.uniform(0.15, 0.6))
    ground = place.ground
    lateral = 0.5 * (ground.half_driven + ground.half_road) + 0.1
    side_streets: Sequence[np.ndarray] = list(ground.cross)
    for bay in range(int(low // 6.0) + 1, int(high // 6.0)):
        if rng.random() > share:
            continue
        along = 6.0 * bay + 3.0 + float(rng.normal(0.0, 0.2))
        point, _, _ = place.line.at(along)
        if all(abs(c[2] * (point[1] - c[1]) - c[3] * (point[0] - c[0])) > c[4] + 5.0 for c in side_streets):
            made = props.car(rng, palette.cars)
            yield from place.put(made, along, lateral, clear=-ground.half_road + ground.half_driven - 0.1)
