"""An operator's maps on token-last rows ``[channel, token]``, channels in the paper's order.

Every channel is one contiguous run of tokens, so the bands' small maps vectorise along tokens, and neither planes nor
interleaved coordinates need another layout. Maps are written into memory that the caller keeps.

Dimension letters: B batch, H heads, h heads in hand, G query cameras, N tokens, D channels, M blocks, C copies,
E entries of a factor, R tokens that an entry serves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from merope.operators import Band, Block, CameraOperator, Matrix4, MinRotate3, Rotate2, Rotate3

# The only side of arrays [1, h, D, N].
_ONE = slice(0, 1)

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Rotate2, Rotate3, MinRotate3, Matrix4)}


@dataclass(frozen=True)
class Turn:
    """One side's map of one band: where its channels stand, and which of the operator's tensors describe it."""

    band: Band
    first: int
    kind: Any
    """The class of its blocks."""
    tensors: slice

    @property
    def channels(self) -> slice:
        """The band's channels in a head."""
        return slice(self.first, self.first + self.band.width)


@dataclass(frozen=True)
class Plan:
    """An operator without its tensors, sorted by what attention does when."""

    num_query_cameras: int
    num_queries: int
    num_keys: int
    acts_on: str
    left: tuple[Turn, ...]
    once: tuple[Turn, ...]
    """Right maps that all query cameras share."""
    grouped: tuple[Turn, ...]
    """Right maps that depend on the query camera."""
    kept_left: tuple[slice, ...]
    """Channels without a left map."""
    kept_right: tuple[slice, ...]

    @property
    def grouped_width(self) -> int:
        """Number of channels whose right maps depend on the query camera."""
        return sum(turn.band.width for turn in self.grouped)

    @property
    def ungrouped(self) -> tuple[slice, ...]:
        """Runs of all other channels, as long as can be."""
        runs: list[slice] = []
        for run in sorted(
            [turn.channels for turn in self.once] + list(self.kept_right), key=lambda run: run.start
        ):
            if runs and runs[-1].stop == run.start:
                runs[-1] = slice(runs[-1].start, run.stop)
            else:
                runs.append(run)
        return tuple(runs)


def describe(operator: CameraOperator) -> str:
    """Everything about an operator but its tensors, as a word that passes an operator's door of torch."""

    def kind(block: Block | None) -> str:
        return "" if block is None else type(block).__name__

    # int: torch.compile, once it has seen clips of two lengths, holds symbols here, and a word has none.
    head = (
        f"{int(operator.num_query_cameras)},{int(operator.num_queries)},{int(operator.num_keys)},"
        f"{''.join(sorted(operator.acts_on))}"
    )
    bands = (
        f"{band.width},{band.size},{band.num_blocks},{int(band.grouped)},{kind(band.left)},{kind(band.right)}"
        for band in operator.bands
    )
    return ";".join((head, *bands))


@lru_cache(maxsize=256)
def plan_of(description: str) -> Plan:
    """What `describe` wrote, against ``operator.tensors()`` in their order."""
    head, *words = description.split(";")
    cameras, queries, keys, acts_on = head.split(",")
    turns: dict[str, list[Turn]] = {"left": [], "once": [], "grouped": []}
    kept: dict[str, list[slice]] = {"left": [], "right": []}
    first = tensor = 0
    for word in words:
        width, size, num_blocks, grouped, left, right = word.split(",")
        band = Band(name="", width=int(width), size=int(size), num_blocks=int(num_blocks))
        for side, name in (("left", left), ("right", right)):
            if not name:
                kept[side].append(slice(first, first + band.width))
                continue
            kind = KINDS[name]
            turn = Turn(band, first, kind, slice(tensor, tensor + len(kind.__slots__)))
            turns["left" if side == "left" else "grouped" if grouped == "1" else "once"].append(turn)
            tensor += len(kind.__slots__)
        first += band.width
    return Plan(
        num_query_cameras=int(cameras),
        num_queries=int(queries),
        num_keys=int(keys),
        acts_on=acts_on,
        left=tuple(turns["left"]),
        once=tuple(turns["once"]),
        grouped=tuple(turns["grouped"]),
        kept_left=tuple(kept["left"]),
        kept_right=tuple(kept["right"]),
    )


