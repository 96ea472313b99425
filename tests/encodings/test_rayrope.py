"""RayRoPE against a second derivation, pair by pair, and what its formulas imply."""

import functools
import json
import math
import warnings

import numpy as np
import pytest
import torch

from merope.attention import camera_attention
from merope.cameras import Pinhole
from merope.cameras.scenes import (
    SCENES,
    moved_rigidly,
    pinhole_dirs,
    pinhole_lens,
    random_drive,
    rays,
    scene,
    seen_through,
    turned,
)
from merope.encodings import RayRoPE, encoding_from_config, encoding_to_config
from merope.encodings.base import DepthEncoding
from merope.encodings.predicted_depth import log_depth_ends
from merope.encodings.scale import ScaleWarning, TranslationScale
from tests.encodings.seen_by_hand import affine, pixel_ray

WITH_LENS = [name for name in SCENES if scene(name).lens is not None]
WIDE = TranslationScale(reach=1e9)
PLACES = {1: [(0.5, 0.5)], 2: [(0, 0), (1, 1)], 3: [(0, 0), (1, 0), (0, 1)]}


def depths_of(view_rays, seed=0, *, middle=0.3, half_width=0.4):
    """Predicted depths away from every limit: e^(0.3 +- 0.5) with half-widths about 0.4."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.rand(2, view_rays.batch, view_rays.num_tokens, generator=draw, dtype=torch.float64) - 0.5
    return torch.stack([middle + noise[0], half_width * (1 + noise[1])], -1)


def exactly(encoding, queries, keys=None, **depths):
    return encoding.operator(queries, keys, dtype=torch.float64, **depths).dense()


# A second derivation: 4 x 4 projections and quadrature


@functools.cache
def rule(points):
    return np.polynomial.legendre.leggauss(points)


def mean_phasor(start, end):
    """Mean of e^{i theta} over phases from start to end, by quadrature."""
    nodes, weights = rule(400 if abs(end - start) > 20 else 40)
    assert abs(end - start) < 500
    return (weights * np.exp(1j * ((start + end) / 2 + (end - start) / 2 * nodes))).sum() / 2


def projection(view_rays, clip, view, scale):
    """P = lift(K) T^-1 with K in units of the image."""
    fx, fy, cx, cy = affine(view_rays, clip, view)
    width, height = view_rays.lens.width, view_rays.lens.height
    lifted = np.eye(4)
    lifted[:3, :3] = [[fx / width, 0, cx / width - 0.5], [0, fy / height, cy / height - 0.5], [0, 0, 1]]
    world_cam = np.eye(4)
    world_cam[:3, :3] = view_rays.R_world_cam[clip, view].numpy()
    world_cam[:3, 3] = scale * view_rays.center_world[clip, view].numpy()
    return lifted, lifted @ np.linalg.inv(world_cam), world_cam


def interval(depth):
    log_depth, half_width = depth
    ends = (math.exp(min(log_depth - half_width, 3)), math.exp(min(log_depth + half_width, 3)))
    return [min(max(end, 0.01), 100) for end in ends]


def coordinates(queries, keys, clip, i, j, patch, place, depth, scale):
    """Direction x, y and depth of one segment's end in the query view."""
    _, P_i, _ = projection(queries, clip, i, scale)
    lifted, _, T_j = projection(keys, clip, j, scale)
    u, v = float(keys.col[patch]) + place[0], float(keys.row[patch]) + place[1]
    if isinstance(keys.lens, Pinhole):
        image = np.array([u / keys.lens.width - 0.5, v / keys.lens.height - 0.5, 1, 1 / depth])
        in_camera = np.linalg.inv(lifted) @ image
    else:
        centre = keys.dirs_cam[clip, j, patch].numpy()
        ray = pixel_ray(keys, clip, j, u, v)
        if math.acos(np.clip(ray[2], -1, 1)) > keys.lens.max_theta:
            ray = centre
        in_camera = np.append(ray / max(ray[2], 0.05), 1 / depth)
    y = P_i @ T_j @ in_camera
    direction = y[:3] / (np.linalg.norm(y[:3]) + 1e-6)
    return direction[0], direction[1], min(max(math.sqrt(y[2] ** 2 + 1e-9), 1e-4) / y[3], 10.0)


