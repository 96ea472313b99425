"""`KeyValueCache`: raw keys and values of the cameras so far, for generation frame by frame.

What is kept is what came: where a right map depends on the query camera, a key that was transformed for one query
camera is of no use to the next. So bytes are those of the keys and values themselves, however many cameras ask.

Dimension letters: B batch, H heads, N tokens, D channels, P tokens of a camera.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters.growing import GrowingTokens
from merope.attention.dispatch import Backend, camera_attention
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import random_drive
from merope.encodings.base import CameraEncoding, DepthEncoding
from merope.encodings.measures import without_warnings
from merope.operators import CameraOperator

# Largest departure of a factor, relative to its largest entry, that is rounding (float64).
_ROUNDING = 1e-9
_PER_VIEW = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CacheGeometry:
    """What the newest cameras and all that a cache holds are to each other; made by `KeyValueCache.geometry`.

    Made once per chunk, it serves every layer's cache and every denoising step.
    """

    queries: ViewRays
    keys: ViewRays
    num_query_cameras: int
    pairs: Any
    """A `CameraOperator`, or the `Relations` of an encoding that waits for a depth."""


class KeyValueCache:
    """Keys, values and cameras of the frames so far; queries of the newest cameras attend to all of them.

    One layer's cache. ``append`` takes a chunk of cameras, ``attend`` the queries of the newest ones; chunk by chunk the
    outputs are those of frame-causal attention over the whole clip. All poses are in one world and all times on one
    clock: chunks come in the order of time. A chunk that is denoised in several steps is taken back (``rewind``) and
    appended anew in each.

    ``max_cameras`` makes a window: that many cameras are allocated once, and an append drops the oldest that no longer
    fit. Without it memory doubles when it is full, so that every key is copied twice on average. ``dtype`` is that of
    the keys and values kept; None takes the first chunk's and refuses another.

    An encoding whose operator depends on the clip's first view (RayNova) is given that view's pose for as long
    as the cache lives, whether its keys have been dropped or not. Encodings that predict a depth take it with the
    keys, raw. Of an additive encoding (CameraCtrl, ReCamMaster, SCoPE) only the rotary embedding acts here: its
    features, made from the first view on, are in the keys and values that are appended.

    Gradients reach the queries, and the keys, values and depths of the newest append. Earlier chunks and all cameras are
    constants. Where no gradient is asked for, attention reads the kept tensors in place.

    Raises:
        ValueError: if ``max_cameras`` is below one, or the encoding relates cameras through others than
            the pair itself and the first view.
    """

    def __init__(
        self,
        encoding: CameraEncoding,
        *,
        max_cameras: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if max_cameras is not None and max_cameras < 1:
            raise ValueError(f"max_cameras must be >= 1, or None for all; got {max_cameras}.")
        self.encoding = encoding
        self.max_cameras = max_cameras
        self._dtype = dtype
        self._from_first_view = _depends_on_first_view(encoding)
        self.reset()

    def reset(self) -> None:
        """Forget everything, memory included; the next clip may have another batch, size and device."""
        self._views: list[ViewRays] = []
        self._first_view: ViewRays | None = None
        self._num_evicted = 0
        self._kept: dict[str, GrowingTokens] = {}
        # The newest append with its graph, where gradients are to reach it.
        self._newest: dict[str, Tensor] = {}

    @property
    def num_cameras(self) -> int:
        """Cameras whose keys are held."""
        return sum(views.num_views for views in self._views)

    @property
    def num_tokens(self) -> int:
        """Key tokens held."""
        return sum(views.num_tokens for views in self._views)

    @property
    def views(self) -> ViewRays:
        """The cameras whose keys are held, oldest first.

        Raises:
            ValueError: if there is none.
        """
        self._require_cameras()
        if len(self._views) > 1:
            self._views = [ViewRays.cat(self._views)]
        return self._views[0]

    @property
    def nbytes(self) -> int:
        """Bytes that are allocated for keys, values, depths and cameras, room for growth included."""
        cameras = [*self._views, *([self._first_view] if self._first_view is not None else [])]
        geometry = sum(getattr(views, name).nbytes for views in cameras for name in _PER_VIEW)
        graphs = sum(tensor.nbytes for tensor in self._newest.values())
        return geometry + graphs + sum(kept.storage.nbytes for kept in self._kept.values())

    def to(self, device: torch.device | str) -> Self:
        """Move keys, values and depths, in place, and return the cache; cameras stay float64 on the CPU."""
        for kept in self._kept.values():
            kept.storage = kept.storage.to(device)
        self._newest = {name: tensor.to(device) for name, tensor in self._newest.items()}
        return self

    def append(
        self,
        key: Float[Tensor, "batch head token chan"],
        value: Float[Tensor, "batch head token chan"],
        views: ViewRays,
        *,
        depth: Float[Tensor, "batch token 2"] | None = None,
    ) -> None:
        """Take raw keys and values of the next cameras, ordered camera by camera.

        ``depth`` is what an encoding that predicts depths said of each token (`DepthEncoding`). Where a window is
        full the oldest cameras go. Nothing changes where an argument is refused.

        Raises:
            ValueError: if shapes, precision or device are not those of the cache, the cameras do not follow those
                before in time, a depth is missing or of no use, or the chunk is longer than the window.
        """
        given = {"key": key, "value": value, **({} if depth is None else {"depth": depth})}
        self._check_chunk(given, views)
        self._check_cameras(views)
        if self.max_cameras is not None:
            self._drop_oldest(max(0, self.num_cameras + views.num_views - self.max_cameras))
        if self._first_view is None:
            self._first_view = views.for_views(0, 1)
        self._views.append(views)
        if self._dtype is not None:
            given |= {name: given[name].to(self._dtype) for name in ("key", "value")}
        for name, tensor in given.items():
            if name not in self._kept:
                room = (self.max_cameras or views.num_views) * views.tokens_per_view
                self._kept[name] = GrowingTokens(tensor, axis=1 if name == "depth" else 2, room=room)
            self._kept[name].append(tensor)
        graph = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given.values())
        self._newest = given if graph else {}

    def attend(
        self,
        query: Float[Tensor, "batch head token chan"],
        *,
        frame_causal: bool = True,
        geometry: CacheGeometry | None = None,
        backend: Backend = "auto",
    ) -> Float[Tensor, "batch head token chan"]:
        """Attention of the newest cameras' queries over everything that is held.

        How many cameras ask is read off ``query``: they are the last that were appended. Each sees itself and those
        before it; with ``frame_causal`` False, a chunk that is generated as a whole, all see all. ``geometry`` is that of
        these cameras, where it is already made.

        Raises:
            ValueError: if the cache is empty, shapes or device are not those of the cache, or the geometry is of
                other cameras.
        """
        self._require_cameras()
        num_cameras = self._check_query(query)
        if geometry is None:
            dtype = torch.promote_types(query.dtype, torch.float32)
            geometry = self.geometry(num_cameras, dtype=dtype, device=query.device)
        else:
            self._check_geometry(geometry, num_cameras)
        held = self._held(query)
        pairs = geometry.pairs
        if isinstance(self.encoding, DepthEncoding):
            depth = held["depth"]
            pairs = self.encoding.operator_at(pairs, depth[:, -query.shape[2] :], depth)
        return camera_attention(
            query, held["key"], held["value"], pairs, frame_causal=frame_causal, backend=backend
        )

    def geometry(
        self,
        num_cameras: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CacheGeometry:
        """The geometry of the newest ``num_cameras`` and all that are held.

        Raises:
            ValueError: if not that many are held.
        """
        self._require_held(num_cameras)
        keys = self.views
        queries = keys.for_views(keys.num_views - num_cameras, keys.num_views)
        if isinstance(self.encoding, DepthEncoding):
            pairs: Any = self.encoding.relations(queries, keys, dtype=dtype, device=device)
        elif self._from_first_view:
            assert self._first_view is not None
            queries = ViewRays.cat([self._first_view, queries])
            pairs = self.encoding.operator(queries, keys, dtype=dtype, device=device)
            pairs = pairs.for_query_cameras(1, num_cameras + 1)
        else:
            pairs = self.encoding.operator(queries, keys, dtype=dtype, device=device)
        return CacheGeometry(queries=queries, keys=keys, num_query_cameras=num_cameras, pairs=pairs)

    def rewind(self, num_cameras: int) -> None:
        """Take back the newest cameras, such as a chunk whose next denoising step follows.

        What a window dropped for them does not come back: the same chunk, appended anew, meets the same window.

        Raises:
            ValueError: if not that many are held.
        """
        self._require_held(num_cameras)
        remaining = self.num_cameras - num_cameras
        tokens = num_cameras * self._views[0].tokens_per_view
        for kept in self._kept.values():
            kept.length -= tokens
        # Of a chunk that is taken back in part the rest becomes history.
        self._newest = {}
        if remaining:
            self._views = [self.views.for_views(0, remaining)]
            return
        self._views = []
        if not self._num_evicted:
            self._first_view = None

    def evict(self, num_cameras: int) -> None:
        """Drop the oldest cameras.

        Raises:
            ValueError: if not that many are held beside the newest.
        """
        if not 0 < num_cameras < self.num_cameras:
            raise ValueError(
                f"num_cameras must leave one of the {self.num_cameras} cameras held; got {num_cameras}. "
                "To forget all of them, reset()."
            )
        self._drop_oldest(num_cameras)

    def _drop_oldest(self, num_cameras: int) -> None:
        if not num_cameras:
            return
        self._num_evicted += num_cameras
        tokens = num_cameras * self._views[0].tokens_per_view
        for name, kept in self._kept.items():
            kept.drop_first(tokens)
            if name in self._newest:
                newest = self._newest[name]
                length = min(newest.shape[kept.axis], kept.length)
                self._newest[name] = newest.narrow(kept.axis, newest.shape[kept.axis] - length, length)
        remaining = self.num_cameras - num_cameras
        views = self.views
        self._views = [views.for_views(num_cameras, views.num_views)] if remaining else []

    def _held(self, query: Tensor) -> dict[str, Tensor]:
        """All that is held; tensors of their own where a graph may keep them beyond the next append."""
        if not (torch.is_grad_enabled() and (query.requires_grad or self._newest)):
            return {name: kept.tokens() for name, kept in self._kept.items()}
        held = {}
        for name, kept in self._kept.items():
            parts = [kept.tokens()]
            if name in self._newest:
                newest = self._newest[name]
                history = kept.length - newest.shape[kept.axis]
                parts = [kept.tokens().narrow(kept.axis, 0, history), newest]
            held[name] = torch.cat(parts, dim=kept.axis)
        return held

    def _require_cameras(self) -> None:
        if not self._views:
            raise ValueError("the cache is empty; append(key, value, views) comes before its queries attend.")

    def _require_held(self, num_cameras: int) -> None:
        self._require_cameras()
        if not 0 < num_cameras <= self.num_cameras:
            raise ValueError(
                f"num_cameras must lie in 1 ... {self.num_cameras}, those held; got {num_cameras}."
            )

    def _check_chunk(self, given: dict[str, Tensor], views: ViewRays) -> None:
        key, value = given["key"], given["value"]
        if isinstance(self.encoding, DepthEncoding) != ("depth" in given):
            name = type(self.encoding).__name__
            raise ValueError(
                f"{name} needs the depth of every key token: pass depth=, two numbers each."
                if "depth" not in given
                else f"{name} has no use for depth=; leave it out."
            )
        for name, tensor in (("key", key), ("value", value)):
            wanted = (views.batch, key.shape[1], views.num_tokens, self.encoding.head_dim)
            if tuple(tensor.shape) != wanted:
                raise ValueError(
                    f"{name} must have shape [batch, head, token, channel] = {list(wanted)}, tokens of {views.num_views} "
                    f"cameras x {views.tokens_per_view}; got {list(tensor.shape)}."
                )
        depth = given.get("depth")
        if depth is not None and tuple(depth.shape) != (views.batch, views.num_tokens, 2):
            raise ValueError(
                f"depth must have shape [batch, token, 2] = {[views.batch, views.num_tokens, 2]}; got {list(depth.shape)}."
            )
        for name, tensor in given.items():
            if tensor.device != key.device:
                raise ValueError(f"{name} is on {tensor.device}, key on {key.device}; move it there.")
            kept = self._kept.get(name)
            if kept is None:
                continue
            if tensor.device != kept.storage.device:
                raise ValueError(
                    f"{name} is on {tensor.device}, the cache on {kept.storage.device}; move the cache with to()."
                )
            if name != "depth" and tensor.shape[1] != kept.storage.shape[1]:
                raise ValueError(
                    f"{name} has {tensor.shape[1]} heads; the cache holds {kept.storage.shape[1]}."
                )
            if tensor.dtype != kept.storage.dtype and (name == "depth" or self._dtype is None):
                raise ValueError(
                    f"{name} is {tensor.dtype}; the cache holds {kept.storage.dtype}. Make it with dtype= to cast keys "
                    "and values as they come."
                )
        if key.dtype != value.dtype and self._dtype is None:
            raise ValueError(f"key and value must have one precision; got {key.dtype} and {value.dtype}.")

    def _check_cameras(self, views: ViewRays) -> None:
        if self.max_cameras is not None and views.num_views > self.max_cameras:
            raise ValueError(
                f"views are {views.num_views} cameras; the window holds {self.max_cameras} (max_cameras). Append them in "
                "shorter chunks."
            )
        if any(getattr(views, name).requires_grad for name in _PER_VIEW):
            raise ValueError(
                "views must be constants: poses that need a gradient do not outlive a chunk. Detach them, or use "
                "camera_attention(frame_causal=True) over the whole clip."
            )
        if self._first_view is None:
            return
        if views.batch != self._first_view.batch:
            raise ValueError(
                f"views are {views.batch} clips; the cache holds {self._first_view.batch}. reset() before another batch."
            )
        # Token grids and lenses that do not fit are named there.
        ViewRays.cat([self._first_view, views])
        if not self._views:
            return
        last, first = self._views[-1].time[:, -1], views.time[:, 0]
        if not (first > last).all():
            raise ValueError(
                f"views must come after those before in time: the chunk begins at {first.tolist()}, the cache ends at "
                f"{last.tolist()}. Pass time= to ViewRays.from_poses, which counts every chunk from 0 without it; cameras "
                "of one time belong into one chunk."
            )

    def _check_query(self, query: Tensor) -> int:
        """The number of cameras that the query's tokens belong to."""
        storage, per_camera = self._kept["key"].storage, self._views[0].tokens_per_view
        batch, heads, _, channels = storage.shape
        if query.ndim != 4 or (query.shape[0], query.shape[1], query.shape[3]) != (batch, heads, channels):
            raise ValueError(
                f"query must have shape [batch, head, token, channel] = {[batch, heads, '...', channels]}; got "
                f"{list(query.shape)}."
            )
        tokens = query.shape[2]
        if tokens == 0 or tokens % per_camera or tokens > self.num_tokens:
            raise ValueError(
                f"query has {tokens} tokens; expected {per_camera} for each of the newest cameras, of which the cache holds "
                f"{self.num_cameras}. Append their keys first."
            )
        if query.device != storage.device:
            raise ValueError(
                f"query is on {query.device}, the cache on {storage.device}; move the cache with to()."
            )
        return tokens // per_camera

    def _check_geometry(self, geometry: CacheGeometry, num_cameras: int) -> None:
        if geometry.num_query_cameras != num_cameras:
            raise ValueError(
                f"geometry is of {geometry.num_query_cameras} newest cameras; query has {num_cameras}."
            )
        known = [(geometry.keys, self.views)]
        if self._from_first_view and self._first_view is not None:
            known.append((geometry.queries.for_views(0, 1), self._first_view))
        if not all(_same_cameras(theirs, ours) for theirs, ours in known):
            raise ValueError(
                "geometry is of other cameras than the cache holds. Make it anew with geometry() after every append."
            )


