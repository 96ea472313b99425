"""One thread's way through its heads, tiles of keys and query cameras, and the buffers that it has in hand.

Dimension letters: B batch, H heads, h heads in hand, N tokens, D channels, T keys of one tile, P queries of one run.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from merope.attention.token_rows import ClipMaps, Plan

# Keys of one tile: long enough for matrix products, short enough for a core's cache.
_TILE_TOKENS = 2048
# Logits of one product, the same compromise.
_LOGITS = 2**19


@dataclass(frozen=True, eq=False)
class TileCall:
    """What every job of one call shares."""

    query: Tensor
    key: Tensor
    value: Tensor
    key_mask: Tensor | None
    factors: list[Tensor]
    plan: Plan
    causal_offset: int | None

    _maps: dict[int, ClipMaps] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def maps(self, clip: int) -> ClipMaps:
        """One clip's maps, shared by the heads in whatever thread; clips come in order and the last are kept."""
        with self._lock:
            if clip not in self._maps:
                self._maps.pop(clip - 2, None)
                self._maps[clip] = ClipMaps(self.plan, self.factors, clip)
            return self._maps[clip]


def numbers_in_hand(call: TileCall) -> int:
    """About how many numbers a forward walk keeps of one head."""
    keys, channels = call.key.shape[2:]
    per_camera = call.plan.num_queries // call.plan.num_query_cameras
    longest = min(keys, _TILE_TOKENS)
    of_keys = 2 * (channels + call.plan.grouped_width) * longest
    return of_keys + min(per_camera * longest, _LOGITS) + 3 * channels * call.plan.num_queries


@dataclass(frozen=True)
class Tile:
    """A run of keys: all with cameras, or all without."""

    tokens: slice
    has_cameras: bool

    @property
    def size(self) -> int:
        return self.tokens.stop - self.tokens.start


class Run(NamedTuple):
    """Queries of one camera, few enough for their logits to stay small."""

    start: int
    stop: int

    @property
    def tokens(self) -> slice:
        return slice(self.start, self.stop)


class ByRun:
    """Numbers [h, rows, P] of each run, contiguous: products read and write strided memory more slowly."""

    def __init__(self, memory: Tensor, heads: int, rows: int, runs: list[Run]) -> None:
        first = runs[0].start
        self._runs = runs
        self.shape_joined = heads, rows, runs[-1].stop - first
        # Runs of one length, the rule, are copied as one.
        self._alike = None
        if len({run.stop - run.start for run in runs}) == 1:
            self._alike = memory.view(len(runs), heads, rows, -1)
            pieces = self._alike.unbind()
        else:
            numbers = heads * rows
            pieces = tuple(
                memory[numbers * (run.start - first) : numbers * (run.stop - first)].view(heads, rows, -1)
                for run in runs
            )
        self._pieces = dict(zip(runs, pieces, strict=True))

    def __getitem__(self, run: Run) -> Tensor:
        return self._pieces[run]

    def read(self, joined: Tensor) -> None:
        """Take over [h, rows, N] of all runs side by side."""
        if self._alike is not None:
            self._alike.copy_(joined.unflatten(-1, (len(self._runs), -1)).permute(2, 0, 1, 3))
            return
        for piece, part in zip(self._pieces.values(), self._parts(joined), strict=True):
            piece.copy_(part)

    def write(self, joined: Tensor) -> Tensor:
        """The inverse of `read`, into memory of that shape."""
        if self._alike is not None:
            joined.unflatten(-1, (len(self._runs), -1)).copy_(self._alike.permute(1, 2, 0, 3))
            return joined
        for piece, part in zip(self._pieces.values(), self._parts(joined), strict=True):
            part.copy_(piece)
        return joined

    def _parts(self, joined: Tensor) -> tuple[Tensor, ...]:
        return joined.split([run.stop - run.start for run in self._runs], dim=-1)


