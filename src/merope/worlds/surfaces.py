"""Colours of the ground and the solids, before light and haze.

Every function takes the footprint of the sample (metres on the surface) and filters itself with it; see
``textures``.
"""

# Numba infers the types of these functions at each call.
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np

from merope.worlds.layout import BARK, CAR_BODY, CAR_CABIN, LEAF, METAL, SIGN, WALL
from merope.worlds.textures import (
    _jit,
    band,
    cells,
    detail2,
    detail3,
    fade,
    lattice,
    mix,
    pulses,
    ramp,
    tone,
)


@_jit
def street_coordinates(ground, x, y):
    """Lateral offset, arc length and the lateral axis (unit vector) of the street at a point of the ground."""
    rows, columns = ground.lateral.shape
    u = (x - ground.origin_x) / ground.cell
    v = (y - ground.origin_y) / ground.cell
    i = int(min(max(np.floor(u), 0.0), columns - 2.0))
    j = int(min(max(np.floor(v), 0.0), rows - 2.0))
    u = min(max(u - i, 0.0), 1.0)
    v = min(max(v - j, 0.0), 1.0)
    a = ground.lateral[j, i]
    b = ground.lateral[j, i + 1]
    c = ground.lateral[j + 1, i]
    d = ground.lateral[j + 1, i + 1]
    low = a + (b - a) * u
    high = c + (d - c) * u
    slope_x = (b - a) * (1.0 - v) + (d - c) * v
    slope_y = high - low
    norm = max(np.sqrt(slope_x * slope_x + slope_y * slope_y), 1e-9)
    along_low = ground.along[j, i] + (ground.along[j, i + 1] - ground.along[j, i]) * u
    along_high = ground.along[j + 1, i] + (ground.along[j + 1, i + 1] - ground.along[j + 1, i]) * u
    return low + (high - low) * v, along_low + (along_high - along_low) * v, slope_x / norm, slope_y / norm


@_jit
def lane_paint(ground, table, lateral, along, width_lateral, width_along):
    """Share of paint on a road at street coordinates: dashes, edge lines, bay marks, zebra crossings."""
    paint = 0.0
    dashes = pulses(along, ground.dash_period, ground.dash_length, width_along)
    side = abs(lateral)
    for lane in range(ground.num_lanes):
        center = lane * ground.lane_width
        line = band(side, center - 0.09, center + 0.09, width_lateral)
        if lane == 0:
            line = band(lateral, -0.09, 0.09, width_lateral)
        paint = max(paint, line * dashes)
    paint = max(paint, band(side, ground.half_driven - 0.08, ground.half_driven + 0.08, width_lateral))
    bay = band(side, ground.half_driven, ground.half_road, width_lateral)
    paint = max(paint, 0.8 * bay * pulses(along, 6.0, 0.12, width_along))
    block = int(np.floor(along / 40.0))
    if lattice(table, block, 91) < ground.zebra_share:
        start = block * 40.0 + 8.0 + 20.0 * lattice(table, block, 92)
        crossing = band(along, start, start + 3.2, width_along)
        stripes = pulses(lateral, 1.1, 0.55, width_lateral) * ramp(
            ground.half_driven - 0.3 - side, width_lateral
        )
        paint = paint * (1.0 - band(along, start - 1.0, start + 4.2, width_along))
        paint = max(paint, crossing * stripes)
    return 0.9 * paint


