"""CRePE's reconstruction against a second derivation, pair by pair, and what its construction implies."""

import functools
import itertools
import json
import math

import numpy as np
import pytest
import torch

from merope.attention import camera_attention
from merope.cameras import KannalaBrandt, UnifiedCamera
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
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
from merope.encodings import CRePE, encoding_from_config, encoding_to_config
from merope.encodings.base import DepthEncoding
from merope.encodings.phasors import expected_phasor
from merope.encodings.scale import TranslationScale
from tests.encodings.seen_by_hand import in_query, pixel_ray, seen_at

WITH_LENS = [name for name in SCENES if scene(name).lens is not None]
WIDE = TranslationScale(reach=1e9)
UNIFIED = UnifiedCamera.from_fov(fov_x_deg=190.0, xi=0.8, height=2, width=3)
FISHEYE = KannalaBrandt.from_fov(fov_x_deg=160.0, height=2, width=3)


@functools.cache
def rule(points):
    return np.polynomial.legendre.leggauss(points)


def depths_of(view_rays, seed=0, *, middle=0.3, half_width=0.4):
    """Predicted distances away from every limit: e^(0.3 +- 0.5) with half-widths about 0.4."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.rand(2, view_rays.batch, view_rays.num_tokens, generator=draw, dtype=torch.float64) - 0.5
    return torch.stack([middle + noise[0], half_width * (1 + noise[1])], -1)


def exactly(encoding, queries, keys=None, **depths):
    return encoding.operator(queries, keys, dtype=torch.float64, **depths).dense()


# A second derivation: points in the world, lenses by hand, quadrature along the path


def token_phasors(queries, keys, clip, i, j, patch, depth, encoding):
    """Complex phasors of a token seen from query camera i: displacement first, then column, row, distance."""
    per_metre, count, span = encoding.scale.per_metre, encoding.num_frequencies, encoding.period_span

    def frequencies(period):
        return [2 * math.pi / period * span ** (k / max(count - 1, 1)) for k in range(count)]

    key_center = keys.center_world[clip, j].numpy()
    found = []
    for axis in in_query(queries, clip, i, key_center) * per_metre:
        found += [np.exp(1j * omega * axis) for omega in frequencies(encoding.period_displacement)]
    log_depth, half_width = depth
    logs = np.clip([log_depth - half_width, log_depth + half_width], math.log(0.01), 3.0)
    ray = pixel_ray(keys, clip, j, float(keys.col[patch]) + 0.5, float(keys.row[patch]) + 0.5)
    ray = ray / np.linalg.norm(ray)
    size = np.array([queries.lens.width, queries.lens.height])
    knots = []
    for radius in np.exp(np.linspace(*logs, encoding.num_knots)):
        world = key_center + radius / per_metre * keys.R_world_cam[clip, j].numpy() @ ray
        point = per_metre * in_query(queries, clip, i, world)
        pixel = seen_at(queries, clip, i, point, near=0.01, margin=encoding.margin)
        distance = min(max(np.linalg.norm(point), 0.01), 100)
        log = encoding.radius_coordinate == "log"
        knots.append([*(pixel / size - 0.5), math.log(distance) if log else min(1 / distance, 10.0)])
    longest = 4 * math.log(1e4) if encoding.radius_coordinate == "log" else 80.0
    periods = (encoding.period_image, encoding.period_image, longest)
    for period, path in zip(periods, np.array(knots).T, strict=True):
        for omega in frequencies(period):
            start, end = omega * path[:-1, None], omega * path[1:, None]
            widest = np.abs(end - start).max()
            assert widest < 1500
            nodes, weights = rule(60 if widest < 60 else 1000)
            phases = (start + end) / 2 + (end - start) / 2 * nodes
            found.append((weights * np.exp(1j * phases)).sum(-1).mean() / 2)
    return np.array(found)


def assert_equals_derivation(encoding, queries, keys=None, *, depths=None, atol=1e-10):
    other = queries if keys is None else keys
    if depths is None:
        depths = {"query_depth": depths_of(queries, 1), "key_depth": depths_of(other, 2)}
    ours = exactly(encoding, queries, keys, **depths).numpy()
    num, num_keys = queries.tokens_per_view, other.tokens_per_view
    for clip, i, p in np.ndindex(queries.batch, queries.num_views, num):
        a = i * num + p
        if not queries.valid[clip, i, p]:
            continue
        own = token_phasors(queries, queries, clip, i, i, p, depths["query_depth"][clip, a], encoding)
        for j, q in np.ndindex(other.num_views, num_keys):
            if not other.valid[clip, j, q]:
                continue
            b = j * num_keys + q
            seen = token_phasors(queries, other, clip, i, j, q, depths["key_depth"][clip, b], encoding)
            expected = np.eye(encoding.head_dim)
            for m, z in enumerate(own.conj() * seen):
                expected[2 * m : 2 * m + 2, 2 * m : 2 * m + 2] = [[z.real, -z.imag], [z.imag, z.real]]
            np.testing.assert_allclose(ours[clip, a, b], expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", WITH_LENS)
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    atol = 1e-6 if name == "far_origin" else 1e-10
    assert_equals_derivation(CRePE(head_dim=38, num_knots=3, scale=WIDE), scene(name), atol=atol)


@pytest.mark.parametrize(
    "options",
    [
        {"head_dim": 64},
        {"num_knots": 2},
        {"num_knots": 5, "radius_coordinate": "disparity"},
        {"period_displacement": 30.0, "period_image": 5.0, "period_span": 10.0, "margin": 0.5},
        {"scale": TranslationScale(per_metre=0.2, reach=1e9)},
        {"head_dim": 12},
    ],
)
@pytest.mark.parametrize("lens", [UNIFIED, FISHEYE, pinhole_lens()], ids=["unified", "fisheye", "pinhole"])
def test_every_option_equals_the_second_derivation_for_every_lens(options, lens):
    queries = seen_through(lens, turned()[:, :2], 1.5 * torch.randn(2, 2, 3, dtype=torch.float64))
    assert_equals_derivation(CRePE(**{"scale": WIDE, "head_dim": 24, **options}), queries, atol=1e-9)


def test_an_untrained_head_equals_the_second_derivation_at_its_bias():
    queries = seen_through(UNIFIED, turned()[:, :2], torch.randn(2, 2, 3, dtype=torch.float64))
    encoding = CRePE(head_dim=24, scale=WIDE)
    bias = torch.tensor(encoding.depth_bias).double().expand(2, 12, 2)
    assert encoding.depth_bias == (0.0, 3.0)
    assert_equals_derivation(encoding, queries, depths={"query_depth": bias, "key_depth": bias}, atol=1e-9)
    assert torch.equal(exactly(encoding, queries), exactly(encoding, queries, query_depth=bias))


def test_keys_may_come_from_other_cameras_grids_and_lenses():
    queries = random_drive(4, views=2, reach=2.0)
    keys = seen_through(UNIFIED, turned(), torch.randn(2, 3, 3, dtype=torch.float64))
    assert exactly(CRePE(scale=WIDE), queries, keys).shape == (2, 12, 18, 128, 128)
    assert_equals_derivation(CRePE(head_dim=24, scale=WIDE), queries, keys)


def test_every_view_may_have_its_own_lens():
    xi = torch.tensor([[0.1, 0.5], [0.9, 1.2]], dtype=torch.float64)
    lens = UnifiedCamera(fx=2.5, fy=2.4, cx=1.4, cy=1.1, xi=xi, width=3, height=2, pixel_origin="corner")
    centers = torch.randn(2, 2, 3, dtype=torch.float64)
    dirs = lens.pixel_rays()[0].flatten(2, 3)
    view = ViewRays.from_poses(matrices(turned()[:, :2], centers), dirs, grid=(2, 3), camera=lens)
    assert_equals_derivation(CRePE(head_dim=24, scale=WIDE), view, atol=1e-9)


# The path


def test_two_knots_are_the_mean_between_the_ends_of_the_path():
    view = seen_through(UNIFIED, turned(), torch.randn(2, 3, 3, dtype=torch.float64))
    depth = depths_of(view)
    encoding = CRePE(head_dim=24, num_knots=2, scale=WIDE)
    path = encoding.operator(view, query_depth=depth, dtype=torch.float64).bands[1].right
    # With no width the phasor's angle is the coordinate's phase, up to whole turns that slow pairs do not make.
    ends = []
    for sign in (-1, 1):
        at_end = torch.stack([depth[..., 0] + sign * depth[..., 1], torch.zeros(2, 18).double()], -1)
        sharp = encoding.operator(view, query_depth=at_end, dtype=torch.float64).bands[1].right
        ends.append(torch.atan2(sharp.sin, sharp.cos))
    slow = slice(0, 6, 2)
    cos, sin = expected_phasor(ends[0][..., slow], ends[1][..., slow])
    turns = (ends[1] - ends[0]).abs()[..., slow] < math.pi
    assert turns.float().mean() > 0.9
    torch.testing.assert_close(path.cos[..., slow][turns], cos[turns], rtol=0, atol=1e-12)
    torch.testing.assert_close(path.sin[..., slow][turns], sin[turns], rtol=0, atol=1e-12)


def test_more_knots_follow_the_curve_more_closely():
    # A fisheye one unit to the side of the key, whose ray crosses its field from edge to edge.
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[:, 1] = torch.tensor([1.0, 0.4, -0.5])
    view = seen_through(FISHEYE, torch.eye(3, dtype=torch.float64), centers)
    depth = torch.tensor([0.2, 1.2], dtype=torch.float64).expand(1, 12, 2)

    slow = {"head_dim": 48, "period_span": 20.0, "scale": WIDE}

    def of_knots(count):
        right = (
            CRePE(num_knots=count, **slow)
            .operator(view, query_depth=depth, dtype=torch.float64)
            .bands[1]
            .right
        )
        return torch.complex(right.cos, right.sin)[0, 0, 0, 6:]

    # The mean over the logarithm of the distance along the curve itself.
    dirs = view.dirs_cam[0, 1]
    omega = CRePE(**slow).relations(view, dtype=torch.float64).omega.numpy()
    truth = np.zeros((6, 3, 4), dtype=complex)
    for node, weight in zip(*rule(300), strict=True):
        points = centers[0, 1] + math.exp(0.2 + 1.2 * node) * dirs
        for token, point in enumerate(points.numpy()):
            pixel = seen_at(view, 0, 0, point, near=0.01, margin=2.0)
            place = [*(pixel / np.array([3, 2]) - 0.5), math.log(np.linalg.norm(point))]
            truth[token] += weight / 2 * np.exp(1j * omega * np.array(place)[:, None])
    truth = truth.reshape(6, 12)
    errors = [np.abs(of_knots(count).numpy() - truth).max() for count in (2, 4, 8, 16, 64)]
    assert all(finer < coarser for coarser, finer in itertools.pairwise(errors))
    assert errors[0] > 0.1
    assert errors[2] < 0.2 * errors[0]
    assert errors[-1] < 2e-3


# What the construction implies


@pytest.mark.parametrize("name", [*(name for name in WITH_LENS if name != "far_origin"), "random", "unified"])
def test_operator_does_not_see_a_rigid_motion_of_the_world(name):
    if name == "unified":
        here = seen_through(UNIFIED, turned(), 3 * torch.randn(2, 3, 3, dtype=torch.float64))
    else:
        here = random_drive(6, reach=3.0) if name == "random" else scene(name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    encoding, depth = CRePE(head_dim=64, scale=WIDE), depths_of(here)
    one, other = (exactly(encoding, view, query_depth=depth) for view in (here, there))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-9)


def test_operator_does_not_see_map_coordinates_of_five_million_metres():
    here = seen_through(UNIFIED, turned(), 3 * torch.randn(2, 3, 3, dtype=torch.float64))
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    there = moved_rigidly(here, torch.tensor([0.2, 0.5, -0.4]), origin)
    encoding = CRePE(scale=TranslationScale(per_metre=0.2, reach=1e9))
    one, other = (exactly(encoding, view, query_depth=depths_of(here)) for view in (here, there))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", WITH_LENS)
def test_with_exact_distances_a_token_meets_itself_through_the_identity(name):
    view = scene(name)
    depth = depths_of(view)
    depth[..., 1] = 0
    dense = exactly(CRePE(scale=WIDE), view, query_depth=depth)
    identity = torch.eye(128, dtype=torch.float64)
    assert (dense.mT @ dense - identity).abs().max() < 1e-12
    tokens = torch.arange(view.num_tokens)
    itself = dense[:, tokens, tokens][view.valid.flatten(1)]
    torch.testing.assert_close(itself, identity.expand_as(itself), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", WITH_LENS)
def test_an_interval_of_distance_contracts(name):
    view = scene(name)
    singular = torch.linalg.svdvals(exactly(CRePE(scale=WIDE), view, query_depth=depths_of(view)))
    assert singular.max() <= 1 + 1e-12
    assert singular.min() < 0.9


def test_points_behind_a_pinhole_and_at_its_centre_have_finite_values_and_gradients():
    # Two cameras face each other one unit apart; key points pass through the query and on behind it.
    about_y = torch.diag(torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    turns = torch.stack([torch.eye(3, dtype=torch.float64), about_y]).expand(1, 2, 3, 3)
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[:, 1, 2] = 1.0
    view = seen_through(pinhole_lens((1, 3), center=(1.5, 0.5)), turns, centers)
    for log_depth, half_width in ((0.0, 0.0), (0.0, 3.0), (1.0, 0.5)):
        depth = torch.tensor([log_depth, half_width]).double().expand(1, 6, 2).clone().requires_grad_()
        dense = exactly(CRePE(scale=WIDE), view, query_depth=depth)
        assert torch.isfinite(dense).all()
        dense.sum().backward()
        assert torch.isfinite(depth.grad).all()


# Gradients to the distances


@pytest.mark.parametrize("lens", [UNIFIED, FISHEYE, pinhole_lens()], ids=["unified", "fisheye", "pinhole"])
@pytest.mark.parametrize("radius_coordinate", ["log", "disparity"])
def test_gradients_with_respect_to_distances_are_those_of_the_values(lens, radius_coordinate):
    view = seen_through(lens, turned()[:, :2], 1.5 * torch.randn(2, 2, 3, dtype=torch.float64))
    encoding = CRePE(head_dim=24, radius_coordinate=radius_coordinate, num_knots=4, scale=WIDE)
    relations = encoding.relations(view, dtype=torch.float64)
    depths = [depths_of(view, seed).requires_grad_() for seed in (1, 2)]
    sums = torch.randn(5, 2, 12, 12, 24, 24, dtype=torch.float64)

    def some_sums(query_depth, key_depth):
        return (sums * encoding.operator_at(relations, query_depth, key_depth).dense()).sum((1, 2, 3, 4, 5))

    assert torch.autograd.gradcheck(some_sums, depths)


@pytest.mark.parametrize("name", WITH_LENS)
@pytest.mark.parametrize("half_width", [0.0, 3.0])
def test_gradients_are_finite_on_the_standing_scenes(name, half_width):
    view = scene(name)
    encoding = CRePE(scale=WIDE)
    depth = torch.tensor([0.0, half_width]).expand(2, 18, 2).clone().requires_grad_()
    operator = encoding.operator_at(encoding.relations(view), depth, depth)
    sum(tensor.sum() for tensor in operator.tensors()).backward()
    assert torch.isfinite(depth.grad).all()
    assert depth.grad.abs().max() > 0


def test_backends_agree_on_values_and_on_gradients_to_the_distances():
    view = seen_through(UNIFIED, turned(), 1.5 * torch.randn(2, 3, 3, dtype=torch.float64))
    encoding = CRePE(head_dim=26, scale=WIDE)
    relations = encoding.relations(view, dtype=torch.float64)
    depth = depths_of(view).requires_grad_()
    inputs = [torch.randn(2, 2, 18, 26, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, 2, 18, 26, dtype=torch.float64)
    results = []
    for options in (
        {"backend": "reference"},
        {"backend": "chunked"},
        {"backend": "chunked", "memory_budget": 1},
    ):
        operator = encoding.operator_at(relations, depth, depth)
        out = camera_attention(*inputs, operator, **options)
        results.append((out, *torch.autograd.grad((out * weights).sum(), [*inputs, depth])))
    assert results[0][-1].abs().max() > 1e-3
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(two, one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [-0.25, 0.25])
def test_descent_moves_predicted_distances_towards_the_true_ones(start):
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[:, 1, 0] = 0.5
    view = seen_through(UNIFIED, torch.eye(3, dtype=torch.float64), centers)
    encoding = CRePE(head_dim=48, scale=WIDE)
    relations = encoding.relations(view, dtype=torch.float64)
    query, key, value = torch.randn(3, 1, 8, 12, 48, dtype=torch.float64)
    truth = depths_of(view, half_width=0.1)

    def attended(depth):
        return camera_attention(query, key, value, encoding.operator_at(relations, depth, depth))

    target = attended(truth)
    log_depth = (truth[..., 0] + start).requires_grad_()
    optimizer = torch.optim.Adam([log_depth], lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        (attended(torch.stack([log_depth, truth[..., 1]], -1)) - target).square().mean().backward()
        optimizer.step()
    off = (log_depth.detach() - truth[..., 0]).abs()
    assert off.mean() < 0.05
    assert (off < abs(start)).all()


# Precision, devices, options


def test_relations_in_float32_give_the_exact_operator_to_its_digits():
    view = seen_through(UNIFIED, turned(), 1.5 * torch.randn(2, 3, 3, dtype=torch.float64))
    encoding = CRePE(head_dim=192, scale=WIDE)
    depth = depths_of(view)
    exact = encoding.operator(view, query_depth=depth)
    fast = encoding.operator_at(encoding.relations(view), depth.float(), depth.float())
    for one, two in zip(exact.tensors(), fast.tensors(), strict=True):
        assert one.dtype == two.dtype == torch.float32
        torch.testing.assert_close(two, one, rtol=0, atol=5e-4)


def test_operator_is_bit_identical_under_autocast_and_serves_any_device():
    view = seen_through(UNIFIED, turned(), torch.randn(2, 3, 3, dtype=torch.float64))
    encoding = CRePE(scale=WIDE)
    depth = depths_of(view).float()

    def both():
        return [
            *encoding.operator(view).tensors(),
            *encoding.operator_at(encoding.relations(view), depth, depth).tensors(),
        ]

    outside = both()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = both()
    for one, two in zip(outside, inside, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, two)
    meta = encoding.relations(view).to("meta")
    operator = encoding.operator_at(meta, depth.to("meta"), depth.to("meta"))
    assert {t.device.type for t in operator.tensors()} == {"meta"}
    assert {t.device.type for t in encoding.operator(view, device="meta").tensors()} == {"meta"}


@pytest.mark.parametrize(("size", "frequencies", "kept"), [(64, 5, 4), (128, 10, 8), (192, 16, 0)])
def test_the_head_holds_as_many_frequencies_as_fit(size, frequencies, kept):
    encoding = CRePE(head_dim=size, scale=WIDE)
    assert encoding.num_frequencies == frequencies
    operator = encoding.operator(random_drive(views=2))
    assert operator.head_dim == size
    assert sum(band.width for band in operator.bands if band.name == "keep") == kept
    assert operator.acts_on == frozenset("qkvo")


def test_it_is_a_depth_encoding_with_the_claims_of_table_1():
    assert isinstance(CRePE(), DepthEncoding)
    claims, facts = CRePE().claims, CRePE.facts
    assert (claims.metric, claims.per_token, claims.norm_preserving) == (False, False, False)
    assert facts.needs_depth and facts.needs_lens and facts.needs_scale
    assert "reconstruction" in facts.source


def test_queries_without_a_lens_are_refused():
    bare = rays(turned(), torch.zeros(2, 3, 3).double(), pinhole_dirs())
    for keys in (None, random_drive()):
        with pytest.raises(ValueError, match=r"CRePE projects points into views and needs their lens"):
            CRePE(scale=WIDE).relations(bare, keys)


def test_it_survives_json():
    encoding = CRePE(num_knots=4, radius_coordinate="disparity", scale=TranslationScale(per_metre=0.3))
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    assert stored["name"] == "crepe"
    assert encoding_from_config(stored) == encoding


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 10}, r"head_dim 10 holds no frequency: 6 coordinates x 2 channels = 12"),
        ({"num_knots": 1}, r"num_knots must be >= 2, the two ends; got 1"),
        ({"radius_limits": (1.0, 0.5)}, r"0 < near < far"),
        ({"max_log_radius": math.inf}, r"max_log_radius"),
        ({"period_span": 0.5}, r"period_span must be >= 1"),
        ({"margin": math.nan}, r"margin must be >= 0"),
        ({"period_image": -8.0}, r"period_image must be > 0"),
    ],
)
def test_options_that_do_not_fit_say_so(options, message):
    with pytest.raises(ValueError, match=message):
        CRePE(**options)