def _same_cameras(first: ViewRays, second: ViewRays) -> bool:
    if first is second:
        return True
    names = (*_PER_VIEW, "row", "col")
    return first.lens == second.lens and all(
        torch.equal(getattr(first, name), getattr(second, name)) for name in names
    )


def _depends_on_first_view(encoding: CameraEncoding) -> bool:
    """Whether the operator of some views is that of the clip's first view too; measured on a small clip.

    Raises:
        ValueError: if not even the first view makes the operator of some views the rows of the whole clip's.
    """
    clip = random_drive(views=4, grid=(1, 2))
    quiet = without_warnings(encoding)
    queries, keys = clip.for_views(1, 3), clip.for_views(0, 3)
    rows = quiet.operator(clip, dtype=torch.float64).for_query_cameras(1, 3, num_keys=keys.num_tokens)
    if _same_pairs(quiet.operator(queries, keys, dtype=torch.float64), rows):
        return False
    with_first = ViewRays.cat([clip.for_views(0, 1), clip.for_views(2, 3)])
    anchored = quiet.operator(with_first, keys, dtype=torch.float64).for_query_cameras(1, 2)
    if isinstance(encoding, DepthEncoding) or not _same_pairs(anchored, rows.for_query_cameras(1, 2)):
        raise ValueError(
            f"{type(encoding).__name__} relates two cameras through others of the clip, so that what it makes of a chunk "
            "is not its part of the whole; it cannot be streamed."
        )
    return True


def _same_pairs(first: CameraOperator, second: CameraOperator) -> bool:
    for ours, theirs in zip(first.bands, second.bands, strict=True):
        pairs, others = first.band_pairs(ours), second.band_pairs(theirs)
        if (pairs - others).abs().max() > _ROUNDING * others.abs().max():
            return False
    return True
