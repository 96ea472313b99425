"""ViewRope against a second derivation, against MeRoPE's rotation band, and its blindness to translation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.cameras.scenes import SCENES, moved_rigidly, random_drive, rays, scene, turned
from merope.encodings import HeadLayout, MeRoPE, ViewRope
from merope.geometry.rotations import rotvec_to_matrix
from tests.encodings.derivation import frame, plane


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def level_frame(direction):
    """Columns: across the ray and level in the camera, down along it, the ray."""
    across = np.cross([0.0, 1.0, 0.0], direction)
    across /= np.linalg.norm(across)
    return np.column_stack([across, np.cross(direction, across), direction])


def derived(queries, keys, size, widths, frame=frame):
    """Every U_ab pair by pair: relative rotations of ray frames, then native turns by steps."""
    batch, num, other = queries.batch, queries.tokens_per_view, keys.tokens_per_view
    out = np.zeros((batch, queries.num_tokens, keys.num_tokens, size, size))
    for clip, i, p, j, q in np.ndindex(batch, queries.num_views, num, keys.num_views, other):
        R_i, R_j = queries.R_world_cam[clip, i].numpy(), keys.R_world_cam[clip, j].numpy()
        own = R_i @ frame(queries.dirs_cam[clip, i, p].numpy())
        others = R_j @ frame(keys.dirs_cam[clip, j, q].numpy())
        blocks = [own.T @ others] * ((size - sum(widths)) // 3)
        steps = (
            float(keys.time[clip, j] - queries.time[clip, i]),
            float(keys.row[q] - queries.row[p]),
            float(keys.col[q] - queries.col[p]),
        )
        for step, width in zip(steps, widths, strict=True):
            blocks += [plane(step / 10_000 ** (2 * m / width)) for m in range(width // 2)]
        start = 0
        for block in blocks:
            side = len(block)
            out[clip, i * num + p, j * other + q, start : start + side, start : start + side] = block
            start += side
        assert start == size
    return torch.from_numpy(out)


@pytest.mark.parametrize(
    ("size", "widths"), [(64, (8, 4, 4)), (128, (16, 8, 8)), (192, (24, 12, 12)), (96, (12, 6, 6))]
)
def test_operator_equals_the_second_derivation_at_every_head_size(size, widths):
    queries = random_drive(1, views=2)
    encoding = ViewRope(head_dim=size)
    assert encoding.resolved_native_widths == widths
    expected = derived(queries, queries, size, widths)
    torch.testing.assert_close(exactly(encoding, queries), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SCENES)
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    queries = scene(name)
    expected = derived(queries, queries, 64, (8, 4, 4))
    torch.testing.assert_close(exactly(ViewRope(head_dim=64), queries), expected, rtol=0, atol=1e-12)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    expected = derived(queries, keys, 30, (4, 2, 0))
    got = exactly(ViewRope(head_dim=30, native_widths=(4, 2, 0)), queries, keys)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SCENES)
def test_the_level_frame_equals_the_second_derivation_too(name):
    queries = scene(name)
    encoding = ViewRope(head_dim=64, frame="cross_product")
    expected = derived(queries, queries, 64, (8, 4, 4), frame=level_frame)
    torch.testing.assert_close(exactly(encoding, queries), expected, rtol=0, atol=1e-12)
    # Off the axis it is rolled against the minimum rotation.
    assert (exactly(encoding, queries) - exactly(ViewRope(head_dim=64), queries)).abs().max() > 0.01


@pytest.mark.parametrize("frame", ["minrot", "cross_product"])
def test_every_pairwise_map_is_orthogonal_in_float32_in_every_direction(frame):
    # The six axes of the camera, among them the poles of both frames.
    axes = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    view = rays(turned(), torch.zeros(2, 3, 3).double(), axes)
    dense = ViewRope(frame=frame).operator(view).dense().double()
    assert (dense.mT @ dense - torch.eye(128, dtype=torch.float64)).abs().max() < 1e-5
    tokens = torch.arange(18)
    itself = dense[:, tokens, tokens]
    torch.testing.assert_close(itself, torch.eye(128).double().expand_as(itself), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SCENES)
def test_its_triplets_are_the_rotation_band_of_merope(name):
    layout = HeadLayout(disp=0, rot=96, trans=0, native=(16, 8, 8))
    theirs = MeRoPE(layout=layout, components=frozenset(("rot",)))
    ours = ViewRope()
    assert ours.claims == theirs.claims
    assert torch.equal(exactly(ours, scene(name)), exactly(theirs, scene(name)))


def test_no_translation_is_seen():
    here = random_drive(3)
    there = replace(here, center_world=here.center_world * 7 - 40)
    assert torch.equal(exactly(ViewRope(), here), exactly(ViewRope(), there))


def test_every_rotation_is_seen():
    here = random_drive(3)
    R = here.R_world_cam.clone()
    R[:, 1] = R[:, 1] @ turned()[0, 0]
    change = exactly(ViewRope(), replace(here, R_world_cam=R)) - exactly(ViewRope(), here)
    of_pairs = change.abs().amax((-2, -1)).unflatten(1, (3, 6)).unflatten(3, (3, 6))  # [B, i, p, j, q]
    for i in range(3):
        for j in range(3):
            smallest, largest = of_pairs[:, i, :, j].amin(), of_pairs[:, i, :, j].amax()
            if (i == 1) == (j == 1):
                assert largest < 1e-12
            else:
                assert smallest > 0.05


def test_a_rigid_motion_of_the_world_changes_nothing():
    here = random_drive(3)
    there = moved_rigidly(here, torch.tensor([0.4, -2.0, 0.3]), torch.tensor([5e6, 2.0, -3.0]).double())
    torch.testing.assert_close(exactly(ViewRope(), there), exactly(ViewRope(), here), rtol=0, atol=1e-13)


def test_a_turn_of_the_camera_about_a_ray_turns_that_ray_s_channels_by_its_angle():
    # Query and key look along e_z; the key camera is rolled by 0.3.
    roll = torch.stack([torch.zeros(3), torch.tensor([0.0, 0.0, 0.3])]).double()
    e_z = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    view = rays(rotvec_to_matrix(roll)[None], torch.zeros(1, 2, 3, dtype=torch.float64), e_z, grid=(1, 1))
    block = exactly(ViewRope(), view)[0, 0, 1, 3:6, 3:6]
    cos, sin = math.cos(0.3), math.sin(0.3)
    expected = torch.tensor([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(block, expected)


def test_only_queries_and_keys_are_turned():
    operator = ViewRope().operator(random_drive())
    assert operator.acts_on == frozenset("qk") and not operator.grouped
    assert ViewRope(acts_on="qkvo").operator(random_drive()).acts_on == frozenset("qkvo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 100}, r"native_widths must be even.*\(12, 6, 6\)|100 - native 24 = 76"),
        (
            {"native_widths": (16, 8, 6)},
            r"head_dim 128 - native 30 = 98 channels are no whole number of triplets",
        ),
        ({"native_widths": (64, 32, 32)}, r"128 - native 128 = 0"),
        ({"native_widths": (15, 9, 8)}, r"native_widths must be even"),
        ({"native_base": 0.0}, r"native_base must be > 0"),
    ],
)
def test_options_that_do_not_fit_say_so_with_the_arithmetic(options, message):
    with pytest.raises(ValueError, match=message):
        ViewRope(**options)
