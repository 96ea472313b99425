# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# ruff: noqa: ANN001, ANN201
"""Triton kernels of `fused`: streaming softmax over keys that are turned in registers for each query camera.

Triton compiles a kernel from its source and the globals of its module. So this module imports triton at its
top, and is itself imported inside functions only.

Rows are those of `fused_rows.Layout`; suffixes 3, 2 and 1 name their runs: slots with triplets, slots with pairs, what
stays. BM query rows and BN key rows make a tile. Logits are kept in base 2.
"""

import triton.language as tl
from triton import jit as _jit

from merope.attention.fused_turns import (
    entry_of,
    load,
    load2,
    load3,
    pair_factors,
    store,
    table_of,
    triplet_factors,
    turn_pairs,
    turn_triplets,
)

COUNTS = (
    *("heads", "cameras", "per_camera", "num_keys", "num_extra", "history"),
    *("entries3", "batch3", "head3", "entries2", "batch2", "head2"),
)
"""Run-time numbers, never compiled in: Triton would make a kernel of its own for 1 and for multiples of 16."""


@_jit
def _dot(a, b, total, UPCAST: tl.constexpr):
    # Triton's interpreter multiplies the bits of bfloat16 as if they were integers.
    if UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


@_jit
def _query_tile(cameras, per_camera, CAUSAL: tl.constexpr, BM: tl.constexpr):
    """Which clip and head this program serves, the query camera, and rows with those that are there."""
    tiles = tl.cdiv(per_camera, BM)
    pair = tl.program_id(0) // (cameras * tiles)
    tile = tl.program_id(0) % (cameras * tiles)
    if CAUSAL:
        # The cameras that see most begin first.
        tile = cameras * tiles - 1 - tile
    camera = tile // tiles
    within = tile % tiles * BM + tl.arange(0, BM)
    return pair, camera, camera * per_camera + within, within < per_camera


@_jit
def _key_tile(tile, limit, num_keys, num_extra, BN: tl.constexpr):
    """First row, rows and those that are there of a tile of keys: camera keys below the limit, then extra keys."""
    camera_tiles = tl.cdiv(limit, BN)
    extra = tile >= camera_tiles
    start = tl.where(extra, num_keys + (tile - camera_tiles) * BN, tile * BN)
    rows = start + tl.arange(0, BN)
    return start, rows, rows < tl.where(extra, num_keys + num_extra, limit)


@_jit
def _limit(camera, history, per_camera, num_keys, CAUSAL: tl.constexpr):
    """How many camera keys a query camera may see."""
    if CAUSAL:
        return tl.minimum(num_keys, history + (camera + 1) * per_camera)
    else:
        return num_keys


