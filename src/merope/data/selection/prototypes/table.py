"""`PathTable`: every trajectory as a path of equal steps, in one array of float32."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from tqdm import tqdm

from merope.data.clips.clip import ClipError
from merope.data.selection.prototypes.arc_length import FARTHEST, resample_paths
from merope.data.selection.prototypes.inputs import Trajectory
from merope.errors import MeropeError
from merope.geometry.poses import Unit

# Paths that the array has room for at first, and that are resampled together.
_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathTable:
    """Trajectories of several sources, resampled; 12 bytes a point."""

    paths: Float32[np.ndarray, "path point 3"]
    """Points with equal steps along each path, in the axes of its first camera, in `unit`."""
    sources: tuple[str, ...]
    clip_ids: tuple[str, ...]
    unit: Unit
    skipped: tuple[ClipError, ...] = ()
    """What could not be read."""

    def __len__(self) -> int:
        return len(self.paths)


def tabulate(
    trajectories: Iterable[Trajectory | ClipError], *, num_points: int = 49, progress: bool = False
) -> PathTable:
    """Resample trajectories as they come, and sort them by source and name; poses are not kept.

    Sorted, because k-means and ties go by number: what is found does not depend on the order of the inputs.

    Raises:
        MeropeError: if there is no trajectory, two have the same source and name, or not all are in one known unit.
    """
    table = _Growing(num_points)
    for each in tqdm(trajectories, desc="trajectories", unit="path", disable=not progress):
        if isinstance(each, ClipError):
            table.skipped.append(each)
        else:
            table.add(each)
    return table.finish()


class _Growing:
    """A table that grows by doubling, with the latest trajectories waiting to be resampled together."""

    def __init__(self, num_points: int) -> None:
        self.skipped: list[ClipError] = []
        self._paths = np.empty((_BATCH, num_points, 3), dtype=np.float32)
        self._sources: list[str] = []
        self._clip_ids: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._unit: Unit | None = None
        self._waiting: list[np.ndarray] = []
        self._count = 0

    def add(self, each: Trajectory) -> None:
        """Take one trajectory in."""
        if each.unit == "unknown":
            raise MeropeError(
                f"{each.source}/{each.clip_id} does not say what its unit is, and a distance in metres means nothing in "
                "another. If a length of 1 is a metre, say so: --unit m of pose files and arrays, --option unit=m of a "
                "reader with that option; clips say it in their poses.json."
            )
        if self._unit not in (None, each.unit):
            raise MeropeError(
                f"{each.source}/{each.clip_id} is in unit {each.unit!r} and those before it in {self._unit!r}. Paths of "
                "several units cannot be compared: give their inputs one by one."
            )
        key = each.source, each.clip_id
        if key in self._seen:
            raise MeropeError(
                f"two trajectories are called {each.source}/{each.clip_id}. They are told apart by source and name: rename "
                "one, or give one of the inputs by itself with another --source."
            )
        farthest = float(np.abs(each.centers - each.centers[0]).max())
        if not farthest <= FARTHEST:
            reason = f"its positions go {farthest:g} {each.unit} from the first; is its unit right?"
            self.skipped.append(ClipError(each.source, each.clip_id, reason))
            return
        if (self._waiting and len(self._waiting[0]) != len(each.centers)) or len(self._waiting) == _BATCH:
            self._resample()
        self._unit = each.unit
        self._seen.add(key)
        self._sources.append(each.source)
        self._clip_ids.append(each.clip_id)
        self._waiting.append(each.centers)

    def finish(self) -> PathTable:
        """The table of all that was taken in."""
        self._resample()
        if self._unit is None:
            why = f": {self.skipped[0]}" if self.skipped else "."
            raise MeropeError(f"there is no trajectory that can be read{why}")
        # The rows beyond are given back to the system, or were never touched.
        self._paths.resize((self._count, *self._paths.shape[1:]), refcheck=False)
        keys = list(zip(self._sources, self._clip_ids, strict=True))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        in_order = order == list(range(len(order)))
        return PathTable(
            paths=self._paths if in_order else self._paths[order],
            sources=tuple(self._sources[row] for row in order),
            clip_ids=tuple(self._clip_ids[row] for row in order),
            unit=self._unit,
            skipped=tuple(self.skipped),
        )

    def _resample(self) -> None:
        if not self._waiting:
            return
        end = self._count + len(self._waiting)
        if end > len(self._paths):
            self._paths.resize((max(end, 2 * len(self._paths)), *self._paths.shape[1:]), refcheck=False)
        self._paths[self._count : end] = resample_paths(np.stack(self._waiting), self._paths.shape[1])
        self._count, self._waiting = end, []
