"""An operator's maps as compiled loops: torch's operations would take many passes for them.

The maps' formulas are those of the blocks in `merope.operators`, to which a test holds these loops.
"""

# Numba infers the types of these functions at each call.
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba import njit

from merope.attention.compiled import compiled
from merope.operators import Matrix4, MinRotate3, Rotate2, Rotate3

# Tokens at a time: a block's coordinates and numbers then fit a core's first cache.
_STRIP = 1024

_PLANE, _REFLECTION, _MATRIX = 0, 1, 2
KINDS: dict[type, int] = {Rotate2: _PLANE, MinRotate3: _REFLECTION, Rotate3: _MATRIX, Matrix4: _MATRIX}


@compiled(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def turn(table, numbers, taken, rows, first_side, last_side, head, camera, first, count, back):
    """The maps of some bands under one query camera, between the channels taken from tokens and those of a head.

    ``taken`` [S, h, d, T] is read and ``rows`` [S, h, D, T'] written; with ``back`` the transposed maps of ``rows`` are
    added to ``taken``. Of both, the sides (keys, values) from ``first_side`` to ``last_side`` and the first ``count`` tokens
    are meant, of which the first is token ``first`` of the factors, and the first head is ``head``.

    A line of ``table`` describes a band: the kind and size of its blocks; where its channels begin in ``taken`` and in
    ``rows``; how many numbers describe a block, for how many heads (1 where all share them), query cameras, blocks and
    entries; how many tokens an entry serves; how often a block is repeated; and where in ``numbers`` its own begin,
    ordered [number, head, camera, block, entry].
    """
    spread = np.empty((16, _STRIP), rows.dtype)
    spare = np.empty(_STRIP, rows.dtype)
    for start in range(0, count, _STRIP):
        stop = min(count, start + _STRIP)
        length = stop - start
        for band in range(table.shape[0]):
            kind, size, at_taken, at_rows = table[band, 0], table[band, 1], table[band, 2], table[band, 3]
            num_numbers, heads, cameras, blocks = (
                table[band, 4],
                table[band, 5],
                table[band, 6],
                table[band, 7],
            )
            entries, run, copies, offset = table[band, 8], table[band, 9], table[band, 10], table[band, 11]
            for m in range(blocks):
                for h in range(rows.shape[1]):
                    own = head + h if heads > 1 else 0
                    # Where the block's first number begins, and from one number to the next.
                    begin = offset + ((own * cameras + camera) * blocks + m) * entries
                    step = heads * cameras * blocks * entries
                    if (kind == _MATRIX or (run > 1 and kind == _REFLECTION)) and (h == 0 or heads > 1):
                        for i in range(num_numbers):
                            one = begin + i * step
                            _spread(spread[i], numbers[one : one + entries], first + start, length, run)
                    for s in range(first_side, last_side):
                        for k in range(copies):
                            # One-dimensional slices of a contiguous array: the compiler then knows their stride.
                            i = at_taken + size * (m * copies + k)
                            j = at_rows + size * (m * copies + k)
                            if kind == _PLANE:
                                _planes(
                                    taken[s, h, i, start:stop],
                                    taken[s, h, i + 1, start:stop],
                                    rows[s, h, j, start:stop],
                                    rows[s, h, j + 1, start:stop],
                                    numbers[begin : begin + entries],
                                    numbers[begin + step : begin + step + entries],
                                    first + start,
                                    run,
                                    back,
                                )
                            elif kind == _REFLECTION:
                                x, y, z = (
                                    begin + first + start,
                                    begin + step + first + start,
                                    begin + 2 * step + first + start,
                                )
                                _reflection(
                                    taken[s, h, i, start:stop],
                                    taken[s, h, i + 1, start:stop],
                                    taken[s, h, i + 2, start:stop],
                                    rows[s, h, j, start:stop],
                                    rows[s, h, j + 1, start:stop],
                                    rows[s, h, j + 2, start:stop],
                                    numbers[x : x + length] if run == 1 else spread[0],
                                    numbers[y : y + length] if run == 1 else spread[1],
                                    numbers[z : z + length] if run == 1 else spread[2],
                                    spare,
                                    back,
                                )
                            else:
                                for row in range(size):
                                    for column in range(size):
                                        _entry(
                                            taken[s, h, i + column, start:stop],
                                            rows[s, h, j + row, start:stop],
                                            spread[row * size + column],
                                            column == 0,
                                            back,
                                        )


@njit(nogil=True, error_model="numpy")
def _spread(to, entries, first, length, run):
    """Each entry to the tokens that it serves."""
    if run == 1:
        for n in range(length):
            to[n] = entries[first + n]
    else:
        entry, left = first // run, run - first % run
        n = 0
        while n < length:
            stop = min(n + left, length)
            to[n:stop] = entries[entry]
            n, entry, left = stop, entry + 1, run


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _planes(t0, t1, r0, r1, cos, sin, first, run, back):
    """Turns of a plane; the first token in hand is number ``first`` of those that the entries serve."""
    length = len(t0)
    if run == 1:
        _plane(t0, t1, r0, r1, cos[first : first + length], sin[first : first + length], back)
        return
    entry, left = first // run, run - first % run
    n = 0
    while n < length:
        stop = min(n + left, length)
        _one_angle(t0[n:stop], t1[n:stop], r0[n:stop], r1[n:stop], cos[entry], sin[entry], back)
        n, entry, left = stop, entry + 1, run


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _one_angle(t0, t1, r0, r1, cos, sin, back):
    if back:
        for n in range(len(t0)):
            x, y = r0[n], r1[n]
            t0[n] += cos * x + sin * y
            t1[n] += cos * y - sin * x
    else:
        for n in range(len(t0)):
            x, y = t0[n], t1[n]
            r0[n] = cos * x - sin * y
            r1[n] = cos * y + sin * x


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _plane(t0, t1, r0, r1, cos, sin, back):
    # Two loops: over six arrays at once the compiler gives up the proof that they do not overlap.
    length = len(t0)
    if back:
        for n in range(length):
            t0[n] += cos[n] * r0[n] + sin[n] * r1[n]
        for n in range(length):
            t1[n] += cos[n] * r1[n] - sin[n] * r0[n]
    else:
        for n in range(length):
            r0[n] = cos[n] * t0[n] - sin[n] * t1[n]
        for n in range(length):
            r1[n] = cos[n] * t1[n] + sin[n] * t0[n]


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _reflection(tx, ty, tz, rx, ry, rz, hx, hy, hz, along, back):
    length = len(tx)
    if back:
        for n in range(length):
            along[n] = 2 * (hx[n] * rx[n] + hy[n] * ry[n] + hz[n] * rz[n])
        for n in range(length):
            tx[n] += rx[n] - hx[n] * along[n]
        for n in range(length):
            ty[n] += ry[n] - hy[n] * along[n]
        for n in range(length):
            tz[n] += hz[n] * along[n] - rz[n]
    else:
        for n in range(length):
            along[n] = 2 * (hx[n] * tx[n] + hy[n] * ty[n] - hz[n] * tz[n])
        for n in range(length):
            rx[n] = tx[n] - hx[n] * along[n]
        for n in range(length):
            ry[n] = ty[n] - hy[n] * along[n]
        for n in range(length):
            rz[n] = -tz[n] - hz[n] * along[n]


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _entry(t, r, entry, is_first, back):
    length = len(t)
    if back:
        for n in range(length):
            t[n] += entry[n] * r[n]
    elif is_first:
        for n in range(length):
            r[n] = entry[n] * t[n]
    else:
        for n in range(length):
            r[n] += entry[n] * t[n]