def token_phasors(queries, keys, clip, i, j, patch, depth, encoding):
    """Complex phasors of a token seen from query camera i: displacement first, then every ray."""
    scale, count = encoding.scale.per_metre, encoding.num_frequencies
    R_i = queries.R_world_cam[clip, i].numpy()
    offset = scale * R_i.T @ (keys.center_world[clip, j] - queries.center_world[clip, i]).numpy()
    ratio = encoding.frequency_ratio
    found = []
    for axis in range(3):
        for k in range(count):
            found.append(np.exp(2j * np.pi * offset[axis] / (encoding.period_displacement / ratio**k)))
    periods = (encoding.period_direction, encoding.period_direction, encoding.period_depth)
    for place in PLACES[encoding.num_rays]:
        ends = [coordinates(queries, keys, clip, i, j, patch, place, end, scale) for end in interval(depth)]
        for period, start, end in zip(periods, *ends, strict=True):
            for k in range(count):
                omega = 2 * np.pi / period * ratio**k
                found.append(mean_phasor(omega * start, omega * end))
    return np.array(found)


def assert_equals_derivation(encoding, queries, keys=None, *, depths=None, atol=1e-10):
    other = queries if keys is None else keys
    depths = (
        {"query_depth": depths_of(queries, 1), "key_depth": depths_of(other, 2)} if depths is None else depths
    )
    ours = exactly(encoding, queries, keys, **depths).numpy()
    num, num_keys = queries.tokens_per_view, other.tokens_per_view
    for clip, i, p in np.ndindex(queries.batch, queries.num_views, num):
        a = i * num + p
        own = token_phasors(queries, queries, clip, i, i, p, depths["query_depth"][clip, a], encoding)
        for j, q in np.ndindex(other.num_views, num_keys):
            if not (other.valid[clip, j, q] and queries.valid[clip, i, p]):
                continue
            b = j * num_keys + q
            seen = token_phasors(queries, other, clip, i, j, q, depths["key_depth"][clip, b], encoding)
            expected = np.eye(encoding.head_dim)
            for m, z in enumerate(own.conj() * seen):
                expected[2 * m : 2 * m + 2, 2 * m : 2 * m + 2] = [[z.real, -z.imag], [z.imag, z.real]]
            np.testing.assert_allclose(ours[clip, a, b], expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", WITH_LENS)
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    # Inverting matrices that hold 5e6 m costs the derivation nine digits.
    atol = 1e-6 if name == "far_origin" else 1e-10
    assert_equals_derivation(RayRoPE(head_dim=26, scale=WIDE), scene(name), atol=atol)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_rays": 1, "head_dim": 30},
        {"num_rays": 2, "head_dim": 40, "frequency_ratio": 2.0},
        {"head_dim": 48, "period_displacement": 30.0, "period_direction": 5.0, "period_depth": 11.0},
        {"head_dim": 24, "scale": TranslationScale(per_metre=0.2, reach=1e9)},
    ],
)
def test_every_option_equals_the_second_derivation(options):
    queries = random_drive(1, views=2, reach=2.0, grid=(1, 3))
    assert_equals_derivation(RayRoPE(**{"scale": WIDE, **options}), queries)


def test_an_untrained_head_equals_the_second_derivation_at_its_bias():
    queries = random_drive(2, views=2, reach=2.0, grid=(1, 3))
    encoding = RayRoPE(head_dim=64, scale=WIDE)
    bias = torch.tensor(encoding.depth_bias).double().expand(2, 6, 2)
    assert encoding.depth_bias == (0.0, 3.0)
    assert_equals_derivation(encoding, queries, depths={"query_depth": bias, "key_depth": bias})
    untrained = exactly(encoding, queries)
    assert torch.equal(untrained, exactly(encoding, queries, query_depth=bias))


def test_keys_may_come_from_other_cameras_grids_and_lenses():
    queries = random_drive(4, views=2, reach=2.0)
    keys = seen_through(
        pinhole_lens((1, 4), half_width=0.3), turned(), torch.randn(2, 3, 3, dtype=torch.float64)
    )
    assert exactly(RayRoPE(scale=WIDE), queries, keys).shape == (2, 12, 12, 128, 128)
    assert_equals_derivation(RayRoPE(head_dim=24, scale=WIDE), queries, keys)


# What the formulas imply


