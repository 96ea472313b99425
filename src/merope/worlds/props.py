"""Things that stand along the street: each is a few solids, one plan footprint, and a side to yield to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from merope.worlds import layout

Color = tuple[float, float, float]

_ROUND = (layout.CYLINDER, layout.ELLIPSOID, layout.CONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One solid in the frame of its prop: x along the prop's yaw, y to the left, z from the ground."""

    shape: int
    material: int
    bottom: float
    top: float
    half_length: float
    half_width: float
    x: float = 0.0
    y: float = 0.0
    color: Color = (0.5, 0.5, 0.5)
    style: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prop:
    """A thing on the ground, with the rectangle it covers and the direction in which it may be moved away."""

    center: np.ndarray
    yaw: float
    half_length: float
    half_width: float
    outward: np.ndarray
    parts: Sequence[Part] = field(default_factory=tuple)
    movable: bool = False

    def moved(self, distance: float) -> "Prop":
        """The same prop, ``distance`` metres further from the street."""
        return replace(self, center=self.center + distance * self.outward)


def building(
    rng: np.random.Generator, palette: Sequence[Color], *, length: float, depth: float, height: float
) -> dict:
    """Parts and footprint of a house with regular windows; facade along the prop's x."""
    base = np.array(palette[int(rng.integers(len(palette)))]) * rng.uniform(0.85, 1.12) + rng.normal(
        0.0, 0.02, 3
    )
    color = tuple(np.clip(base, 0.05, 0.95).tolist())
    floor_height = float(rng.uniform(2.9, 3.6))
    height = floor_height * max(2, round(height / floor_height)) + 0.9
    style = (
        floor_height,
        float(rng.uniform(2.2, 4.2)),
        float(rng.uniform(0.35, 0.65)),
        float(rng.uniform(0.42, 0.62)),
        float(rng.choice([0.0, 0.25, 0.5])),
        float(rng.choice([0.5, 0.8, 1.2])),
        float(rng.random() < 0.4),
        float(rng.integers(1, 100)),
    )
    parts = [
        Part(
            shape=layout.BOX,
            material=layout.WALL,
            bottom=0.0,
            top=height,
            half_length=0.5 * length,
            half_width=0.5 * depth,
            color=color,
            style=style,
        )
    ]
    if rng.random() < 0.4:
        roof = Part(
            shape=layout.BOX,
            material=layout.STONE,
            bottom=height,
            top=height + float(rng.uniform(1.5, 3.0)),
            half_length=float(rng.uniform(0.2, 0.45)) * length,
            half_width=0.3 * depth,
            color=tuple((0.6 * base).clip(0.1, 0.9).tolist()),
        )
        parts.append(roof)
    return {"parts": parts, "half_length": 0.5 * length, "half_width": 0.5 * depth}


def tree(rng: np.random.Generator, leaf: Color, *, scale: float = 1.0) -> dict:
    """A broad tree of two crowns, or a conifer."""
    trunk = float(rng.uniform(2.0, 3.0)) * scale
    radius = float(rng.uniform(1.1, 1.9)) * scale
    tint = np.clip(np.array(leaf) * rng.uniform(0.75, 1.3) + rng.normal(0.0, 0.015, 3), 0.03, 0.8)
    bark = Part(
        shape=layout.CYLINDER,
        material=layout.BARK,
        bottom=0.0,
        top=trunk + 0.6 * radius,
        half_length=float(rng.uniform(0.11, 0.2)) * scale,
        half_width=0.2,
        color=(0.33, 0.25, 0.18),
    )
    if rng.random() < 0.25:
        crown = Part(
            shape=layout.CONE,
            material=layout.LEAF,
            bottom=0.6 * trunk,
            top=trunk + 4.5 * scale,
            half_length=radius,
            half_width=radius,
            color=tuple((0.8 * tint).tolist()),
        )
        return {"parts": [bark, crown], "half_length": radius, "half_width": radius}
    parts = [bark]
    for _ in range(2):
        size = radius * float(rng.uniform(0.75, 1.0))
        lift = trunk - 0.4 + float(rng.uniform(0.0, 0.8)) * radius
        parts.append(
            Part(
                shape=layout.ELLIPSOID,
                material=layout.LEAF,
                bottom=lift,
                top=lift + size * float(rng.uniform(1.5, 2.2)),
                half_length=size,
                half_width=size,
                x=float(rng.uniform(-0.4, 0.4)) * radius,
                y=float(rng.uniform(-0.4, 0.4)) * radius,
                color=tuple(tint.tolist()),
            )
        )
    return {"parts": parts, "half_length": 1.35 * radius, "half_width": 1.35 * radius}