@_jit
def ground_color(ground, table, x, y, dir_x, dir_y, dir_z, spread):
    """Colour of the ground where a ray lands; ``spread`` is the sample's width across the ray, in metres."""
    lateral, along, axis_x, axis_y = street_coordinates(ground, x, y)
    flat = max(np.sqrt(dir_x * dir_x + dir_y * dir_y), 1e-9)
    steep = max(-dir_z, 1e-3)
    across = abs(dir_x * axis_x + dir_y * axis_y) / flat
    onward = abs(dir_x * axis_y - dir_y * axis_x) / flat
    width_lateral = spread * (across / steep + onward)
    width_along = spread * (onward / steep + across)
    width = spread / np.sqrt(steep)

    edge = abs(lateral) - ground.half_road
    main_edge = edge
    width_edge = width_lateral
    cross_edge = 1e9
    cross_lateral = 0.0
    cross_along = 0.0
    width_cross_lateral = width
    width_cross_along = width
    for k in range(ground.cross.shape[0]):
        rel_x = x - ground.cross[k, 0]
        rel_y = y - ground.cross[k, 1]
        tangent_x = ground.cross[k, 2]
        tangent_y = ground.cross[k, 3]
        offset = tangent_x * rel_y - tangent_y * rel_x
        candidate = abs(offset) - ground.cross[k, 4]
        if candidate < cross_edge:
            cross_edge = candidate
            cross_lateral = offset
            cross_along = tangent_x * rel_x + tangent_y * rel_y
            parallel = abs(dir_x * tangent_x + dir_y * tangent_y) / flat
            crossing = abs(dir_x * tangent_y - dir_y * tangent_x) / flat
            width_cross_lateral = spread * (crossing / steep + parallel)
            width_cross_along = spread * (parallel / steep + crossing)
    if cross_edge < edge:
        edge = cross_edge
        width_edge = width_cross_lateral

    blotch = detail2(table, x, y, 9.0, width) + 0.7 * detail2(table, x + 50.0, y, 2.3, width)
    fine = detail2(table, x, y + 30.0, 0.7, width) + detail2(table, x, y, 0.23, width)
    grit = detail2(table, x + 9.0, y, 0.07, width)

    if edge < 0.5 * width_edge:
        color = tone(ground.asphalt, 1.0 + 0.22 * blotch + 0.25 * fine + 0.3 * grit)
        patch = cells(table, along, lateral, 5.3, 1.75, width)
        if patch > 0.28:
            color = tone(color, 0.8)
        elif patch < -0.4:
            color = tone(color, 1.16)
        wear = 1.0 + 0.5 * detail2(table, x, y, 0.35, width)
        if main_edge < 0.5 * width_lateral and cross_edge > -0.5 * width_cross_lateral:
            paint = lane_paint(ground, table, lateral, along, width_lateral, width_along)
            paint *= ramp(cross_edge - 0.3, width_cross_lateral) * ramp(-main_edge, width_lateral)
            color = mix(color, ground.paint, min(1.0, paint * wear))
        elif main_edge > 0.0:
            line = band(cross_lateral, -0.09, 0.09, width_cross_lateral)
            line *= pulses(cross_along, ground.dash_period, ground.dash_length, width_cross_along)
            color = mix(color, ground.paint, min(1.0, 0.9 * line * wear))
    else:
        color = tone(ground.grass, 1.0 + 0.5 * blotch + 0.5 * fine + 0.4 * grit)

    if edge > -0.5 * width_edge:
        walk = ramp(edge, width_edge) - ramp(edge - ground.sidewalk, width_edge)
        slab = cells(table, along, lateral, ground.slab * 1.5, ground.slab, width)
        joint = max(
            pulses(along, ground.slab * 1.5, 0.05, width_along),
            pulses(lateral, ground.slab, 0.05, width_lateral),
        )
        joint *= fade(width, ground.slab * 2.0)
        stone = tone(
            ground.pavement,
            (1.0 + 0.3 * slab + 0.16 * blotch + 0.2 * fine + 0.25 * grit) * (1.0 - 0.35 * joint),
        )
        color = mix(color, stone, walk)
        curb = ramp(edge, width_edge) - ramp(edge - 0.28, width_edge)
        color = mix(color, ground.kerb, curb)
        gutter = ramp(edge + 0.12, width_edge) - ramp(edge, width_edge)
        color = tone(color, 1.0 - 0.45 * gutter)
    return color


