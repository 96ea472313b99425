"""Rows of the fused kernel: where channels stand in them, and what a token needs once, in plain torch.

A row has up to three runs of channels: slots with a triplet and one channel that stays, slots with a pair and, it may
be, two that stay, and channels that stay. Channels that no query camera turns fill every place that is
left; where there are too few of them the rest is zeros.

Dimension letters: B batch, H heads, G query cameras, N tokens, E entries of a factor, M blocks, C copies, D channels.
"""

import functools
import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from merope.operators import Band, Block, CameraOperator, MinRotate3, Recomputed


class Layout(NamedTuple):
    """The runs of a row; a kernel is compiled for each. Names end in 3 for triplets, 2 for pairs, 1 for what stays."""

    width3: int
    """Channels; 0 where no band turns triplets."""
    numbers3: int
    """3 for the axis of a reflection, 9 for a matrix."""
    blocks3: int
    pad3: int
    """Blocks padded to a power of two."""
    copies3: int
    width2: int
    planes2: int
    """Channels in a slot with a pair, 2 or 4."""
    blocks2: int
    pad2: int
    copies2: int
    width1: int
    turn_key: int
    turn_value: int

    @property
    def row(self) -> int:
        """Channels of a row."""
        return self.width3 + self.width2 + self.width1

    @property
    def runs(self) -> tuple["Slots", "Slots"]:
        """The slots with triplets and those with pairs."""
        return (
            Slots(3, self.width3, 4, self.blocks3, self.pad3, self.copies3),
            Slots(2, self.width2, self.planes2, self.blocks2, self.pad2, self.copies2),
        )


