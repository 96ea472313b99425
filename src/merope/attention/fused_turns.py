# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# ruff: noqa: ANN001, ANN201
"""What the fused kernels share: rows are read and written, and turned as one query camera sees them.

A thread that loads eight neighbouring 16-bit channels holds whole slots, so a turn moves nothing between
threads. Imported inside functions only, as `fused_kernels`.
"""

import triton.language as tl
from triton import jit as _jit


@_jit
def load(base, rows, keep, FIRST: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr):
    """A run of channels of some rows, zero where not kept."""
    places = rows[:, None] * ROW + (FIRST + tl.arange(0, WIDTH))[None, :]
    return tl.load(base + places, mask=keep[:, None], other=0.0)


@_jit
def store(base, rows, keep, tile, FIRST: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr):
    """A run of channels of some rows, in the dtype that is kept there."""
    places = rows[:, None] * ROW + (FIRST + tl.arange(0, WIDTH))[None, :]
    tl.store(base + places, tile.to(base.dtype.element_ty), mask=keep[:, None])


@_jit
def table_of(table, batch, head, camera, cameras, entries, by_batch, by_head, NUMBERS: tl.constexpr):
    """What one query camera needs; tables lie clip by clip, head by head, camera by camera."""
    return table + ((batch * by_batch + head * by_head) * cameras + camera).to(tl.int64) * (
        (entries + 1) * NUMBERS
    )


@_jit
def entry_of(start, keys, num_keys, entries):
    """Which entry serves a key; the one after the last is the identity, for keys without a camera."""
    run = num_keys // entries
    base = start // run
    # Exact for runs below two million tokens, and a fraction of the instructions of a division per key.
    past = ((keys - base * run).to(tl.float32) + 0.5) / run
    return tl.where(keys < num_keys, base + past.to(tl.int32), entries)