@_jit
def wall_color(table, color, style, face, u, z, extent, height, width):
    """A facade: plinth, shop floor, rows of windows with frames and sills, courses of brick, stains, a cornice.

    ``u`` runs along the face in [-extent, extent], ``z`` up from the ground.
    """
    seed = style[7]
    su = u + seed * 3.0 + face * 13.0
    base = (color[0], color[1], color[2])
    stain = detail2(table, su, z, 5.0, width) + 0.6 * detail2(table, su + 20.0, z, 1.4, width)
    grain = detail2(table, su, z * 2.0, 0.4, width) + 0.6 * detail2(table, su, z, 0.11, width)
    course = cells(table, su, z, style[5], 0.5 * style[5], width)
    base = tone(base, 1.0 + 0.22 * stain + 0.22 * grain + style[4] * course)
    floor_height = style[0]
    bays = max(1.0, np.floor(2.0 * extent / style[1]))
    bay = 2.0 * extent / bays
    glass_width = style[2] * bay
    glass_height = style[3] * floor_height
    level = np.floor(z / floor_height)
    in_bay = u + extent - 0.5 * (bay - glass_width)
    in_floor = z - 0.55 * (floor_height - glass_height)
    if z > height - 0.6:
        base = tone(base, 0.78 + 0.3 * band(z, height - 0.45, height - 0.2, max(width, 1e-4)))
        return base
    column = np.floor((u + extent) / bay)
    if level < 1.0 and style[6] > 0.5:
        glass = pulses(u + extent - 0.1 * bay, bay, 0.8 * bay, width) * band(z, 0.5, 2.5, width)
        sign = band(z, 2.7, 3.2, width)
        accent = 0.3 + 0.7 * lattice(table, int(seed * 7) + 5, int(face))
        base = mix(base, (0.85 * accent, 0.3 + 0.3 * (1.0 - accent), 0.75 - 0.6 * accent), 0.75 * sign)
    else:
        frame_u = pulses(in_bay + 0.14, bay, glass_width + 0.28, width)
        frame_z = pulses(in_floor + 0.14, floor_height, glass_height + 0.28, width)
        glass_u = pulses(in_bay, bay, glass_width, width)
        glass_z = pulses(in_floor, floor_height, glass_height, width)
        fits = ramp(height - 0.7 - (level + 1.0) * floor_height + 0.4 * floor_height, 0.01)
        glass = glass_u * glass_z * fits
        trim = (frame_u * frame_z * fits - glass) * 0.7
        base = mix(base, (0.9, 0.88, 0.84), max(0.0, trim))
        if width < 0.3:
            bar = band(
                in_bay - np.floor(in_bay / bay) * bay,
                0.5 * glass_width - 0.05,
                0.5 * glass_width + 0.05,
                width,
            )
            glass *= 1.0 - 0.8 * bar
    share = fade(width, 1.2 * bay)
    pick = lattice(table, int(column + seed * 31.0 + 5.0 * face), int(level + seed * 17.0))
    curtain = lattice(table, int(column + seed * 13.0 + 9.0 * face), int(level + seed * 5.0) + 40)
    inside = (0.13, 0.17, 0.23)
    if pick > 0.72:
        inside = (0.62, 0.60, 0.52)
    elif pick < 0.3:
        inside = (0.30, 0.38, 0.48)
    pane = mix((0.20, 0.25, 0.31), inside, share)
    depth = z / floor_height - level
    if curtain > 0.5:
        pane = mix(
            pane, (0.75, 0.72, 0.66), share * ramp(depth - 0.4 - 0.4 * curtain + 0.2, max(width, 0.02))
        )
    pane = tone(pane, 1.0 + 0.25 * detail2(table, su * 1.3 + z, z - su, 0.8, width))
    base = mix(base, pane, min(1.0, glass))
    plinth = ramp(0.45 - z, width)
    return tone(base, 1.0 - 0.35 * plinth)


