"""Families of colours and light, one drawn per world."""

from dataclasses import dataclass

import numpy as np

from merope.worlds.layout import Light, Triple
from merope.worlds.textures import random_table

_WALLS: tuple[tuple[Triple, ...], ...] = (
    ((0.62, 0.33, 0.25), (0.70, 0.42, 0.30), (0.55, 0.30, 0.26), (0.74, 0.66, 0.55)),
    ((0.86, 0.78, 0.58), (0.80, 0.60, 0.45), (0.72, 0.76, 0.70), (0.88, 0.84, 0.76)),
    ((0.62, 0.63, 0.64), (0.74, 0.73, 0.70), (0.50, 0.53, 0.57), (0.80, 0.79, 0.77)),
    ((0.45, 0.58, 0.68), (0.82, 0.74, 0.74), (0.66, 0.72, 0.58), (0.90, 0.86, 0.70)),
)
_CARS: tuple[Triple, ...] = (
    (0.80, 0.80, 0.82),
    (0.12, 0.13, 0.15),
    (0.50, 0.52, 0.55),
    (0.65, 0.10, 0.10),
    (0.12, 0.25, 0.55),
    (0.90, 0.90, 0.88),
    (0.18, 0.38, 0.30),
    (0.80, 0.58, 0.15),
)
_LEAVES: tuple[Triple, ...] = ((0.22, 0.42, 0.16), (0.32, 0.45, 0.15), (0.16, 0.34, 0.20), (0.55, 0.42, 0.14))
_METALS: tuple[Triple, ...] = ((0.18, 0.22, 0.20), (0.52, 0.54, 0.56), (0.25, 0.27, 0.32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours one world draws its things from."""

    walls: tuple[Triple, ...]
    cars: tuple[Triple, ...]
    leaf: Triple
    metal: Triple
    asphalt: Triple
    paint: Triple
    kerb: Triple
    pavement: Triple
    grass: Triple


def _vary(rng: np.random.Generator, color: Triple, gain: float, shift: float) -> Triple:
    varied = np.array(color) * rng.uniform(1.0 - gain, 1.0 + gain) + rng.normal(0.0, shift, 3)
    red, green, blue = np.clip(varied, 0.02, 0.98).tolist()
    return red, green, blue


def draw_palette(rng: np.random.Generator) -> Palette:
    """A palette near one of a few families, so that worlds differ and yet look like one town."""
    grey = float(rng.uniform(0.30, 0.44))
    light = float(rng.uniform(0.55, 0.70))
    return Palette(
        walls=_WALLS[rng.integers(len(_WALLS))],
        cars=_CARS,
        leaf=_vary(rng, _LEAVES[rng.integers(len(_LEAVES))], 0.15, 0.01),
        metal=_METALS[rng.integers(len(_METALS))],
        asphalt=_vary(rng, (grey, grey, grey + 0.02), 0.0, 0.008),
        paint=(0.92, 0.92, 0.88),
        kerb=_vary(rng, (0.78, 0.77, 0.74), 0.08, 0.01),
        pavement=_vary(rng, (light, 0.96 * light, 0.89 * light), 0.05, 0.015),
        grass=_vary(rng, (0.30, 0.44, 0.18), 0.2, 0.02),
    )


def draw_light(rng: np.random.Generator) -> Light:
    """Sun, sky, haze and the noise table of one world."""
    azimuth = float(rng.uniform(0.0, 2.0 * np.pi))
    elevation = float(rng.uniform(np.radians(28.0), np.radians(65.0)))
    sun = (
        float(np.cos(elevation) * np.cos(azimuth)),
        float(np.cos(elevation) * np.sin(azimuth)),
        float(np.sin(elevation)),
    )
    dull = float(rng.random())
    zenith = tuple((np.array([0.32, 0.52, 0.82]) * (1.0 - 0.4 * dull) + 0.25 * dull).tolist())
    horizon = tuple((np.array([0.80, 0.86, 0.92]) * (1.0 - 0.08 * dull)).tolist())
    return Light(
        sun=sun,
        ambient=float(rng.uniform(0.5, 0.62)),
        haze_range=float(rng.uniform(220.0, 450.0)),
        zenith=zenith,
        horizon=horizon,
        cloud=(0.95, 0.95, 0.96),
        ridge=_vary(rng, (0.42, 0.50, 0.52), 0.15, 0.02),
        cloud_cover=float(rng.uniform(-0.25, 0.15)),
        ridge_height=float(rng.uniform(0.04, 0.16)),
        table=random_table(rng),
    )
