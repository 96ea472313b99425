"""Where rays meet solids: each shape on its own, and the nearest of a world through its plan grid."""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np

from merope.worlds.layout import BOX, CYLINDER, ELLIPSOID
from merope.worlds.textures import _jit

# A ray starts this far from the surface it leaves, in metres.
EPSILON = 1e-4
# Farther than anything; a distance of this much is no hit.
FAR = 1e30


@_jit
def hit_box(geometry, item, ox, oy, oz, dx, dy, dz):
    """Distance at which a ray enters a box (or ``FAR``) and the face: 0 ends, 1 sides, 2 top or bottom."""
    cos = geometry[item, 4]
    sin = geometry[item, 5]
    rx = ox - geometry[item, 0]
    ry = oy - geometry[item, 1]
    px = cos * rx + sin * ry
    py = cos * ry - sin * rx
    vx = cos * dx + sin * dy
    vy = cos * dy - sin * dx
    face = 0
    near = -FAR
    far = FAR
    if abs(vx) > 1e-12:
        inverse = 1.0 / vx
        reach = abs(inverse) * geometry[item, 6]
        middle = -px * inverse
        near = middle - reach
        far = middle + reach
    elif abs(px) > geometry[item, 6]:
        return FAR, 0
    if abs(vy) > 1e-12:
        inverse = 1.0 / vy
        reach = abs(inverse) * geometry[item, 7]
        middle = -py * inverse
        if middle - reach > near:
            near = middle - reach
            face = 1
        far = min(far, middle + reach)
    elif abs(py) > geometry[item, 7]:
        return FAR, 0
    if near > far or far < EPSILON:
        return FAR, 0
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
        return FAR, 0
    if near > far or near < EPSILON:
        return FAR, 0
    return near, face


@_jit
def hit_round(geometry, shape, item, ox, oy, oz, dx, dy, dz):
    """Distance at which a ray enters an upright cylinder (open), ellipsoid or cone, or ``FAR``."""
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
        return FAR
    root = np.sqrt(disc)
    first = (-b - root) / a
    second = (-b + root) / a
    if first > second:
        first, second = second, first
    z = oz + first * dz
    if first > EPSILON and z >= bottom and z <= top:
        return first
    z = oz + second * dz
    if shape != ELLIPSOID and second > EPSILON and z >= bottom and z <= top:
        return second
    return FAR


@_jit
def trace(solids, grid, ox, oy, oz, dx, dy, dz, limit):
    """Nearest solid along a ray within ``limit``: distance, index (-1 if none) and face."""
    best = limit
    found = -1
    found_face = 0
    far = limit
    if dz > 1e-9:
        far = min(far, (grid.highest - oz) / dz)
    inverse_x = 1.0 / dx if abs(dx) > 1e-12 else FAR
    inverse_y = 1.0 / dy if abs(dy) > 1e-12 else FAR
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
        next_x = FAR
    if abs(dy) <= 1e-12:
        next_y = FAR
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
