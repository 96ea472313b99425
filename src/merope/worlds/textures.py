"""Procedural surface colours, each filtered by the width of the sample that looks at it.

Everything here is compiled with numba. A surface is a function of metric surface coordinates and of a footprint
``width`` (metres across one sample): patterns narrower than the footprint fade to their mean instead of aliasing.
Colours are display values in [0, 1]; no gamma is applied.
"""

# Numba infers the types of these functions at each call.
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np
from numba import njit

# Side of the random table, a power of two so that lookups wrap with a mask.
TABLE_SIZE = 128
_MASK = TABLE_SIZE - 1


def random_table(rng: np.random.Generator) -> np.ndarray:
    """Uniform [0, 1) lattice values [128, 128] that all noise of one world is read from."""
    return rng.random((TABLE_SIZE, TABLE_SIZE), dtype=np.float32)


def _jit(function):
    return njit(cache=True, nogil=True, error_model="numpy")(function)


@_jit
def lattice(table, i, j):
    """The random value of lattice cell (i, j)."""
    return table[j & _MASK, i & _MASK]


@_jit
def noise2(table, x, y):
    """Smooth value noise with unit wavelength, in [0, 1]."""
    i = int(np.floor(x))
    j = int(np.floor(y))
    fx = x - i
    fy = y - j
    fx = fx * fx * (3.0 - 2.0 * fx)
    fy = fy * fy * (3.0 - 2.0 * fy)
    i0 = i & _MASK
    i1 = (i + 1) & _MASK
    j0 = j & _MASK
    j1 = (j + 1) & _MASK
    low = table[j0, i0] * (1.0 - fx) + table[j0, i1] * fx
    high = table[j1, i0] * (1.0 - fx) + table[j1, i1] * fx
    return low * (1.0 - fy) + high * fy


@_jit
def noise3(table, x, y, z):
    """Smooth value noise in space: two sheets of ``noise2``, blended."""
    k = int(np.floor(z))
    fz = z - k
    fz = fz * fz * (3.0 - 2.0 * fz)
    low = noise2(table, x + 37.0 * k, y + 17.0 * k)
    high = noise2(table, x + 37.0 * (k + 1), y + 17.0 * (k + 1))
    return low * (1.0 - fz) + high * fz


@_jit
def fade(width, wavelength):
    """1 where the footprint resolves the wavelength, 0 where it would alias."""
    ratio = width / wavelength
    if ratio <= 0.25:
        return 1.0
    if ratio >= 0.75:
        return 0.0
    return (0.75 - ratio) * 2.0


@_jit
def detail2(table, x, y, wavelength, width):
    """Signed noise in [-0.5, 0.5] that fades with the footprint."""
    strength = fade(width, wavelength)
    if strength <= 0.0:
        return 0.0
    return strength * (noise2(table, x / wavelength, y / wavelength) - 0.5)


@_jit
def detail3(table, x, y, z, wavelength, width):
    """Signed spatial noise in [-0.5, 0.5] that fades with the footprint."""
    strength = fade(width, wavelength)
    if strength <= 0.0:
        return 0.0
    return strength * (noise3(table, x / wavelength, y / wavelength, z / wavelength) - 0.5)


@_jit
def cells(table, u, v, size_u, size_v, width):
    """A signed random tone per tile, running bond, that fades with the footprint."""
    strength = fade(width, min(size_u, size_v))
    if strength <= 0.0:
        return 0.0
    row = int(np.floor(v / size_v))
    column = int(np.floor(u / size_u + 0.5 * (row & 1)))
    return strength * (lattice(table, column * 3 + row * 29, row * 7 + 11) - 0.5)


@_jit
def band(x, low, high, width):
    """Share of [x - width/2, x + width/2] inside [low, high]."""
    left = max(low, x - 0.5 * width)
    right = min(high, x + 0.5 * width)
    return max(0.0, right - left) / width


@_jit
def ramp(x, width):
    """Share of [x - width/2, x + width/2] above zero."""
    return min(1.0, max(0.0, x / width + 0.5))


@_jit
def _pulse_integral(x, duty):
    whole = np.floor(x)
    return whole * duty + min(x - whole, duty)


@_jit
def pulses(x, period, length, width):
    """Box-filtered train of pulses: 1 on [0, length) of every period."""
    duty = length / period
    low = (x - 0.5 * width) / period
    high = (x + 0.5 * width) / period
    return (_pulse_integral(high, duty) - _pulse_integral(low, duty)) * period / width


@_jit
def mix(color, other, share):
    """Blend two colours."""
    return (
        color[0] + (other[0] - color[0]) * share,
        color[1] + (other[1] - color[1]) * share,
        color[2] + (other[2] - color[2]) * share,
    )


@_jit
def tone(color, factor):
    """Scale a colour."""
    return color[0] * factor, color[1] * factor, color[2] * factor
