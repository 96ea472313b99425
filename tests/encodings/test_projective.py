"""What CaPE, GTA, PRoPE, UCPE and ReRoPE share: growth with the baseline, one world frame as good as another."""

import dataclasses
import math

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    moved_rigidly,
    pinhole_dirs,
    pinhole_lens,
    random_drive,
    scene,
    seen_through,
    turned,
)
from merope.cameras.scenes import matrices as poses
from merope.encodings import GTA, UCPE, CaPE, CarvedMeRoPE, HeadLayout, PRoPE, ReRoPE
from merope.encodings.projective import released_channel_order, rigid, rigid_inverse, tile_widths
from merope.encodings.scale import ScaleWarning, TranslationScale
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.fresh_python import run_python

PROJECTIVE = {
    "cape": CaPE(head_dim=16),
    "cape_half": CaPE(head_dim=16, tiles="half"),
    "gta": GTA(head_dim=16),
    "prope": PRoPE(head_dim=16, pretend_pinhole=True),
    "prope_whole": PRoPE(head_dim=16, tiles="whole", pretend_pinhole=True),
    "ucpe": UCPE(head_dim=16),
    "rerope": ReRoPE(head_dim=24, pairs=4, pretend_pinhole=True),
    "rerope_poses": ReRoPE(head_dim=24, pairs=4, with_lens=False),
}
CARVED = {
    "carved": CarvedMeRoPE(head_dim=64),
    "carved_budget": CarvedMeRoPE(head_dim=64, layout=HeadLayout.for_head_dim(64)),
    "carved_ray": CarvedMeRoPE(head_dim=64, layout=HeadLayout.for_head_dim(64), frames="ray"),
}
ALL = PROJECTIVE | CARVED

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


# No lens has a ray at the antipode.
SERVED = [
    (name, kind)
    for name in SCENES
    for kind in ALL
    if name != "ray_at_antipode" or kind not in ("prope", "prope_whole", "rerope")
]


def drive(step):
    """Three views that turn, ``step`` metres apart along a slanted line."""
    centers = torch.zeros(2, 3, 3, dtype=torch.float64)
    centers[..., 0], centers[1, :, 2] = torch.arange(3) * step, torch.arange(3) * step / 2
    return seen_through(pinhole_lens(), turned(), centers)


