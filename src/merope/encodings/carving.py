"""A head of the backbone with some channels freed: the rotary runs that stay, and blocks cut to fill the gaps."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.native import backbone_widths
from merope.encodings.rotary import inverse_power_frequencies, rotary_band
from merope.operators import Band, Block, MinRotate3, Recomputed, Rotate2, Rotate3


def native_runs(
    queries: ViewRays, keys: ViewRays, *, head_dim: int, kept: Sequence[int], base: float
) -> list[Band | None]:
    """The backbone's rotary pairs over time, row and column, of each axis the fastest ``kept`` channels."""
    runs: list[Band | None] = []
    for axis, (width, stay) in enumerate(zip(backbone_widths(head_dim), kept, strict=True)):
        frequencies = inverse_power_frequencies(width, base)[: stay // 2]
        of_query, of_key = (
            (rays.time[:, :, None], rays.row, rays.col)[axis].expand(rays.valid.shape).flatten(1)
            for rays in (queries, keys)
        )
        phases = (of_query[..., None] * frequencies, of_key[..., None] * frequencies)
        runs.append(rotary_band("native", *phases) if stay else None)
    return runs


def triplets_per_run(runs: Sequence[int], triplets: int) -> tuple[int, ...] | None:
    """How many triplets go to each run of channels so that pairs fill the rest; None where there is no way."""
    if not runs:
        return None if triplets else ()
    for count in range(min(runs[0] // 3, triplets), -1, -1):
        if (runs[0] - 3 * count) % 2 == 0:
            others = triplets_per_run(runs[1:], triplets - count)
            if others is not None:
                return count, *others
    return None


def run_of_blocks(bands: Sequence[Band], first: int, count: int) -> list[Band]:
    """Blocks ``first`` to ``first + count`` of these bands one after another, repetitions counted."""
    pieces = []
    start = 0
    for band in bands:
        here = band.num_blocks * band.copies
        low, high = max(first - start, 0), min(first + count - start, here)
        if low < high:
            pieces.append(_part(band, low, high))
        start += here
    return pieces


def _part(band: Band, low: int, high: int) -> Band:
    of_block = [place // band.copies for place in range(low, high)]
    different = sorted(set(of_block))
    # Blocks that are repeated equally often keep one factor for all repetitions.
    equally = len({of_block.count(block) for block in different}) == 1
    chosen = torch.tensor(different if equally else of_block)
    return replace(
        band,
        width=band.size * len(of_block),
        num_blocks=len(chosen),
        left=_chosen(band.left, chosen),
        right=_chosen(band.right, chosen),
    )


def _chosen(block: Block | None, places: Tensor) -> Block | None:
    if block is None:
        return None
    kind = block.kind if isinstance(block, Recomputed) else type(block)
    axis = {Rotate2: -1, MinRotate3: -2, Rotate3: -3}[kind]
    return block.map_tensors(lambda tensor: tensor.index_select(axis, places))
