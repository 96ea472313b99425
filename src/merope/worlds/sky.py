"""The sky: infinitely far, a function of direction alone."""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np

from merope.worlds.textures import _jit, detail2, mix, noise2, ramp


@_jit
def sky_color(light, dir_x, dir_y, dir_z, spread):
    """Sky in a direction: gradient, a glow around the sun, clouds and a ridge on the horizon, all infinitely far."""
    up = max(dir_z, 0.0)
    color = mix(light.horizon, light.zenith, min(1.0, np.sqrt(up) * 1.15))
    facing = dir_x * light.sun[0] + dir_y * light.sun[1] + dir_z * light.sun[2]
    if facing > 0.6:
        glow = (facing - 0.6) / 0.4
        color = mix(color, (1.0, 0.96, 0.86), 0.55 * glow * glow * glow)
    if dir_z > 0.03:
        x = 1.6 * dir_x / (dir_z + 0.12)
        y = 1.6 * dir_y / (dir_z + 0.12)
        width = 1.6 * spread / ((dir_z + 0.12) * (dir_z + 0.12))
        cover = (
            light.cloud_cover
            + detail2(light.table, x, y, 1.7, width)
            + 0.5 * detail2(light.table, x, y, 0.6, width)
        )
        cover += 0.25 * detail2(light.table, x, y, 0.2, width)
        share = min(1.0, max(0.0, 2.5 * cover)) * min(1.0, (dir_z - 0.03) * 8.0)
        color = mix(color, light.cloud, 0.8 * share)
    elif dir_z < -0.02:
        return light.horizon
    flat = max(np.sqrt(dir_x * dir_x + dir_y * dir_y), 1e-9)
    tangent = dir_z / flat
    if tangent < light.ridge_height * 1.05:
        bearing_x = dir_x / flat
        bearing_y = dir_y / flat
        crest = 0.7 * noise2(light.table, 2.5 * bearing_x + 9.0, 2.5 * bearing_y)
        crest += 0.3 * noise2(light.table, 9.0 * bearing_x, 9.0 * bearing_y + 5.0)
        hidden = ramp(light.ridge_height * crest - tangent, spread)
        color = mix(color, mix(light.ridge, light.horizon, 0.35), hidden)
    return color