def car(rng: np.random.Generator, palette: Sequence[Color]) -> dict:
    """A parked car: painted body, glazed cabin; its front looks along the prop's x."""
    color = tuple(
        np.clip(
            np.array(palette[int(rng.integers(len(palette)))]) + rng.normal(0, 0.03, 3), 0.04, 0.95
        ).tolist()
    )
    length = float(rng.uniform(3.7, 4.8))
    width = float(rng.uniform(1.7, 1.9))
    van = rng.random() < 0.2
    belt = float(rng.uniform(0.85, 0.98)) + 0.25 * van
    roof = belt + float(rng.uniform(0.48, 0.6)) + 0.35 * van
    facing = float(rng.random() < 0.5)
    body = Part(
        shape=layout.BOX,
        material=layout.CAR_BODY,
        bottom=0.16,
        top=belt,
        half_length=0.5 * length,
        half_width=0.5 * width,
        color=color,
        style=(facing,),
    )
    cabin = Part(
        shape=layout.BOX,
        material=layout.CAR_CABIN,
        bottom=belt,
        top=roof,
        half_length=(0.42 if van else 0.27) * length,
        half_width=0.46 * width,
        x=0.0 if van else -0.06 * length,
        color=color,
        style=(facing,),
    )
    return {"parts": [body, cabin], "half_length": 0.5 * length, "half_width": 0.5 * width}


def lamp(rng: np.random.Generator, color: Color, *, height: float) -> dict:
    """A street lamp whose arm reaches along the prop's y."""
    post = Part(
        shape=layout.CYLINDER,
        material=layout.METAL,
        bottom=0.0,
        top=height,
        half_length=0.09,
        half_width=0.09,
        color=color,
        style=(float(rng.random() < 0.5),),
    )
    head = Part(
        shape=layout.BOX,
        material=layout.METAL,
        bottom=height - 0.12,
        top=height + 0.02,
        half_length=0.14,
        half_width=0.75,
        y=0.7,
        color=(0.75, 0.75, 0.72),
    )
    return {"parts": [post, head], "half_length": 0.15, "half_width": 1.45}


def sign(rng: np.random.Generator) -> dict:
    """A traffic sign on a post, facing along the prop's x."""
    colors = ((0.75, 0.1, 0.1), (0.1, 0.25, 0.65), (0.85, 0.65, 0.1), (0.1, 0.45, 0.25))
    low = float(rng.uniform(1.9, 2.4))
    half = float(rng.uniform(0.3, 0.5))
    post = Part(
        shape=layout.CYLINDER,
        material=layout.METAL,
        bottom=0.0,
        top=low + 0.2,
        half_length=0.05,
        half_width=0.05,
        color=(0.55, 0.55, 0.57),
    )
    board = Part(
        shape=layout.BOX,
        material=layout.SIGN,
        bottom=low,
        top=low + 2.0 * half,
        half_length=0.04,
        half_width=half,
        color=colors[rng.integers(4)],
    )
    return {"parts": [post, board], "half_length": 0.1, "half_width": half}


def block(rng: np.random.Generator, color: Color, *, length: float, width: float, height: float) -> dict:
    """A hedge, wall, planter, bin or kiosk: one rough box."""
    tint = tuple(np.clip(np.array(color) * rng.uniform(0.8, 1.2), 0.03, 0.95).tolist())
    part = Part(
        shape=layout.BOX,
        material=layout.STONE,
        bottom=0.0,
        top=height,
        half_length=0.5 * length,
        half_width=0.5 * width,
        color=tint,
    )
    return {"parts": [part], "half_length": 0.5 * length, "half_width": 0.5 * width}


def bollard(rng: np.random.Generator, color: Color) -> dict:
    """A short post at the kerb."""
    part = Part(
        shape=layout.CYLINDER,
        material=layout.METAL,
        bottom=0.0,
        top=float(rng.uniform(0.9, 1.05)),
        half_length=0.1,
        half_width=0.1,
        color=color,
    )
    return {"parts": [part], "half_length": 0.1, "half_width": 0.1}
