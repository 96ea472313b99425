"""The features of a set of clips, one block for each clip, in memory or in files that are read when they are needed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from merope.evaluation.fidelity.moments import Moments, merge_blocks

# A merge costs as much as the scatter of as many rows as there are features; one a clip would cost more than the features.
_ROWS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureSet:
    """Features by clip, in a fixed order; `block` gives those of one clip.

    A clip's frames are alike, so the clip is the unit that is left out where an error is estimated.
    """

    sizes: tuple[int, ...]
    """Rows of every block."""
    dimension: int
    block: Callable[[int], Float32[np.ndarray, "sample feature"]]

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or self.dimension < 1:
            raise ValueError(
                f"a set needs blocks of at least one row and column; got {self.sizes} and {self.dimension}."
            )

    @classmethod
    def in_memory(cls, blocks: Sequence[Float[np.ndarray, "_ feature"]]) -> Self:
        """A set of the given arrays, one for each clip."""
        kept = [np.asarray(block, dtype=np.float32) for block in blocks]
        return cls(
            sizes=tuple(len(block) for block in kept),
            dimension=kept[0].shape[1] if kept else 0,
            block=kept.__getitem__,
        )

    @classmethod
    def in_files(cls, paths: Sequence[Path]) -> Self:
        """A set of ``.npy`` files, one for each clip; one of them is in memory at a time."""
        shapes = [np.load(path, mmap_mode="r", allow_pickle=False).shape for path in paths]
        return cls(
            sizes=tuple(shape[0] for shape in shapes),
            dimension=shapes[0][1] if shapes else 0,
            block=lambda number: np.load(paths[number], allow_pickle=False),
        )

    def __len__(self) -> int:
        return self._starts[-1]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum(self.sizes).tolist()]

    def moments(self) -> Moments:
        """Mean and scatter, merged in the order of the clips in steps that depend on their sizes alone."""
        return merge_blocks(Moments.of(rows) for _, rows in self.chunks(_ROWS))

    def chunks(self, rows: int) -> Iterator[tuple[int, Float64[np.ndarray, "sample feature"]]]:
        """All features in float64, whole blocks together up to about ``rows`` rows, with the number of the first row."""
        pending: list[np.ndarray] = []
        start = 0
        for number in range(len(self.sizes)):
            pending.append(self.block(number))
            if sum(map(len, pending)) >= rows or number == len(self.sizes) - 1:
                chunk = np.concatenate(pending).astype(np.float64)
                yield start, chunk
                start += len(chunk)
                pending = []

    def rows(self, numbers: Int[np.ndarray, "sample"]) -> Float64[np.ndarray, "sample feature"]:
        """The features with these numbers, in the order asked for."""
        owner = np.searchsorted(self._starts, numbers, side="right") - 1
        taken = np.empty((len(numbers), self.dimension))
        for number in np.unique(owner):
            at = owner == number
            taken[at] = self.block(int(number))[numbers[at] - self._starts[number]]
        return taken
