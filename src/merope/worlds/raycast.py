"""The compiled ray caster: nearest hit through a plan grid, light, haze, and the loop over one view's pixels."""

import numpy as np

from merope.worlds.layout import BOX, CONE, CYLINDER, ELLIPSOID
from merope.worlds.surfaces import ground_color, sky_color, solid_color
from merope.worlds.textures import _jit, mix, tone

# A ray starts this far from the surface it leaves, in metres.
_EPSILON = 1e-4
_FAR = 1e30

GROUND_HIT = -1
SKY_HIT = -2


@_jit
def hit_box(geometry, item, ox, oy, oz, dx, dy, dz):
    """Distance at which a ray enters a box (or ``_FAR``) and the face: 0 ends, 1 sides, 2 top or bottom."""
    cos = geometry[item, 4]
    sin = geometry[item, 5]
    rx = ox - geometry[item, 0]
    ry = oy - geometry[item, 1]
    px = cos * rx + sin * ry
    py = cos * ry - sin * rx
    vx = cos * dx + sin * dy
    vy = cos * dy - sin * dx
    face = 0
    near = -_FAR
    far = _FAR
    if abs(vx) > 1e-12:
        inverse = 1.0 / vx
        reach = abs(inverse) * geometry[item, 6]
        middle = -px * inverse
        near = middle - reach
        far = middle + reach
    elif abs(px) > geometry[item, 6]:
        return _FAR, 0
    if abs(vy) > 1e-12:
        inverse = 1.0 / vy
        reach = abs(inverse) * geometry[item, 7]
        middle = -py * inverse
        if middle - reach > near:
            near = middle - reach
            face = 1
        far = min(far, middle + reach)
    elif abs(py) > geometry[item, 7]:
        return _FAR, 0
    if near > far or far < _EPSILON:
        return _FAR, 0
    if abs(dz) > 1e-12:
        inverse = 1.0 / dz
        first = (geometry[item, 2] - oz) * inverse
        second = (geometry[item, 3] - oz) * inverse
        if first > second:
            first, second = second, first
        if first > near:
            near = first
            face = 2
        far = min(far, second)
    elif oz < geometry[item, 2] or oz > geometry[item, 3]:
        return _FAR, 0
    if near > far or near < _EPSILON:
        return _FAR, 0
    return near, face


@_jit
def hit_round(geometry, shape, item, ox, oy, oz, dx, dy, dz):
    """Distance at which a ray enters an upright cylinder (open), ellipsoid or cone, or ``_FAR``."""
    rx = ox - geometry[item, 0]
    ry = oy - geometry[item, 1]
    radius = geometry[item, 6]
    bottom = geometry[item, 2]
    top = geometry[item, 3]
    if shape == CYLINDER:
        a = dx * dx + dy * dy
        b = rx * dx + ry * dy
        c = rx * rx + ry * ry - radius * radius
    elif shape == ELLIPSOID:
        squeeze = 2.0 * radius / (top - bottom)
        rz = (oz - 0.5 * (top + bottom)) * squeeze
        vz = dz * squeeze
        a = dx * dx + dy * dy + vz * vz
        b = rx * dx + ry * dy + rz * vz
        c = rx * rx + ry * ry + rz * rz - radius * radius
    else:
        slope = radius / (top - bottom)
        rz = (oz - top) * slope
        vz = dz * slope
        a = dx * dx + dy * dy - vz * vz
        b = rx * dx + ry * dy - rz * vz
        c = rx * rx + ry * ry - rz * rz
    disc = b * b - a * c
    if disc <= 0.0 or abs(a) < 1e-12:
        return _FAR
    root = np.sqrt(disc)
    first = (-b - root) / a
    second = (-b + root) / a
    if first > second:
        first, second = second, first
    z = oz + first * dz
    if first > _EPSILON and z >= bottom and z <= top:
        return first
    z = oz + second * dz
    if shape != ELLIPSOID and second > _EPSILON and z >= bottom and z <= top:
        return second
    return _FAR