@_jit(do_not_specialize=COUNTS)
def forward(
    query, key, value, out, normalizers, key_mask, triplets, pairs, scale,
    heads, cameras, per_camera, num_keys, num_extra, history,
    entries3, batch3, head3, entries2, batch2, head2,
    LAYOUT: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, UPCAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Output of one tile of queries of one camera; of each its largest logit, and the inverse of its sum of exponentials.

    Two numbers, where their log-sum-exp is one: its rounding would be an error of every weight in the backward pass.
    """
    W3: tl.constexpr = LAYOUT.width3
    W2: tl.constexpr = LAYOUT.width2
    W1: tl.constexpr = LAYOUT.width1
    ROW: tl.constexpr = W3 + W2 + W1
    pair, camera, rows, there = _query_tile(cameras, per_camera, CAUSAL, BM)
    batch, head = pair // heads, pair % heads
    query_base = pair.to(tl.int64) * cameras * per_camera
    key_base = pair.to(tl.int64) * (num_keys + num_extra)
    query += query_base * ROW
    out += query_base * ROW
    key += key_base * ROW
    value += key_base * ROW
    if MASKED:
        key_mask += batch.to(tl.int64) * (num_keys + num_extra)
    if W3 > 0:
        triplets = table_of(
            triplets, batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.pad3
        )
        q3 = load(query, rows, there, 0, W3, ROW)
        y3 = tl.zeros((BM, W3), tl.float32)
    if W2 > 0:
        pairs = table_of(pairs, batch, head, camera, cameras, entries2, batch2, head2, 2 * LAYOUT.pad2)
        q2 = load(query, rows, there, W3, W2, ROW)
        y2 = tl.zeros((BM, W2), tl.float32)
    if W1 > 0:
        q1 = load(query, rows, there, W3 + W2, W1, ROW)
        y1 = tl.zeros((BM, W1), tl.float32)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
    for i in range(tl.cdiv(limit, BN) + tl.cdiv(num_extra, BN)):
        start, keys, seen = _key_tile(i, limit, num_keys, num_extra, BN)
        s = tl.zeros((BM, BN), tl.float32)
        if W3 > 0:
            m3 = triplet_factors(triplets, entry_of(start, keys, num_keys, entries3), LAYOUT)
            s = _dot(q3, tl.trans(load3(key, keys, seen, m3, LAYOUT.turn_key, LAYOUT)), s, UPCAST)
        if W2 > 0:
            m2 = pair_factors(pairs, entry_of(start, keys, num_keys, entries2), LAYOUT)
            s = _dot(q2, tl.trans(load2(key, keys, seen, m2, LAYOUT.turn_key, LAYOUT)), s, UPCAST)
        if W1 > 0:
            s = _dot(q1, tl.trans(load(key, keys, seen, W3 + W2, W1, ROW)), s, UPCAST)
        if MASKED:
            seen_and_kept = seen & (tl.load(key_mask + keys, mask=seen, other=0) != 0)
            s = tl.where(seen_and_kept[None, :], s, float("-inf"))
        else:
            s = tl.where(seen[None, :], s, float("-inf"))
        larger = tl.maximum(largest, tl.max(s, 1) * scale)
        # While all keys so far are masked, -inf - -inf would be NaN.
        finite = tl.where(larger == float("-inf"), 0.0, larger)
        p = tl.exp2(s * scale - finite[:, None])
        fade = tl.exp2(largest - finite)
        total = total * fade + tl.sum(p, 1)
        largest = larger
        p = p.to(query.dtype.element_ty)
        if W3 > 0:
            y3 = _dot(p, load3(value, keys, seen, m3, LAYOUT.turn_value, LAYOUT), y3 * fade[:, None], UPCAST)
        if W2 > 0:
            y2 = _dot(p, load2(value, keys, seen, m2, LAYOUT.turn_value, LAYOUT), y2 * fade[:, None], UPCAST)
        if W1 > 0:
            y1 = _dot(p, load(value, keys, seen, W3 + W2, W1, ROW), y1 * fade[:, None], UPCAST)
    # A row without any key: output 0, and every weight of the backward pass 0.
    empty = total == 0.0
    share = tl.where(empty, 0.0, 1.0 / tl.where(empty, 1.0, total))
    if W3 > 0:
        store(out, rows, there, y3 * share[:, None], 0, W3, ROW)
    if W2 > 0:
        store(out, rows, there, y2 * share[:, None], W3, W2, ROW)
    if W1 > 0:
        store(out, rows, there, y1 * share[:, None], W3 + W2, W1, ROW)
    tl.store(normalizers + 2 * (query_base + rows), tl.where(empty, 0.0, largest), mask=there)
    tl.store(normalizers + 2 * (query_base + rows) + 1, share, mask=there)


@_jit
def _products(g, out, rows, keep, FIRST: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr):
    """Sums over one run of channels of gradient times output."""
    return tl.sum(g.to(tl.float32) * load(out, rows, keep, FIRST, WIDTH, ROW).to(tl.float32), 1)


@_jit(do_not_specialize=COUNTS)
def backward_query(
    query, key, value, out, normalizers, grad_out, grad_query, delta, key_mask, triplets, pairs, scale,
    heads, cameras, per_camera, num_keys, num_extra, history,
    entries3, batch3, head3, entries2, batch2, head2,
    LAYOUT: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, UPCAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gradient of one tile of queries; delta = sum(grad_out * out) of its rows is left for `backward_key`."""
    W3: tl.constexpr = LAYOUT.width3
    W2: tl.constexpr = LAYOUT.width2
    W1: tl.constexpr = LAYOUT.width1
    ROW: tl.constexpr = W3 + W2 + W1
    pair, camera, rows, there = _query_tile(cameras, per_camera, CAUSAL, BM)
    batch, head = pair // heads, pair % heads
    query_base = pair.to(tl.int64) * cameras * per_camera
    key_base = pair.to(tl.int64) * (num_keys + num_extra)
    query += query_base * ROW
    out += query_base * ROW
    grad_out += query_base * ROW
    grad_query += query_base * ROW
    key += key_base * ROW
    value += key_base * ROW
    if MASKED:
        key_mask += batch.to(tl.int64) * (num_keys + num_extra)
    d = tl.zeros((BM,), tl.float32)
    if W3 > 0:
        triplets = table_of(
            triplets, batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.pad3
        )
        q3 = load(query, rows, there, 0, W3, ROW)
        g3 = load(grad_out, rows, there, 0, W3, ROW)
        d += _products(g3, out, rows, there, 0, W3, ROW)
        dq3 = tl.zeros((BM, W3), tl.float32)
    if W2 > 0:
        pairs = table_of(pairs, batch, head, camera, cameras, entries2, batch2, head2, 2 * LAYOUT.pad2)
        q2 = load(query, rows, there, W3, W2, ROW)
        g2 = load(grad_out, rows, there, W3, W2, ROW)
        d += _products(g2, out, rows, there, W3, W2, ROW)
        dq2 = tl.zeros((BM, W2), tl.float32)
    if W1 > 0:
        q1 = load(query, rows, there, W3 + W2, W1, ROW)
        g1 = load(grad_out, rows, there, W3 + W2, W1, ROW)
        d += _products(g1, out, rows, there, W3 + W2, W1, ROW)
        dq1 = tl.zeros((BM, W1), tl.float32)
    tl.store(delta + query_base + rows, d, mask=there)
    largest = tl.load(normalizers + 2 * (query_base + rows), mask=there, other=0.0)
    share = tl.load(normalizers + 2 * (query_base + rows) + 1, mask=there, other=0.0)
    limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
    for i in range(tl.cdiv(limit, BN) + tl.cdiv(num_extra, BN)):
        start, keys, seen = _key_tile(i, limit, num_keys, num_extra, BN)
        s = tl.zeros((BM, BN), tl.float32)
        dp = tl.zeros((BM, BN), tl.float32)
        if W3 > 0:
            m3 = triplet_factors(triplets, entry_of(start, keys, num_keys, entries3), LAYOUT)
            k3 = load3(key, keys, seen, m3, LAYOUT.turn_key, LAYOUT)
            s = _dot(q3, tl.trans(k3), s, UPCAST)
            dp = _dot(g3, tl.trans(load3(value, keys, seen, m3, LAYOUT.turn_value, LAYOUT)), dp, UPCAST)
        if W2 > 0:
            m2 = pair_factors(pairs, entry_of(start, keys, num_keys, entries2), LAYOUT)
            k2 = load2(key, keys, seen, m2, LAYOUT.turn_key, LAYOUT)
            s = _dot(q2, tl.trans(k2), s, UPCAST)
            dp = _dot(g2, tl.trans(load2(value, keys, seen, m2, LAYOUT.turn_value, LAYOUT)), dp, UPCAST)
        if W1 > 0:
            k1 = load(key, keys, seen, W3 + W2, W1, ROW)
            s = _dot(q1, tl.trans(k1), s, UPCAST)
            dp = _dot(g1, tl.trans(load(value, keys, seen, W3 + W2, W1, ROW)), dp, UPCAST)
        p = tl.exp2(s * scale - largest[:, None]) * share[:, None]
        if MASKED:
            seen_and_kept = seen & (tl.load(key_mask + keys, mask=seen, other=0) != 0)
            p = tl.where(seen_and_kept[None, :], p, 0.0)
        else:
            p = tl.where(seen[None, :], p, 0.0)
        ds = (p * (dp - d[:, None])).to(query.dtype.element_ty)
        if W3 > 0:
            dq3 = _dot(ds, k3, dq3, UPCAST)
        if W2 > 0:
            dq2 = _dot(ds, k2, dq2, UPCAST)
        if W1 > 0:
            dq1 = _dot(ds, k1, dq1, UPCAST)
    # Logits carry log2(e), derivatives of the exponential to base 2 its inverse.
    slope = scale * 0.6931471805599453
    if W3 > 0:
        store(grad_query, rows, there, dq3 * slope, 0, W3, ROW)
    if W2 > 0:
        store(grad_query, rows, there, dq2 * slope, W3, W2, ROW)
    if W1 > 0:
        store(grad_query, rows, there, dq1 * slope, W3 + W2, W1, ROW)


@_jit(do_not_specialize=COUNTS)
def backward_key(
    query, key, value, normalizers, grad_out, delta, grad_key, grad_value, key_mask, triplets, pairs, scale,
    heads, cameras, per_camera, num_keys, num_extra, history,
    entries3, batch3, head3, entries2, batch2, head2,
    LAYOUT: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, UPCAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gradients of one tile of keys and values: camera by camera, turned back by the transposed maps and summed."""
    W3: tl.constexpr = LAYOUT.width3
    W2: tl.constexpr = LAYOUT.width2
    W1: tl.constexpr = LAYOUT.width1
    ROW: tl.constexpr = W3 + W2 + W1
    key_tiles = tl.cdiv(num_keys, BN) + tl.cdiv(num_extra, BN)
    pair = tl.program_id(0) // key_tiles
    batch, head = pair // heads, pair % heads
    start, keys, there = _key_tile(tl.program_id(0) % key_tiles, num_keys, num_keys, num_extra, BN)
    query_base = pair.to(tl.int64) * cameras * per_camera
    key_base = pair.to(tl.int64) * (num_keys + num_extra)
    query += query_base * ROW
    grad_out += query_base * ROW
    normalizers += 2 * query_base
    delta += query_base
    key += key_base * ROW
    value += key_base * ROW
    grad_key += key_base * ROW
    grad_value += key_base * ROW
    allowed = there
    if MASKED:
        key_mask += batch.to(tl.int64) * (num_keys + num_extra)
        allowed = there & (tl.load(key_mask + keys, mask=there, other=0) != 0)
    if W3 > 0:
        dk3 = tl.zeros((BN, W3), tl.float32)
        dv3 = tl.zeros((BN, W3), tl.float32)
    if W2 > 0:
        dk2 = tl.zeros((BN, W2), tl.float32)
        dv2 = tl.zeros((BN, W2), tl.float32)
    if W1 > 0:
        k1 = load(key, keys, there, W3 + W2, W1, ROW)
        v1 = load(value, keys, there, W3 + W2, W1, ROW)
        dk1 = tl.zeros((BN, W1), tl.float32)
        dv1 = tl.zeros((BN, W1), tl.float32)
    earliest = 0
    if CAUSAL:
        # Cameras before this one see none of the tile's keys; extra keys are seen by all.
        earliest = tl.where(start < num_keys, tl.maximum(0, (start - history) // per_camera), 0)
    for camera in range(earliest, cameras):
        limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
        visible = allowed & ((keys < limit) | (keys >= num_keys))
        if W3 > 0:
            table3 = table_of(
                triplets, batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.pad3
            )
            m3 = triplet_factors(table3, entry_of(start, keys, num_keys, entries3), LAYOUT)
            k3 = load3(key, keys, there, m3, LAYOUT.turn_key, LAYOUT)
            v3 = load3(value, keys, there, m3, LAYOUT.turn_value, LAYOUT)
            seen_dk3 = tl.zeros((BN, W3), tl.float32)
            seen_dv3 = tl.zeros((BN, W3), tl.float32)
        if W2 > 0:
            table2 = table_of(pairs, batch, head, camera, cameras, entries2, batch2, head2, 2 * LAYOUT.pad2)
            m2 = pair_factors(table2, entry_of(start, keys, num_keys, entries2), LAYOUT)
            k2 = load2(key, keys, there, m2, LAYOUT.turn_key, LAYOUT)
            v2 = load2(value, keys, there, m2, LAYOUT.turn_value, LAYOUT)
            seen_dk2 = tl.zeros((BN, W2), tl.float32)
            seen_dv2 = tl.zeros((BN, W2), tl.float32)
        for i in range(tl.cdiv(per_camera, BM)):
            within = i * BM + tl.arange(0, BM)
            rows = camera * per_camera + within
            live = within < per_camera
            largest = tl.load(normalizers + 2 * rows, mask=live, other=0.0)
            share = tl.load(normalizers + 2 * rows + 1, mask=live, other=0.0)
            d = tl.load(delta + rows, mask=live, other=0.0)
            s = tl.zeros((BN, BM), tl.float32)
            dp = tl.zeros((BN, BM), tl.float32)
            if W3 > 0:
                q3 = load(query, rows, live, 0, W3, ROW)
                g3 = load(grad_out, rows, live, 0, W3, ROW)
                s = _dot(k3, tl.trans(q3), s, UPCAST)
                dp = _dot(v3, tl.trans(g3), dp, UPCAST)
            if W2 > 0:
                q2 = load(query, rows, live, W3, W2, ROW)
                g2 = load(grad_out, rows, live, W3, W2, ROW)
                s = _dot(k2, tl.trans(q2), s, UPCAST)
                dp = _dot(v2, tl.trans(g2), dp, UPCAST)
            if W1 > 0:
                q1 = load(query, rows, live, W3 + W2, W1, ROW)
                g1 = load(grad_out, rows, live, W3 + W2, W1, ROW)
                s = _dot(k1, tl.trans(q1), s, UPCAST)
                dp = _dot(v1, tl.trans(g1), dp, UPCAST)
            p = tl.where(visible[:, None], tl.exp2(s * scale - largest[None, :]) * share[None, :], 0.0)
            ds = (p * (dp - d[None, :])).to(query.dtype.element_ty)
            p = p.to(query.dtype.element_ty)
            if W3 > 0:
                seen_dv3 = _dot(p, g3, seen_dv3, UPCAST)
                seen_dk3 = _dot(ds, q3, seen_dk3, UPCAST)
            if W2 > 0:
                seen_dv2 = _dot(p, g2, seen_dv2, UPCAST)
                seen_dk2 = _dot(ds, q2, seen_dk2, UPCAST)
            if W1 > 0:
                dv1 = _dot(p, g1, dv1, UPCAST)
                dk1 = _dot(ds, q1, dk1, UPCAST)
        if W3 > 0:
            if LAYOUT.turn_key:
                seen_dk3 = turn_triplets(seen_dk3, m3, LAYOUT.numbers3, True)
            if LAYOUT.turn_value:
                seen_dv3 = turn_triplets(seen_dv3, m3, LAYOUT.numbers3, True)
            dk3 += seen_dk3
            dv3 += seen_dv3
        if W2 > 0:
            if LAYOUT.turn_key:
                seen_dk2 = turn_pairs(seen_dk2, m2, LAYOUT.planes2, True)
            if LAYOUT.turn_value:
                seen_dv2 = turn_pairs(seen_dv2, m2, LAYOUT.planes2, True)
            dk2 += seen_dk2
            dv2 += seen_dv2
    slope = scale * 0.6931471805599453
    if W3 > 0:
        store(grad_key, keys, there, dk3 * slope, 0, W3, ROW)
        store(grad_value, keys, there, dv3, 0, W3, ROW)
    if W2 > 0:
        store(grad_key, keys, there, dk2 * slope, W3, W2, ROW)
        store(grad_value, keys, there, dv2, W3, W2, ROW)
    if W1 > 0:
        store(grad_key, keys, there, dk1 * slope, W3 + W2, W1, ROW)
        store(grad_value, keys, there, dv1, W3 + W2, W1, ROW)