@pytest.mark.parametrize("name", [*(name for name in WITH_LENS if name != "far_origin"), "random"])
def test_operator_does_not_see_a_rigid_motion_of_the_world(name):
    here = random_drive(6, reach=3.0) if name == "random" else scene(name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    encoding, depth = RayRoPE(scale=WIDE), depths_of(here)
    one, other = (exactly(encoding, view, query_depth=depth) for view in (here, there))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-9)


def test_operator_does_not_see_map_coordinates_of_five_million_metres():
    here = random_drive(7, reach=3.0)
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    there = moved_rigidly(here, torch.tensor([0.2, 0.5, -0.4]), origin)
    # Its shortest period is 4/81 of a unit: a billionth of a metre turns it by 1e-7.
    encoding = RayRoPE(scale=TranslationScale(per_metre=0.2, reach=1e9))
    one, other = (exactly(encoding, view, query_depth=depths_of(here)) for view in (here, there))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", WITH_LENS)
def test_with_exact_depths_phasors_have_length_one_and_a_token_meets_itself_through_the_identity(name):
    view = scene(name)
    depth = depths_of(view)
    depth[..., 1] = 0
    dense = exactly(RayRoPE(scale=WIDE), view, query_depth=depth)
    identity = torch.eye(128, dtype=torch.float64)
    assert (dense.mT @ dense - identity).abs().max() < 1e-12
    tokens = torch.arange(view.num_tokens)
    itself = dense[:, tokens, tokens]
    torch.testing.assert_close(itself, identity.expand_as(itself), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", WITH_LENS)
def test_an_interval_of_depth_contracts(name):
    view = scene(name)
    dense = exactly(RayRoPE(scale=WIDE), view, query_depth=depths_of(view))
    singular = torch.linalg.svdvals(dense)
    assert singular.max() <= 1 + 1e-12
    assert singular.min() < 0.9
    tokens = torch.arange(view.num_tokens)
    # A token's own directions are sharp, its depth is not: it meets itself through a contraction.
    own = torch.linalg.svdvals(dense[:, tokens, tokens])
    assert own.min() < 0.9


def test_scaling_motion_and_depths_together_keeps_directions_and_changes_the_displacement_band():
    near = random_drive(8, reach=1.5)
    far = rays(near.R_world_cam, 2.5 * near.center_world, near.dirs_cam[0, 0], camera=pinhole_lens())
    # No depth is at a limit in either scene.
    depth = depths_of(near, middle=-0.5, half_width=0.2)
    farther = depth + torch.tensor([math.log(2.5), 0.0], dtype=torch.float64)
    encoding = RayRoPE(scale=WIDE)
    one, other = exactly(encoding, near, query_depth=depth), exactly(encoding, far, query_depth=farther)
    change = (one - other).abs()
    assert change[..., :30, :30].max() > 0.5
    for ray in range(3):
        directions = slice(30 + 30 * ray, 30 + 30 * ray + 20)
        assert change[..., directions, directions].max() < 1e-12
        depths = slice(30 + 30 * ray + 20, 60 + 30 * ray)
        assert change[..., depths, depths].max() > 0.1


def test_raw_metres_repeat_every_four_and_the_scale_tells_them_apart():
    def drive(step):
        centers = torch.zeros(1, 2, 3, dtype=torch.float64)
        centers[:, 1, 0] = step
        return seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), centers)

    displacement = slice(0, 30)
    near, far = (
        exactly(RayRoPE(scale=WIDE), drive(step))[..., displacement, displacement] for step in (1.0, 9.0)
    )
    torch.testing.assert_close(near, far, rtol=0, atol=1e-10)
    scaled = RayRoPE(scale=TranslationScale(per_metre=0.1, reach=1e9))
    near, far = (exactly(scaled, drive(step))[..., displacement, displacement] for step in (1.0, 9.0))
    assert (near - far).abs().max() > 0.5