class TileWalk:
    """The way of one thread: `start` takes heads and query cameras in hand, `load` a tile of their keys and values."""

    tiles: list[Tile]

    def __init__(self, call: TileCall) -> None:
        # Compiled when first used: importing merope should not wait for numba.
        from merope.attention import softmax_loops

        self._loops = softmax_loops
        self.scale = 1 / math.sqrt(call.query.shape[-1])
        self._call = call
        self._plan = call.plan
        self._buffers: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._loaded: tuple[int, ...] = ()
        self._per_camera = call.plan.num_queries // call.plan.num_query_cameras
        # Of keys (0) and values (1), those that the right maps touch.
        self._active = slice(int("k" not in call.plan.acts_on), 1 + int("v" in call.plan.acts_on))

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Memory by name, taken once and used again."""
        view = self._views.get((name, shape))
        if view is None:
            size = math.prod(shape)
            if name not in self._buffers or self._buffers[name].numel() < size:
                # Views of the smaller memory would keep it alive.
                self._views = {at: kept for at, kept in self._views.items() if at[0] != name}
                self._buffers[name] = self._call.key.new_empty(size)
            view = self._views[name, shape] = self._buffers[name][:size].view(shape)
        return view

    def start(self, clip: int, heads: slice, cameras: range) -> None:
        """Take a clip, some of its heads and some query cameras in hand."""
        self.clip, self.heads, self._cameras = clip, heads, cameras
        self._maps = self._call.maps(clip)
        keys, all_keys = self._plan.num_keys, self._call.key.shape[2]
        step = -(-keys // max(1, -(-keys // _TILE_TOKENS)))
        cuts = [*range(0, keys, max(step, 1)), keys]
        self.tiles = [Tile(slice(a, b), True) for a, b in pairwise(cuts)]
        if all_keys > keys:
            self.tiles.append(Tile(slice(keys, all_keys), False))
        longest = max((tile.size for tile in self.tiles), default=1)
        most = max(1, min(self._per_camera, _LOGITS // longest))
        self._runs = {camera: self._cut(camera, most) for camera in cameras}

    def _cut(self, camera: int, most: int) -> list[Run]:
        first, last = camera * self._per_camera, (camera + 1) * self._per_camera
        return [Run(at, min(at + most, last)) for at in range(first, last, most)]

    @property
    def queries_in_hand(self) -> slice:
        """Those of the query cameras in hand, among all."""
        return slice(self._cameras.start * self._per_camera, self._cameras.stop * self._per_camera)

    def by_run(self, name: str, rows: int | None = None) -> ByRun:
        """Memory for all queries in hand, a contiguous piece [h, D, P] for each run; or [h, rows, P]."""
        heads = self.heads.stop - self.heads.start
        rows = self._call.key.shape[-1] if rows is None else rows
        memory = self.buffer(name, heads * rows * (self.queries_in_hand.stop - self.queries_in_hand.start))
        return ByRun(memory, heads, rows, [run for runs in self._runs.values() for run in runs])

    def _rows(self, x: Tensor, tokens: slice, name: str) -> Tensor:
        """The heads in hand of ``x`` token-last, [h, D, N]: a view where memory already is, else a copy."""
        mine = x[self.clip, self.heads, tokens].mT
        if mine.is_contiguous():
            return mine
        rows = self.buffer(name, *mine.shape)
        if mine.stride(-1) == 1:
            return rows.copy_(mine)
        # Copying rows, then turning contiguous memory, takes half the time of one strided copy.
        for source, target in zip(mine.mT, rows, strict=True):
            target.copy_(self.buffer("untransposed", *source.shape).copy_(source).mT)
        return rows

    def queries(self, x: Tensor, name: str = "query", side: str = "q", *, spare: str) -> ByRun:
        """Queries, or the output's gradient, under the left maps: [h, D, P] of each run. Uses up the buffer ``spare``."""
        rows = self._rows(x, self.queries_in_hand, "raw_queries")
        if side in self._plan.acts_on:
            raw, rows = rows, self.buffer(spare, *rows.shape)
            self._maps.left(raw, rows, self.heads, self.queries_in_hand.start)
        pieces = self.by_run(name)
        pieces.read(rows)
        return pieces

    def joined(self, pieces: ByRun, name: str) -> Tensor:
        """What stands run by run, side by side: [h, rows, N] of the queries in hand."""
        return pieces.write(self.buffer(name, *pieces.shape_joined))

    def turn_back(self, rows: Tensor, result: Tensor, side: str) -> None:
        """``rows`` [h, D, N] of the queries in hand, under the transposed left maps, to where they belong in ``result``."""
        target = result[self.clip, self.heads, self.queries_in_hand].mT
        if side in self._plan.acts_on:
            turned = target if target.is_contiguous() else self.buffer("raw_queries", *target.shape)
            self._maps.left_back(rows, turned, self.heads, self.queries_in_hand.start)
            rows = turned
        if rows is not target:
            target.copy_(rows)

    def load(self, tile: Tile) -> None:
        """Take a tile of keys and values in hand, under the maps that all query cameras share."""
        self._tile = tile
        # Another job of the same heads finds the tile still in hand.
        loaded = self.clip, self.heads.start, self.heads.stop, tile.tokens.start
        if loaded == self._loaded:
            return
        self._loaded = ()
        heads = self.heads.stop - self.heads.start
        self._turned = self.buffer("turned", 2, heads, self._call.key.shape[-1], tile.size)
        self._taken = self.buffer("taken", 2, heads, self._plan.grouped_width, tile.size)
        self._arrays = self._taken.numpy(), self._turned.numpy()
        for part, x in enumerate((self._call.key, self._call.value)):
            rows = self._rows(x, tile.tokens, "raw_keys")
            if tile.has_cameras and self._is_active(part):
                self._maps.once(rows, self._turned[part], self.heads, tile.tokens.start)
                self._maps.take_grouped(rows, self._taken[part])
            else:
                self._turned[part].copy_(rows)
        self._loaded = loaded

    def _is_active(self, part: int) -> bool:
        return self._active.start <= part < self._active.stop

    def cameras(self) -> Iterator[int]:
        """Query cameras that see some of the tile."""
        for camera in self._cameras:
            self._size = self._tile.size
            if self._call.causal_offset is not None and self._tile.has_cameras:
                end = self._call.causal_offset + camera * self._per_camera
                self._size = min(self._size, end - self._tile.tokens.start)
            if self._size > 0:
                yield camera

    def runs(self, camera: int) -> list[Run]:
        """A camera's queries, in runs that keep the logits small."""
        return self._runs[camera]

    @property
    def _tokens(self) -> slice:
        """The keys in hand, counted from the first of all."""
        return slice(self._tile.tokens.start, self._tile.tokens.start + self._size)

    def keys_for(self, camera: int) -> tuple[Tensor, Tensor]:
        """Keys and values [h, D, T] of the tile, up to the last one seen, under the maps of one query camera."""
        if self._tile.has_cameras:
            self._turn(self._arrays, camera)
        return self._turned[0, ..., : self._size], self._turned[1, ..., : self._size]

    def _turn(self, arrays: tuple[np.ndarray, np.ndarray], camera: int, *, back: bool = False) -> None:
        keys = self._tokens
        self._maps.turn(*arrays, self._active, self.heads, keys=keys, camera=camera, back=back)

    def logits(self, left: Tensor, right: Tensor, *, keys_last: bool = False) -> Tensor:
        """Scaled logits [h, T, P] of keys [h, D, T] and queries [h, D, P]; ``keys_last``: [h, P, T] of queries and keys.

        Minus infinity where a key is hidden. Either order leaves one product without a transposed operand: forward, that
        with the values; backward, that with the queries and output gradients.
        """
        logits = self.buffer("logits", left.shape[0], left.shape[-1], right.shape[-1])
        torch.baddbmm(logits, left.mT, right, beta=0, alpha=self.scale, out=logits)
        by_key = logits.mT if keys_last else logits
        if self._call.key_mask is not None:
            by_key.masked_fill_(~self._call.key_mask[self.clip, self._tokens, None], -math.inf)
        return logits

    def soften(self, logits: Tensor, out: Tensor, top: Tensor, total: Tensor, is_first: bool) -> None:
        """`softmax_loops.soften`: one more tile's logits [h, T, P] to weights, in place (the streaming softmax)."""
        self._loops.soften(logits.numpy(), out.numpy(), top.numpy(), total.numpy(), is_first)

    def differentiate(
        self, logits: Tensor, d_weights: Tensor, lse: np.ndarray, delta: np.ndarray, first: int
    ) -> None:
        """`softmax_loops.differentiate`: logits [h, P, T] to weights, and the weights' gradients to those of the logits."""
        self._loops.differentiate(logits.numpy(), d_weights.numpy(), lse, delta, first)

    def gradient_sums(self) -> tuple[Tensor, Tensor]:
        """Zeros for the gradients of a tile's keys and values: of whole heads, and of grouped channels turned back."""
        sums = (
            self.buffer("grad_sum", *self._turned.shape),
            self.buffer("grad_taken_sum", *self._taken.shape),
        )
        for sum_ in sums:
            sum_.zero_()
        return sums

    def collect(self, d_turned: Tensor, sums: tuple[Tensor, Tensor], camera: int) -> None:
        """Gradients of keys and values as one query camera saw them, onto their sums."""
        whole, taken = sums[0][..., : self._size], sums[1]
        if not self._tile.has_cameras:
            whole.add_(d_turned)
            return
        for part in range(2):
            if not self._is_active(part):
                whole[part].add_(d_turned[part])
        mine = self._active
        for channels in self._plan.ungrouped:
            whole[mine, :, channels].add_(d_turned[mine, :, channels])
        self._turn((taken.numpy(), d_turned.numpy()), camera, back=True)

    def store(self, sums: tuple[Tensor, Tensor], grad_key: Tensor, grad_value: Tensor) -> None:
        """The sums of a tile to where they belong."""
        whole, taken = sums
        for part, grad in enumerate((grad_key, grad_value)):
            rows = whole[part]
            if self._tile.has_cameras and self._is_active(part):
                rows = self.buffer("raw_keys", *rows.shape)
                self._maps.once_back(whole[part], rows, self.heads, self._tile.tokens.start)
                self._maps.put_grouped(taken[part], rows)
            grad[self.clip, self.heads, self._tile.tokens].mT.copy_(rows)
