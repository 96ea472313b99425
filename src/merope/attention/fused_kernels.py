# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# ruff: noqa: ANN001, ANN201
"""Triton kernels of `fused`: streaming softmax over keys that are turned in registers for each query camera.

Triton compiles a kernel from its source and the globals of its module. So this module imports triton at its
top, and is itself imported inside functions only.

A row (one token of one head) holds its channels in up to three runs. The first is slots of four channels: a triplet
(x, y, z) and one that stays. The second is slots of a pair and, where ``planes2`` is 4, two that stay. The third stays as
a whole. Slots are numbered block first: slot = block * copies + copy, both padded to powers of two; what stands in a
padding slot stays too. A thread that loads eight neighbouring 16-bit channels holds whole slots, so a turn
moves nothing between threads.

Suffixes 3, 2 and 1 name the runs. BM query rows and BN key rows make a tile. Logits are kept in base 2.
"""

import triton.language as tl
from triton import jit as _jit

COUNTS = (
    "heads",
    "cameras",
    "per_camera",
    "num_keys",
    "num_extra",
    "history",
    "entries3",
    "batch3",
    "head3",
    "entries2",
    "batch2",
    "head2",
)
"""Run-time numbers, never compiled in: Triton would make a kernel of its own for 1 and for multiples of 16."""

TABLES = ("key_mask", "axes", "cosines", "sines")
"""Pointers whose alignment is not compiled in."""


@_jit
def _dot(a, b, total, UPCAST: tl.constexpr):
    # Triton's interpreter multiplies the bits of bfloat16 as if they were integers.
    if UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


@_jit
def _load(base, rows, keep, FIRST: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr):
    """A run of channels of some rows, zero where not kept."""
    places = rows[:, None] * ROW + (FIRST + tl.arange(0, WIDTH))[None, :]
    return tl.load(base + places, mask=keep[:, None], other=0.0)


@_jit
def _store(base, rows, keep, tile, FIRST: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr):
    places = rows[:, None] * ROW + (FIRST + tl.arange(0, WIDTH))[None, :]
    tl.store(base + places, tile.to(base.dtype.element_ty), mask=keep[:, None])


@_jit
def _number(
    table,
    entry,
    keep,
    NUMBER: tl.constexpr,
    NUMBERS: tl.constexpr,
    BLOCKS: tl.constexpr,
    PAD: tl.constexpr,
    COPIES: tl.constexpr,
    SLOTS: tl.constexpr,
    OTHER: tl.constexpr,
):
    """One number of the block in every slot of each row, [rows, SLOTS]; OTHER in padding and where not kept."""
    N: tl.constexpr = entry.shape[0]
    PAD_COPIES: tl.constexpr = SLOTS // PAD
    block = tl.arange(0, PAD)
    places = entry[:, None] * (BLOCKS * NUMBERS) + (block * NUMBERS + NUMBER)[None, :]
    found = tl.load(table + places, mask=keep[:, None] & (block < BLOCKS)[None, :], other=OTHER)
    if PAD_COPIES > 1:
        copies = tl.broadcast_to(found[:, :, None], (N, PAD, PAD_COPIES))
        if COPIES < PAD_COPIES:
            copies = tl.where((tl.arange(0, PAD_COPIES) < COPIES)[None, None, :], copies, OTHER)
        found = tl.reshape(copies, (N, SLOTS))
    return found