def test_a_baseline_out_of_reach_warns_of_repeats_once():
    encoding = RayRoPE(scale=TranslationScale(per_metre=0.37, reach=7.0))
    with pytest.warns(ScaleWarning, match=r"RayRoPE: a baseline of 8 m .* 2.96 units.*look alike every 4"):
        encoding.relations(scene("straight_drive"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.relations(scene("straight_drive"))


def test_a_point_behind_the_query_view_has_the_depth_of_its_mirror_image():
    # Two cameras back to back at one place: every key point is behind the query.
    about_y = torch.diag(torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    turns = torch.stack([torch.eye(3, dtype=torch.float64), about_y])
    lens = pinhole_lens((1, 1), center=(0.5, 0.5))
    view = seen_through(lens, turns.expand(1, 2, 3, 3), torch.zeros(1, 2, 3, dtype=torch.float64))
    depth = torch.tensor([math.log(2.0), 0.0], dtype=torch.float64).expand(1, 2, 2)
    dense = exactly(RayRoPE(head_dim=12, num_rays=1, scale=WIDE), view, query_depth=depth)
    # Channels: three displacements, x, y, depth.
    back = dense[0, 0, 1, 10:, 10:]
    torch.testing.assert_close(back, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-9)


# Depths and their gradients


def test_ends_of_the_interval_are_clamped_and_pass_gradients_up_to_their_limit():
    depth = torch.tensor([[0.0, 3.0], [0.0, 3.01], [2.9, 0.0], [-9.0, 1.0]], dtype=torch.float64)
    depth.requires_grad_()
    ends = log_depth_ends(depth, limits=(0.01, 100.0), max_log=3.0)
    expected = [[-3, 3], [-3.01, 3], [2.9, 2.9], [math.log(0.01)] * 2]
    torch.testing.assert_close(ends, torch.tensor(expected, dtype=torch.float64))
    (nearest,) = torch.autograd.grad(ends[:, 0].sum(), depth, retain_graph=True)
    (farthest,) = torch.autograd.grad(ends[:, 1].sum(), depth)
    assert nearest.tolist() == [[1, -1], [1, -1], [1, -1], [0, 0]]
    assert farthest.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]


def test_past_the_limit_a_token_s_own_gradient_cannot_bring_its_far_end_back():
    view = random_drive(3, views=2, reach=1.0)
    encoding = RayRoPE(head_dim=48, scale=WIDE)
    weights = torch.randn(2, 12, 12, 48, 48, dtype=torch.float64)

    def gradient(half_width):
        depth = torch.tensor([0.0, half_width]).double().expand(2, 12, 2).clone().requires_grad_()
        dense = exactly(encoding, view, query_depth=depth)
        (found,) = torch.autograd.grad((dense * weights).sum(), depth)
        return found

    untrained, beyond = gradient(3.0), gradient(3.001)
    # The far end is at l + s, so its gradient is what the two have in common.
    assert untrained.sum(-1).abs().min() > 0
    assert beyond.sum(-1).abs().max() < 1e-12
    assert beyond[..., 0].abs().min() > 0


def test_gradients_with_respect_to_depths_are_those_of_the_values():
    view = random_drive(9, views=2, reach=1.5, grid=(1, 2))
    encoding = RayRoPE(head_dim=48, scale=WIDE)
    relations = encoding.relations(view, dtype=torch.float64)
    depths = [depths_of(view, seed).requires_grad_() for seed in (1, 2)]
    sums = torch.randn(5, 2, 4, 4, 48, 48, dtype=torch.float64)

    def some_sums(query_depth, key_depth):
        return (sums * encoding.operator_at(relations, query_depth, key_depth).dense()).sum((1, 2, 3, 4, 5))

    assert torch.autograd.gradcheck(some_sums, depths)


@pytest.mark.parametrize("name", WITH_LENS)
@pytest.mark.parametrize("half_width", [0.0, 3.0])
def test_gradients_are_finite_on_the_standing_scenes(name, half_width):
    view = scene(name)
    encoding = RayRoPE(scale=WIDE)
    depth = torch.tensor([0.0, half_width]).expand(2, 18, 2).clone().requires_grad_()
    operator = encoding.operator_at(encoding.relations(view), depth, depth)
    sum(tensor.sum() for tensor in operator.tensors()).backward()
    assert torch.isfinite(depth.grad).all()
    assert depth.grad.abs().max() > 0


def test_backends_agree_on_values_and_on_gradients_to_the_depths():
    view = random_drive(5, views=3, reach=1.5)
    encoding = RayRoPE(head_dim=26, scale=WIDE)
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
def test_descent_moves_predicted_depths_towards_the_true_ones(start):
    # The output of attention under the true depths is known; depths start a quarter of a log too near or too far.
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[:, 1, 0] = 0.5
    view = seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), centers)
    encoding = RayRoPE(head_dim=48, scale=WIDE)
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
    view = random_drive(11, reach=2.0)
    encoding = RayRoPE(head_dim=192, scale=WIDE)
    depth = depths_of(view)
    exact = encoding.operator(view, query_depth=depth)
    fast = encoding.operator_at(encoding.relations(view), depth.float(), depth.float())
    for one, two in zip(exact.tensors(), fast.tensors(), strict=True):
        assert one.dtype == two.dtype == torch.float32
        # The shortest depth period is 80 / 3^7 = 0.037: a rounding of the depth turns it by some 1e-4.
        torch.testing.assert_close(two, one, rtol=0, atol=2e-3)


