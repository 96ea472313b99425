"""The street: a centre line that follows a driven path, and its coordinates sampled on the ground."""

from dataclasses import dataclass

import numpy as np

from merope.errors import TrajectoryError
from merope.worlds.plan import point_at, sample_street

# Metres of straight street beyond both ends of the path.
EXTENSION = 170.0
# Metres of raster around the path.
MARGIN = 130.0
# Metres between raster nodes and between points of the centre line.
CELL = 1.0
# Raster nodes of the largest world: 80 MB.
MAX_NODES = 10_000_000
SPACING = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CenterLine:
    """Points [N, 2] of the street's middle, their arc length [N] and unit tangents [N, 2]; zero arc is the path's start."""

    points: np.ndarray
    along: np.ndarray
    tangents: np.ndarray

    @property
    def normals(self) -> np.ndarray:
        """Unit vectors [N, 2] to the left of the tangents."""
        return np.stack([-self.tangents[:, 1], self.tangents[:, 0]], axis=1)

    def at(self, along: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Point, tangent and left normal at an arc length (clamped to the ends)."""
        x, y, tangent_x, tangent_y = point_at(self.points, self.along, self.tangents, along)
        return np.array([x, y]), np.array([tangent_x, tangent_y]), np.array([-tangent_y, tangent_x])


def resample_plan(points: np.ndarray, spacing: float) -> np.ndarray:
    """Points [N, 2] along a polyline, ``spacing`` metres apart; a path that stands still gives one point."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    if along[-1] < 1e-6:
        return points[:1]
    keep = np.concatenate([[True], steps > 1e-9])
    samples = np.linspace(0.0, along[-1], max(2, int(np.ceil(along[-1] / spacing)) + 1))
    return np.stack([np.interp(samples, along[keep], points[keep, axis]) for axis in range(2)], axis=1)


def _smooth(points: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian smoothing of points ``SPACING`` apart; the ends, which are straight, stay in place."""
    radius = int(np.ceil(3.0 * sigma / SPACING))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) * SPACING / sigma) ** 2)
    kernel /= kernel.sum()
    lead = points[0] + np.arange(-radius, 0)[:, None] * (points[1] - points[0])
    tail = points[-1] + np.arange(1, radius + 1)[:, None] * (points[-1] - points[-2])
    padded = np.concatenate([lead, points, tail])
    return np.stack([np.convolve(padded[:, axis], kernel, mode="valid") for axis in range(2)], axis=1)


def follow(path: np.ndarray, heading: np.ndarray, *, offset: float, slack: float) -> CenterLine:
    """The centre line whose lane, ``offset`` metres to its right, is driven along ``path`` [N, 2].

    The path, extended straight at both ends, is smoothed with the widest of several windows that keeps it within
    ``slack`` metres of its lane: a lane change then crosses the lanes of a straight street. ``heading`` [2] is
    the street's direction where the path is shorter than 3 m.
    """
    points = resample_plan(path, SPACING)
    length = np.linalg.norm(points[-1] - points[0])
    if length < 3.0:
        points = points[:1]
        first = last = heading
    else:
        reach = min(6, len(points) - 1)
        first = points[reach] - points[0]
        last = points[-1] - points[-1 - reach]
        first, last = first / np.linalg.norm(first), last / np.linalg.norm(last)
    steps = np.arange(1, int(EXTENSION / SPACING) + 1)[:, None] * SPACING
    lead = points[0] - steps[::-1] * first
    tail = points[-1] + steps * last
    extended = np.concatenate([lead, points, tail])
    smooth = extended
    for sigma in (25.0, 15.0, 8.0, 4.0, 2.0):
        smooth = _smooth(extended, sigma)
        inner = slice(len(lead), len(lead) + len(points))
        gaps = np.linalg.norm(smooth[inner] - extended[inner], axis=1)
        if gaps.max() <= slack:
            break
    tangents = np.gradient(smooth, axis=0)
    tangents /= np.maximum(np.linalg.norm(tangents, axis=1, keepdims=True), 1e-9)
    normals = np.stack([-tangents[:, 1], tangents[:, 0]], axis=1)
    middle = smooth + offset * normals
    tangents = np.gradient(middle, axis=0)
    tangents /= np.maximum(np.linalg.norm(tangents, axis=1, keepdims=True), 1e-9)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(middle, axis=0), axis=1))])
    return CenterLine(points=middle, along=along - along[len(lead)], tangents=tangents)


def street_raster(line: CenterLine, plans: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Origin x, origin y, lateral and along rasters that cover all ``plans`` [N, 2] with ``MARGIN`` around."""
    low = np.floor(plans.min(axis=0) - MARGIN)
    high = np.ceil(plans.max(axis=0) + MARGIN)
    columns, rows = (((high - low) / CELL).astype(int) + 1).tolist()
    if columns * rows > MAX_NODES:
        raise TrajectoryError(
            f"paths cover {columns * CELL / 1e3:.1f} km x {rows * CELL / 1e3:.1f} km, more than one world holds "
            f"({MAX_NODES / 1e6:.0f} km^2). Cut the trajectory into shorter windows and build a world for each."
        )
    lateral = np.empty((rows, columns), dtype=np.float32)
    along = np.empty((rows, columns), dtype=np.float32)
    keep = _corners(line)
    points, arcs = np.ascontiguousarray(line.points[keep]), np.ascontiguousarray(line.along[keep])
    sample_street(points, arcs, float(low[0]), float(low[1]), CELL, lateral, along)
    return float(low[0]), float(low[1]), lateral, along


def _corners(line: CenterLine) -> np.ndarray:
    """Indices of the points that a polyline needs: chords stay within 20 m and 3 mrad, hence 8 mm, of the line."""
    angles = np.unwrap(np.arctan2(line.tangents[:, 1], line.tangents[:, 0]))
    turned = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(angles)))])
    keep = [0]
    for index in range(1, len(angles)):
        far = line.along[index] - line.along[keep[-1]] >= 20.0
        if far or turned[index] - turned[keep[-1]] >= 3e-3 or index == len(angles) - 1:
            keep.append(index)
    return np.array(keep)
