"""RayNova against a second derivation; what depends on its frame, and what does not."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    ahead,
    matrices,
    moved_rigidly,
    pinhole_dirs,
    random_drive,
    rays,
    scene,
    turned,
)
from merope.encodings import RayNova, encoding_from_config, encoding_to_config

TURN, SHIFT = torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0], dtype=torch.float64)


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def coordinates(queries, view_rays, encoding, clip, view, token):
    """The seven numbers of a token, scaled: time, direction, moment or centre."""
    R_first, o_first = queries.R_world_cam[clip, 0].numpy(), queries.center_world[clip, 0].numpy()
    if encoding.frame == "world":
        R_first, o_first = np.eye(3), np.zeros(3)
    o = R_first.T @ (view_rays.center_world[clip, view].numpy() - o_first)
    d = R_first.T @ view_rays.R_world_cam[clip, view].numpy() @ view_rays.dirs_cam[clip, view, token].numpy()
    moment = [o[1] * d[2] - o[2] * d[1], o[2] * d[0] - o[0] * d[2], o[0] * d[1] - o[1] * d[0]]
    third = moment if encoding.position == "moment" else o
    t = float(view_rays.time[clip, view]) * encoding.seconds_per_step * encoding.time_scale
    return [
        t,
        *(encoding.direction_scale * x for x in d),
        *(encoding.position_scale * x for x in third),
    ]


def derived(queries, keys, encoding):
    """Every U_ab pair by pair: planes turned by differences of coordinates."""
    size, num, other = encoding.head_dim, queries.tokens_per_view, keys.tokens_per_view
    out = np.zeros((queries.batch, queries.num_tokens, keys.num_tokens, size, size))
    for clip, i, p, j, q in np.ndindex(queries.batch, queries.num_views, num, keys.num_views, other):
        own = coordinates(queries, queries, encoding, clip, i, p)
        others = coordinates(queries, keys, encoding, clip, j, q)
        at = 0
        for axis in range(7):
            width = size // 4 if axis == 0 else size // 8
            for m in range(width // 2):
                phase = (others[axis] - own[axis]) / encoding.base ** (2 * m / width)
                block = [[math.cos(phase), -math.sin(phase)], [math.sin(phase), math.cos(phase)]]
                out[clip, i * num + p, j * other + q, at : at + 2, at : at + 2] = block
                at += 2
        assert at == size
    return torch.from_numpy(out)


@pytest.mark.parametrize(
    "encoding",
    [
        RayNova(),
        RayNova(head_dim=64),
        RayNova(head_dim=192),
        RayNova.as_released(head_dim=64),
        RayNova(head_dim=16, frame="world", base=10_000.0, time_scale=10.0, position_scale=20.0),
        RayNova(head_dim=32, frame="world", position="center", seconds_per_step=0.5, direction_scale=3.0),
    ],
)
def test_operator_equals_the_second_derivation(encoding):
    queries, keys = random_drive(1, views=2), random_drive(2, views=3, grid=(1, 4))
    torch.testing.assert_close(
        exactly(encoding, queries, keys), derived(queries, keys, encoding), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("position", ["moment", "center"])
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name, position):
    queries = scene(name)
    encoding = RayNova(head_dim=64, position=position)
    # Centres 5e6 m out are 1e-9 m apart.
    atol = 1e-7 if name == "far_origin" else 1e-11
    torch.testing.assert_close(
        exactly(encoding, queries), derived(queries, queries, encoding), rtol=0, atol=atol
    )


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("frame", ["first_view", "world"])
def test_every_pairwise_map_is_orthogonal_in_float32(name, frame):
    dense = RayNova(frame=frame).operator(scene(name)).dense().double()
    assert (dense.mT @ dense - torch.eye(128, dtype=torch.float64)).abs().max() < 1e-5


# Frames


def test_moving_the_world_changes_the_world_s_encoding_and_not_the_first_view_s():
    here = random_drive(6)
    there = moved_rigidly(here, TURN, SHIFT)
    for position in ("moment", "center"):
        by_first = RayNova(position=position)
        torch.testing.assert_close(exactly(by_first, there), exactly(by_first, here), rtol=0, atol=1e-10)
        by_world = RayNova(position=position, frame="world")
        assert (exactly(by_world, there) - exactly(by_world, here)).abs().max() > 0.5


def test_shifting_the_world_changes_moments_and_not_differences_of_centres():
    here = random_drive(6)
    there = moved_rigidly(here, torch.zeros(3), SHIFT)
    moment, center = RayNova(frame="world"), RayNova(frame="world", position="center")
    assert (exactly(moment, there) - exactly(moment, here)).abs().max() > 0.5
    torch.testing.assert_close(exactly(center, there), exactly(center, here), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", ["moment", "center"])
def test_the_relation_of_two_views_depends_on_a_third(position):
    # Why Table 1 says No under (A): T_2 and T_3 stay, the first view is turned and moved.
    here = random_drive(6)
    R, o = here.R_world_cam.clone(), here.center_world.clone()
    R[:, 0] = R[:, 0] @ turned()[1, 2]
    o[:, 0] += torch.tensor([3.0, 1.0, -2.0], dtype=torch.float64)
    there = replace(here, R_world_cam=R, center_world=o)
    pair = slice(6, 12), slice(12, 18)
    change = exactly(RayNova(position=position), there) - exactly(RayNova(position=position), here)
    assert change[:, *pair].abs().max() > 0.5


def test_the_first_view_is_the_queries_also_for_keys():
    queries, keys = random_drive(1, views=2), random_drive(2)
    encoding = RayNova(head_dim=32)
    moved = moved_rigidly(queries, TURN, SHIFT), moved_rigidly(keys, TURN, SHIFT)
    torch.testing.assert_close(
        exactly(encoding, *moved), exactly(encoding, queries, keys), rtol=0, atol=1e-10
    )
    # Two clips that share no camera have no frame in common but the queries'.
    assert (exactly(encoding, queries, moved[1]) - exactly(encoding, queries, keys)).abs().max() > 0.5


def test_moments_grow_with_the_distance_from_the_origin():
    # Two rays that are 0.1 rad apart, from one centre: the moments' difference is the centre's distance times it.
    def slowest_turn(distance):
        center = torch.tensor([0.0, 0.0, distance], dtype=torch.float64)
        dirs = torch.tensor([[0.0, 0.0, 1.0], [math.sin(0.1), 0.0, math.cos(0.1)]], dtype=torch.float64)
        view = rays(torch.eye(3, dtype=torch.float64), center.expand(1, 1, 3), dirs, grid=(1, 2))
        # At base 100 the slowest of 8 pairs turns by 2 / 100 ** (7 / 8) per metre of the y moment, channels 96-111.
        block = exactly(RayNova(frame="world"), view)[0, 0, 1, 110:112, 110:112]
        return math.atan2(block[1, 0], block[0, 0])

    per_metre = 2 / 100 ** (7 / 8) * math.sin(0.1)
    for distance in (0.0, 1.0, 10.0, 100.0):
        assert slowest_turn(distance) == pytest.approx(distance * per_metre, abs=1e-12)


def test_map_coordinates_of_five_million_metres_cost_nothing_but_their_rounding():
    here = rays(turned(), ahead(3.0), pinhole_dirs())
    far = rays(turned(), ahead(3.0) + torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64), pinhole_dirs())
    for position in ("moment", "center"):
        encoding = RayNova(position=position)
        # 1e-9 m of rounding in a centre, at 2 rad per metre.
        torch.testing.assert_close(exactly(encoding, far), exactly(encoding, here), rtol=0, atol=1e-8)


# Coordinates


def test_a_step_of_time_turns_by_seconds():
    dirs = pinhole_dirs().expand(1, 2, -1, -1)
    still = matrices(torch.eye(3, dtype=torch.float64).expand(1, 2, 3, 3), torch.zeros(1, 2, 3).double())
    view = ViewRays.from_poses(still, dirs, grid=GRID, time=torch.tensor([2.0, 5.0]))
    for step in (1 / 3, 0.5):
        block = exactly(RayNova(seconds_per_step=step), view)[0, 0, 6, :2, :2]
        assert block[0, 0].item() == pytest.approx(math.cos(30 * 3 * step), abs=1e-12)
        assert block[1, 0].item() == pytest.approx(math.sin(30 * 3 * step), abs=1e-12)


def test_wavelengths_at_128_channels_are_those_of_the_release():
    encoding = RayNova()
    for scale, ends in ((2.0, (3.1416, 176.7)), (50.0, (0.12566, 7.066))):
        lengths = [2 * math.pi / scale * encoding.base ** (2 * m / 16) for m in range(8)]
        assert (lengths[0], lengths[-1]) == pytest.approx(ends, rel=1e-3)
    # And they are what the operator turns by: a centre 1.5 m along x, fastest and slowest pair of the fifth part.
    centers = torch.tensor([[[0.0, 0, 0], [1.5, 0, 0]]], dtype=torch.float64)
    view = rays(torch.eye(3, dtype=torch.float64), centers, pinhole_dirs())
    dense = exactly(RayNova.as_released(), view)[0, 0, 6]
    assert dense[80, 80].item() == pytest.approx(math.cos(3.0), abs=1e-12)
    assert dense[94, 94].item() == pytest.approx(math.cos(2 * math.pi * 1.5 / 176.7), abs=1e-5)


def test_operator_is_bit_identical_under_autocast():
    queries = random_drive(7)
    outside = RayNova().operator(queries)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = RayNova().operator(queries)
    for a, b in zip(outside.tensors(), inside.tensors(), strict=True):
        assert a.dtype == torch.float32 and torch.equal(a, b)


def test_only_queries_and_keys_are_turned_once_per_token():
    operator = RayNova().operator(random_drive())
    assert operator.acts_on == frozenset("qk") and not operator.grouped
    claims = RayNova().claims
    assert claims.per_token and claims.norm_preserving and not claims.metric


def test_the_release_is_told_apart_in_stored_options():
    stored = encoding_to_config(RayNova.as_released())
    assert stored["position"] == "center" and stored["base"] == 100.0
    assert encoding_from_config(stored) == RayNova(position="center")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 72}, r"multiple of 16.*72 / 8 = 9 channels"),
        ({"head_dim": 0}, r"multiple of 16"),
        ({"base": -1.0}, r"base must be > 0"),
        ({"seconds_per_step": 0.0}, r"seconds_per_step must be > 0"),
        ({"position_scale": math.inf}, r"position_scale must be > 0 and finite"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RayNova(**options)
