"""The fused kernel in Triton's interpreter: as accurate as plain torch, forward and backward, whatever the call.

Every run draws fresh data and prints its seed. Memory that a kernel does not write is NaN, and the other backends raise in
the process that attends.
"""

import secrets
from dataclasses import replace

import pytest
import torch

from merope.attention import fused
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.encodings.registry import default_encoding
from merope.operators import Band
from tests.support.closeness import assert_as_accurate
from tests.support.fresh_python import run_python
from tests.support.interpreter import interpreter
from tests.support.operators import random_operator
from tests.support.plain import exact, plain

BATCH, HEADS = 2, 2


@pytest.fixture(scope="module")
def worker():
    with interpreter() as process:
        yield process


@pytest.fixture
def draw():
    """Fresh numbers; pytest shows the seed of a test that fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201
    return torch.Generator().manual_seed(seed)


def inputs(draw, operator, dtype, *, heads=HEADS, extra=0):
    return [
        torch.randn(
            operator.batch, heads, tokens + extra, operator.head_dim, generator=draw, dtype=torch.float64
        ).to(dtype)
        for tokens in (operator.num_queries, operator.num_keys, operator.num_keys)
    ]


def assert_accurate(worker, draw, operators, dtype, *, heads=HEADS, **call):
    """``operators`` in float64 and as it is given to the kernel."""
    truth_operator, operator = operators
    tensors = inputs(draw, operator, dtype, heads=heads, extra=call.get("extra_tokens", 0))
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    ours = worker.attend(tensors, operator, weights, **call)
    truth = exact(tensors, truth_operator, weights, **call)
    naive = plain(tensors, truth_operator, weights, **call)
    for got, wanted, other in zip(ours, truth, naive, strict=True):
        assert got.dtype == dtype
        # On average; the largest error of one draw's few hundred numbers is luck, and is held to 2 over many draws below.
        assert_as_accurate(got, plain=other, exact=wanted, largest_factor=4.0)


def in_both_precisions(encoding, *rays):
    return encoding.operator(*rays, dtype=torch.float64), encoding.operator(*rays)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_its_largest_errors_are_at_most_twice_those_of_plain_torch(worker, draw, dtype):
    operators = in_both_precisions(MeRoPE(head_dim=64), random_drive(1, views=3, grid=(2, 3)))
    runs = []
    for _ in range(12):
        tensors = inputs(draw, operators[1], dtype)
        weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
        results = (
            worker.attend(tensors, operators[1], weights),
            plain(tensors, operators[0], weights),
            exact(tensors, operators[0], weights),
        )
        runs.append(results)
    for index in range(4):
        ours, naive, truth = (torch.stack([run[way][index] for run in runs]) for way in range(3))
        assert_as_accurate(ours, plain=naive, exact=truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("head_dim", [64, 128, 192])
def test_it_is_as_accurate_as_plain_torch(worker, draw, head_dim, dtype):
    drive = random_drive(1, views=3, grid=(1, 3))
    assert_accurate(worker, draw, in_both_precisions(MeRoPE(head_dim=head_dim), drive), dtype)


@pytest.mark.parametrize("name", ["crepe", "rayrope", "urope", "distance-decay", "rerope-merope"])
@pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")
def test_every_encoding_that_depends_on_the_query_camera_is_served(worker, draw, name):
    encoding = default_encoding(name, head_dim=64, num_heads=HEADS)
    drive = random_drive(2, views=3, grid=(2, 3), reach=2.0)
    assert_accurate(worker, draw, in_both_precisions(encoding, drive), torch.float32)


def test_transported_frames_are_matrices_and_served(worker, draw):
    encoding = MeRoPE(head_dim=64, anchor_frames="transported")
    operators = in_both_precisions(encoding, random_drive(3, views=3, grid=(2, 3)))
    assert fused.plan_layout(operators[1]).numbers3 == 9
    assert_accurate(worker, draw, operators, torch.float32)


def test_maps_that_are_made_when_needed_are_those_that_are_stored():
    drive, encoding = random_drive(14, views=2, grid=(2, 3)), MeRoPE(head_dim=64)
    stored, made = encoding.operator(drive), encoding.operator(drive, anchor_bytes=0)
    assert made.recomputed_bytes > 0
    # The function that makes them cannot be sent to another process.
    layout = fused.plan_layout(made)
    assert layout == fused.plan_layout(stored)
    assert torch.equal(fused.triplet_table(made), fused.triplet_table(stored))
    assert torch.equal(fused.pair_table(made), fused.pair_table(stored))


def without_matrix4(operator):
    """A random operator with its 4 x 4 blocks where no query camera changes them."""
    return replace(operator, bands=tuple(band for band in operator.bands if band.size != 4))


@pytest.mark.parametrize("heads", [1, 3])
def test_factors_of_each_head_and_of_all_heads_side_by_side_are_served(worker, draw, heads):
    operator = without_matrix4(random_operator(5, heads=heads))
    first, second = (without_matrix4(random_operator(seed, heads=heads)) for seed in (6, 7))
    # Bands of both kinds twice, with other copies; 4 + 3 x 38 channels.
    wide = next(band for band in first.bands if band.name == "metres")
    wider = replace(wide, width=12)
    more = tuple(
        wider if band.name == "metres" else band
        for band in second.bands
        if band.name in ("anchors", "metres")
    )
    operator = replace(operator, bands=operator.bands + more)
    assert_accurate(
        worker,
        draw,
        (operator, operator.map_tensors(lambda tensor: tensor.float())),
        torch.float32,
        heads=3,
    )


@pytest.mark.parametrize("acts_on", ["qkvo", "qk", "vo"])
def test_it_acts_only_on_what_the_operator_says(worker, draw, acts_on):
    operators = in_both_precisions(MeRoPE(head_dim=64), random_drive(4, grid=(2, 3)))
    operators = [replace(operator, acts_on=frozenset(acts_on)) for operator in operators]
    assert_accurate(worker, draw, operators, torch.float32, extra_tokens=2)


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_keys_of_other_cameras_extra_tokens_masks_and_the_future(worker, draw, extra, causal, masked):
    keys = random_drive(6, views=4, grid=(2, 3))
    operators = in_both_precisions(MeRoPE(head_dim=64), keys.for_views(2, 4), keys)
    mask = None
    if masked:
        mask = torch.rand(BATCH, operators[1].num_keys + extra, generator=draw) < 0.6
        # Every query sees one key at least; the test below is about those that see none.
        mask[:, 0] = mask[:, -1] = True
    assert_accurate(
        worker, draw, operators, torch.float32, extra_tokens=extra, key_mask=mask, frame_causal=causal
    )


def test_keys_of_another_grid_are_served(worker, draw):
    operators = in_both_precisions(
        MeRoPE(head_dim=64), random_drive(7, views=2, grid=(1, 5)), random_drive(8, views=3, grid=(3, 2))
    )
    assert_accurate(worker, draw, operators, torch.float32)


@pytest.mark.parametrize("causal", [False, True])
def test_many_tiles_of_queries_and_keys_are_as_accurate(worker, draw, causal):
    drive = random_drive(9, views=2, grid=(7, 11))
    exact_operator, operator = in_both_precisions(MeRoPE(head_dim=64), drive)
    tile = fused.tile_of("forward", 64, torch.float32, 80)
    assert tile.queries < 77 < 154 and 77 % tile.queries and 154 % tile.keys
    tensors = inputs(draw, operator, torch.float32, heads=1)
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    ours = worker.attend(tensors, operator, weights, frame_causal=causal)
    # `chunked` in float64 is `reference` to 1e-12, which would take 3 GB here.
    truth = exact(tensors, exact_operator, weights, backend="chunked", frame_causal=causal)
    for got, wanted in zip(ours, truth, strict=True):
        assert (got - wanted).abs().max() < 5e-6


@pytest.mark.parametrize("reach", [10.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_keeps_the_direction_of_gradients(worker, draw, dtype, reach):
    # In bfloat16 the interpreter cuts where a GPU rounds, and its products are those of float32.
    drive = random_drive(10, views=3, grid=(3, 5), reach=reach)
    exact_operator, operator = in_both_precisions(MeRoPE(head_dim=64), drive)
    tensors = inputs(draw, operator, dtype)
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    ours = worker.attend(tensors, operator, weights)
    truth = exact(tensors, exact_operator, weights, backend="chunked")
    assert (ours[0] - truth[0]).norm() / truth[0].norm() < 2e-2
    for got, wanted in zip(ours[1:], truth[1:], strict=True):
        cosine = torch.nn.functional.cosine_similarity(got.double().flatten(), wanted.flatten(), dim=0)
        assert cosine > 0.999


@pytest.mark.parametrize("extra", [0, 2])
def test_a_query_without_any_key_gives_zero_and_zero_gradients(worker, draw, extra):
    operator = MeRoPE(head_dim=64).operator(random_drive(11, views=2, grid=(2, 3)))
    tensors = inputs(draw, operator, torch.float32, extra=extra)
    mask = torch.ones(BATCH, operator.num_keys + extra, dtype=torch.bool)
    mask[1] = False
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    found = worker.attend(tensors, operator, weights, key_mask=mask, extra_tokens=extra)
    for tensor in found:
        assert tensor.isfinite().all() and tensor[0].abs().max() > 0
        assert torch.equal(tensor[1], torch.zeros_like(tensor[1]))


def test_strides_do_not_matter(worker, draw):
    operator = MeRoPE(head_dim=64).operator(random_drive(12, views=2, grid=(2, 3)))
    tensors = inputs(draw, operator, torch.float32)
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    strided = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    assert not strided[0].is_contiguous()
    for one, other in zip(
        worker.attend(tensors, operator, weights), worker.attend(strided, operator, weights), strict=True
    ):
        assert torch.equal(one, other)


def test_a_run_repeats_to_the_bit(worker, draw):
    operator = MeRoPE(head_dim=64).operator(random_drive(13, views=2, grid=(2, 3)))
    tensors = inputs(draw, operator, torch.float16)
    weights = torch.randn(tensors[0].shape, generator=draw, dtype=torch.float64)
    first, second = (worker.attend(tensors, operator, weights) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


PROGRAM = """
import torch
from merope.attention.fused import fused_attention, why_not_fused
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE

encoding = MeRoPE(head_dim=64)
operator = encoding.operator(random_drive(0, views=2))


def attend(q, k, v, operator):
    assert why_not_fused(q, operator) is None
    return fused_attention(q, k, v, operator, extra_tokens=0, key_mask=None, frame_causal=False)


graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)


compiled = torch.compile(attend, fullgraph=True, backend=backend)
for seed in (0, 1):
    operator = encoding.operator(random_drive(seed, views=2))
    tensors = [torch.randn(2, 2, 12, 64, requires_grad=True) for _ in range(3)]
    found = []
    for function in (attend, compiled):
        out = function(*tensors, operator)
        found.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
assert len(graphs) == 1, f"{len(graphs)} graphs"

# Other numbers of cameras and of tokens: sizes are not known any more when it compiles again.
for views, grid in ((3, (2, 3)), (4, (2, 3)), (2, (3, 5)), (3, (1, 7))):
    operator = encoding.operator(random_drive(0, views=views, grid=grid))
    tensors = [torch.randn(2, 2, operator.num_keys, 64) for _ in range(3)]
    ours, eager = (function(*tensors, operator) for function in (compiled, attend))
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)

rows = [torch.randn(2, 1, 12, 64, requires_grad=True) for _ in range(3)]
from merope.attention.fused_rows import pair_table, plan_layout, triplet_table

