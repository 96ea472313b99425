"""Groups of paths of one shape: k-means on paths divided by their displacement, with a path of each group as its medoid."""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64

from merope.data.selection.prototypes.arc_length import path_extents
from merope.errors import MissingDependency

# Paths at a time, where float64 is made of them.
_CHUNK = 8192
_MOST_ITERATIONS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The group of every path, the largest group first."""

    labels: Int32[np.ndarray, "path"]
    """Number of the group of each path; -1 for paths that stand still."""
    distances: Float64[np.ndarray, "path"]
    """How far each path is from the mean of its group: root mean square over points, in displacements; 0 for a still one."""
    medoids: Int64[np.ndarray, "group"]
    """Number of the path nearest to the mean of each group; of equally near ones the first."""
    sizes: Int64[np.ndarray, "group"]
    """Paths in each group."""


def group_by_shape(
    paths: Float32[np.ndarray, "path point 3"],
    *,
    num_groups: int = 64,
    still: float = 0.5,
    seed: int = 0,
) -> Groups:
    """k-means on paths that are divided by their displacement, the largest distance from their first point.

    Divided so, a slow and a fast lane change are one shape. Paths whose displacement is at most ``still`` have none: they
    are a group of their own (-1), and are not divided by what is next to nothing. There may be fewer groups than
    ``num_groups``, where there are fewer shapes.

    The same ``seed`` gives the same groups for any number of threads: scikit-learn runs on one, because it adds up what
    its threads found in the order in which they end.

    Raises:
        ValueError: if ``num_groups`` is below 1 or ``still`` is negative.
        MissingDependency: if scikit-learn is not installed.
    """
    if num_groups < 1 or not still >= 0:
        raise ValueError(f"num_groups must be >= 1 and still >= 0; got {num_groups} and {still}.")
    extents = path_extents(paths)
    moving = np.flatnonzero(extents > still)
    labels = np.full(len(paths), -1, dtype=np.int32)
    distances = np.zeros(len(paths))
    if len(moving) == 0:
        empty = np.empty(0, dtype=np.int64)
        return Groups(labels, distances, empty, empty)
    shapes = np.empty((len(moving), paths[0].size), dtype=np.float32)
    for start in range(0, len(moving), _CHUNK):
        part = moving[start : start + _CHUNK]
        shapes[start : start + _CHUNK] = (paths[part] / extents[part, None, None]).reshape(len(part), -1)
    found = k_means(shapes, num_groups=num_groups, seed=seed)
    labels[moving], distances[moving] = found.labels, found.distances / np.sqrt(paths.shape[1])
    return Groups(labels, distances, moving[found.medoids], found.sizes)


def k_means(points: Float32[np.ndarray, "path value"], *, num_groups: int, seed: int) -> Groups:
    """k-means of rows, as `Groups` whose distances are Euclidean. ``points`` are given back as they came, to rounding."""
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingDependency.for_extra("sklearn", extra="data", purpose="grouping trajectories") from None
    model = KMeans(
        min(num_groups, len(points)),
        n_init=1,
        max_iter=_MOST_ITERATIONS,
        random_state=seed,
        copy_x=False,
        algorithm="lloyd",
    )
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different rows than groups: the empty groups are left out below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        raw = model.fit(points).labels_
    present, raw = np.unique(raw, return_inverse=True)
    means = np.zeros((len(present), points.shape[1]))
    for group in range(len(present)):
        means[group] = points[raw == group].mean(axis=0, dtype=np.float64)
    distances = np.empty(len(points))
    for start in range(0, len(points), _CHUNK):
        part = slice(start, start + _CHUNK)
        distances[part] = np.linalg.norm(points[part] - means[raw[part]], axis=1)
    sizes = np.bincount(raw)
    # By group, then distance, then number: the first of each group is its medoid.
    ranked = np.lexsort((np.arange(len(points)), distances, raw))
    medoids = ranked[np.concatenate([[0], np.cumsum(sizes)[:-1]])]
    by_size = np.lexsort((medoids, -sizes))
    renamed = np.empty(len(by_size), dtype=np.int32)
    renamed[by_size] = np.arange(len(by_size), dtype=np.int32)
    return Groups(renamed[raw], distances, medoids[by_size], sizes[by_size])
