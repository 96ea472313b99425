"""URoPE against a second derivation, pair by pair, and what its source claims for it."""

import json

import numpy as np
import pytest
import torch

from merope.attention import camera_attention
from merope.cameras import KannalaBrandt, Pinhole, UnifiedCamera
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    matrices,
    moved_rigidly,
    pinhole_dirs,
    pinhole_lens,
    random_drive,
    rays,
    scene,
    seen_through,
    turned,
)
from merope.encodings import URoPE, encoding_from_config, encoding_to_config
from tests.encodings.seen_by_hand import in_query, pixel_ray, seen_at, turn

SMALL = URoPE(head_dim=16)
WITH_LENS = [name for name in SCENES if scene(name).lens is not None]


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def derived_pair(queries, keys, encoding, place, head):
    """U_ab of one head by hand, for query (view, patch) and key (view, patch) of one clip."""
    clip, i, p, j, q = place
    ray = pixel_ray(keys, clip, j, float(keys.col[q]) + 0.5, float(keys.row[q]) + 0.5)
    if encoding.anchor_depth == "ray":
        ray = ray / np.linalg.norm(ray)
    elif not isinstance(keys.lens, Pinhole):
        ray = ray / max(ray[2], 0.05)
    near, far, count = encoding.depth_min, encoding.depth_max, encoding.num_anchors
    depths = (
        np.linspace(near, far, count) if encoding.spacing == "uniform" else np.geomspace(near, far, count)
    )
    if count == 1:
        depths = [(near + far) / 2]
    if encoding.num_heads >= count:
        depths = [depths[head % count]]
    pairs = encoding.head_dim // 4 // len(depths)
    out = np.zeros((encoding.head_dim, encoding.head_dim))
    start = 0
    for depth in depths:
        world = keys.center_world[clip, j].numpy() + depth * keys.R_world_cam[clip, j].numpy() @ ray
        pixel = seen_at(
            queries,
            clip,
            i,
            in_query(queries, clip, i, world),
            near=encoding.near_share * near,
            margin=encoding.margin,
        )
        own = (float(queries.col[p]) + 0.5, float(queries.row[p]) + 0.5)
        for axis in range(2):
            for m in range(pairs):
                phase = (pixel[axis] - own[axis]) / encoding.base ** (m / pairs)
                out[start : start + 2, start : start + 2] = turn(phase)
                start += 2
    assert start == encoding.head_dim
    return out


def assert_equals_derivation(encoding, queries, keys, atol=1e-11):
    ours = exactly(encoding, queries, keys).numpy()
    per_head = ours.ndim == 6
    assert per_head == (encoding.num_heads >= max(2, encoding.num_anchors))
    num, other = queries.tokens_per_view, keys.tokens_per_view
    for place in np.ndindex(queries.batch, queries.num_views, num, keys.num_views, other):
        if not keys.valid[place[0], place[3], place[4]]:
            continue
        clip, a, b = place[0], place[1] * num + place[2], place[3] * other + place[4]
        for head in range(encoding.num_heads if per_head else 1):
            block = ours[clip, head, a, b] if per_head else ours[clip, a, b]
            np.testing.assert_allclose(
                block, derived_pair(queries, keys, encoding, place, head), rtol=0, atol=atol
            )


@pytest.mark.parametrize("name", WITH_LENS)
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    queries = scene(name)
    # Centres at 5e6 m carry 1e-9 m, and a point close to the query's plane magnifies it.
    atol = 1e-7 if name == "far_origin" else 1e-11
    assert_equals_derivation(URoPE(head_dim=8, num_heads=5), queries, queries, atol)


@pytest.mark.parametrize(
    "options",
    [
        {"head_dim": 64},
        {"num_heads": 1},
        {"head_dim": 48, "num_heads": 3},
        {"head_dim": 8, "num_heads": 12},
        {"head_dim": 16, "num_anchors": 6, "num_heads": 7, "spacing": "geometric", "depth_min": 0.5},
        {"head_dim": 16, "num_anchors": 1, "num_heads": 2, "base": 10_000.0},
        {"head_dim": 16, "anchor_depth": "ray", "margin": 0.5, "near_share": 0.7},
        {"head_dim": 16, "margin": 0.0, "depth_max": 60.0},
    ],
)
def test_every_option_equals_the_second_derivation(options):
    queries = random_drive(1, views=2, reach=8.0)
    assert_equals_derivation(URoPE(**options), queries, queries)


@pytest.mark.parametrize("anchor_depth", ["axis", "ray"])
@pytest.mark.parametrize(
    "lens",
    [
        KannalaBrandt.from_fov(fov_x_deg=190.0, height=2, width=3),
        UnifiedCamera.from_fov(fov_x_deg=190.0, xi=0.8, height=2, width=3),
    ],
    ids=["fisheye", "unified"],
)
def test_other_lenses_project_by_themselves(lens, anchor_depth):
    queries = seen_through(lens, turned(), 5 * torch.randn(2, 3, 3, dtype=torch.float64))
    assert_equals_derivation(
        URoPE(head_dim=8, num_heads=4, anchor_depth=anchor_depth), queries, queries, atol=1e-9
    )