call = (None, triplet_table(operator), pair_table(operator), 0.125, list(plan_layout(operator)), 2, 0, False)
torch.library.opcheck(torch.ops.merope.fused_attention, (*rows, *call))
print("compiled")
"""


@pytest.mark.slow
def test_it_compiles_to_one_graph_and_its_registration_holds():
    ran = run_python(PROGRAM, environment={"TRITON_INTERPRET": "1"}, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "compiled"


def test_attention_imports_no_triton_and_works_without_it():
    program = """
import sys
import torch
sys.modules["triton"] = None
import merope
import merope.attention.fused
from merope.attention.fused import why_not_fused
from merope.cameras.scenes import random_drive
operator = merope.MeRoPE(head_dim=64).operator(random_drive(0))
assert not any(name.startswith("triton.") for name in sys.modules)
print(why_not_fused(torch.zeros(2, 1, 18, 64), operator))
"""
    ran = run_python(program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "triton is not installed; pip install 'merope[triton]'"


@pytest.fixture
def capable_device(monkeypatch):
    monkeypatch.setattr(fused, "device_obstacle", lambda kind, index: None)


@pytest.mark.usefixtures("capable_device")
class TestReasons:
    def reason(self, operator, dtype=torch.float32):
        query = torch.zeros(operator.batch, HEADS, operator.num_queries, operator.head_dim, dtype=dtype)
        return fused.why_not_fused(query, operator)

    def test_what_is_served_has_none(self):
        operator = MeRoPE(head_dim=64).operator(random_drive(0))
        assert self.reason(operator) is None
        assert self.reason(operator, torch.bfloat16) is None

    def test_what_is_made_when_needed_is_served(self):
        operator = MeRoPE(head_dim=64).operator(random_drive(0), anchor_bytes=0)
        assert self.reason(operator) is None

    def test_float64(self):
        operator = MeRoPE(head_dim=64).operator(random_drive(0))
        assert self.reason(operator, torch.float64) == (
            "it computes in bfloat16, float16 or float32, and this call in torch.float64"
        )

    @pytest.mark.parametrize("name", ["ucpe", "gta", "prope", "native", "none"])
    @pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")
    def test_encodings_that_factor_per_token(self, name):
        operator = default_encoding(name, head_dim=64, num_heads=HEADS).operator(random_drive(0))
        assert self.reason(operator).startswith(
            "no band that acts on keys or values depends on the query camera"
        )

    def test_grouped_bands_that_act_on_queries_alone(self):
        operator = replace(MeRoPE(head_dim=64).operator(random_drive(0)), acts_on=frozenset("q"))
        assert self.reason(operator).startswith("no band that acts on keys or values")

    def test_blocks_of_four(self):
        assert self.reason(random_operator(dtype=torch.float32)) == (
            "band 'poses' depends on the query camera through Matrix4; the kernel turns pairs and triplets"
        )

    def test_factors_that_are_trained(self):
        operator = MeRoPE(head_dim=64).operator(random_drive(0))
        trained = operator.map_tensors(lambda tensor: tensor.clone().requires_grad_())
        assert self.reason(trained) == (
            "the maps of band 'disp' depend on the query camera and require gradients; the kernel has gradients for "
            "queries, keys and values alone"
        )
        with torch.no_grad():
            assert self.reason(trained) is None

    def test_factors_that_are_trained_and_made_when_needed(self):
        drive = random_drive(0)
        # Rays that are trained reach the anchors alone; the phases take the centres.
        trained = replace(drive, dirs_cam=drive.dirs_cam.clone().requires_grad_())
        operator = MeRoPE(head_dim=64).operator(trained, anchor_bytes=0)
        assert operator.recomputed_bytes > 0
        assert self.reason(operator).startswith(
            "the maps of band 'disp' depend on the query camera and require gradients"
        )
        with torch.no_grad():
            assert self.reason(operator) is None

    def test_factors_that_no_query_camera_changes_may_be_trained(self, worker, draw):
        operator = MeRoPE(head_dim=64).operator(random_drive(0))
        bands = [
            band
            if band.grouped
            else replace(
                band,
                left=band.left.map_tensors(lambda tensor: tensor.clone().requires_grad_()),
            )
            for band in operator.bands
        ]
        assert self.reason(replace(operator, bands=tuple(bands))) is None

    def test_rows_that_are_too_long(self):
        operator = without_matrix4(random_operator(dtype=torch.float32))
        wide = replace(operator, bands=(*operator.bands, Band(name="more", width=250)))
        assert self.reason(wide) == "288 channels do not fit into a row of 256 (padding counts)"


def test_a_device_that_is_no_gpu_is_a_reason():
    operator = MeRoPE(head_dim=64).operator(random_drive(0))
    assert fused.why_not_fused(torch.zeros(2, 1, 18, 64), operator) == (
        "it runs on NVIDIA GPUs, and the query is on 'cpu'"
    )


@pytest.mark.parametrize(("head_dim", "row"), [(64, 64), (128, 128), (192, 192)])
def test_rows_of_merope_have_no_padding_and_two_runs(head_dim, row):
    layout = fused.plan_layout(MeRoPE(head_dim=head_dim).operator(random_drive(0)))
    assert layout.row == row
    assert layout.width1 == 0