@pytest.mark.parametrize(("name", "kind"), SERVED)
def test_a_token_meets_itself_through_the_identity(name, kind):
    encoding = ALL[kind]
    dense = exactly(encoding, scene(name))
    tokens = torch.arange(dense.shape[1])
    identity = torch.eye(encoding.head_dim, dtype=torch.float64).expand(2, len(tokens), -1, -1)
    torch.testing.assert_close(dense[:, tokens, tokens], identity, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, kind) for name, kind in SERVED if name != "far_origin"), *(("random", kind) for kind in ALL)],
)
def test_no_rigid_motion_of_the_world_is_seen(name, kind):
    encoding = ALL[kind]
    here = random_drive(6) if name == "random" else scene(name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    torch.testing.assert_close(exactly(encoding, there), exactly(encoding, here), rtol=0, atol=1e-9)


@pytest.mark.parametrize("encoding", ALL.values(), ids=ALL)
def test_map_coordinates_of_five_million_metres_cost_no_digits(encoding):
    here = drive(1.0)
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    moved = moved_rigidly(here, torch.tensor([0.2, 0.5, -0.4]), origin)
    torch.testing.assert_close(exactly(encoding, moved), exactly(encoding, here), rtol=0, atol=1e-7)
    # Factors are cast to float32 only after the anchor is taken off.
    single = encoding.operator(moved).dense().double()
    torch.testing.assert_close(single, exactly(encoding, here), rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", ALL.values(), ids=ALL)
def test_camera_matrices_are_kept_once_per_camera_and_ray_matrices_once_per_token(encoding):
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    operator = encoding.operator(queries, keys)
    for band in operator.bands:
        if band.name in ("pose", "trans"):
            assert band.right.entries(3 if band.grouped else 2) == keys.num_views
        if band.name == "pose":
            assert band.left.entries(2) == queries.num_views
        if band.name == "ray":
            assert (band.left.entries(2), band.right.entries(2)) == (queries.num_tokens, keys.num_tokens)


@pytest.mark.parametrize("encoding", PROJECTIVE.values(), ids=PROJECTIVE)
def test_operator_and_logits_grow_linearly_with_the_baseline(encoding):
    still, near, far = (exactly(encoding, drive(step)) for step in (0.0, 3.0, 3000.0))
    torch.testing.assert_close(far - still, 1000 * (near - still), rtol=1e-10, atol=1e-8)
    q, k = torch.randn(2, 18, encoding.head_dim).double(), torch.randn(2, 18, encoding.head_dim).double()
    logits = [torch.einsum("bad,bacde,bce->bac", q, dense, k) for dense in (still, near, far)]
    torch.testing.assert_close(logits[2] - logits[0], 1000 * (logits[1] - logits[0]), rtol=1e-9, atol=1e-7)
    assert (logits[2] - logits[0]).abs().max() > 1000
    assert not encoding.claims.norm_preserving and encoding.claims.per_token and encoding.claims.metric
    assert not encoding.operator(drive(1.0)).grouped
    values = torch.linalg.svdvals(far)
    assert values.max() > 1000


@pytest.mark.parametrize("encoding", CARVED.values(), ids=CARVED)
@pytest.mark.parametrize("step", [0.0, 1.0, 1e4])
def test_merope_s_blocks_keep_norms_in_the_backbone_too(encoding, step):
    dense = encoding.operator(drive(step)).dense().double()
    identity = torch.eye(64, dtype=torch.float64).expand_as(dense)
    torch.testing.assert_close(dense.mT @ dense, identity, rtol=0, atol=1e-5)
    assert encoding.claims.norm_preserving and encoding.claims.metric and not encoding.claims.per_token
    assert encoding.operator(drive(1.0)).grouped


@pytest.mark.parametrize("encoding", PROJECTIVE.values(), ids=PROJECTIVE)
def test_the_scale_multiplies_every_translation(encoding):
    scaled = dataclasses.replace(encoding, scale=TranslationScale(per_metre=0.25, reach=20.0))
    torch.testing.assert_close(exactly(scaled, drive(8.0)), exactly(encoding, drive(2.0)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("place", range(len(PROJECTIVE)))
def test_baselines_beyond_the_scale_s_reach_are_named(place):
    kind, encoding = list(PROJECTIVE.items())[place]
    # It warns once for each scale, so every encoding has its own.
    scale = TranslationScale(per_metre=0.5 + place / 1000, reach=7.125)
    name = type(encoding).__name__
    with pytest.warns(ScaleWarning, match=rf"{name}: a baseline of .* m leaves the 7.12 m"):
        dataclasses.replace(encoding, scale=scale).operator(drive(11.0))


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("encoding", ALL.values(), ids=ALL)
def test_values_are_touched_only_where_acts_on_says_so(encoding, backend):
    view = drive(0.3)
    q, k, v = (torch.randn(2, 3, 18, encoding.head_dim, dtype=torch.float64) for _ in range(3))
    for acts_on in ("qk", "qkvo"):
        operator = dataclasses.replace(encoding, acts_on=acts_on).operator(view, dtype=torch.float64)
        assert operator.acts_on == frozenset(acts_on)
        dense = operator.dense()
        logits = torch.einsum("bhad,bacde,bhce->bhac", q, dense, k) / math.sqrt(encoding.head_dim)
        weights = logits.softmax(-1)
        if acts_on == "qk":
            expected = weights @ v
        else:
            expected = torch.einsum("bhac,bacde,bhce->bhad", weights, dense, v)
        got = camera_attention(q, k, v, operator, backend=backend)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_the_published_sides_are_the_defaults():
    assert [kind().acts_on for kind in (CaPE, ReRoPE, CarvedMeRoPE)] == ["qk"] * 3
    assert [kind().acts_on for kind in (GTA, PRoPE, UCPE)] == ["qkvo"] * 3
    assert [kind.facts.placement for kind in (CaPE, GTA, PRoPE, UCPE)] == ["branch"] * 4
    assert [kind.facts.placement for kind in (ReRoPE, CarvedMeRoPE)] == ["backbone"] * 2


@pytest.mark.parametrize("size", [64, 128, 192])
@pytest.mark.parametrize("kind", [CaPE, GTA, PRoPE, UCPE, ReRoPE, CarvedMeRoPE])
def test_every_head_size_of_the_paper_has_a_layout(kind, size):
    operator = kind(head_dim=size).operator(random_drive(views=2))
    assert operator.head_dim == size == kind(head_dim=size).head_dim
    assert {tensor.dtype for tensor in operator.tensors()} == {torch.float32}


@pytest.mark.parametrize("kind", [GTA, PRoPE, UCPE])
def test_half_of_the_head_is_matrices_and_a_quarter_is_columns_and_rows(kind):
    bands = kind().operator(random_drive()).bands
    assert [(band.size, band.width) for band in bands] == [(4, 64), (2, 64)]
    assert CaPE().operator(random_drive()).bands[0].width == 128


@pytest.mark.parametrize("encoding", ALL.values(), ids=ALL)
def test_operator_is_bit_identical_under_autocast_and_another_default_dtype(encoding):
    view = random_drive(7)
    outside = encoding.operator(view)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = encoding.operator(view)
    torch.set_default_dtype(torch.float64)
    try:
        elsewhere = encoding.operator(view)
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b, c in zip(outside.tensors(), inside.tensors(), elsewhere.tensors(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b) and torch.equal(a, c)


@pytest.mark.parametrize("encoding", ALL.values(), ids=ALL)
def test_a_device_without_float64_is_served(encoding):
    operator = encoding.operator(random_drive(), device="meta")
    assert {(t.device.type, t.dtype) for t in operator.tensors()} == {("meta", torch.float32)}


@pytest.mark.parametrize("encoding", [ALL["gta"], ALL["cape"], ALL["ucpe"], ALL["carved_budget"]])
@pytest.mark.parametrize("name", SCENES)
def test_gradients_with_respect_to_poses_and_rays_are_finite(name, encoding):
    view = scene(name)
    leaves = [
        value.clone().requires_grad_() for value in (view.R_world_cam, view.center_world, view.dirs_cam)
    ]
    again = ViewRays.from_poses(_pose_matrices(leaves[0], leaves[1]), leaves[2], grid=GRID)
    operator = encoding.operator(again, dtype=torch.float64)
    sum(tensor.sin().sum() for tensor in operator.tensors()).backward()
    for leaf in leaves[:2]:
        assert torch.isfinite(leaf.grad).all() and leaf.grad.abs().max() > 0
    assert leaves[2].grad is None or torch.isfinite(leaves[2].grad).all()


def _pose_matrices(rotations, centers):
    bottom = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(2, 3, 1, 4)
    return torch.cat([torch.cat([rotations, centers[..., None]], -1), bottom], -2)


# The pieces


def test_the_inverse_of_a_rigid_motion_is_exact():
    T = rigid(rotvec_to_matrix(torch.randn(5, 3).double()), 1e3 * torch.randn(5, 3).double())
    identity = torch.eye(4, dtype=torch.float64).expand(5, 4, 4)
    torch.testing.assert_close(T @ rigid_inverse(T), identity, rtol=0, atol=1e-12)
    assert torch.equal(rigid_inverse(T)[:, 3], identity[:, 3])
    assert poses(T[:, :3, :3], T[:, :3, 3]).equal(T)


def test_released_channels_are_halves_of_a_band_where_ours_are_neighbours():
    order = released_channel_order(16)
    assert order.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 14, 13, 15]
    assert released_channel_order(32)[16:24].tolist() == [16, 20, 17, 21, 18, 22, 19, 23]
    for size in (64, 128, 192):
        assert released_channel_order(size).sort().values.equal(torch.arange(size))


@pytest.mark.parametrize(
    ("size", "tiles", "message"),
    [
        (100, "half", r"multiple of 8.*got 100 = 50 \+ 25 \+ 25"),
        (12, "half", r"got 12 = 6 \+ 3 \+ 3"),
        (0, "half", r"multiple of 8"),
        (126, "whole", r"head_dim must be a multiple of 4 to be all 4 x 4 blocks; got 126"),
    ],
)
def test_heads_that_do_not_divide_say_so_with_the_arithmetic(size, tiles, message):
    with pytest.raises(ValueError, match=message):
        tile_widths(size, tiles)
    if tiles == "half":
        for kind in (GTA, UCPE, PRoPE):
            with pytest.raises(ValueError, match=message):
                kind(head_dim=size)


UNKNOWN_WORDS = {
    "CaPE(tiles='most')": "tiles must be one of half, whole; got 'most'.",
    "GTA(image_positions='pixel')": "image_positions must be 'patch' or 'fraction'; got 'pixel'.",
    "UCPE(degenerate='nan')": "degenerate must be 'orthonormal' or 'zero'; got 'nan'.",
    "UCPE(rays_at='edge')": "rays_at must be 'patch_center' or 'patch_corner'; got 'edge'.",
    "CarvedMeRoPE(frames='world')": "frames must be 'camera' or 'ray'; got 'world'.",
    "PRoPE(acts_on='v')": "acts_on must be 'qkvo' or 'qk'; got 'v'.",
}


def test_unknown_words_are_refused_without_the_type_checks_of_the_test_run():
    lines = ["from merope.encodings import *"]
    for made in UNKNOWN_WORDS:
        lines += ["try:", f"    {made}", "except ValueError as error:", "    print(error)"]
    ran = run_python("\n".join(lines))
    assert ran.stdout.splitlines() == list(UNKNOWN_WORDS.values()), ran.stderr


def test_rays_of_a_lens_that_is_missing_ask_for_it():
    view = random_drive()
    bare = ViewRays.from_poses(poses(view.R_world_cam, view.center_world), view.dirs_cam, grid=GRID)
    for encoding in (PRoPE(head_dim=16), ReRoPE(head_dim=64)):
        with pytest.raises(ValueError, match="needs their lens"):
            encoding.operator(bare)
    assert pinhole_dirs().shape[0] == bare.tokens_per_view
