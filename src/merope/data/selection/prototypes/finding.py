"""`find_prototypes`: from paths to the motions that stand for all of them (paper, 4.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64

from merope.data.selection.prototypes.arc_length import path_extents
from merope.data.selection.prototypes.clusters import group_by_shape
from merope.data.selection.prototypes.suppression import suppress

STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeConfig:
    """How prototypes are found.

    Raises:
        ValueError: if a length or a count is out of range.
    """

    threshold: float = 1.0
    """Frechet distance up to which a path is taken to be like a prototype, in the paths' unit."""
    num_groups: int = 64
    """Groups of shapes, by k-means."""
    still: float | None = None
    """Displacement up to which a path counts as static. None takes half the threshold: two such paths that start at one
    place are never further apart than the threshold, so they would be one prototype anyway."""
    seed: int = 0
    """Of k-means."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be > 0; got {self.threshold}.")
        if self.num_groups < 1 or self.seed < 0:
            raise ValueError(f"num_groups must be >= 1 and seed >= 0; got {self.num_groups} and {self.seed}.")
        if self.still is not None and not 0 <= self.still < np.inf:
            raise ValueError(f"still must be >= 0; got {self.still}.")

    @property
    def still_extent(self) -> float:
        """Displacement up to which a path counts as static."""
        return self.threshold / 2 if self.still is None else self.still


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prototypes:
    """Paths that stand for others. Numbers are those of the paths that were given."""

    kept: Int64[np.ndarray, "prototype"]
    """The prototypes: medoids first, those of large groups before others. No two are within the threshold."""
    kept_by: Int32[np.ndarray, "path"]
    """Place in `kept` of the prototype that stands for each path; -1 for static ones."""
    groups: Int32[np.ndarray, "path"]
    """Group of shapes of each path, the largest first; -1 for static ones."""
    medoids: Int64[np.ndarray, "group"]
    """The path nearest to the mean of each group."""
    static: Int64[np.ndarray, "still"]
    """Paths that stand still, the one that moves least first."""

    @property
    def sizes(self) -> Int64[np.ndarray, "prototype"]:
        """Paths that each prototype stands for, itself included."""
        return np.bincount(self.kept_by[self.kept_by >= 0], minlength=len(self.kept))

    def labels(self) -> list[str]:
        """A cluster for each path: its prototype's number, such as "prototype-000012", or "static"."""
        return _labels("prototype-{:06d}", self.kept_by)

    def group_labels(self) -> list[str]:
        """A coarser cluster for each path: its group of shapes, such as "shape-007", or "static"."""
        return _labels("shape-{:03d}", self.groups)


def find_prototypes(
    paths: Float32[np.ndarray, "path point 3"], config: PrototypeConfig, *, progress: bool = False
) -> Prototypes:
    """Group paths by shape, then keep those that no kept one is within the threshold of.

    ``paths`` start at zero in the axes of their first camera and have equal steps (`resample_paths`). The order in which
    they are gone through: the medoids of the groups, large groups first; then all others by their distance from the mean of
    their group, so that typical motions stand for odd ones and not the other way round; ties by number.
    """
    groups = group_by_shape(paths, num_groups=config.num_groups, still=config.still_extent, seed=config.seed)
    moving = np.flatnonzero(groups.labels >= 0)
    # Where the medoids come among all: in their own order, before the rest.
    place = np.full(len(paths), len(groups.medoids), dtype=np.int64)
    place[groups.medoids] = np.arange(len(groups.medoids))
    order = np.lexsort((moving, groups.distances[moving], place[moving]))
    found = suppress(paths[moving], order, threshold=config.threshold, progress=progress)
    kept_by = np.full(len(paths), -1, dtype=np.int32)
    kept_by[moving] = found.kept_by
    static = np.flatnonzero(groups.labels < 0)
    extents = path_extents(paths[static])
    return Prototypes(
        kept=moving[found.kept],
        kept_by=kept_by,
        groups=groups.labels,
        medoids=groups.medoids,
        static=static[np.lexsort((static, extents))],
    )


def _labels(pattern: str, numbers: Sequence[int] | np.ndarray) -> list[str]:
    names = {int(number): pattern.format(number) for number in np.unique(numbers)}
    return [STATIC if number < 0 else names[number] for number in np.asarray(numbers).tolist()]
