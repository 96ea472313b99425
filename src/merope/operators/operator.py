"""`CameraOperator`: the pairwise transform U_ab of attention (Eq. 1), kept factored and in blocks.

Every block factors as ``U_ab = left_a^T . right_{i(a),b}``: a left map of the query token and a right map
of the key token that may depend on the query *camera*. Attention is then ``q~ = left q``, ``k~ = right k``,
``v~ = right v``, ``y = left^T out``, once per query camera. Nothing here knows what a camera is.

Dimension letters: B batch, H heads (1 where all heads share), G query cameras, N tokens, M blocks.

Channels are in the paper's order at every public door: triplets (x, y, z) and pairs are interleaved.
What runs inside lays channels out for itself.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.operators.blocks import Block, Recomputed, TensorMap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """A run of channels under one kind of block.

    ``left`` has shape ``[B, H, N_query, M, ...]``; ``right`` has ``[B, H, N_key, M, ...]``, or
    ``[B, H, G, N_key, M, ...]`` when ``grouped``. A token axis may be shorter than the number of tokens:
    each entry then serves an equal run of neighbouring tokens (all tokens of one camera). None is the
    identity.
    """

    name: str
    """"disp", "rot", "trans", "native" or the encoding's own word."""
    width: int
    """Number of channels."""
    size: int = 1
    """Side of the blocks; the width is M x copies x size."""
    num_blocks: int = 1
    """M, the number of different blocks; each is repeated width / (M x size) times, neighbours first."""
    left: Block | None = None
    right: Block | None = None
    grouped: bool = False
    """Whether ``right`` depends on the query camera."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.num_blocks < 1:
            raise ValueError(
                f"band {self.name!r} needs channels and blocks; got width {self.width} and "
                f"{self.num_blocks} blocks. Leave an empty band out."
            )
        if self.width % (self.size * self.num_blocks):
            raise ValueError(
                f"band {self.name!r}: width {self.width} is not a multiple of {self.num_blocks} blocks x {self.size}."
            )

    @property
    def copies(self) -> int:
        """How often each block is repeated."""
        return self.width // (self.size * self.num_blocks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CameraOperator:
    """U_ab for all pairs of tokens, as bands of factored blocks.

    Tokens are ordered camera by camera: query token a belongs to query camera ``a // tokens_per_query``.
    Build one per clip and reuse it in every layer, for keys and values, and at every denoising step.
    """

    bands: tuple[Band, ...]
    batch: int
    num_query_cameras: int
    num_queries: int
    num_keys: int
    acts_on: frozenset[str] = frozenset("qkvo")
    """Which of q, k, v and o are transformed."""
    key_valid: Tensor | None = None
    """[B, N_key] boolean, False for keys that no query may attend to (tokens without a ray); None is all True."""

    def __post_init__(self) -> None:
        if self.num_queries % self.num_query_cameras:
            raise ValueError(
                f"num_queries {self.num_queries} is not a multiple of {self.num_query_cameras} query cameras."
            )
        if not self.acts_on <= frozenset("qkvo"):
            raise ValueError(f"acts_on must be a subset of q, k, v, o; got {sorted(self.acts_on)}.")
        if self.key_valid is not None and (
            self.key_valid.dtype != torch.bool or tuple(self.key_valid.shape) != (self.batch, self.num_keys)
        ):
            raise ValueError(
                f"key_valid must be boolean with shape {[self.batch, self.num_keys]}; got {self.key_valid.dtype} "
                f"{list(self.key_valid.shape)}."
            )
        for band in self.bands:
            self._check_band(band)

    def _check_band(self, band: Band) -> None:
        """A factor's token axis divides the tokens; a grouped one has an entry per query camera."""
        for side, block, tokens, kind, axis in (
            ("left", band.left, self.num_queries, "query", 2),
            ("right", band.right, self.num_keys, "key", 3 if band.grouped else 2),
        ):
            if block is None:
                continue
            if block.size != band.size:
                raise ValueError(
                    f"band {band.name!r}: {side} holds blocks of side {block.size}; the band says {band.size}."
                )
            if tokens % block.entries(axis):
                raise ValueError(
                    f"band {band.name!r}: {side} has {block.entries(axis)} entries for {tokens} {kind} tokens; "
                    "each entry serves an equal run of tokens."
                )
            if block.entries(1) not in (1, self.num_heads):
                raise ValueError(
                    f"band {band.name!r}: {side} tells {block.entries(1)} heads apart, another band {self.num_heads}."
                )
            # What is made when needed is looked at when it is made.
            if not isinstance(block, Recomputed) and block.entries(axis + 1) != band.num_blocks:
                raise ValueError(
                    f"band {band.name!r}: {side} holds {block.entries(axis + 1)} different blocks; the band says "
                    f"{band.num_blocks}."
                )
            if axis == 3 and block.entries(2) != self.num_query_cameras:
                raise ValueError(
                    f"band {band.name!r}: {side} serves {block.entries(2)} query cameras; the operator has "
                    f"{self.num_query_cameras}."
                )

    @property
    def head_dim(self) -> int:
        """Channels per head, the sum of the bands' widths."""
        return sum(band.width for band in self.bands)

    @property
    def num_heads(self) -> int:
        """How many heads the factors tell apart; 1 where all heads share them."""
        blocks = [block for band in self.bands for block in (band.left, band.right) if block is not None]
        return max([1, *(block.entries(1) for block in blocks)])

    @property
    def grouped(self) -> bool:
        """Whether any band depends on the query camera."""
        return any(band.grouped for band in self.bands)

    def to(self, device: torch.device | str) -> Self:
        """The operator on another device. Never casts: bfloat16 cannot hold metric phases."""
        moved = self.map_tensors(lambda tensor: tensor.to(device))
        return moved if self.key_valid is None else replace(moved, key_valid=self.key_valid.to(device))

    def map_tensors(self, function: TensorMap) -> Self:
        """The operator with every factor replaced by ``function(tensor)``; ``key_valid`` stays."""

        def mapped(block: Block | None) -> Block | None:
            return None if block is None else block.map_tensors(function)

        bands = tuple(replace(band, left=mapped(band.left), right=mapped(band.right)) for band in self.bands)
        return replace(self, bands=bands)

    def for_query_cameras(
        self, first: int, last: int, *, num_keys: int | None = None, store: bool = True
    ) -> Self:
        """The operator of the query cameras ``first`` to ``last`` - 1 alone: the same U_ab, fewer rows.

        ``num_keys`` keeps the first so many keys. Factors are views of this operator's own, except where one entry
        serves the tokens of several cameras. What is made when needed (`Recomputed`) is made now and stored; with
        ``store`` False it still is made when needed, unless ``num_keys`` cuts it.

        Raises:
            ValueError: if there are no such cameras or keys.
        """
        if not 0 <= first < last <= self.num_query_cameras:
            raise ValueError(
                f"query cameras {first} to {last} are no run of the operator's {self.num_query_cameras}; "
                "give 0 <= first < last <= num_query_cameras."
            )
        keys = self.num_keys if num_keys is None else num_keys
        if not 0 < keys <= self.num_keys:
            raise ValueError(f"num_keys must lie in 1 ... {self.num_keys}, the operator's keys; got {keys}.")
        per_camera = self.num_queries // self.num_query_cameras
        run = first * per_camera, last * per_camera

        def cameras(tensor: Tensor) -> Tensor:
            return tensor[:, :, first:last]

        def restricted(band: Band) -> Band:
            left, right = band.left, band.right
            if left is not None:
                left = _run_of_tokens(left, 2, self.num_queries, *run)
            if right is not None:
                if isinstance(right, Recomputed):
                    if not store and keys == self.num_keys:
                        return replace(band, left=left, right=right.of_cameras(first, last))
                    right = right.for_cameras(first, last)
                elif band.grouped:
                    right = right.map_tensors(cameras)
                right = _run_of_tokens(right, 3 if band.grouped else 2, self.num_keys, 0, keys)
            return replace(band, left=left, right=right)

        return replace(
            self,
            bands=tuple(restricted(band) for band in self.bands),
            num_query_cameras=last - first,
            num_queries=run[1] - run[0],
            num_keys=keys,
            key_valid=None if self.key_valid is None else self.key_valid[:, :keys],
        )

    @property
    def recomputed_bytes(self) -> int:
        """Memory of what is made anew for every query camera (`Recomputed`), per camera; 0 where all is stored."""
        return sum(band.right.bytes_per_camera for band in self.bands if isinstance(band.right, Recomputed))

    def stored(self) -> Self:
        """The operator with everything made that would be made when needed."""
        return self.for_query_cameras(0, self.num_query_cameras) if self.recomputed_bytes else self

    def tensors(self) -> list[Tensor]:
        """Every factor that the operator stores."""
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        for band in self.bands:
            for block in (band.left, band.right):
                if block is not None:
                    block.map_tensors(keep)
        return found

    def dense(self) -> Float[Tensor, "..."]:
        """Every U_ab as a matrix in the paper's channel order, for small sizes.

        ``[B, N_query, N_key, d, d]``, or ``[B, H, N_query, N_key, d, d]`` where heads differ.
        """
        pieces = [self.band_pairs(band) for band in self.bands]
        heads = max(piece.shape[1] for piece in pieces)
        shape = (self.batch, heads, self.num_queries, self.num_keys)
        out = self._block_diagonal(pieces, shape)
        return out.squeeze(1) if heads == 1 else out

    def pair(self, query_token: int, key_token: int) -> Float[Tensor, "..."]:
        """U_ab of one pair of tokens, ``[B, d, d]``, or ``[B, H, d, d]`` where heads differ."""
        pieces = []
        for band in self.bands:
            left = _token_matrices(band, band.left, self.num_queries, self.batch)[:, :, query_token]
            right = _token_matrices(band, band.right, self.num_keys, self.batch)
            if band.grouped:
                right = right[:, :, query_token // (self.num_queries // self.num_query_cameras)]
            pieces.append(left.mT @ right[:, :, key_token])
        heads = max(piece.shape[1] for piece in pieces)
        out = self._block_diagonal(pieces, (self.batch, heads))
        return out.squeeze(1) if heads == 1 else out

    def band_pairs(self, band: Band) -> Float[Tensor, "batch head query_token key_token block side side"]:
        """U_ab on one of the operator's bands: its different blocks, each of them repeated ``band.copies`` times.

        All that `dense` places on the diagonal, without the zeros around it.
        """
        left = _token_matrices(band, band.left, self.num_queries, self.batch)  # [B, H, Nq, M, s, s]
        right = _token_matrices(band, band.right, self.num_keys, self.batch)  # [B, H, (G,) Nk, M, s, s]
        if band.grouped:
            per_camera = self.num_queries // self.num_query_cameras
            right = right.repeat_interleave(per_camera, dim=2)  # [B, H, Nq, Nk, M, s, s]
        else:
            right = right[:, :, None]
        return left.mT[:, :, :, None] @ right

    def dense_left(self) -> Float[Tensor, "..."]:
        """``left_a^T`` of every query token, ``[B, H, N_query, d, d]``: U_ab against a key without a camera."""
        pieces = [_token_matrices(band, band.left, self.num_queries, self.batch) for band in self.bands]
        heads = max(piece.shape[1] for piece in pieces)
        return self._block_diagonal([piece.mT for piece in pieces], (self.batch, heads, self.num_queries))

    def _block_diagonal(self, pieces: list[Tensor], shape: tuple[int, ...]) -> Tensor:
        """Blocks ``[*shape, M, s, s]`` of every band, placed on the diagonal in the paper's order."""
        device = next((tensor.device for tensor in self.tensors()), torch.device("cpu"))
        dtype = pieces[0].dtype
        for piece in pieces:
            dtype = torch.promote_types(dtype, piece.dtype)
        out = torch.zeros(*shape, self.head_dim, self.head_dim, dtype=dtype, device=device)
        start = 0
        for band, piece in zip(self.bands, pieces, strict=True):
            # Block m, copy c sits at channels start + (m * copies + c) * size.
            for block in range(band.num_blocks):
                for copy in range(band.copies):
                    at = start + (block * band.copies + copy) * band.size
                    out[..., at : at + band.size, at : at + band.size] = piece[..., block, :, :]
            start += band.width
        return out


def _run_of_tokens(block: Block, axis: int, num_tokens: int, first: int, last: int) -> Block:
    """A block's factors for a run of the tokens, with as few entries as serve it."""
    span = num_tokens // block.entries(axis)
    # Tokens that an entry of the result serves: an old entry's, or fewer where the run begins or ends within one.
    step = math.gcd(span, first, last)
    if step == span:
        start, length = first // span, (last - first) // span
        return block.map_tensors(lambda tensor: tensor.narrow(axis, start, length))
    places = torch.arange(first, last, step) // span
    return block.map_tensors(lambda tensor: tensor.index_select(axis, places.to(tensor.device)))


def _token_matrices(band: Band, block: Block | None, num_tokens: int, batch: int) -> Tensor:
    if block is None:
        dtype, device = torch.float32, torch.device("cpu")
        for other in (band.left, band.right):
            if other is not None:
                matrices = other.matrix()
                dtype, device = matrices.dtype, matrices.device
        return torch.eye(band.size, dtype=dtype, device=device).expand(
            batch, 1, num_tokens, band.num_blocks, band.size, band.size
        )
    matrices = block.matrix()
    axis = -4  # the token axis of [..., N, M, s, s]
    entries = matrices.shape[axis]
    return matrices.repeat_interleave(num_tokens // entries, dim=axis)