@_jit
def _triplet_factors(table, entry, keep, LAYOUT: tl.constexpr):
    """Axes of reflections or entries of matrices; the identity in padding and where not kept."""
    NUMBERS: tl.constexpr = LAYOUT.numbers3
    BLOCKS: tl.constexpr = LAYOUT.blocks3
    PAD: tl.constexpr = LAYOUT.pad3
    COPIES: tl.constexpr = LAYOUT.copies3
    SLOTS: tl.constexpr = LAYOUT.width3 // 4
    DIAGONAL: tl.constexpr = 0.0 if NUMBERS == 3 else 1.0
    a = _number(table, entry, keep, 0, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, DIAGONAL)
    b = _number(table, entry, keep, 1, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
    c = _number(table, entry, keep, 2, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
    if NUMBERS == 3:
        return a, b, c
    else:
        d = _number(table, entry, keep, 3, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
        e = _number(table, entry, keep, 4, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, DIAGONAL)
        f = _number(table, entry, keep, 5, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
        g = _number(table, entry, keep, 6, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
        h = _number(table, entry, keep, 7, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, 0.0)
        i = _number(table, entry, keep, 8, NUMBERS, BLOCKS, PAD, COPIES, SLOTS, DIAGONAL)
        return a, b, c, d, e, f, g, h, i


@_jit
def _pair_factors(cosines, sines, entry, keep, LAYOUT: tl.constexpr):
    BLOCKS: tl.constexpr = LAYOUT.blocks2
    PAD: tl.constexpr = LAYOUT.pad2
    COPIES: tl.constexpr = LAYOUT.copies2
    SLOTS: tl.constexpr = LAYOUT.width2 // LAYOUT.planes2
    cos = _number(cosines, entry, keep, 0, 1, BLOCKS, PAD, COPIES, SLOTS, 1.0)
    sin = _number(sines, entry, keep, 0, 1, BLOCKS, PAD, COPIES, SLOTS, 0.0)
    return cos, sin


@_jit
def _turn_triplets(tile, m, NUMBERS: tl.constexpr, BACK: tl.constexpr):
    """The first run turned by the factors m, by the transposed maps where BACK; float32."""
    N: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    even, odd = tl.split(tl.reshape(tile.to(tl.float32), (N, WIDTH // 4, 2, 2)))
    x, z = tl.split(even)
    y, stays = tl.split(odd)
    if NUMBERS == 3:
        # I - 2 h h^T is its own transpose.
        along = 2.0 * (m[0] * x + m[1] * y + m[2] * z)
        tx = x - m[0] * along
        ty = y - m[1] * along
        tz = z - m[2] * along
    elif BACK:
        tx = m[0] * x + m[3] * y + m[6] * z
        ty = m[1] * x + m[4] * y + m[7] * z
        tz = m[2] * x + m[5] * y + m[8] * z
    else:
        tx = m[0] * x + m[1] * y + m[2] * z
        ty = m[3] * x + m[4] * y + m[5] * z
        tz = m[6] * x + m[7] * y + m[8] * z
    return tl.reshape(tl.join(tl.join(tx, tz), tl.join(ty, stays)), (N, WIDTH))


@_jit
def _turn_pairs(tile, m, PLANES: tl.constexpr, BACK: tl.constexpr):
    """The second run turned by cosine and sine, by the transposed maps where BACK; float32."""
    N: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    cos = m[0]
    sin = m[1]
    if BACK:
        sin = -sin
    if PLANES == 4:
        even, odd = tl.split(tl.reshape(tile.to(tl.float32), (N, WIDTH // 4, 2, 2)))
        x, third = tl.split(even)
        y, fourth = tl.split(odd)
        first = tl.join(cos * x - sin * y, third)
        second = tl.join(sin * x + cos * y, fourth)
        return tl.reshape(tl.join(first, second), (N, WIDTH))
    else:
        x, y = tl.split(tl.reshape(tile.to(tl.float32), (N, WIDTH // 2, 2)))
        return tl.reshape(tl.join(cos * x - sin * y, sin * x + cos * y), (N, WIDTH))


@_jit
def _key_rows(tile, limit, num_keys, num_extra, BN: tl.constexpr):
    """Rows of a tile of keys and which of them are there: camera keys below the limit, then extra keys."""
    camera_tiles = tl.cdiv(limit, BN)
    extra = tile >= camera_tiles
    start = tl.where(extra, num_keys + (tile - camera_tiles) * BN, tile * BN)
    end = tl.where(extra, num_keys + num_extra, limit)
    rows = start + tl.arange(0, BN)
    return rows, rows < end


@_jit
def _limit(camera, history, per_camera, num_keys, CAUSAL: tl.constexpr):
    """How many camera keys a query camera may see."""
    if CAUSAL:
        return tl.minimum(num_keys, history + (camera + 1) * per_camera)
    else:
        return num_keys


@_jit
def _table(batch, head, camera, cameras, entries, by_batch, by_head, NUMBERS: tl.constexpr):
    """Where the numbers of one query camera begin; tables lie clip by clip, head by head, camera by camera."""
    return ((batch * by_batch + head * by_head) * cameras + camera).to(tl.int64) * entries * NUMBERS


@_jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=TABLES)
def forward(
    query, key, value, out, lse, key_mask, axes, cosines, sines, scale,
    heads, cameras, per_camera, num_keys, num_extra, history,
    entries3, batch3, head3, entries2, batch2, head2,
    LAYOUT: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, UPCAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp of one tile of queries of one camera."""
    W3: tl.constexpr = LAYOUT.width3
    W2: tl.constexpr = LAYOUT.width2
    W1: tl.constexpr = LAYOUT.width1
    ROW: tl.constexpr = W3 + W2 + W1
    camera_tiles = tl.cdiv(per_camera, BM)
    pair = tl.program_id(0) // (cameras * camera_tiles)
    tile = tl.program_id(0) % (cameras * camera_tiles)
    if CAUSAL:
        # The cameras that see most begin first.
        tile = cameras * camera_tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    camera = tile // camera_tiles
    within = tile % camera_tiles * BM + tl.arange(0, BM)
    there = within < per_camera
    rows = camera * per_camera + within
    query_base = pair.to(tl.int64) * cameras * per_camera
    key_base = pair.to(tl.int64) * (num_keys + num_extra)
    query += query_base * ROW
    out += query_base * ROW
    key += key_base * ROW
    value += key_base * ROW
    if MASKED:
        key_mask += batch.to(tl.int64) * (num_keys + num_extra)
    if W3 > 0:
        axes += _table(batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.blocks3)
        q3 = _load(query, rows, there, 0, W3, ROW)
        y3 = tl.zeros((BM, W3), tl.float32)
    if W2 > 0:
        first = _table(batch, head, camera, cameras, entries2, batch2, head2, LAYOUT.blocks2)
        cosines += first
        sines += first
        q2 = _load(query, rows, there, W3, W2, ROW)
        y2 = tl.zeros((BM, W2), tl.float32)
    if W1 > 0:
        q1 = _load(query, rows, there, W3 + W2, W1, ROW)
        y1 = tl.zeros((BM, W1), tl.float32)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
    for i in range(tl.cdiv(limit, BN) + tl.cdiv(num_extra, BN)):
        keys, seen = _key_rows(i, limit, num_keys, num_extra, BN)
        turned = seen & (keys < num_keys)
        s = tl.zeros((BM, BN), tl.float32)
        if W3 > 0:
            m3 = _triplet_factors(axes, keys // (num_keys // entries3), turned, LAYOUT)
            k3 = _load(key, keys, seen, 0, W3, ROW)
            if LAYOUT.turn_key:
                k3 = _turn_triplets(k3, m3, LAYOUT.numbers3, False).to(k3.dtype)
            s = _dot(q3, tl.trans(k3), s, UPCAST)
        if W2 > 0:
            m2 = _pair_factors(cosines, sines, keys // (num_keys // entries2), turned, LAYOUT)
            k2 = _load(key, keys, seen, W3, W2, ROW)
            if LAYOUT.turn_key:
                k2 = _turn_pairs(k2, m2, LAYOUT.planes2, False).to(k2.dtype)
            s = _dot(q2, tl.trans(k2), s, UPCAST)
        if W1 > 0:
            k1 = _load(key, keys, seen, W3 + W2, W1, ROW)
            s = _dot(q1, tl.trans(k1), s, UPCAST)
        allowed = seen
        if MASKED:
            allowed = seen & (tl.load(key_mask + keys, mask=seen, other=0) != 0)
        s = tl.where(allowed[None, :], s * scale, float("-inf"))
        larger = tl.maximum(largest, tl.max(s, 1))
        # While all keys so far are masked, -inf - -inf would be NaN.
        finite = tl.where(larger == float("-inf"), 0.0, larger)
        p = tl.exp2(s - finite[:, None])
        fade = tl.exp2(largest - finite)
        total = total * fade + tl.sum(p, 1)
        largest = larger
        p = p.to(query.dtype.element_ty)
        if W3 > 0:
            v3 = _load(value, keys, seen, 0, W3, ROW)
            if LAYOUT.turn_value:
                v3 = _turn_triplets(v3, m3, LAYOUT.numbers3, False).to(v3.dtype)
            y3 = _dot(p, v3, y3 * fade[:, None], UPCAST)
        if W2 > 0:
            v2 = _load(value, keys, seen, W3, W2, ROW)
            if LAYOUT.turn_value:
                v2 = _turn_pairs(v2, m2, LAYOUT.planes2, False).to(v2.dtype)
            y2 = _dot(p, v2, y2 * fade[:, None], UPCAST)
        if W1 > 0:
            v1 = _load(value, keys, seen, W3 + W2, W1, ROW)
            y1 = _dot(p, v1, y1 * fade[:, None], UPCAST)
    # A row without any key: output 0, and an infinite log-sum-exp makes every weight of the backward pass 0.
    empty = total == 0.0
    share = 1.0 / tl.where(empty, 1.0, total)
    if W3 > 0:
        _store(out, rows, there, y3 * share[:, None], 0, W3, ROW)
    if W2 > 0:
        _store(out, rows, there, y2 * share[:, None], W3, W2, ROW)
    if W1 > 0:
        _store(out, rows, there, y1 * share[:, None], W3 + W2, W1, ROW)
    logs = tl.where(empty, float("inf"), largest + tl.log2(tl.where(empty, 1.0, total)))
    tl.store(lse + query_base + rows, logs, mask=there)


@_jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=TABLES)
def backward_query(
    query, key, value, out, lse, grad_out, grad_query, delta, key_mask, axes, cosines, sines, scale,
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
    camera_tiles = tl.cdiv(per_camera, BM)
    pair = tl.program_id(0) // (cameras * camera_tiles)
    tile = tl.program_id(0) % (cameras * camera_tiles)
    if CAUSAL:
        tile = cameras * camera_tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    camera = tile // camera_tiles
    within = tile % camera_tiles * BM + tl.arange(0, BM)
    there = within < per_camera
    rows = camera * per_camera + within
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
        axes += _table(batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.blocks3)
        q3 = _load(query, rows, there, 0, W3, ROW)
        g3 = _load(grad_out, rows, there, 0, W3, ROW)
        d += tl.sum(g3.to(tl.float32) * _load(out, rows, there, 0, W3, ROW).to(tl.float32), 1)
        dq3 = tl.zeros((BM, W3), tl.float32)
    if W2 > 0:
        first = _table(batch, head, camera, cameras, entries2, batch2, head2, LAYOUT.blocks2)
        cosines += first
        sines += first
        q2 = _load(query, rows, there, W3, W2, ROW)
        g2 = _load(grad_out, rows, there, W3, W2, ROW)
        d += tl.sum(g2.to(tl.float32) * _load(out, rows, there, W3, W2, ROW).to(tl.float32), 1)
        dq2 = tl.zeros((BM, W2), tl.float32)
    if W1 > 0:
        q1 = _load(query, rows, there, W3 + W2, W1, ROW)
        g1 = _load(grad_out, rows, there, W3 + W2, W1, ROW)
        d += tl.sum(g1.to(tl.float32) * _load(out, rows, there, W3 + W2, W1, ROW).to(tl.float32), 1)
        dq1 = tl.zeros((BM, W1), tl.float32)
    tl.store(delta + query_base + rows, d, mask=there)
    logs = tl.load(lse + query_base + rows, mask=there, other=float("inf"))
    limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
    for i in range(tl.cdiv(limit, BN) + tl.cdiv(num_extra, BN)):
        keys, seen = _key_rows(i, limit, num_keys, num_extra, BN)
        turned = seen & (keys < num_keys)
        s = tl.zeros((BM, BN), tl.float32)
        dp = tl.zeros((BM, BN), tl.float32)
        if W3 > 0:
            m3 = _triplet_factors(axes, keys // (num_keys // entries3), turned, LAYOUT)
            k3 = _load(key, keys, seen, 0, W3, ROW)
            v3 = _load(value, keys, seen, 0, W3, ROW)
            if LAYOUT.turn_key:
                k3 = _turn_triplets(k3, m3, LAYOUT.numbers3, False).to(k3.dtype)
            if LAYOUT.turn_value:
                v3 = _turn_triplets(v3, m3, LAYOUT.numbers3, False).to(v3.dtype)
            s = _dot(q3, tl.trans(k3), s, UPCAST)
            dp = _dot(g3, tl.trans(v3), dp, UPCAST)
        if W2 > 0:
            m2 = _pair_factors(cosines, sines, keys // (num_keys // entries2), turned, LAYOUT)
            k2 = _load(key, keys, seen, W3, W2, ROW)
            v2 = _load(value, keys, seen, W3, W2, ROW)
            if LAYOUT.turn_key:
                k2 = _turn_pairs(k2, m2, LAYOUT.planes2, False).to(k2.dtype)
            if LAYOUT.turn_value:
                v2 = _turn_pairs(v2, m2, LAYOUT.planes2, False).to(v2.dtype)
            s = _dot(q2, tl.trans(k2), s, UPCAST)
            dp = _dot(g2, tl.trans(v2), dp, UPCAST)
        if W1 > 0:
            k1 = _load(key, keys, seen, W3 + W2, W1, ROW)
            v1 = _load(value, keys, seen, W3 + W2, W1, ROW)
            s = _dot(q1, tl.trans(k1), s, UPCAST)
            dp = _dot(g1, tl.trans(v1), dp, UPCAST)
        allowed = seen
        if MASKED:
            allowed = seen & (tl.load(key_mask + keys, mask=seen, other=0) != 0)
        p = tl.where(allowed[None, :], tl.exp2(s * scale - logs[:, None]), 0.0)
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
        _store(grad_query, rows, there, dq3 * slope, 0, W3, ROW)
    if W2 > 0:
        _store(grad_query, rows, there, dq2 * slope, W3, W2, ROW)
    if W1 > 0:
        _store(grad_query, rows, there, dq1 * slope, W3 + W2, W1, ROW)


@_jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=TABLES)
def backward_key(
    query, key, value, lse, grad_out, delta, grad_key, grad_value, key_mask, axes, cosines, sines, scale,
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
    tile = tl.program_id(0) % key_tiles
    batch, head = pair // heads, pair % heads
    keys, there = _key_rows(tile, num_keys, num_keys, num_extra, BN)
    turned = there & (keys < num_keys)
    query_base = pair.to(tl.int64) * cameras * per_camera
    key_base = pair.to(tl.int64) * (num_keys + num_extra)
    query += query_base * ROW
    grad_out += query_base * ROW
    lse += query_base
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
        k1 = _load(key, keys, there, W3 + W2, W1, ROW)
        v1 = _load(value, keys, there, W3 + W2, W1, ROW)
        dk1 = tl.zeros((BN, W1), tl.float32)
        dv1 = tl.zeros((BN, W1), tl.float32)
    earliest = 0
    if CAUSAL:
        # Cameras before this one see none of the tile's keys; extra keys are seen by all.
        earliest = tl.where(tile * BN < num_keys, tl.maximum(0, (tile * BN - history) // per_camera), 0)
    for camera in range(earliest, cameras):
        limit = _limit(camera, history, per_camera, num_keys, CAUSAL)
        visible = allowed & ((keys < limit) | (keys >= num_keys))
        if W3 > 0:
            first = _table(batch, head, camera, cameras, entries3, batch3, head3, LAYOUT.numbers3 * LAYOUT.blocks3)
            m3 = _triplet_factors(axes + first, keys // (num_keys // entries3), turned, LAYOUT)
            k3 = _load(key, keys, there, 0, W3, ROW)
            v3 = _load(value, keys, there, 0, W3, ROW)
            if LAYOUT.turn_key:
                k3 = _turn_triplets(k3, m3, LAYOUT.numbers3, False).to(k3.dtype)
            if LAYOUT.turn_value:
                v3 = _turn_triplets(v3, m3, LAYOUT.numbers3, False).to(v3.dtype)
            seen_dk3 = tl.zeros((BN, W3), tl.float32)
            seen_dv3 = tl.zeros((BN, W3), tl.float32)
        if W2 > 0:
            first = _table(batch, head, camera, cameras, entries2, batch2, head2, LAYOUT.blocks2)
            m2 = _pair_factors(cosines + first, sines + first, keys // (num_keys // entries2), turned, LAYOUT)
            k2 = _load(key, keys, there, W3, W2, ROW)
            v2 = _load(value, keys, there, W3, W2, ROW)
            if LAYOUT.turn_key:
                k2 = _turn_pairs(k2, m2, LAYOUT.planes2, False).to(k2.dtype)
            if LAYOUT.turn_value:
                v2 = _turn_pairs(v2, m2, LAYOUT.planes2, False).to(v2.dtype)
            seen_dk2 = tl.zeros((BN, W2), tl.float32)
            seen_dv2 = tl.zeros((BN, W2), tl.float32)
        for i in range(tl.cdiv(per_camera, BM)):
            within = i * BM + tl.arange(0, BM)
            rows = camera * per_camera + within
            live = within < per_camera
            logs = tl.load(lse + rows, mask=live, other=float("inf"))
            d = tl.load(delta + rows, mask=live, other=0.0)
            s = tl.zeros((BN, BM), tl.float32)
            dp = tl.zeros((BN, BM), tl.float32)
            if W3 > 0:
                q3 = _load(query, rows, live, 0, W3, ROW)
                g3 = _load(grad_out, rows, live, 0, W3, ROW)
                s = _dot(k3, tl.trans(q3), s, UPCAST)
                dp = _dot(v3, tl.trans(g3), dp, UPCAST)
            if W2 > 0:
                q2 = _load(query, rows, live, W3, W2, ROW)
                g2 = _load(grad_out, rows, live, W3, W2, ROW)
                s = _dot(k2, tl.trans(q2), s, UPCAST)
                dp = _dot(v2, tl.trans(g2), dp, UPCAST)
            if W1 > 0:
                q1 = _load(query, rows, live, W3 + W2, W1, ROW)
                g1 = _load(grad_out, rows, live, W3 + W2, W1, ROW)
                s = _dot(k1, tl.trans(q1), s, UPCAST)
                dp = _dot(v1, tl.trans(g1), dp, UPCAST)
            p = tl.where(visible[:, None], tl.exp2(s * scale - logs[None, :]), 0.0)
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
                seen_dk3 = _turn_triplets(seen_dk3, m3, LAYOUT.numbers3, True)
            if LAYOUT.turn_value:
                seen_dv3 = _turn_triplets(seen_dv3, m3, LAYOUT.numbers3, True)
            dk3 += seen_dk3
            dv3 += seen_dv3
        if W2 > 0:
            if LAYOUT.turn_key:
                seen_dk2 = _turn_pairs(seen_dk2, m2, LAYOUT.planes2, True)
            if LAYOUT.turn_value:
                seen_dv2 = _turn_pairs(seen_dv2, m2, LAYOUT.planes2, True)
            dk2 += seen_dk2
            dv2 += seen_dv2
    slope = scale * 0.6931471805599453
    if W3 > 0:
        _store(grad_key, keys, there, dk3 * slope, 0, W3, ROW)
        _store(grad_value, keys, there, dv3, 0, W3, ROW)
    if W2 > 0:
        _store(grad_key, keys, there, dk2 * slope, W3, W2, ROW)
        _store(grad_value, keys, there, dv2, W3, W2, ROW)
    if W1 > 0:
        _store(grad_key, keys, there, dk1 * slope, W3 + W2, W1, ROW)
        _store(grad_value, keys, there, dv1, W3 + W2, W1, ROW)