@_jit
def number(
    table, entry, NUMBER: tl.constexpr, NUMBERS: tl.constexpr, PAD: tl.constexpr,
    COPIES: tl.constexpr, SLOTS: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """One number of the block in every slot of each row, [rows, SLOTS]; OTHER in the padding of copies."""
    PAD_COPIES: tl.constexpr = SLOTS // PAD
    found = tl.load(table + entry[:, None] * (NUMBERS * PAD) + (NUMBER * PAD + tl.arange(0, PAD))[None, :])
    if PAD_COPIES > 1:
        copies = tl.broadcast_to(found[:, :, None], (entry.shape[0], PAD, PAD_COPIES))
        if COPIES < PAD_COPIES:
            copies = tl.where((tl.arange(0, PAD_COPIES) < COPIES)[None, None, :], copies, OTHER)
        found = tl.reshape(copies, (entry.shape[0], SLOTS))
    return found


@_jit
def triplet_factors(table, entry, LAYOUT: tl.constexpr):
    """Axes of reflections, sqrt(2) long, or entries of matrices, row after row."""
    NUMBERS: tl.constexpr = LAYOUT.numbers3
    PAD: tl.constexpr = LAYOUT.pad3
    COPIES: tl.constexpr = LAYOUT.copies3
    SLOTS: tl.constexpr = LAYOUT.width3 // 4
    DIAGONAL: tl.constexpr = 0.0 if NUMBERS == 3 else 1.0
    a = number(table, entry, 0, NUMBERS, PAD, COPIES, SLOTS, DIAGONAL)
    b = number(table, entry, 1, NUMBERS, PAD, COPIES, SLOTS, 0.0)
    c = number(table, entry, 2, NUMBERS, PAD, COPIES, SLOTS, 0.0)
    if NUMBERS == 3:
        return a, b, c
    else:
        d = number(table, entry, 3, NUMBERS, PAD, COPIES, SLOTS, 0.0)
        e = number(table, entry, 4, NUMBERS, PAD, COPIES, SLOTS, DIAGONAL)
        f = number(table, entry, 5, NUMBERS, PAD, COPIES, SLOTS, 0.0)
        g = number(table, entry, 6, NUMBERS, PAD, COPIES, SLOTS, 0.0)
        h = number(table, entry, 7, NUMBERS, PAD, COPIES, SLOTS, 0.0)
        i = number(table, entry, 8, NUMBERS, PAD, COPIES, SLOTS, DIAGONAL)
        return a, b, c, d, e, f, g, h, i


@_jit
def pair_factors(table, entry, LAYOUT: tl.constexpr):
    """Cosines and sines."""
    PAD: tl.constexpr = LAYOUT.pad2
    COPIES: tl.constexpr = LAYOUT.copies2
    SLOTS: tl.constexpr = LAYOUT.width2 // LAYOUT.planes2
    return number(table, entry, 0, 2, PAD, COPIES, SLOTS, 1.0), number(
        table, entry, 1, 2, PAD, COPIES, SLOTS, 0.0
    )


@_jit
def turn_triplets(tile, m, NUMBERS: tl.constexpr, BACK: tl.constexpr):
    """The first run turned in float32 by the factors m, by the transposed maps where BACK."""
    N: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    even, odd = tl.split(tl.reshape(tile, (N, WIDTH // 4, 2, 2)))
    first, third = tl.split(even)
    second, stays = tl.split(odd)
    x, y, z = first.to(tl.float32), second.to(tl.float32), third.to(tl.float32)
    if NUMBERS == 3:
        # I - 2 h h^T is its own transpose.
        along = m[0] * x + m[1] * y + m[2] * z
        tx, ty, tz = x - m[0] * along, y - m[1] * along, z - m[2] * along
    elif BACK:
        tx = m[0] * x + m[3] * y + m[6] * z
        ty = m[1] * x + m[4] * y + m[7] * z
        tz = m[2] * x + m[5] * y + m[8] * z
    else:
        tx = m[0] * x + m[1] * y + m[2] * z
        ty = m[3] * x + m[4] * y + m[5] * z
        tz = m[6] * x + m[7] * y + m[8] * z
    even = tl.join(tx.to(tile.dtype), tz.to(tile.dtype))
    return tl.reshape(tl.join(even, tl.join(ty.to(tile.dtype), stays)), (N, WIDTH))


@_jit
def turn_pairs(tile, m, PLANES: tl.constexpr, BACK: tl.constexpr):
    """The second run turned in float32 by cosine and sine, by the transposed maps where BACK."""
    N: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    if PLANES == 4:
        even, odd = tl.split(tl.reshape(tile, (N, WIDTH // 4, 2, 2)))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
    else:
        first, second = tl.split(tl.reshape(tile, (N, WIDTH // 2, 2)))
    x, y = first.to(tl.float32), second.to(tl.float32)
    if BACK:
        tx, ty = m[0] * x + m[1] * y, m[0] * y - m[1] * x
    else:
        tx, ty = m[0] * x - m[1] * y, m[0] * y + m[1] * x
    tx, ty = tx.to(tile.dtype), ty.to(tile.dtype)
    if PLANES == 4:
        turned = tl.join(tl.join(tx, third), tl.join(ty, fourth))
    else:
        turned = tl.join(tx, ty)
    return tl.reshape(turned, (N, WIDTH))


@_jit
def load3(base, rows, keep, m, TURN: tl.constexpr, LAYOUT: tl.constexpr):
    """The first run of some keys or values as the query camera sees them."""
    tile = load(base, rows, keep, 0, LAYOUT.width3, LAYOUT.width3 + LAYOUT.width2 + LAYOUT.width1)
    if TURN:
        tile = turn_triplets(tile, m, LAYOUT.numbers3, False)
    return tile


@_jit
def load2(base, rows, keep, m, TURN: tl.constexpr, LAYOUT: tl.constexpr):
    """The second run of some keys or values as the query camera sees them."""
    tile = load(base, rows, keep, LAYOUT.width3, LAYOUT.width2, LAYOUT.width3 + LAYOUT.width2 + LAYOUT.width1)
    if TURN:
        tile = turn_pairs(tile, m, LAYOUT.planes2, False)
    return tile
