"""The CPU's tiles: however keys, queries, heads and threads are cut, the oracle's values and gradients."""

import os
import threading

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from merope.attention import camera_attention, compiled, tile_jobs, tile_walk, tiled
from merope.attention.chunked import chunked_attention
from merope.attention.tiled import tiled_attention, why_not_tiled
from merope.attention.token_rows import describe, plan_of
from merope.attention.turns import KINDS, turn
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.geometry.rotations import rotvec_to_matrix
from merope.operators import Band, CameraOperator, Matrix4, MinRotate3, Rotate2, Rotate3, apply_block
from tests.attention.test_backends_agree import assert_backends_agree, gradients, inputs
from tests.support.operators import random_operator

HEADS = 5


@pytest.fixture
def only_tiles(monkeypatch):
    """The platform's attention in place of the tiles fails."""

    def refuse(*arguments, **call):
        raise AssertionError("not by tiles")

    monkeypatch.setattr("merope.attention.chunked._over_cameras", refuse)


def by_tiles(operator, **call):
    """Output and the gradients of q, k, v alone: a factor that wants its own goes another way."""
    leaves = [x.requires_grad_() for x in inputs(operator, heads=HEADS, extra=call.get("extra_tokens", 0))]
    found = []
    for backend in ("reference", "chunked"):
        out = camera_attention(*leaves, operator, backend=backend, **call)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
        found.append([out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)])
    for ours, theirs in zip(found[1], found[0], strict=True):
        scale = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-12)
    return found[1]


# Keys of a tile, logits of a product: one tile; tiles of one key camera; queries one by one; in runs of three and one.
CUTS = [(2048, 2**19), (4, 7), (10, 20), (5, 15)]


@pytest.fixture(params=CUTS, ids=["whole", "small", "middle", "uneven"])
def cut(request, monkeypatch):
    monkeypatch.setattr(tile_walk, "_TILE_TOKENS", request.param[0])
    monkeypatch.setattr(tile_walk, "_LOGITS", request.param[1])


@pytest.mark.parametrize("acts_on", ["qkvo", "qk", "vo", ""])
@pytest.mark.parametrize("heads", [1, HEADS])
def test_every_kind_of_block(cut, only_tiles, heads, acts_on):
    by_tiles(random_operator(heads=heads, acts_on=acts_on))


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_masks_and_tokens_without_a_camera(cut, only_tiles, masked, extra):
    operator = random_operator(heads=HEADS)
    mask = None
    if masked:
        mask = torch.ones(2, operator.num_keys + extra, dtype=torch.bool)
        mask[0, 2:7] = False
        mask[1] = False
    found = by_tiles(operator, key_mask=mask, extra_tokens=extra)
    if masked:
        assert all((x[1] == 0).all() for x in found)


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("grouped", [True, False])
def test_frame_causal(cut, only_tiles, grouped, extra):
    parts = ("disp", "rot", "trans") if grouped else ("rot",)
    operator = MeRoPE(head_dim=64, components=frozenset(parts)).operator(
        random_drive(3, views=4, grid=(1, 3)), dtype=torch.float64
    )
    by_tiles(operator, frame_causal=True, extra_tokens=extra)


def test_an_operator_without_maps(cut, only_tiles):
    keep = Band(name="keep", width=8)
    operator = CameraOperator(bands=(keep,), batch=2, num_query_cameras=3, num_queries=12, num_keys=16)
    by_tiles(operator, frame_causal=True)


@pytest.mark.parametrize(("batch", "heads", "queries"), [(1, 2, 0), (0, 2, 6), (1, 0, 6)])
def test_nothing_to_attend_with(only_tiles, batch, heads, queries):
    phase = torch.rand(batch, 1, 3, 4, 1, dtype=torch.float64)
    bands = (
        Band(name="keep", width=8),
        Band(
            name="turned",
            width=4,
            size=2,
            num_blocks=1,
            right=Rotate2(phase.cos(), phase.sin()),
            grouped=True,
        ),
    )
    operator = CameraOperator(bands=bands, batch=batch, num_query_cameras=3, num_queries=queries, num_keys=4)
    query, key, value = (
        torch.zeros(batch, heads, tokens, 12, dtype=torch.float64, requires_grad=True)
        for tokens in (queries, 4, 4)
    )
    out = camera_attention(query, key, value, operator)
    assert out.shape == query.shape
    grads = torch.autograd.grad(out.sum(), (query, key, value))
    assert all(not grad.any() for grad in grads)


