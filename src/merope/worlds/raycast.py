"""The compiled ray caster: nearest hit through a plan grid, light, haze, and the loop over one view's pixels."""

# Numba infers the types of these functions at each call.
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np

from merope.worlds.intersect import FAR, trace
from merope.worlds.layout import BOX, CONE, ELLIPSOID
from merope.worlds.sky import sky_color
from merope.worlds.surfaces import ground_color, solid_color
from merope.worlds.textures import _jit, mix, tone

# Metres; shadows of solids are cast on the ground up to here and by solids up to there.
_SHADOW_RANGE = 70.0
_SHADOW_REACH = 40.0


@_jit
def range_along(solids, grid, ox, oy, oz, dx, dy, dz):
    """Metres to the first surface along a ray, infinity for the sky."""
    limit = FAR
    if dz < -1e-9:
        limit = -oz / dz
    distance, _, _ = trace(solids, grid, ox, oy, oz, dx, dy, dz, limit)
    return distance if distance < 0.5 * FAR else np.inf


@_jit
def ray_color(solids, grid, ground, light, ox, oy, oz, dx, dy, dz, angle):
    """Colour of a ray whose sample is ``angle`` radians wide."""
    limit = FAR
    if dz < -1e-9:
        limit = -oz / dz
    distance, item, face = trace(solids, grid, ox, oy, oz, dx, dy, dz, limit)
    table = light.table
    if item < 0:
        if distance > 0.5 * FAR:
            return sky_color(light, dx, dy, dz, angle)
        x = ox + distance * dx
        y = oy + distance * dy
        spread = max(distance * angle, 1e-3)
        color = ground_color(ground, table, x, y, dx, dy, dz, spread)
        shade = light.ambient + (1.0 - light.ambient) * max(0.0, light.sun[2])
        if distance < _SHADOW_RANGE:
            _, blocker, _ = trace(
                solids, grid, x, y, 0.01, light.sun[0], light.sun[1], light.sun[2], _SHADOW_REACH
            )
            if blocker >= 0:
                shade = light.ambient
        color = tone(color, shade)
    else:
        x = ox + distance * dx
        y = oy + distance * dy
        z = oz + distance * dz
        geometry = solids.geometry[item]
        cos = geometry[4]
        sin = geometry[5]
        rx = x - geometry[0]
        ry = y - geometry[1]
        px = cos * rx + sin * ry
        py = cos * ry - sin * rx
        nx = 0.0
        ny = 0.0
        nz = 0.0
        extent = geometry[7]
        u = py
        if solids.shape[item] == BOX:
            if face == 0:
                side = 1.0 if px > 0.0 else -1.0
                nx = side * cos
                ny = side * sin
            elif face == 1:
                side = 1.0 if py > 0.0 else -1.0
                nx = -side * sin
                ny = side * cos
                u = px
                extent = geometry[6]
            else:
                nz = 1.0 if dz < 0.0 else -1.0
        else:
            radius = geometry[6]
            nx = rx / radius
            ny = ry / radius
            if solids.shape[item] == ELLIPSOID:
                half = 0.5 * (geometry[3] - geometry[2])
                nz = (z - 0.5 * (geometry[3] + geometry[2])) * radius / (half * half)
            elif solids.shape[item] == CONE:
                nz = 0.4
            norm = max(np.sqrt(nx * nx + ny * ny + nz * nz), 1e-9)
            nx /= norm
            ny /= norm
            nz /= norm
            u = radius * np.arctan2(ry, rx)
        facing = max(abs(nx * dx + ny * dy + nz * dz), 0.08)
        spread = max(distance * angle / np.sqrt(facing), 1e-3)
        color = solid_color(solids, table, item, face, u, z, x, y, extent, spread)
        sunny = max(0.0, nx * light.sun[0] + ny * light.sun[1] + nz * light.sun[2])
        shade = light.ambient * (0.85 + 0.15 * nz) + (1.05 - light.ambient) * sunny
        # Darker where a solid meets the ground.
        shade *= 0.7 + 0.3 * min(1.0, z / 1.2)
        color = tone(color, shade)
    haze = 1.0 - np.exp(-distance / light.haze_range)
    return mix(color, light.horizon, haze)


@_jit
def render_view(
    solids,
    grid,
    ground,
    light,
    rotation,
    center,
    dirs,
    dirs_valid,
    center_dirs,
    center_valid,
    angles,
    rgb,
    depth,
):
    """Fill one view's ``rgb`` [H, W, 3] and ``depth`` [H, W].

    ``dirs`` [S, H, W, 3] are the sub-pixel ray directions in the camera, ``center_dirs`` those of pixel centres,
    ``angles`` [H, W] a sample's width in radians. A pixel is the mean of its samples that have a ray.
    """
    num_samples, height, width = dirs_valid.shape
    ox = center[0]
    oy = center[1]
    oz = center[2]
    for row in range(height):
        for column in range(width):
            if not center_valid[row, column]:
                rgb[row, column, 0] = 0
                rgb[row, column, 1] = 0
                rgb[row, column, 2] = 0
                depth[row, column] = 0.0
                continue
            cx = center_dirs[row, column, 0]
            cy = center_dirs[row, column, 1]
            cz = center_dirs[row, column, 2]
            dx = rotation[0, 0] * cx + rotation[0, 1] * cy + rotation[0, 2] * cz
            dy = rotation[1, 0] * cx + rotation[1, 1] * cy + rotation[1, 2] * cz
            dz = rotation[2, 0] * cx + rotation[2, 1] * cy + rotation[2, 2] * cz
            depth[row, column] = range_along(solids, grid, ox, oy, oz, dx, dy, dz)
            red = 0.0
            green = 0.0
            blue = 0.0
            count = 0
            for sample in range(num_samples):
                if not dirs_valid[sample, row, column]:
                    continue
                cx = dirs[sample, row, column, 0]
                cy = dirs[sample, row, column, 1]
                cz = dirs[sample, row, column, 2]
                sx = rotation[0, 0] * cx + rotation[0, 1] * cy + rotation[0, 2] * cz
                sy = rotation[1, 0] * cx + rotation[1, 1] * cy + rotation[1, 2] * cz
                sz = rotation[2, 0] * cx + rotation[2, 1] * cy + rotation[2, 2] * cz
                r, g, b = ray_color(solids, grid, ground, light, ox, oy, oz, sx, sy, sz, angles[row, column])
                red += r
                green += g
                blue += b
                count += 1
            if count == 0:
                red, green, blue = ray_color(
                    solids, grid, ground, light, ox, oy, oz, dx, dy, dz, angles[row, column]
                )
                count = 1
            rgb[row, column, 0] = int(min(255.0, max(0.0, 255.0 * red / count + 0.5)))
            rgb[row, column, 1] = int(min(255.0, max(0.0, 255.0 * green / count + 0.5)))
            rgb[row, column, 2] = int(min(255.0, max(0.0, 255.0 * blue / count + 0.5)))