@_jit
def car_color(table, color, style, material, face, u, z, extent, bottom, height, width):
    """Painted body with wheels, sills and lights, or a glazed cabin; face 0 is an end, 1 a side, 2 the top."""
    base = (color[0], color[1], color[2])
    glass = (0.10, 0.12, 0.15)
    if material == CAR_CABIN:
        if face == 2:
            return base
        rim = band(u, -extent + 0.10, extent - 0.10, width) * band(
            z, bottom + 0.04, bottom + height - 0.07, width
        )
        if face == 1:
            rim *= 1.0 - band(u, -0.05, 0.05, width)
        pane = tone(glass, 1.0 + 0.9 * (z - bottom) / height)
        return mix(base, pane, rim)
    if face == 2:
        return base
    base = tone(base, 0.75 + 0.35 * (z - bottom) / height)
    base = tone(base, 1.0 - 0.5 * ramp(bottom + 0.14 - z, width))
    if face == 1:
        base = tone(base, 1.0 - 0.35 * (band(u, -0.02, 0.02, width) + band(abs(u), 1.0, 1.04, width)))
        reach = np.sqrt((abs(u) - 0.62 * extent) ** 2 + (z - 0.33) ** 2)
        base = mix(base, (0.05, 0.05, 0.06), ramp(0.34 - reach, width))
        base = mix(base, (0.55, 0.56, 0.58), ramp(0.19 - reach, width))
    else:
        lamp = band(abs(u), 0.55 * extent, 0.95 * extent, width) * band(z, 0.55, 0.75, width)
        tail = (0.85, 0.12, 0.10)
        if style[0] > 0.5:
            tail = (0.95, 0.94, 0.85)
        base = mix(base, tail, lamp)
        plate = band(u, -0.27, 0.27, width) * band(z, 0.36, 0.48, width)
        base = mix(base, (0.92, 0.92, 0.88), plate)
    return base


@_jit
def solid_color(solids, table, item, face, u, z, x, y, extent, width):
    """Colour of a solid at surface coordinates (u, z) of a face and world point (x, y, z)."""
    color = (float(solids.color[item, 0]), float(solids.color[item, 1]), float(solids.color[item, 2]))
    style = solids.style[item]
    material = solids.material[item]
    bottom = solids.geometry[item, 2]
    top = solids.geometry[item, 3]
    if material == WALL:
        if face == 2:
            return tone((0.45, 0.43, 0.42), 1.0 + 0.4 * detail2(table, x, y, 2.0, width))
        return wall_color(table, color, style, face, u, z, extent, top, width)
    if material == CAR_BODY or material == CAR_CABIN:
        return car_color(table, color, style, material, face, u, z, extent, bottom, top - bottom, width)
    if material == LEAF:
        clump = detail3(table, x, y, z, 1.6, width) + 0.9 * detail3(table, x + 7.0, y, z, 0.55, width)
        leaf = detail3(table, x, y + 3.0, z, 0.18, width)
        low = min(1.0, max(0.0, (z - bottom) / max(top - bottom, 0.1)))
        return tone(color, (0.62 + 0.5 * low) * (1.0 + 0.75 * clump + 0.7 * leaf))
    if material == BARK:
        grain = detail2(table, u * 4.0, z, 0.35, width) + detail2(table, u * 2.0, z, 0.9, width)
        return tone(color, 1.0 + 0.6 * grain)
    if material == SIGN:
        rim = band(u, -extent + 0.06, extent - 0.06, width) * band(z, bottom + 0.06, top - 0.06, width)
        mark = band(z, 0.5 * (top + bottom) - 0.1, 0.5 * (top + bottom) + 0.1, width)
        mark *= band(u, -0.6 * extent, 0.6 * extent, width)
        return mix((0.93, 0.93, 0.92), mix(color, (0.95, 0.95, 0.95), mark), rim)
    if material == METAL:
        ring = band(z, 0.9, 1.15, width) * style[0]
        return mix(tone(color, 1.0 + 0.3 * detail2(table, u, z, 0.6, width)), (0.85, 0.75, 0.2), ring)
    # STONE: low walls, planters, hedges; rough at three scales
    rough = detail3(table, x, y, z, 1.1, width) + detail3(table, x, y, z + 4.0, 0.3, width)
    fine = detail3(table, x + 2.0, y, z, 0.09, width)
    return tone(color, 1.0 + 0.45 * rough + 0.4 * fine)