def test_an_entry_that_serves_keys_of_two_cameras_is_not_cut(only_tiles):
    # One phase for all twelve keys, under a rule that hides most of them.
    phase = torch.rand(2, 1, 4, 1, 2, dtype=torch.float64)
    band = Band(
        name="all", width=8, size=2, num_blocks=2, right=Rotate2(phase.cos(), phase.sin()), grouped=True
    )
    operator = CameraOperator(bands=(band,), batch=2, num_query_cameras=4, num_queries=12, num_keys=12)
    by_tiles(operator, frame_causal=True)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_change_nothing_and_leave_torch_s_count_alone(monkeypatch, only_tiles, threads):
    operator = random_operator(heads=HEADS)
    expected = by_tiles(operator)
    monkeypatch.setattr(tile_jobs, "_WORTH_THREADS", 0)
    before, caller, counts = torch.get_num_threads(), threading.get_ident(), {}
    started, helped = tile_walk.TileWalk.start, threading.Event()

    def start(self, *job):
        counts[threading.get_ident()] = torch.get_num_threads()
        if threading.get_ident() != caller:
            helped.set()
        elif threads > 1:
            # Else the caller might be done with everything before another thread begins.
            assert helped.wait(30)
        started(self, *job)

    monkeypatch.setattr(tile_walk.TileWalk, "start", start)
    torch.set_num_threads(threads)
    try:
        found = by_tiles(operator)
        assert torch.get_num_threads() == threads
        fresh = []
        other = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert fresh == [threads]
    finally:
        torch.set_num_threads(before)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    # Which helpers come, and how many different ones over a forward and a backward pass, is the pool's business.
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("where", ["the caller", "a helper"])
def test_an_error_in_a_thread_arrives_and_leaves_torch_s_count_alone(monkeypatch, only_tiles, where):
    caller, load = threading.get_ident(), tile_walk.TileWalk.load
    arrived = {True: threading.Event(), False: threading.Event()}

    def fail(self, *arguments):
        is_caller = threading.get_ident() == caller
        arrived[is_caller].set()
        assert arrived[not is_caller].wait(30)
        if is_caller == (where == "the caller"):
            raise MemoryError("no room")
        load(self, *arguments)

    monkeypatch.setattr(tile_jobs, "_WORTH_THREADS", 0)
    monkeypatch.setattr(tile_walk.TileWalk, "load", fail)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    operator = random_operator(heads=HEADS)
    tensors = inputs(operator, heads=HEADS)
    try:
        with pytest.raises(MemoryError, match="no room"):
            camera_attention(*tensors, operator)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("worth", [0, 2**28])
