"""Compiled plan geometry of the street: points along a polyline, its raster, room for footprints."""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def,name-defined,syntax"

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def point_at(points, arcs, tangents, along):
    """Point and unit tangent of a polyline at an arc length."""
    index = min(max(np.searchsorted(arcs, along), 1), len(arcs) - 1)
    share = (along - arcs[index - 1]) / max(arcs[index] - arcs[index - 1], 1e-9)
    share = min(max(share, 0.0), 1.0)
    x = points[index - 1, 0] + share * (points[index, 0] - points[index - 1, 0])
    y = points[index - 1, 1] + share * (points[index, 1] - points[index - 1, 1])
    tangent_x = tangents[index - 1, 0] + share * (tangents[index, 0] - tangents[index - 1, 0])
    tangent_y = tangents[index - 1, 1] + share * (tangents[index, 1] - tangents[index - 1, 1])
    norm = max(np.sqrt(tangent_x * tangent_x + tangent_y * tangent_y), 1e-9)
    return x, y, tangent_x / norm, tangent_y / norm


@njit(cache=True, nogil=True, error_model="numpy")
def sample_street(points, along, origin_x, origin_y, cell, lateral_out, along_out):
    """Fill signed distance to a polyline and arc length of the nearest point, at every node of a raster."""
    rows, columns = lateral_out.shape
    num = points.shape[0]
    block = 12
    for row in range(rows):
        for column in range(columns):
            x = origin_x + column * cell
            y = origin_y + row * cell
            # A neighbour's distance bounds this one's; the slack covers float32 storage.
            bound = 1e15
            if column > 0:
                bound = abs(lateral_out[row, column - 1]) + cell + 1e-3
            elif row > 0:
                bound = abs(lateral_out[row - 1, column]) + cell + 1e-3
            best = bound * bound
            side = 1.0
            where = 0.0
            for first in range(0, num - 1, block):
                last = min(first + block, num - 1)
                middle = (first + last) // 2
                gap_x = points[middle, 0] - x
                gap_y = points[middle, 1] - y
                reach = bound + max(along[last] - along[middle], along[middle] - along[first])
                if gap_x * gap_x + gap_y * gap_y > reach * reach:
                    continue
                for k in range(first, last):
                    ax = points[k, 0]
                    ay = points[k, 1]
                    vx = points[k + 1, 0] - ax
                    vy = points[k + 1, 1] - ay
                    square = vx * vx + vy * vy
                    share = ((x - ax) * vx + (y - ay) * vy) / max(square, 1e-12)
                    share = min(1.0, max(0.0, share))
                    rx = x - ax - share * vx
                    ry = y - ay - share * vy
                    distance = rx * rx + ry * ry
                    if distance < best:
                        best = distance
                        bound = np.sqrt(distance)
                        side = 1.0 if vx * ry - vy * rx >= 0.0 else -1.0
                        where = along[k] + share * (along[k + 1] - along[k])
            lateral_out[row, column] = side * np.sqrt(best)
            along_out[row, column] = where


@njit(cache=True, nogil=True, error_model="numpy")
def edge_distance(lateral, origin_x, origin_y, cell, half_road, cross, x, y, yaw, half_length, half_width):
    """Metres from the nearest carriageway's edge to a rectangle's outline, negative where it stands on one.

    The outline is probed about every 3 m; outside the raster counts as far on a carriageway.
    """
    rows, columns = lateral.shape
    cos = np.cos(yaw)
    sin = np.sin(yaw)
    num_u = max(1, int(half_length / 1.5))
    num_v = max(1, int(half_width / 1.5))
    nearest = 1e9
    for a in range(num_u + 1):
        for b in range(num_v + 1):
            if 0 < a < num_u and 0 < b < num_v:
                continue
            u = (2.0 * a / num_u - 1.0) * half_length
            v = (2.0 * b / num_v - 1.0) * half_width
            px = x + cos * u - sin * v
            py = y + sin * u + cos * v
            i = int(np.rint((px - origin_x) / cell))
            j = int(np.rint((py - origin_y) / cell))
            if i < 0 or j < 0 or i >= columns or j >= rows:
                return -1e9
            nearest = min(nearest, abs(lateral[j, i]) - half_road)
            for k in range(cross.shape[0]):
                offset = cross[k, 2] * (py - cross[k, 1]) - cross[k, 3] * (px - cross[k, 0])
                nearest = min(nearest, abs(offset) - cross[k, 4])
    return nearest


@njit(cache=True, nogil=True, error_model="numpy")
def rectangle_gaps(center, yaw, half, points):
    """Distance from each rectangle to the nearest of some points, zero inside."""
    gaps = np.empty(len(center))
    for k in range(len(center)):
        cos = np.cos(yaw[k])
        sin = np.sin(yaw[k])
        best = 1e30
        for p in range(len(points)):
            x = points[p, 0] - center[k, 0]
            y = points[p, 1] - center[k, 1]
            u = max(abs(cos * x + sin * y) - half[k, 0], 0.0)
            v = max(abs(cos * y - sin * x) - half[k, 1], 0.0)
            best = min(best, u * u + v * v)
        gaps[k] = np.sqrt(best)
    return gaps