class ClipMaps:
    """The maps of one clip of a batch, applied to contiguous rows [S, h, D, N] by compiled loops (`turns`).

    ``heads`` are those in hand, ``first`` is the first key in hand among all.
    """

    def __init__(self, plan: Plan, factors: Sequence[Tensor], clip: int) -> None:
        self.plan = plan
        self._left = _Maps(plan.left, factors, clip, plan.num_queries)
        self._once = _Maps(plan.once, factors, clip, plan.num_keys)
        self._grouped = _Maps(plan.grouped, factors, clip, plan.num_keys, taken=True)

    def left(self, rows: Tensor, out: Tensor, heads: slice, first: int) -> None:
        """Left maps, ``rows`` [h, D, N] of the queries from number ``first`` on into ``out``."""
        self._left.write(rows, out, heads, first)
        for channels in self.plan.kept_left:
            out[:, channels].copy_(rows[:, channels])

    def left_back(self, out: Tensor, rows: Tensor, heads: slice, first: int) -> None:
        """The transposed maps of `left`, from ``out`` to ``rows``."""
        self._left.write_back(out, rows, heads, first)
        for channels in self.plan.kept_left:
            rows[:, channels].copy_(out[:, channels])

    def once(self, rows: Tensor, out: Tensor, heads: slice, first: int) -> None:
        """Right maps that all query cameras share, ``rows`` [h, D, T] into ``out`` but for grouped channels."""
        self._once.write(rows, out, heads, first)
        for channels in self.plan.kept_right:
            out[:, channels].copy_(rows[:, channels])

    def once_back(self, out: Tensor, rows: Tensor, heads: slice, first: int) -> None:
        """The transposed maps of `once`, from ``out`` to ``rows``."""
        self._once.write_back(out, rows, heads, first)
        for channels in self.plan.kept_right:
            rows[:, channels].copy_(out[:, channels])

    def take_grouped(self, rows: Tensor, out: Tensor) -> None:
        """The channels of grouped maps in ``rows`` [..., D, N], side by side into ``out`` [..., grouped_width, N]."""
        first = 0
        for turn in self.plan.grouped:
            out[..., first : first + turn.band.width, :].copy_(rows[..., turn.channels, :])
            first += turn.band.width

    def put_grouped(self, rows: Tensor, out: Tensor) -> None:
        """`take_grouped` undone: its channels back to where they stand in a head."""
        first = 0
        for turn in self.plan.grouped:
            out[..., turn.channels, :].copy_(rows[..., first : first + turn.band.width, :])
            first += turn.band.width

    def turn(
        self,
        taken: np.ndarray,
        rows: np.ndarray,
        sides: slice,
        heads: slice,
        *,
        keys: slice,
        camera: int,
        back: bool = False,
    ) -> None:
        """Taken channels [2, h, grouped_width, T] of keys and values under a query camera's maps into ``rows`` [2, h, D, T].

        With ``back``, ``rows`` under the transposed maps on top of the taken channels. ``sides`` says which of keys and
        values, ``keys`` which of all keys are meant: the first ones of both arrays.
        """
        self._grouped.apply(taken, rows, sides, heads, keys, camera=camera, back=back)


class _Maps:
    """Some bands' maps as `turns.turn` takes them: a line of a table each, and their numbers token-last."""

    def __init__(
        self, of: Sequence[Turn], factors: Sequence[Tensor], clip: int, tokens: int, *, taken: bool = False
    ) -> None:
        # Compiled when first used: importing merope should not wait for numba.
        from merope.attention import turns

        self._turn = turns.turn
        lines, parts, at, offset = [], [], 0, 0
        for turn in of:
            numbers = torch.stack([number[clip].mT for number in turn.kind(*factors[turn.tensors]).numbers()])
            if numbers.ndim == 4:
                numbers = numbers.unsqueeze(2)  # [n, H or 1, G or 1, M, E]
            run = tokens // numbers.shape[-1]
            where = (at if taken else turn.first, turn.first)
            lines.append(
                (
                    turns.KINDS[turn.kind],
                    turn.band.size,
                    *where,
                    *numbers.shape,
                    run,
                    turn.band.copies,
                    offset,
                )
            )
            parts.append(numbers.flatten())
            at, offset = at + turn.band.width, offset + numbers.numel()
        self._table = np.array(lines, dtype=np.int64).reshape(-1, 12)
        self._numbers = torch.cat(parts).numpy() if parts else None

    def write(self, rows: Tensor, out: Tensor, heads: slice, first: int) -> None:
        """``rows`` [h, D, T] under the maps into ``out``."""
        tokens = slice(first, first + rows.shape[-1])
        self.apply(rows[None].numpy(), out[None].numpy(), _ONE, heads, tokens)

    def write_back(self, out: Tensor, rows: Tensor, heads: slice, first: int) -> None:
        """``out`` [h, D, T] under the transposed maps into ``rows``."""
        tokens = slice(first, first + rows.shape[-1])
        self.apply(rows.zero_()[None].numpy(), out[None].numpy(), _ONE, heads, tokens, back=True)

    def apply(
        self,
        taken: np.ndarray,
        rows: np.ndarray,
        sides: slice,
        heads: slice,
        tokens: slice,
        *,
        camera: int = 0,
        back: bool = False,
    ) -> None:
        """`turns.turn` with these maps."""
        if self._numbers is None:
            return
        where = sides.start, sides.stop, heads.start, camera, tokens.start, tokens.stop - tokens.start
        self._turn(self._table, self._numbers, taken, rows, *where, back)