def test_inference_mode_reaches_the_threads(monkeypatch, only_tiles, worth):
    operator = random_operator(heads=HEADS)
    tensors = inputs(operator, heads=HEADS)
    expected = camera_attention(*tensors, operator)
    monkeypatch.setattr(tile_jobs, "_WORTH_THREADS", worth)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            assert torch.equal(camera_attention(*tensors, operator), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("of", ["query", "factor"])
def test_a_tangent_is_not_lost(of):
    operator = random_operator(heads=2)
    query, key, value = inputs(operator, heads=2)
    factors = operator.tensors()
    at = {"query": query, "factor": factors[1]}[of]

    def attend(moved, backend="auto"):
        pending = iter([moved if of == "factor" and n == 1 else x for n, x in enumerate(factors)])
        q = moved if of == "query" else query
        moved_operator = operator.map_tensors(lambda _: next(pending))
        return camera_attention(q, key, value, moved_operator, backend=backend)

    # The platform's attention says so where it cannot; tiles once gave zero.
    with pytest.raises(NotImplementedError, match="forward AD"):
        torch.func.jvp(attend, (at,), (torch.ones_like(at),))
    with sdpa_kernel(SDPBackend.MATH):
        _, tangent = torch.func.jvp(attend, (at,), (torch.ones_like(at),))
    _, expected = torch.func.jvp(lambda x: attend(x, "reference"), (at,), (torch.ones_like(at),))
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(tangent, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("layout", ["token-last", "projected", "every other", "broadcast"])
def test_any_memory_layout(only_tiles, layout):
    operator = random_operator(heads=HEADS)
    expected = by_tiles(operator)

    def laid_out(x):
        if layout == "token-last":
            return x.mT.contiguous().mT
        if layout == "projected":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        if layout == "every other":
            return x.repeat_interleave(2, dim=-1)[..., ::2]
        return x

    leaves = [laid_out(x).detach().requires_grad_() for x in inputs(operator, heads=HEADS)]
    out = camera_attention(*leaves, operator)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    if layout == "broadcast":
        # The gradient of a sum has no memory of its own.
        weights = torch.ones((), dtype=out.dtype).expand_as(out)
        expected = gradients_of_sum(operator)
    found = [out.detach(), *torch.autograd.grad(out, leaves, weights)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def gradients_of_sum(operator):
    leaves = [x.requires_grad_() for x in inputs(operator, heads=HEADS)]
    out = camera_attention(*leaves, operator, backend="reference")
    return [out.detach(), *torch.autograd.grad(out.sum(), leaves)]


def test_gradcheck():
    operator = random_operator(heads=2)
    leaves = [x.requires_grad_() for x in inputs(operator, heads=2)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: camera_attention(q, k, v, operator), leaves, fast_mode=True
    )


def test_the_custom_operators_keep_torch_s_rules():
    operator = random_operator(heads=2)
    q, k, v = inputs(operator, heads=2)
    factors, word = operator.tensors(), describe(operator)
    rest = (None, factors, word, None, 2**28)
    grad_inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    torch.library.opcheck(tiled._attend, (*grad_inputs, *rest))
    out, lse = tiled._attend(q, k, v, *rest)
    torch.library.opcheck(
        tiled._attend_backward,
        (out, q, k, v, out, lse, *rest),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_the_backward_pass_keeps_q_k_v_the_output_and_one_number_per_query():
    operator = random_operator(heads=HEADS)
    leaves = [x.requires_grad_() for x in inputs(operator, heads=HEADS)]
    factors = {factor.data_ptr() for factor in operator.tensors()}
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = camera_attention(*leaves, operator)
    own = [tensor for tensor in kept if tensor.data_ptr() not in factors]
    expected = [*(leaf.numel() for leaf in leaves), out.numel(), out.numel() // out.shape[-1]]
    assert sorted(tensor.numel() for tensor in own) == sorted(expected)


def buffers_of(views, monkeypatch, heads=2):
    """Bytes in hand during a forward and backward pass, with the tiles of a long clip."""
    monkeypatch.setattr(tile_walk, "_TILE_TOKENS", 24)
    walks = []
    made = tile_walk.TileWalk.__init__

    def init(self, call):
        made(self, call)
        walks.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(tile_walk.TileWalk, "__init__", init)
        operator = MeRoPE(head_dim=64).operator(random_drive(0, views=views, grid=(3, 4)))
        leaves = [torch.randn(2, heads, views * 12, 64, requires_grad=True) for _ in range(3)]
        camera_attention(*leaves, operator, memory_budget=1).sum().backward()
    by_name = {}
    for walk in walks:
        for name, buffer in walk._buffers.items():
            by_name[name] = max(by_name.get(name, 0), buffer.nbytes)
    return by_name


def test_what_keys_and_values_take_does_not_grow_with_the_clip(monkeypatch):
    few, many = buffers_of(4, monkeypatch), buffers_of(24, monkeypatch)
    of_queries = {"query", "raw_queries", "untransposed", "out", "top", "total", "grad_out", "grad_query"}
    of_queries |= {"joined_top", "joined_total"}
    assert few.keys() == many.keys() >= of_queries
    for name in few.keys() - of_queries:
        assert many[name] == few[name], name
    # What stands for queries is one head at a time.
    for name in of_queries & few.keys():
        assert many[name] <= 24 * 12 * 64 * 4, name


def test_memory_that_was_outgrown_is_given_back(monkeypatch):
    walks = []
    monkeypatch.setattr(
        tile_walk.TileWalk,
        "start",
        lambda self, *job, begin=tile_walk.TileWalk.start: (walks.append(self), begin(self, *job)),
    )
    operator = MeRoPE(head_dim=64).operator(random_drive(0, views=6, grid=(1, 3)))
    leaves = [torch.randn(2, 2, 18, 64, requires_grad=True) for _ in range(3)]
    # Every query camera sees more keys than the one before.
    camera_attention(*leaves, operator, frame_causal=True).sum().backward()
    for walk in walks:
        held = {view.untyped_storage().data_ptr() for view in walk._views.values()}
        assert held == {buffer.data_ptr() for buffer in walk._buffers.values()}


def test_each_reason_not_to_cut_tiles():
    operator = random_operator(dtype=torch.float32)
    q, k, v = inputs(operator, dtype=torch.float32)
    assert why_not_tiled(q, k, v, operator, torch.float32) is None
    assert "torch.bfloat16 logits" in why_not_tiled(q, k, v, operator, torch.bfloat16)
    assert "must all have torch.float64" in why_not_tiled(q, k, v, operator, torch.float64)
    assert "must all have torch.float32" in why_not_tiled(q, k.double(), v, operator, torch.float32)
    wants = operator.map_tensors(lambda x: x.clone().requires_grad_())
    assert "wants its gradient" in why_not_tiled(q, k, v, wants, torch.float32)
    with torch.no_grad():
        assert why_not_tiled(q, k, v, wants, torch.float32) is None
    assert "the call is on meta" in why_not_tiled(q.to("meta"), k, v, operator, torch.float32)

    class Shear(Rotate2):
        pass

    band = Band(name="own", width=46, size=2, left=Shear(torch.ones(2, 1, 12, 1), torch.zeros(2, 1, 12, 1)))
    own = CameraOperator(bands=(band,), batch=2, num_query_cameras=3, num_queries=12, num_keys=10)
    assert why_not_tiled(q, k, v, own, torch.float32) == "band 'own' holds blocks of another kind, Shear"


def test_a_factor_s_gradient_arrives_although_tiles_cannot_give_it():
    assert_backends_agree(random_operator(), budget=2**28)
    operator, tensors = random_operator(), inputs(random_operator())
    _, grads = gradients(operator, tensors, backend="chunked")
    assert all(grad.abs().max() > 0 for grad in grads)


BLOCKS = {
    Rotate2: lambda *shape: Rotate2(torch.randn(*shape).double(), torch.randn(*shape).double()),
    MinRotate3: lambda *shape: MinRotate3(torch.randn(*shape, 3).double()),
    Rotate3: lambda *shape: Rotate3(rotvec_to_matrix(torch.randn(*shape, 3).double())),
    Matrix4: lambda *shape: Matrix4(torch.randn(*shape, 4, 4).double()),
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("run", [1, 3])
@pytest.mark.parametrize("back", [False, True])
def test_compiled_loops_are_the_blocks(kind, run, back):
    heads, cameras, entries, num_blocks, copies, first = 2, 3, 400, 2, 3, 2
    block = BLOCKS[kind](heads, cameras, entries, num_blocks)
    size, count = block.size, (entries - first) * run
    width = num_blocks * copies * size
    numbers = torch.stack([number.mT for number in block.numbers()]).contiguous()
    taken, rows = (
        torch.randn(2, heads, width + 1, count).double(),
        torch.randn(2, heads, width + 2, count).double(),
    )
    before = [x.clone() for x in (taken, rows)]
    source = rows[:, :, 2:] if back else taken[:, :, 1:]
    planar = source.mT.unflatten(-1, (num_blocks, copies, size)).movedim(-1, -3)  # [2, h, T, size, M, C]
    of_tokens = block.map_tensors(lambda x: x[:, 1, first:].repeat_interleave(run, dim=1))
    expected = apply_block(of_tokens, planar, transpose=back).movedim(-3, -1).flatten(-3).mT
    line = (KINDS[kind], size, 1, 2, *numbers.shape, run, copies, 3)
    table = np.array([line], dtype=np.int64)
    flat = torch.cat([torch.full((3,), torch.nan).double(), numbers.flatten()])
    turn(table, flat.numpy(), taken.numpy(), rows.numpy(), 1, 2, 0, 1, first * run, count, back)
    if back:
        expected = before[0][:, :, 1:] + expected
    found = taken[:, :, 1:] if back else rows[:, :, 2:]
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=1e-12)
    # Neither the other side nor other channels are touched.
    for after, kept in ((taken, before[0]), (rows, before[1])):
        assert torch.equal(after[0], kept[0])
        assert torch.equal(after[:, :, :1], kept[:, :, :1])


def test_loops_are_compiled_where_nothing_may_be_written(monkeypatch):
    def nowhere(*arguments, **options):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.caching.FunctionCache.__init__", nowhere)
    double = compiled.compiled(nogil=True)(lambda x: 2 * x)
    assert double(3) == 6


def test_a_forked_process_has_helpers_of_its_own():
    assert tile_jobs._helpers().submit(lambda: 3).result(30) == 3
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, bytes([tile_jobs._helpers().submit(lambda: 4).result(30)]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == bytes([4])


def test_a_description_holds_the_whole_operator():
    operator = random_operator(heads=HEADS, acts_on="qk")
    plan = plan_of(describe(operator))
    assert (plan.num_query_cameras, plan.num_queries, plan.num_keys) == (3, 12, 10)
    assert plan.acts_on == "kq"
    covered = [turn.channels for turn in (*plan.once, *plan.grouped)] + list(plan.kept_right)
    assert sorted(i for run in covered for i in range(run.start, run.stop)) == list(range(46))
    assert plan.grouped_width + sum(run.stop - run.start for run in plan.ungrouped) == 46


def test_chunked_takes_tiles_where_it_can(monkeypatch):
    operator = random_operator(heads=HEADS, dtype=torch.float32)
    tensors = inputs(operator, heads=HEADS, dtype=torch.float32)
    calls = []
    monkeypatch.setattr(
        "merope.attention.chunked.tiled_attention",
        lambda *arguments, **call: calls.append(call) or tiled_attention(*arguments, **call),
    )
    options = {"extra_tokens": 0, "key_mask": None, "frame_causal": False, "memory_budget": 2**28}
    chunked_attention(*tensors, operator, **options)
    assert len(calls) == 1
    ungrouped = random_operator(heads=HEADS, grouped=False, dtype=torch.float32)
    chunked_attention(*tensors, ungrouped, **options)
    with torch.autocast("cpu", torch.bfloat16):
        chunked_attention(*tensors, operator, **options)
    assert len(calls) == 1
