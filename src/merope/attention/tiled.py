"""Grouped attention on a CPU: tiles that stay in a core's cache, as one custom op each way.

Keys and values stand token-last, ``[channel, token]`` (see `token_rows`). Of one tile of keys the maps that all query
cameras share are applied once; for each query camera the grouped channels are written over in the same
buffer, and attention is two matrix products around a streaming softmax. The backward pass keeps q, k, v, the output
and the log-sum-exp, and applies the maps again.

Dimension letters: B batch, H heads, h heads in hand, N tokens, D channels, T keys of one tile, P queries of one camera.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from merope.attention.token_rows import KINDS, ClipMaps, Plan, describe, plan_of
from merope.operators import CameraOperator

TILED_DTYPES = (torch.float32, torch.float64)
# Keys of one tile: long enough for matrix products, short enough for a core's cache.
_TILE_TOKENS = 2048
# Logits of one product, the same compromise.
_LOGITS = 2**19
# Bytes of one thread's buffers, if a single head needs no more.
_CACHE = 16 * 2**20
# Multiplications from which on threads pay for their start.
_WORTH_THREADS = 2**28
# Above this many threads Python's own lock is what they wait for; cores beyond share the operations.
_MOST_WORKERS = 8


def why_not_tiled(
    query: Tensor, key: Tensor, value: Tensor, operator: CameraOperator, compute: torch.dtype
) -> str | None:
    """The reason these tiles cannot serve a call whose products run in ``compute``, or None if they can."""
    factors = operator.tensors()
    if query.device.type != "cpu":
        return f"tiles are cut for a CPU's cache; the call is on {query.device}"
    if compute not in TILED_DTYPES:
        return f"a CPU's product of {compute} matrices has {compute} logits, which is too coarse"
    if any(x.dtype != compute for x in (query, key, value, *factors)):
        return f"query, key, value and the operator's factors must all have {compute}"
    if torch.is_grad_enabled() and any(factor.requires_grad for factor in factors):
        return "a factor of the operator wants its gradient"
    if any(forward_ad.unpack_dual(x).tangent is not None for x in (query, key, value, *factors)):
        return "a tensor carries a tangent, and tiles give gradients alone"
    for band in operator.bands:
        for block in (band.left, band.right):
            if block is not None and type(block) not in KINDS.values():
                return f"band {band.name!r} holds blocks of another kind, {type(block).__name__}"
    return None


def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    *,
    key_mask: Tensor | None,
    causal_offset: int | None,
    memory_budget: int,
) -> Tensor:
    """Eq. 1 for queries that all have a camera; keys past ``operator.num_keys`` have none.

    With ``causal_offset`` the first query camera sees so many keys, and every next one its own more.
    """
    out, _ = _attend(
        query, key, value, key_mask, operator.tensors(), describe(operator), causal_offset, memory_budget
    )
    return out


@torch.library.custom_op("merope::attend_in_tiles", mutates_args=(), device_types="cpu")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor]:
    result, lse = torch.empty_like(query), query.new_empty(query.shape[:-1])

    def attend(walk: _Walk, clip: int, heads: slice) -> None:
        q = walk.queries(query)
        out = walk.buffer("out", *q.shape)
        top, total = (walk.buffer(name, q.shape[0], 1, q.shape[2]) for name in ("top", "total"))
        for tile in walk.tiles:
            walk.load(tile)
            for camera in walk.cameras():
                k, v = walk.keys_for(camera)
                for part in walk.parts(camera):
                    state = (out[..., part], top[..., part], total[..., part])
                    walk.join(walk.logits(k, q[..., part]), v, *state, first=tile is walk.tiles[0])
        # A query whose keys are all masked: its output is zero, and so will be its weights in the backward pass.
        dead = total == 0
        lse[clip, heads] = torch.add(top, total.log()).masked_fill_(dead, math.inf).squeeze(1)
        out.div_(total.masked_fill_(dead, 1))
        walk.turn_back(out, result, "o")

    call = _Call(query, key, value, key_mask, factors, plan_of(description), causal_offset)
    _in_parallel(attend, call, memory_budget, passes=1)
    return result, lse


@_attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(query.shape[:-1])


@torch.library.custom_op("merope::attend_in_tiles_backward", mutates_args=(), device_types="cpu")
def _attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
    # Sum of weights x their gradients. With y = L^T o and do = L dy it is dy . y, whatever L.
    delta = (grad * out).sum(-1, keepdim=True)

    def differentiate(walk: _Walk, clip: int, heads: slice) -> None:
        q, d_out = walk.queries(query), walk.queries(grad, "grad_out", side="o")
        d_query = walk.buffer("grad_query", *q.shape).zero_()
        for tile in walk.tiles:
            walk.load(tile)
            sums = walk.gradient_sums()
            for camera in walk.cameras():
                k, v = walk.keys_for(camera)
                d_turned = walk.buffer("grad_turned", 2, *k.shape)
                for n, part in enumerate(walk.parts(camera)):
                    weights = walk.logits(q[..., part], k, keys_last=True)
                    weights.sub_(lse[clip, heads, part, None]).exp_()
                    d_logits = walk.buffer("grad_logits", *weights.shape)
                    torch.bmm(d_out[..., part].mT, v, out=d_logits)
                    d_logits.sub_(delta[clip, heads, part]).mul_(weights)
                    _product(k, d_logits.mT, walk.scale, out=d_query[..., part], more=True)
                    _product(q[..., part], d_logits, walk.scale, out=d_turned[0], more=n > 0)
                    _product(d_out[..., part], weights, 1.0, out=d_turned[1], more=n > 0)
                walk.collect(d_turned, sums, camera)
            walk.store(sums, grad_key, grad_value)
        walk.turn_back(d_query, grad_query, "q")

    call = _Call(query, key, value, key_mask, factors, plan_of(description), causal_offset)
    _in_parallel(differentiate, call, memory_budget, passes=2)
    return grad_query, grad_key, grad_value


def _product(a: Tensor, b: Tensor, scale: float, *, out: Tensor, more: bool) -> None:
    """``scale a b`` into ``out``, or on top of it."""
    torch.baddbmm(out, a, b, beta=float(more), alpha=scale, out=out)


@_attend_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.empty_like(x) for x in (query, key, value))  # type: ignore[return-value]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, key_mask, factors, *ctx.rest = inputs
    ctx.num_factors = len(factors)
    ctx.save_for_backward(query, key, value, *output, key_mask, *factors)


def _differentiate(ctx: Any, grad: Tensor, grad_lse: Tensor) -> Any:
    query, key, value, out, lse, key_mask, *factors = ctx.saved_tensors
    grads = _attend_backward(grad, query, key, value, out, lse, key_mask, factors, *ctx.rest)
    return (*grads, None, [None] * ctx.num_factors, None, None, None)


_attend.register_autograd(_differentiate, setup_context=_keep)


@dataclass(frozen=True, eq=False)
class _Call:
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


def _in_parallel(
    work: Callable[["_Walk", int, slice], None], call: _Call, memory_budget: int, *, passes: int
) -> None:
    """``work`` on every clip and head, a few heads at a time, on as many threads as torch may use.

    Each thread runs its own heads from the first product to the last, so that its buffers stay in its core's
    cache; threads within each operation would wait for each other fifty times per query camera.
    """
    batch, heads = call.key.shape[:2]
    longest = min(call.key.shape[2], _TILE_TOKENS)
    channels, per_camera = call.key.shape[3], call.plan.num_queries // call.plan.num_query_cameras
    numbers = 2 * (channels + call.plan.grouped_width) * longest
    numbers += min(per_camera * longest, _LOGITS) + 3 * channels * call.plan.num_queries
    per_head = passes * numbers * call.key.element_size()
    products = 4 * passes * batch * heads * call.plan.num_queries * call.key.shape[2] * channels
    threads = torch.get_num_threads() if products > _WORTH_THREADS else 1
    workers = min(threads, batch * heads, max(1, memory_budget // per_head), _MOST_WORKERS)
    most = max(1, min(heads, min(memory_budget // workers, _CACHE) // per_head))
    # Heads that one thread must do one after the other, with so many at once; of equals, the most at once.
    step = min(range(1, most + 1), key=lambda step: (-(-batch * -(-heads // step) // workers) * step, -step))
    jobs = [
        (clip, slice(first, min(first + step, heads)))
        for clip in range(batch)
        for first in range(0, heads, step)
    ]
    if workers == 1:
        walk = _Walk(call)
        for job in jobs:
            walk.start(*job)
            work(walk, *job)
        return
    inference = torch.is_inference_mode_enabled()  # A thread outside may not write what was made inside.
    walks = SimpleQueue[_Walk]()
    for _ in range(workers):
        walks.put(_Walk(call))

    def run(job: tuple[int, slice]) -> None:
        walk = walks.get()
        try:
            with torch.inference_mode(inference), torch.no_grad():
                walk.start(*job)
                work(walk, *job)
        finally:
            walks.put(walk)

    each = threads // workers
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(each,)) as pool:
            list(pool.map(run, jobs))
    finally:
        # The count is a thread's own, but threads that torch has yet to meet begin with the last one set.
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class _Tile:
    """A run of keys: all with cameras, or all without."""

    tokens: slice
    has_cameras: bool

    @property
    def size(self) -> int:
        return self.tokens.stop - self.tokens.start


class _Walk:
    """One thread's way through its heads, tiles of keys and query cameras, and the buffers in hand."""

    tiles: list[_Tile]

    def __init__(self, call: _Call) -> None:
        # Compiled when first used: importing merope should not wait for numba.
        from merope.attention.turns import largest

        self._largest = largest
        self.scale = 1 / math.sqrt(call.query.shape[-1])
        self._call = call
        self._plan = call.plan
        self._buffers: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}
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

    def start(self, clip: int, heads: slice) -> None:
        """Take a clip and some of its heads in hand."""
        self._clip, self._heads = clip, heads
        self._maps = self._call.maps(clip)
        keys = self._plan.num_keys
        step = -(-keys // max(1, -(-keys // _TILE_TOKENS)))
        cuts = [*range(0, keys, max(step, 1)), keys]
        self.tiles = [_Tile(slice(a, b), True) for a, b in pairwise(cuts)]
        if self._call.key.shape[2] > keys:
            self.tiles.append(_Tile(slice(keys, self._call.key.shape[2]), False))

    def _rows(self, x: Tensor, tokens: slice, name: str) -> Tensor:
        """The heads in hand of ``x`` token-last, [h, D, N]: a view where memory already is, else a copy."""
        mine = x[self._clip, self._heads, tokens].mT
        if mine.is_contiguous():
            return mine
        # Copying rows, then turning contiguous memory, takes half the time of one strided copy.
        rows = self.buffer(name, *mine.shape)
        for source, target in zip(mine.mT, rows, strict=True):
            target.copy_(self.buffer("untransposed", *source.shape).copy_(source).mT)
        return rows

    def queries(self, x: Tensor, name: str = "query", side: str = "q") -> Tensor:
        """Rows [h, D, N] of queries, or of the output's gradient, under the left maps."""
        raw = self._rows(x, slice(None), "raw_queries")
        rows = self.buffer(name, *raw.shape)
        if side in self._plan.acts_on:
            self._maps.left(raw, rows, self._heads)
        else:
            rows.copy_(raw)
        return rows

    def turn_back(self, x: Tensor, result: Tensor, side: str) -> None:
        """``x`` [h, D, N] under the transposed left maps into the heads in hand of ``result``."""
        target = result[self._clip, self._heads].mT
        if side not in self._plan.acts_on:
            target.copy_(x)
            return
        rows = target if target.is_contiguous() else self.buffer("query", *x.shape)
        self._maps.left(x, rows, self._heads, transpose=True)
        if rows is not target:
            target.copy_(rows)

    def load(self, tile: _Tile) -> None:
        """Take a tile of keys and values in hand, under the maps that all query cameras share."""
        self._tile = tile
        heads = self._heads.stop - self._heads.start
        self._turned = self.buffer("turned", 2, heads, self._call.key.shape[-1], tile.size)
        self._taken = self.buffer("taken", 2, heads, self._plan.grouped_width, tile.size)
        self._arrays = self._taken.numpy(), self._turned.numpy()
        for part, x in enumerate((self._call.key, self._call.value)):
            rows = self._rows(x, tile.tokens, "raw_keys")
            if tile.has_cameras and self._is_active(part):
                self._maps.once(rows, self._turned[part], self._heads, tile.tokens.start)
                self._maps.take_grouped(rows, self._taken[part])
            else:
                self._turned[part].copy_(rows)

    def _is_active(self, part: int) -> bool:
        return self._active.start <= part < self._active.stop

    def cameras(self) -> Iterator[int]:
        """Query cameras that see some of the tile."""
        for camera in range(self._plan.num_query_cameras):
            self._size = self._tile.size
            if self._call.causal_offset is not None and self._tile.has_cameras:
                end = self._call.causal_offset + camera * self._per_camera
                self._size = min(self._size, end - self._tile.tokens.start)
            if self._size > 0:
                yield camera

    def parts(self, camera: int) -> list[slice]:
        """A camera's queries, in runs that keep the logits small."""
        first, last = camera * self._per_camera, (camera + 1) * self._per_camera
        step = max(1, min(self._per_camera, _LOGITS // self._size))
        return [slice(at, min(at + step, last)) for at in range(first, last, step)]

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
        self._maps.turn(*arrays, self._active, self._heads, keys=keys, camera=camera, back=back)

    def logits(self, left: Tensor, right: Tensor, *, keys_last: bool = False) -> Tensor:
        """Scaled logits [h, T, P] of keys [h, D, T] and queries [h, D, P]; ``keys_last``: [h, P, T] of queries and keys.

        Minus infinity where a key is hidden. Either order leaves one product without a transposed operand: forward, that
        with the values; backward, that with the queries and output gradients.
        """
        logits = self.buffer("logits", left.shape[0], left.shape[-1], right.shape[-1])
        torch.baddbmm(logits, left.mT, right, beta=0, alpha=self.scale, out=logits)
        by_key = logits.mT if keys_last else logits
        if self._call.key_mask is not None:
            by_key.masked_fill_(~self._call.key_mask[self._clip, self._tokens, None], -math.inf)
        return logits

    def join(
        self, logits: Tensor, value: Tensor, out: Tensor, top: Tensor, total: Tensor, *, first: bool
    ) -> None:
        """One more tile's logits [h, T, P] into the running maximum, sum and output [h, D, P] (the streaming softmax).

        Uses ``logits`` up.
        """
        high = self.buffer("high", *top.shape)
        self._largest(logits.numpy(), high.numpy())
        # A query whose keys are all hidden has finite numbers all the same: its weights become exp(-inf) = 0.
        high.clamp_(min=torch.finfo(logits.dtype).min)
        if first:
            torch.sum(logits.sub_(high).exp_(), 1, keepdim=True, out=total)
            torch.bmm(value, logits, out=out)
        else:
            torch.maximum(high, top, out=high)
            fade = (top - high).exp_()
            logits.sub_(high).exp_()
            total.mul_(fade).add_(logits.sum(1, keepdim=True))
            torch.baddbmm(out.mul_(fade), value, logits, out=out)
        top.copy_(high)

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
                self._maps.once(whole[part], rows, self._heads, self._tile.tokens.start, transpose=True)
                self._maps.put_grouped(taken[part], rows)
            grad[self._clip, self._heads, self._tile.tokens].mT.copy_(rows)