def test_keys_may_come_from_other_cameras_grids_and_lenses():
    queries = random_drive(4, views=2, reach=5.0)
    keys = seen_through(
        pinhole_lens((1, 4), half_width=0.3), turned(), torch.randn(2, 3, 3, dtype=torch.float64)
    )
    assert exactly(SMALL, queries, keys).shape == (2, 6, 12, 12, 16, 16)
    assert_equals_derivation(URoPE(head_dim=16), queries, keys)


def test_every_view_may_have_its_own_lens():
    draw = torch.Generator().manual_seed(3)
    focal_px = 2 + torch.rand(2, 3, generator=draw, dtype=torch.float64)
    lens = Pinhole(fx=focal_px, fy=focal_px + 0.1, cx=1.4, cy=1.1, width=3, height=2, pixel_origin="corner")
    dirs = lens.pixel_rays()[0].flatten(2, 3)
    centers = 4 * torch.randn(2, 3, 3, generator=draw, dtype=torch.float64)
    queries = ViewRays.from_poses(matrices(turned(), centers), dirs, grid=GRID, camera=lens)
    assert_equals_derivation(URoPE(head_dim=16), queries, queries)


# What the source claims


def test_within_a_view_it_is_the_plain_two_dimensional_rotary_embedding():
    queries = random_drive(2)
    dense = exactly(URoPE(head_dim=16), queries)
    for view in range(3):
        for p, q in np.ndindex(6, 6):
            expected = torch.zeros(16, 16, dtype=torch.float64)
            steps = (float(queries.col[q] - queries.col[p]), float(queries.row[q] - queries.row[p]))
            for at, (axis, m) in enumerate([(axis, m) for axis in range(2) for m in range(4)]):
                block = torch.from_numpy(turn(steps[axis] * 100 ** (-m / 4)))
                expected[2 * at : 2 * at + 2, 2 * at : 2 * at + 2] = block
            block = dense[:, :, view * 6 + p, view * 6 + q]
            torch.testing.assert_close(block, expected.expand_as(block), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", WITH_LENS)
@pytest.mark.parametrize("heads", [1, 6])
def test_every_pairwise_map_is_orthogonal_in_float32(name, heads):
    dense = URoPE(head_dim=32, num_heads=heads).operator(scene(name)).dense().double()
    identity = torch.eye(32, dtype=torch.float64)
    assert (dense.mT @ dense - identity).abs().max() < 1e-5


@pytest.mark.parametrize("name", [*(name for name in WITH_LENS if name != "far_origin"), "random"])
def test_operator_does_not_see_a_rigid_motion_of_the_world(name):
    here = random_drive(6) if name == "random" else scene(name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    torch.testing.assert_close(exactly(SMALL, there), exactly(SMALL, here), rtol=0, atol=1e-9)


def test_operator_does_not_see_map_coordinates_of_five_million_metres():
    here = random_drive(7, reach=5.0)
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    there = moved_rigidly(here, torch.tensor([0.2, 0.5, -0.4]), origin)
    torch.testing.assert_close(exactly(SMALL, there), exactly(SMALL, here), rtol=0, atol=1e-7)


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_scaling_motion_and_anchors_together_changes_nothing_and_motion_alone_does(scale):
    near = random_drive(8, reach=4.0)
    far = rays(near.R_world_cam, scale * near.center_world, near.dirs_cam[0, 0], camera=pinhole_lens())
    scaled = URoPE(head_dim=16, depth_min=2 * scale, depth_max=20 * scale)
    torch.testing.assert_close(exactly(scaled, far), exactly(SMALL, near), rtol=0, atol=1e-10)
    assert (exactly(SMALL, far) - exactly(SMALL, near)).abs().max() > 0.1


def test_nearer_anchors_see_more_parallax():
    # One metre to the side: a point at depth d moves by f / d patches.
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[:, 1, 0] = 1.0
    view = seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), centers)
    dense = exactly(URoPE(head_dim=4, num_heads=4), view)
    focal_px = pinhole_lens().fx
    for head, depth in enumerate((2.0, 8.0, 14.0, 20.0)):
        block = torch.from_numpy(turn(focal_px / depth))
        torch.testing.assert_close(dense[0, head, 0, 6, :2, :2], block)


# Heads and anchors


@pytest.mark.parametrize(
    ("heads", "counts"), [(4, [1, 1, 1, 1]), (6, [2, 2, 1, 1]), (12, [3, 3, 3, 3]), (24, [6, 6, 6, 6])]
)
def test_heads_take_anchors_in_turn(heads, counts):
    encoding = URoPE(head_dim=8, num_heads=heads)
    assigned = [anchor for (anchor,) in encoding.anchors_of_heads]
    assert [assigned.count(anchor) for anchor in range(4)] == counts
    dense = exactly(encoding, random_drive(views=2))
    assert dense.shape[1] == heads
    for head in range(heads):
        assert torch.equal(dense[:, head], dense[:, head % 4])
    assert not torch.equal(dense[:, 0], dense[:, 1])