@_jit
def trace(solids, grid, ox, oy, oz, dx, dy, dz, limit):
    """Nearest solid along a ray within ``limit``: distance, index (-1 if none) and face."""
    best = limit
    found = -1
    found_face = 0
    far = limit
    if dz > 1e-9:
        far = min(far, (grid.highest - oz) / dz)
    inverse_x = 1.0 / dx if abs(dx) > 1e-12 else _FAR
    inverse_y = 1.0 / dy if abs(dy) > 1e-12 else _FAR
    # Clip to the grid's rectangle.
    a = (grid.origin_x - ox) * inverse_x
    b = (grid.origin_x + grid.columns * grid.cell - ox) * inverse_x
    near = max(0.0, min(a, b))
    far = min(far, max(a, b))
    a = (grid.origin_y - oy) * inverse_y
    b = (grid.origin_y + grid.rows * grid.cell - oy) * inverse_y
    near = max(near, min(a, b))
    far = min(far, max(a, b))
    if near >= far:
        return best, found, found_face
    i = min(grid.columns - 1, max(0, int(np.floor((ox + near * dx - grid.origin_x) / grid.cell))))
    j = min(grid.rows - 1, max(0, int(np.floor((oy + near * dy - grid.origin_y) / grid.cell))))
    step_i = 1 if dx > 0.0 else -1
    step_j = 1 if dy > 0.0 else -1
    delta_x = abs(grid.cell * inverse_x)
    delta_y = abs(grid.cell * inverse_y)
    next_x = (grid.origin_x + (i + (1 if dx > 0.0 else 0)) * grid.cell - ox) * inverse_x
    next_y = (grid.origin_y + (j + (1 if dy > 0.0 else 0)) * grid.cell - oy) * inverse_y
    if abs(dx) <= 1e-12:
        next_x = _FAR
    if abs(dy) <= 1e-12:
        next_y = _FAR
    t = near
    while t < far and t < best:
        leave = min(next_x, next_y)
        cell = j * grid.columns + i
        lowest = min(oz + t * dz, oz + leave * dz)
        if lowest <= grid.top[cell]:
            for k in range(grid.start[cell], grid.start[cell + 1]):
                item = grid.items[k]
                shape = solids.shape[item]
                face = 0
                if shape == BOX:
                    distance, face = hit_box(solids.geometry, item, ox, oy, oz, dx, dy, dz)
                else:
                    distance = hit_round(solids.geometry, shape, item, ox, oy, oz, dx, dy, dz)
                if distance < best:
                    best = distance
                    found = item
                    found_face = face
        t = leave
        if next_x < next_y:
            next_x += delta_x
            i += step_i
            if i < 0 or i >= grid.columns:
                break
        else:
            next_y += delta_y
            j += step_j
            if j < 0 or j >= grid.rows:
                break
    return best, found, found_face


@_jit
def range_along(solids, grid, ox, oy, oz, dx, dy, dz):
    """Metres to the first surface along a ray, infinity for the sky."""
    limit = _FAR
    if dz < -1e-9:
        limit = -oz / dz
    distance, _, _ = trace(solids, grid, ox, oy, oz, dx, dy, dz, limit)
    return distance if distance < 0.5 * _FAR else np.inf


@_jit
def ray_color(solids, grid, ground, light, ox, oy, oz, dx, dy, dz, angle):
    """Colour of a ray whose sample is ``angle`` radians wide."""
    limit = _FAR
    if dz < -1e-9:
        limit = -oz / dz
    distance, item, face = trace(solids, grid, ox, oy, oz, dx, dy, dz, limit)
    table = light.table
    if item < 0:
        if distance > 0.5 * _FAR:
            return sky_color(light, dx, dy, dz, angle)
        x = ox + distance * dx
        y = oy + distance * dy
        spread = max(distance * angle, 1e-3)
        color = ground_color(ground, table, x, y, dx, dy, dz, spread)
        shade = light.ambient + (1.0 - light.ambient) * max(0.0, light.sun[2])
        if distance < 70.0:
            _, blocker, _ = trace(
                solids, grid, x, y, 0.01, light.sun[0], light.sun[1], light.sun[2], 40.0
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
    solids, grid, ground, light, rotation, center, dirs, dirs_valid, center_dirs, center_valid, angles, rgb, depth
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
