"""Factored operators against their own dense form, block by block and pair by pair."""

import dataclasses

import pytest
import torch

from merope.geometry.rotations import rotvec_to_matrix
from merope.operators import Band, CameraOperator, Matrix4, MinRotate3, Rotate2, Rotate3, apply_block
from tests.support.operators import BATCH, CAMERAS, KEYS, PER_CAMERA, random_operator


def a_block(kind):
    if kind is Rotate3:
        return Rotate3(rotvec_to_matrix(torch.randn(2, 5, 4, 3, dtype=torch.float64)))
    if kind is MinRotate3:
        axis = torch.randn(2, 5, 4, 3, dtype=torch.float64)
        return MinRotate3(axis / axis.norm(dim=-1, keepdim=True))
    if kind is Rotate2:
        phases = torch.randn(2, 5, 4, dtype=torch.float64)
        return Rotate2(phases.cos(), phases.sin())
    return Matrix4(torch.randn(2, 5, 4, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", [Rotate3, MinRotate3, Rotate2, Matrix4])
def test_a_block_applies_its_matrix_or_the_transpose(kind, transpose):
    block = a_block(kind)
    x = torch.randn(2, 5, block.size, 4, 3, dtype=torch.float64)  # [..., size, M, copies]
    matrix = block.matrix()
    assert matrix.shape == (2, 5, 4, block.size, block.size)
    if transpose:
        matrix = matrix.mT
    expected = torch.einsum("bnmij,bnjmc->bnimc", matrix, x)
    torch.testing.assert_close(apply_block(block, x, transpose=transpose), expected, rtol=0, atol=1e-14)
    assert block.entries(1) == 5


@pytest.mark.parametrize("kind", [Rotate3, MinRotate3, Rotate2])
def test_rotation_blocks_are_rotations(kind):
    matrix = a_block(kind).matrix()
    identity = torch.eye(matrix.shape[-1], dtype=torch.float64).expand_as(matrix)
    torch.testing.assert_close(matrix.mT @ matrix, identity, rtol=0, atol=1e-14)
    assert (torch.det(matrix) > 0).all()


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
def test_dense_places_every_pair_s_blocks_in_the_paper_s_order(heads, grouped):
    operator = random_operator(heads=heads, grouped=grouped)
    dense = operator.dense()
    head_axis = (heads,) if heads > 1 else ()
    assert dense.shape == (BATCH, *head_axis, CAMERAS * PER_CAMERA, KEYS, 46, 46)
    if heads == 1:
        dense = dense[:, None]
    anchors, metres = operator.bands[1], operator.bands[3]
    for a, b in ((0, 0), (5, 9), (11, 4), (7, 3)):
        camera = a // PER_CAMERA
        expected = torch.zeros(BATCH, heads, 46, 46, dtype=torch.float64)
        expected[..., :5, :5] = torch.eye(5)
        left = anchors.left.matrix()[:, :, a]
        right = anchors.right.matrix()[:, :, camera, b] if grouped else anchors.right.matrix()[:, :, b]
        for place in range(4):
            at = 5 + 3 * place
            expected[..., at : at + 3, at : at + 3] = (left.mT @ right)[:, :, place // 2]
        ray = operator.bands[2].left.matrix()[:, :, a].mT @ operator.bands[2].right.matrix()[:, :, b]
        for place in range(3):
            at = 17 + 3 * place
            expected[..., at : at + 3, at : at + 3] = ray[:, :, 0]
        plane = (
            metres.right.matrix()[:, :, camera, b // 2] if grouped else metres.right.matrix()[:, :, b // 2]
        )
        for place in range(3):
            at = 26 + 2 * place
            expected[..., at : at + 2, at : at + 2] = plane[:, :, place]
        for place in range(2):
            at = 32 + 2 * place
            expected[..., at : at + 2, at : at + 2] = operator.bands[4].left.matrix()[:, :, camera, 0].mT
        poses = operator.bands[5]
        right = poses.right.matrix()[:, :, camera, b] if grouped else poses.right.matrix()[:, :, b]
        both = poses.left.matrix()[:, :, a].mT @ right
        for place in range(2):
            at = 36 + 4 * place
            expected[..., at : at + 4, at : at + 4] = both[:, :, 0]
        native = operator.bands[6]
        expected[..., 44:, 44:] = (native.left.matrix()[:, :, a].mT @ native.right.matrix()[:, :, b])[:, :, 0]
        torch.testing.assert_close(dense[:, :, a, b], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("grouped", [True, False])
def test_the_pairs_of_a_band_are_its_blocks_in_the_dense_form(grouped):
    operator = random_operator(heads=3, grouped=grouped)
    dense, start = operator.dense(), 0
    for band in operator.bands:
        pairs = operator.band_pairs(band).expand(BATCH, 3, -1, -1, -1, -1, -1)
        # Block m, copy c: neighbours first.
        for place in range(band.num_blocks * band.copies):
            at = slice(start + place * band.size, start + (place + 1) * band.size)
            expected = pairs[:, :, :, :, place // band.copies]
            torch.testing.assert_close(dense[..., at, at], expected.double(), rtol=0, atol=1e-14)
        start += band.width


def test_the_left_maps_alone_are_the_operator_against_identity_keys():
    operator = random_operator(heads=2)
    bare = dataclasses.replace(
        operator,
        bands=tuple(dataclasses.replace(band, right=None, grouped=False) for band in operator.bands),
    )
    torch.testing.assert_close(operator.dense_left(), bare.dense()[:, :, :, 0], rtol=0, atol=0)


def with_wide_entries(operator):
    """Bands whose entries serve 6 and 12 of the 12 query tokens, and 5 of the 10 keys."""
    phases = torch.randn(BATCH, 1, CAMERAS, 2, 3, dtype=torch.float64)
    turns = Rotate2(phases.cos(), phases.sin())
    wide = Band(name="wide", width=6, size=2, num_blocks=3, right=turns, grouped=True)
    one = turns.map_tensors(lambda tensor: tensor[:, :, 0, :1])
    two = turns.map_tensors(lambda tensor: tensor[:, :, 1])
    whole = Band(name="whole", width=6, size=2, num_blocks=3, left=one, right=two)
    halves = Band(name="halves", width=6, size=2, num_blocks=3, left=two, right=one)
    return dataclasses.replace(operator, bands=(*operator.bands, wide, whole, halves))


@pytest.mark.parametrize("num_keys", [None, 10, 7, 1])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (0, 1), (1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("grouped", [True, False])
def test_an_operator_of_some_query_cameras_has_their_rows(grouped, heads, first, last, num_keys):
    operator = with_wide_entries(random_operator(heads=heads, grouped=grouped))
    operator = dataclasses.replace(operator, key_valid=torch.rand(BATCH, KEYS) < 0.5)
    part = operator.for_query_cameras(first, last, num_keys=num_keys)
    kept = KEYS if num_keys is None else num_keys
    assert (part.num_query_cameras, part.num_queries, part.num_keys) == (
        last - first,
        PER_CAMERA * (last - first),
        kept,
    )
    assert torch.equal(part.key_valid, operator.key_valid[:, :kept])
    rows = operator.dense()[..., PER_CAMERA * first : PER_CAMERA * last, :kept, :, :]
    assert torch.equal(part.dense(), rows)


def test_the_factors_of_some_query_cameras_are_no_copies_where_entries_end_with_cameras():
    operator = random_operator()
    for ours, theirs in zip(operator.for_query_cameras(1, 3).tensors(), operator.tensors(), strict=True):
        assert ours.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("first", "last", "num_keys", "message"),
    [
        (0, 4, None, "query cameras 0 to 4 are no run of the operator's 3"),
        (2, 2, None, "query cameras 2 to 2 are no run"),
        (-1, 2, None, "query cameras -1 to 2 are no run"),
        (0, 1, 11, r"num_keys must lie in 1 ... 10, the operator's keys; got 11"),
        (0, 1, 0, "num_keys must lie in 1 ... 10, the operator's keys; got 0"),
    ],
)
def test_runs_that_an_operator_does_not_have_are_refused(first, last, num_keys, message):
    with pytest.raises(ValueError, match=message):
        random_operator().for_query_cameras(first, last, num_keys=num_keys)


def test_sizes_are_sums_of_the_bands():
    operator = random_operator()
    assert operator.head_dim == 46
    assert operator.grouped
    assert not random_operator(grouped=False).grouped
    assert [band.copies for band in operator.bands] == [5, 2, 3, 1, 2, 2, 1]


def test_every_tensor_is_listed_and_mapped():
    operator = random_operator()
    # keep 0, anchors 2, rays 2, metres 2 (cos, sin), left 2, poses 2, native 4
    assert len(operator.tensors()) == 14
    halved = operator.map_tensors(lambda tensor: tensor / 2)
    for a, b in zip(operator.tensors(), halved.tensors(), strict=True):
        assert torch.equal(a, 2 * b)
    assert halved.acts_on == operator.acts_on


def test_an_operator_moves_between_devices_without_a_cast():
    moved = random_operator(dtype=torch.float32).to("meta")
    assert {(tensor.device.type, tensor.dtype) for tensor in moved.tensors()} == {("meta", torch.float32)}


def test_dense_has_gradients_for_every_tensor():
    operator = random_operator()
    leaves = [tensor.clone().requires_grad_() for tensor in operator.tensors()]
    pending = iter(leaves)
    dense = operator.map_tensors(lambda tensor: next(pending)).dense()
    (dense * torch.randn_like(dense)).sum().backward()
    for leaf in leaves:
        assert leaf.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Band(name="disp", width=37, size=3),
            "band 'disp': width 37 is not a multiple of 1 blocks x 3",
        ),
        (lambda: Band(name="disp", width=12, size=3, num_blocks=3), "12 is not a multiple of 3 blocks x 3"),
        (lambda: Band(name="trans", width=0), "band 'trans' needs channels and blocks; got width 0"),
        (lambda: Band(name="trans", width=4, num_blocks=0), "4 and 0 blocks"),
        (
            lambda: dataclasses.replace(random_operator(), num_query_cameras=5),
            "num_queries 12 is not a multiple of 5 query cameras",
        ),
        (
            lambda: dataclasses.replace(random_operator(), acts_on=frozenset("qx")),
            r"acts_on must be a subset of q, k, v, o; got \['q', 'x'\]",
        ),
    ],
)
def test_widths_and_counts_that_do_not_fit_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_band_whose_factors_do_not_fit_its_tokens_is_refused_when_the_operator_is_made():
    phases = torch.zeros(2, 1, 5, 1)
    band = Band(name="native", width=2, size=2, left=Rotate2(phases, phases))
    with pytest.raises(ValueError, match=r"band 'native': left has 5 entries for 12 query tokens"):
        CameraOperator(bands=(band,), batch=2, num_query_cameras=3, num_queries=12, num_keys=10)
    grouped = Band(
        name="trans", width=2, size=2, right=Rotate2(phases[:, :, None], phases[:, :, None]), grouped=True
    )
    with pytest.raises(ValueError, match=r"band 'trans': right serves 1 query cameras; the operator has 3"):
        CameraOperator(bands=(grouped,), batch=2, num_query_cameras=3, num_queries=12, num_keys=10)


def test_blocks_and_heads_that_a_band_does_not_have_are_refused():
    """Compiled loops would read and write past their memory."""
    plane = Rotate2(torch.ones(2, 2, 12, 3), torch.zeros(2, 2, 12, 3))
    call = {"batch": 2, "num_query_cameras": 3, "num_queries": 12, "num_keys": 12}
    band = Band(name="many", width=12, size=2, num_blocks=1, right=plane)
    with pytest.raises(ValueError, match="band 'many': right holds 3 different blocks; the band says 1"):
        CameraOperator(bands=(band,), **call)
    bands = (
        Band(name="two", width=12, size=2, num_blocks=3, right=plane),
        Band(
            name="four",
            width=12,
            size=2,
            num_blocks=3,
            left=plane.map_tensors(lambda x: x.repeat(1, 2, 1, 1)),
        ),
    )
    with pytest.raises(ValueError, match="band 'two': right tells 2 heads apart, another band 4"):
        CameraOperator(bands=bands, **call)