@pytest.mark.parametrize("heads", [1, 3])
def test_too_few_heads_share_every_head_among_all_anchors(heads):
    encoding = URoPE(num_heads=heads)
    assert encoding.anchors_of_heads == ((0, 1, 2, 3),) * heads
    view = random_drive(views=2)
    operator = encoding.operator(view, dtype=torch.float64)
    assert operator.num_heads == 1
    # A quarter of the channels is what a head of a quarter of the size has with one anchor.
    small = exactly(URoPE(head_dim=32, num_heads=4), view)
    dense = operator.dense()
    for anchor in range(4):
        part = slice(32 * anchor, 32 * anchor + 32)
        assert torch.equal(dense[..., part, part], small[:, anchor])


@pytest.mark.parametrize("size", [64, 128, 192])
@pytest.mark.parametrize("heads", [1, 6])
def test_the_usual_head_sizes_have_a_layout(size, heads):
    assert URoPE(head_dim=size, num_heads=heads).operator(random_drive(views=2)).head_dim == size


def test_anchors_are_spaced_by_difference_or_by_ratio():
    assert URoPE().anchors == (2.0, 8.0, 14.0, 20.0)
    assert URoPE(spacing="geometric").anchors == pytest.approx((2.0, 4.3089, 9.2832, 20.0), rel=1e-4)
    assert URoPE(num_anchors=1).anchors == (11.0,)


# In attention


@pytest.mark.parametrize("heads", [1, 6])
def test_backends_agree_on_values_and_gradients(heads):
    operator = URoPE(head_dim=16, num_heads=heads).operator(scene("fisheye_200deg"), dtype=torch.float64)
    assert operator.acts_on == frozenset("qk")
    inputs = [torch.randn(2, heads, 18, 16, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, heads, 18, 16, dtype=torch.float64)
    results = []
    for options in (
        {"backend": "reference"},
        {"backend": "chunked"},
        {"backend": "chunked", "memory_budget": 1},
    ):
        out = camera_attention(*inputs, operator, **options)
        results.append((out, *torch.autograd.grad((out * weights).sum(), inputs)))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(two, one, rtol=0, atol=1e-12)


def test_operator_is_bit_identical_under_autocast_and_serves_any_device():
    view = random_drive(7)
    outside = URoPE().operator(view)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = URoPE().operator(view)
    for a, b in zip(outside.tensors(), inside.tensors(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)
    assert {t.device.type for t in URoPE().operator(view, device="meta").tensors()} == {"meta"}


def test_gradients_with_respect_to_poses_are_finite():
    for name in WITH_LENS:
        view = scene(name)
        leaves = [value.clone().requires_grad_() for value in (view.R_world_cam, view.center_world)]
        again = ViewRays.from_poses(
            matrices_with_gradients(*leaves), view.dirs_cam, grid=GRID, valid=view.valid, camera=view.lens
        )
        operator = URoPE(head_dim=16).operator(again, dtype=torch.float64)
        sum(tensor.sum() for tensor in operator.tensors()).backward()
        for leaf in leaves:
            assert torch.isfinite(leaf.grad).all()


def matrices_with_gradients(rotations, centers):
    bottom = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(2, 3, 1, 4)
    return torch.cat([torch.cat([rotations, centers[..., None]], -1), bottom], -2)


def test_rays_without_a_lens_are_refused():
    with pytest.raises(ValueError, match=r"URoPE projects points into views and needs their lens.*camera="):
        URoPE().operator(rays(turned(), torch.zeros(2, 3, 3).double(), pinhole_dirs()))


def test_it_survives_json():
    encoding = URoPE(num_heads=3, spacing="geometric", depth_min=1.0)
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    assert stored["name"] == "urope"
    assert encoding_from_config(stored) == encoding


def test_claims_are_those_of_table_1():
    claims = URoPE().claims
    assert (claims.metric, claims.per_token, claims.norm_preserving) == (False, False, True)
    assert URoPE().operator(random_drive(views=2)).grouped


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 130}, r"head_dim 130 is not a multiple of 4 x 1 = 4"),
        (
            {"head_dim": 72, "num_heads": 3},
            r"head_dim 72 is not a multiple of 4 x 4 = 16: .* 3 heads and 4 anchors",
        ),
        ({"num_heads": 0}, r"num_heads and num_anchors must be >= 1; got 0 and 4"),
        ({"depth_min": 0.0}, r"0 < depth_min <= depth_max \(metres\); got 0.0 and 20.0"),
        ({"depth_min": 30.0}, r"got 30.0 and 20.0"),
        ({"margin": -1.0}, r"margin must be >= 0"),
        ({"near_share": 1.5}, r"near_share must lie in \(0, 1\]"),
        ({"base": 0.0}, r"base must be > 0"),
    ],
)
def test_options_that_do_not_fit_say_so(options, message):
    with pytest.raises(ValueError, match=message):
        URoPE(**options)