def test_operator_is_bit_identical_under_autocast_and_serves_any_device():
    view = random_drive(7, reach=2.0)
    encoding = RayRoPE(scale=WIDE)
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
    meta = encoding.relations(view, device="cpu").to("meta")
    operator = encoding.operator_at(meta, depth.to("meta"), depth.to("meta"))
    assert {t.device.type for t in operator.tensors()} == {"meta"}
    assert {t.device.type for t in encoding.operator(view, device="meta").tensors()} == {"meta"}


@pytest.mark.parametrize(
    ("size", "options", "frequencies", "kept"),
    [
        (64, {}, 2, 16),
        (128, {}, 5, 8),
        (192, {}, 8, 0),
        (144, {}, 6, 0),
        (128, {"num_rays": 1}, 10, 8),
        (128, {"num_rays": 2}, 7, 2),
    ],
)
def test_the_head_holds_as_many_frequencies_as_fit(size, options, frequencies, kept):
    encoding = RayRoPE(head_dim=size, scale=WIDE, **options)
    assert encoding.num_frequencies == frequencies
    operator = encoding.operator(random_drive(views=2))
    assert operator.head_dim == size
    assert sum(band.width for band in operator.bands if band.name == "keep") == kept
    assert operator.acts_on == frozenset("qkvo")


def test_it_is_a_depth_encoding_with_the_claims_of_table_1():
    assert isinstance(RayRoPE(), DepthEncoding)
    claims, facts = RayRoPE().claims, RayRoPE.facts
    assert (claims.metric, claims.per_token, claims.norm_preserving) == (False, False, False)
    assert facts.needs_depth and facts.needs_lens and facts.needs_scale


def test_rays_without_a_lens_are_refused():
    bare = rays(turned(), torch.zeros(2, 3, 3).double(), pinhole_dirs())
    for queries, keys in ((bare, None), (bare, random_drive()), (random_drive(), bare)):
        with pytest.raises(ValueError, match=r"RayRoPE projects points into views and needs their lens"):
            RayRoPE(scale=WIDE).relations(queries, keys)


def test_depths_of_the_wrong_shape_are_refused():
    view = random_drive()
    relations = RayRoPE(scale=WIDE).relations(view)
    with pytest.raises(
        ValueError, match=r"key_depth must have shape \[batch, token, 2\] = \[2, 18, 2\].*\[2, 12, 2\]"
    ):
        RayRoPE(scale=WIDE).operator_at(relations, torch.zeros(2, 18, 2), torch.zeros(2, 12, 2))


def test_it_survives_json():
    encoding = RayRoPE(num_rays=2, depth_limits=(0.1, 50.0), scale=TranslationScale(per_metre=0.3, reach=9.0))
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    assert stored["name"] == "rayrope"
    assert encoding_from_config(stored) == encoding


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_rays": 4}, r"num_rays must be 1, 2 or 3; got 4"),
        ({"head_dim": 16}, r"head_dim 16 holds no frequency: 12 coordinates x 2 channels = 24"),
        ({"depth_limits": (0.0, 1.0)}, r"0 < near < far"),
        ({"max_log_depth": -5.0}, r"log\(near\) < max_log_depth"),
        ({"frequency_ratio": 0.0}, r"frequency_ratio must be > 0"),
        ({"max_depth": math.inf}, r"max_depth must be > 0 and finite"),
    ],
)
def test_options_that_do_not_fit_say_so(options, message):
    with pytest.raises(ValueError, match=message):
        RayRoPE(**options)