class Slots(NamedTuple):
    """A run of slots, block first: slot = block x copies + copy, both padded to powers of two."""

    size: int
    width: int
    planes: int
    blocks: int
    pad: int
    copies: int

    @property
    def pad_copies(self) -> int:
        return self.width // (self.planes * self.pad)

    @property
    def free(self) -> tuple[int, int, int]:
        """Places for channels that stay: beside the turned ones, in padding copies, in padding blocks."""
        if not self.width:
            return 0, 0, 0
        return (
            self.blocks * self.copies * (self.planes - self.size),
            self.blocks * (self.pad_copies - self.copies) * self.planes,
            (self.pad - self.blocks) * self.pad_copies * self.planes,
        )

    def fill(self, turned: Tensor, staying: Sequence[Tensor]) -> Tensor:
        """Turned channels [..., M, C, size] and what stays in the three free places, as [..., width]."""
        beside, copies, blocks = staying
        slots = torch.cat([turned, beside.unflatten(-1, (self.blocks, self.copies, -1))], dim=-1)
        if self.pad_copies > self.copies:
            slots = torch.cat([slots, copies.unflatten(-1, (self.blocks, -1, self.planes))], dim=-2)
        if self.pad > self.blocks:
            slots = torch.cat([slots, blocks.unflatten(-1, (-1, self.pad_copies, self.planes))], dim=-3)
        return slots.flatten(-3)

    def empty(self, run: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The inverse of `fill`."""
        slots = run.unflatten(-1, (self.pad, self.pad_copies, self.planes))
        slots, blocks = slots.split([self.blocks, self.pad - self.blocks], dim=-3)
        slots, copies = slots.split([self.copies, self.pad_copies - self.copies], dim=-2)
        turned, beside = slots.split([self.size, self.planes - self.size], dim=-1)
        return turned, (beside.flatten(-3), copies.flatten(-3), blocks.flatten(-3))


def plan_layout(operator: CameraOperator) -> Layout:
    """The shortest row that holds all channels, then the fewest runs.

    MeRoPE's 64, 128 and 192 channels make rows without padding, of 32 + 32, 64 + 64 and 128 + 64.
    """
    triplets, pairs = turned_bands(operator, 3), turned_bands(operator, 2)
    blocks3, copies3 = _blocks_and_copies(triplets)
    blocks2, copies2 = _blocks_and_copies(pairs)
    width3, planes2, width2, width1 = _shortest_row(operator.head_dim, blocks3, copies3, blocks2, copies2)
    return Layout(
        width3,
        3 if _reflections(triplets) else 9,
        blocks3,
        _power_of_two(blocks3),
        copies3,
        width2,
        planes2,
        blocks2,
        _power_of_two(blocks2),
        copies2,
        width1,
        int("k" in operator.acts_on),
        int("v" in operator.acts_on),
    )


@torch.compiler.assume_constant_result
def _shortest_row(head_dim: int, blocks3: int, copies3: int, blocks2: int, copies2: int) -> tuple[int, ...]:
    """Width of the triplets' run, channels in a slot with a pair, widths of the pairs' run and of what stays."""
    # Not traced under torch.compile, where a search of two hundred rows takes longer than the rest of the call.
    return _search_row(head_dim, blocks3, copies3, blocks2, copies2)


@functools.cache
def _search_row(head_dim: int, blocks3: int, copies3: int, blocks2: int, copies2: int) -> tuple[int, ...]:
    found = []
    for width3, planes2, width1 in product(_widths(blocks3, copies3, 4), (2, 4), (0, 16, 32, 64, 128, 256)):
        for width2 in _widths(blocks2, copies2, planes2):
            row = width3 + width2 + width1
            if row >= head_dim:
                runs = (width3 > 0) + (width2 > 0) + (width1 > 0)
                found.append((row, runs, width3 + width2, planes2, width3, width2, width1))
    _, _, _, planes2, width3, width2, width1 = min(found)
    return width3, planes2, width2, width1


def turned_bands(operator: CameraOperator, size: int | None = None) -> list[Band]:
    """Bands that the kernel turns, all or those of one size."""
    return [band for band in operator.bands if _by_camera(band, operator) and size in (None, band.size)]


def kind_of(block: Block | None) -> type:
    """The class of a block, or of what it makes when it is needed."""
    return block.kind if isinstance(block, Recomputed) else type(block)


def is_trained(band: Band) -> bool:
    """Whether gradients flow to the right maps; those that are made when needed are made for one camera and asked."""
    block = band.right.for_cameras(0, 1) if isinstance(band.right, Recomputed) else band.right
    return block is not None and any(factor.requires_grad for factor in block.numbers())


def triplet_table(operator: CameraOperator) -> Tensor | None:
    """The numbers of triplets, float32 [B or 1, H or 1, G, E + 1, 3 or 9, padded M]; entry E is the identity.

    Where all bands are minimum rotations, sqrt(2) times the axes of their reflections, else matrices row by row.
    """
    bands = turned_bands(operator, 3)
    reflections = _reflections(bands)
    numbers = []
    for band in bands:
        assert band.right is not None
        if reflections:
            numbers.append(math.sqrt(2) * torch.stack(band.right.numbers(), dim=-2))
        else:
            numbers.append(band.right.matrix().flatten(-2).mT)
    identity = (0.0, 0.0, 0.0) if reflections else (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    return _table(numbers, bands, identity)


def pair_table(operator: CameraOperator) -> Tensor | None:
    """Cosines and sines, float32 [B or 1, H or 1, G, E + 1, 2, padded M]; entry E is the identity."""
    bands = turned_bands(operator, 2)
    numbers = [torch.stack(band.right.numbers(), dim=-2) for band in bands if band.right is not None]
    return _table(numbers, bands, (1.0, 0.0))


def to_rows(x: Tensor, operator: CameraOperator, part: str, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Channels in the paper's order to rows, [B, H, N, D] to [B, H, N, row].

    Part "q" goes through the left maps; "k" and "v" through the right maps of bands that no query camera changes;
    "" (tokens without a camera) through none.
    """
    active = part != "" and part in operator.acts_on
    turned: dict[int, list[Tensor]] = {3: [], 2: []}
    stays: list[Tensor] = []
    for band, channels in zip(
        operator.bands, x.split([b.width for b in operator.bands], dim=-1), strict=True
    ):
        planes = list(channels.unflatten(-1, (band.num_blocks, band.copies, band.size)).unbind(-1))
        by_camera = _by_camera(band, operator)
        block = band.left if part == "q" else None if by_camera else band.right
        if active and block is not None:
            planes = _once(planes, block)
        if active and part != "q" and by_camera and band.size == 3 and layout.numbers3 == 3:
            # A minimum rotation is z -> -z and then the reflection I - 2 h h^T, which is the kernel's part.
            planes[2] = -planes[2]
        if by_camera:
            slots = torch.stack(planes, dim=-1)  # [B, H, N, M, C, size]
            copies = (layout.copies3, layout.copies2)[band.size == 2]
            turned[band.size].append(slots.flatten(-3, -2).unflatten(-2, (-1, copies)).to(dtype))
        else:
            stays += [plane.flatten(-2).to(dtype) for plane in planes]
    triplets, pairs = layout.runs
    sizes = [*triplets.free, *pairs.free, layout.width1]
    pool = torch.cat(stays, dim=-1) if stays else x.new_zeros((*x.shape[:-1], 0), dtype=dtype)
    free = pad(pool, (0, sum(sizes) - pool.shape[-1])).split(sizes, dim=-1)
    runs = []
    for slots_of_run, staying in ((triplets, free[:3]), (pairs, free[3:6])):
        if slots_of_run.width:
            runs.append(slots_of_run.fill(torch.cat(turned[slots_of_run.size], dim=-3), staying))
    if layout.width1:
        runs.append(free[6])
    return torch.cat(runs, dim=-1)


def from_rows(rows: Tensor, operator: CameraOperator, layout: Layout) -> Tensor:
    """The kernel's output back through the transposed left maps to the paper's order, [B, H, N, D]."""
    run3, run2, run1 = rows.split([layout.width3, layout.width2, layout.width1], dim=-1)
    turned: dict[int, list[Tensor]] = {}
    stays: list[Tensor] = []
    for slots, run in zip(layout.runs, (run3, run2), strict=True):
        bands = turned_bands(operator, slots.size)
        if bands:
            inside, staying = slots.empty(run)
            counts = [band.num_blocks * band.copies // slots.copies for band in bands]
            turned[slots.size] = list(inside.split(counts, dim=-3))
            stays += staying
    pool = torch.cat([*stays, run1], dim=-1)
    widths = [band.width for band in operator.bands if not _by_camera(band, operator)]
    *channels, _ = pool.split([*widths, pool.shape[-1] - sum(widths)], dim=-1)
    pieces = []
    for band in operator.bands:
        shape = (band.num_blocks, band.copies)
        if _by_camera(band, operator):
            planes = [plane.flatten(-2).unflatten(-1, shape) for plane in turned[band.size].pop(0).unbind(-1)]
        else:
            planes = list(channels.pop(0).unflatten(-1, (band.size, *shape)).unbind(-3))
        if "o" in operator.acts_on and band.left is not None:
            planes = _once(planes, band.left, transpose=True)
        pieces.append(torch.stack(planes, dim=-1).flatten(-3))
    dtype = rows.dtype
    for piece in pieces:
        dtype = torch.promote_types(dtype, piece.dtype)
    return torch.cat([piece.to(dtype) for piece in pieces], dim=-1)


def _reflections(bands: Sequence[Band]) -> bool:
    return all(kind_of(band.right) is MinRotate3 for band in bands)


def _by_camera(band: Band, operator: CameraOperator) -> bool:
    return band.grouped and band.right is not None and bool(operator.acts_on & {"k", "v"})


def _widths(blocks: int, copies: int, planes: int) -> list[int]:
    """Widths that a run may have: powers of two, at least the 16 channels of a step of the tensor cores."""
    if not blocks:
        return [0]
    least = planes * _power_of_two(blocks) * _power_of_two(copies)
    while least < 16:
        least *= 2
    return [least, 2 * least, 4 * least, 8 * least]


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _blocks_and_copies(bands: Sequence[Band]) -> tuple[int, int]:
    """Of several bands side by side; where copies differ, every copy counts as a block."""
    if len({band.copies for band in bands}) == 1:
        return sum(band.num_blocks for band in bands), bands[0].copies
    return sum(band.num_blocks * band.copies for band in bands), 1


def _table(numbers: Sequence[Tensor], bands: Sequence[Band], identity: Sequence[float]) -> Tensor | None:
    """Numbers [B, H, G, E, count, M] of several bands side by side, with an entry and with blocks of the identity."""
    if not numbers:
        return None
    blocks, copies = _blocks_and_copies(bands)
    batch, heads, cameras = (max(table.shape[axis] for table in numbers) for axis in range(3))
    entries = numbers[0].shape[3]
    for table in numbers[1:]:
        # Sizes that torch.compile does not know yet have no common multiple.
        if table.shape[3] != entries:
            entries = math.lcm(entries, table.shape[3])
    pieces = [
        table.repeat_interleave(entries // table.shape[3], dim=3).repeat_interleave(
            band.copies // copies, dim=5
        )
        if len(bands) > 1
        else table
        for table, band in zip(numbers, bands, strict=True)
    ]
    shape = (batch, heads, cameras, entries + 1, len(identity), _power_of_two(blocks))
    found = torch.empty(shape, dtype=torch.float32, device=numbers[0].device)
    for number, value in enumerate(identity):
        found[..., number, :] = value
    found[..., :entries, :, :blocks] = torch.cat(
        [piece.expand(batch, heads, cameras, -1, -1, -1) for piece in pieces], dim=-1
    )
    return found


def _once(planes: Sequence[Tensor], block: Block, *, transpose: bool = False) -> list[Tensor]:
    """A per-token block on planes [B, H, N, M, C], in its own precision; a factor may serve a run of tokens."""
    numbers = [number[:, :, :, None, :, None] for number in block.numbers()]
    spread = [plane.to(numbers[0].dtype).unflatten(2, (block.entries(2), -1)) for plane in planes]
    return [plane.flatten(2, 3) for plane in block.combine(numbers, spread, transpose=transpose)]
