"""The softmax of attention in tiles, as compiled loops: two passes over the logits where torch's operations make five.

Dimension letters: h heads, T keys of one tile, P queries, D channels.
"""

# Numba infers the types of these functions at each call.
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from merope.attention.compiled import compiled

# exp(x) = 2^n exp(r), n the integer nearest to x / ln 2, and exp(r) by its Taylor series: with |r| below 0.35 the terms up
# to r^7 leave 6e-9 of it, those up to r^13 leave 5e-18; single and double precision resolve 6e-8 and 1e-16.
# ln 2 is in two parts, the first with so few digits that n times it is exact.
_F32, _F64 = np.float32, np.float64
_HIGH32, _LOW32 = _F32(355 / 512), _F32(-2.1219444005469057e-4)
_HIGH64, _LOW64 = _F64(2977044472 / 2**32), _F64(-4.2009150726810846e-11)
_PER_LN2 = 1.4426950408889634
# Added to a number of less than half its size, it leaves the nearest integer in the last digits.
_ROUND32, _ROUND64 = _F32(1.5 * 2**23), _F64(1.5 * 2**52)
# Below these the result is 0, where it would soon be too small for a normal number.
_LOWEST32, _LOWEST64 = _F32(-87), _F64(-708)


@intrinsic
def _power_of_two(context, shifted):
    """2^n from n + _ROUND32 or n + _ROUND64: n in the last digits, moved to where the exponent is."""
    digits, bits = {types.float32: (23, 32), types.float64: (52, 64)}[shifted]
    one = ((1 << (bits - digits - 2)) - 1) << digits

    def generate(context, builder, signature, arguments):
        whole = ir.IntType(bits)
        n = builder.bitcast(arguments[0], whole)
        power = builder.add(builder.shl(n, ir.Constant(whole, digits)), ir.Constant(whole, one))
        return builder.bitcast(power, arguments[0].type)

    return shifted(shifted), generate


def _exp(x):
    """exp(x) of a number below 88 (float32) or 709 (float64), in its own precision; NaN stays NaN."""
    raise NotImplementedError("only called from compiled loops")


@overload(_exp, jit_options={"fastmath": {"contract"}})
def _(x):
    def single(x):
        shifted = x * _F32(_PER_LN2) + _ROUND32
        n = shifted - _ROUND32
        r = x - n * _HIGH32 - n * _LOW32
        e = r * _F32(1 / 5040) + _F32(1 / 720)
        e = e * r + _F32(1 / 120)
        e = e * r + _F32(1 / 24)
        e = e * r + _F32(1 / 6)
        e = e * r + _F32(1 / 2)
        e = e * r * r + r + _F32(1)
        return _F32(0) if x < _LOWEST32 else e * _power_of_two(shifted)

    def double(x):
        shifted = x * _PER_LN2 + _ROUND64
        n = shifted - _ROUND64
        r = x - n * _HIGH64 - n * _LOW64
        e = r * (1 / 6227020800) + 1 / 479001600
        e = e * r + 1 / 39916800
        e = e * r + 1 / 3628800
        e = e * r + 1 / 362880
        e = e * r + 1 / 40320
        e = e * r + 1 / 5040
        e = e * r + 1 / 720
        e = e * r + 1 / 120
        e = e * r + 1 / 24
        e = e * r + 1 / 6
        e = e * r + 1 / 2
        e = e * r * r + r + 1
        return 0.0 if x < _LOWEST64 else e * _power_of_two(shifted)

    return {types.float32: single, types.float64: double}[x]


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def soften(logits, out, top, total, is_first):
    """Logits [h, T, P] of one more tile to weights, in place, with what stood for earlier tiles brought to the same scale.

    ``top`` and ``total`` [h, 1, P] are the largest logit so far and the sum of weights, ``out`` [h, D, P] the output so far;
    in the first tile all three hold nothing yet and ``out`` is left alone. A column without a finite logit has weights of
    zero. A NaN may hide others of its column in the maximum, and comes out of the exponential.
    """
    largest = np.empty(logits.shape[2], logits.dtype)
    least = logits.dtype.type(np.finfo(logits.dtype).min)
    for h in range(logits.shape[0]):
        before, sums = top[h, 0], total[h, 0]
        if is_first:
            largest[:] = least
        else:
            largest[:] = before
        whole = logits.shape[1] // 4 * 4
        for t in range(0, whole, 4):
            _largest_of_four(logits[h, t], logits[h, t + 1], logits[h, t + 2], logits[h, t + 3], largest)
        for t in range(whole, logits.shape[1]):
            # What is left of four: itself four times.
            _largest_of_four(logits[h, t], logits[h, t], logits[h, t], logits[h, t], largest)
        if is_first:
            sums[:] = 0
        else:
            for p in range(len(largest)):
                before[p] = _exp(before[p] - largest[p])
                sums[p] *= before[p]
            for d in range(out.shape[1]):
                row = out[h, d]
                for p in range(len(largest)):
                    row[p] *= before[p]
        for t in range(logits.shape[1]):
            _weigh(logits[h, t], largest, sums)
        before[:] = largest


@compiled(nogil=True, error_model="numpy")
def _largest_of_four(a, b, c, d, largest):
    for p in range(len(largest)):
        ab = a[p] if a[p] > b[p] else b[p]
        cd = c[p] if c[p] > d[p] else d[p]
        abcd = ab if ab > cd else cd
        largest[p] = abcd if abcd > largest[p] else largest[p]


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _weigh(row, largest, sums):
    for p in range(len(largest)):
        weight = _exp(row[p] - largest[p])
        row[p] = weight
        sums[p] += weight


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def differentiate(logits, d_weights, lse, delta, first):
    """Logits [h, P, T] to weights, and the weights' gradients to those of the logits, both in place.

    ``lse`` and ``delta`` [h, N] are the log-sum-exp of all queries and the sums of their weights times gradients; the first
    query in hand is number ``first``.
    """
    for h in range(logits.shape[0]):
        for p in range(logits.shape[1]):
            _differentiate_row(logits[h, p], d_weights[h, p], lse[h, first + p], delta[h, first + p])


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _differentiate_row(logits, d_weights, lse, delta):
    nothing = logits.dtype.type(0)
    for t in range(len(logits)):
        # No weight is above 1, but huge logits are multiplied out in another order than forward, and may be above their sum.
        x = logits[t] - lse
        weight = _exp(nothing if x > 0 else x)
        logits[t] = weight
        d_weights[t] = (d_weights[t] - delta) * weight
