"""Additive encodings: numbers per token by hand, their frame, and the backbone's own rotary embedding."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

from merope.cameras.pinhole import Pinhole
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
from merope.encodings import CameraCtrl, ReCamMaster, SCoPE, encoding_from_config, encoding_to_config
from merope.encodings.base import FeatureEncoding
from merope.encodings.scale import ScaleWarning, TranslationScale
from merope.geometry.rotations import rotvec_to_matrix

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

ADDITIVE = (
    CameraCtrl(),
    CameraCtrl(origin="center"),
    CameraCtrl(rays_per_side=2),
    ReCamMaster(),
    SCoPE(),
)
WITHOUT_LENS = tuple(encoding for encoding in ADDITIVE if getattr(encoding, "rays_per_side", 1) == 1)


def exactly(encoding, view_rays):
    return encoding.features(view_rays, dtype=torch.float64)


SERVED = [
    pytest.param(name, encoding, id=f"{name}-{type(encoding).__name__}-{encoding.num_features}")
    for name in SCENES
    for encoding in (ADDITIVE if scene(name).lens is not None else WITHOUT_LENS)
]


# Numbers


def two_cameras():
    """The first looks along the world's x axis; the second, 4 m ahead and 1 m to its right, straight up.

    Both have one token, which looks along the optical axis. y is down.
    """
    first, second = rotvec_to_matrix(
        torch.tensor([[0.0, math.pi / 2, 0.0], [math.pi / 2, 0.0, 0.0]], dtype=torch.float64)
    )
    centers = torch.tensor([[[10.0, 7.0, 3.0], [14.0, 7.0, 2.0]]], dtype=torch.float64)
    e_z = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    return rays(torch.stack([first, second])[None], centers, e_z, grid=(1, 1))


@pytest.mark.parametrize("per_metre", [1.0, 0.5])
def test_rays_go_from_camera_to_world_and_not_back(per_metre):
    # Up is -y. o = (1, 0, 4), d = (0, -1, 0), o x d = (4, 0, -1); with the transpose of the second camera's
    # rotation d would be (0, 1, 0), with that of the first o would be (-1, 0, -4).
    scale = TranslationScale(per_metre=per_metre, reach=10)
    plucker = exactly(CameraCtrl(scale=scale), two_cameras())
    expected = torch.tensor([4.0 * per_metre, 0, -per_metre, 0, -1, 0], dtype=torch.float64)
    torch.testing.assert_close(plucker[0, 1], expected)
    center = exactly(CameraCtrl(scale=scale, origin="center"), two_cameras())
    expected = torch.tensor([per_metre, 0, 4.0 * per_metre, 0, -1, 0], dtype=torch.float64)
    torch.testing.assert_close(center[0, 1], expected)
    ahead_of_itself = torch.tensor([0.0, 0, 0, 0, 0, 1], dtype=torch.float64)
    torch.testing.assert_close(plucker[0, 0], ahead_of_itself)
    torch.testing.assert_close(center[0, 0], ahead_of_itself)


def test_a_pose_is_written_row_by_row():
    got = exactly(ReCamMaster(scale=TranslationScale(per_metre=0.5, reach=10)), two_cameras())
    second = [[0.0, -1.0, 0.0, 0.5], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 2.0]]
    first = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    torch.testing.assert_close(got[0].unflatten(-1, (3, 4)), torch.tensor([first, second]).double())


def test_a_line_is_its_direction_its_moment_s_direction_and_the_moment_s_logarithm():
    got = exactly(SCoPE(scale=TranslationScale(per_metre=2.0, reach=10)), two_cameras())
    length = math.sqrt(17)
    expected = [0, -1, 0, 4 / length, 0, -1 / length, math.log(2 * length)]
    torch.testing.assert_close(got[0, 1], torch.tensor(expected, dtype=torch.float64))
    # Through the origin there is no moment.
    expected = [0, 0, 1, 0, 0, 0, math.log(1e-6)]
    torch.testing.assert_close(got[0, 0], torch.tensor(expected, dtype=torch.float64))
    got = exactly(SCoPE(moment_floor=0.01), two_cameras())
    assert got[0, 0, 6].item() == pytest.approx(math.log(0.01))


def derived(encoding, view_rays):
    """All features token by token."""
    out = []
    for clip, view, token in np.ndindex(*view_rays.valid.shape):
        T_first, T = (
            np.block(
                [
                    [
                        view_rays.R_world_cam[clip, v].numpy(),
                        view_rays.center_world[clip, v, :, None].numpy(),
                    ],
                    [np.zeros((1, 3)), np.ones((1, 1))],
                ]
            )
            for v in (0, view)
        )
        T_first_cam = np.linalg.inv(T_first) @ T
        R, o = T_first_cam[:3, :3], T_first_cam[:3, 3] * encoding.scale.per_metre
        d = R @ view_rays.dirs_cam[clip, view, token].numpy()
        moment = np.cross(o, d)
        if not view_rays.valid[clip, view, token]:
            numbers = np.zeros(encoding.num_features)
        elif isinstance(encoding, ReCamMaster):
            numbers = np.column_stack([R, o]).ravel()
        elif isinstance(encoding, CameraCtrl):
            numbers = np.concatenate([moment if encoding.origin == "moment" else o, d])
        else:
            length = max(np.linalg.norm(moment), encoding.moment_floor)
            numbers = np.concatenate([d, moment / length, [math.log(length)]])
        out.append(numbers)
    return torch.from_numpy(np.array(out).reshape(view_rays.batch, view_rays.num_tokens, -1))


@pytest.mark.parametrize("encoding", WITHOUT_LENS)
@pytest.mark.parametrize("name", [name for name in SCENES if name != "far_origin"])
def test_features_equal_the_second_derivation_on_the_standing_scenes(name, encoding):
    scaled = replace(encoding, scale=TranslationScale(per_metre=0.1, reach=100))
    got = exactly(scaled, scene(name))
    assert got.shape == (2, 18, encoding.num_features)
    torch.testing.assert_close(got, derived(scaled, scene(name)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_tokens_are_ordered_view_by_view_and_row_by_row_also_in_grids_that_are_not_square(encoding):
    whole = random_drive(2, grid=(2, 5))
    got = exactly(encoding, whole).unflatten(1, (3, 2, 5))
    # One token at a time, on a raster that is cropped to it.
    for view, row, col in ((0, 1, 4), (1, 0, 3), (2, 1, 0)):
        lens = replace(whole.lens, principal_point_outside=True).crop(top=row, left=col, height=1, width=1)
        dirs = lens.pixel_rays()[0].flatten(0, 1).expand(2, 3, 1, 3)
        alone = ViewRays.from_poses(matrices(whole.R_world_cam, whole.center_world), dirs, camera=lens)
        torch.testing.assert_close(got[:, view, row, col], exactly(encoding, alone)[:, view])


# Several rays per token


@pytest.mark.parametrize("origin", ["moment", "center"])
def test_rays_of_parts_are_those_of_a_finer_grid(origin):
    coarse = random_drive(3, grid=(2, 3))
    got = exactly(CameraCtrl(origin=origin, rays_per_side=3), coarse)
    # [coordinate, row, column] within each token of [view, row, column].
    got = got.unflatten(-1, (6, 3, 3)).unflatten(1, (3, 2, 3))
    lens = coarse.lens.resize(height=6, width=9)
    fine = ViewRays.from_poses(
        matrices(coarse.R_world_cam, coarse.center_world),
        lens.pixel_rays()[0].flatten(0, 1).expand(2, 3, -1, -1),
        grid=(6, 9),
        camera=lens,
    )
    expected = exactly(CameraCtrl(origin=origin), fine).unflatten(1, (3, 2, 3, 3, 3))
    torch.testing.assert_close(got, expected.permute(0, 1, 2, 4, 6, 3, 5))


def test_every_view_may_have_its_own_lens():
    widths = torch.tensor([[0.4, 0.7, 1.1], [0.5, 0.6, 2.0]], dtype=torch.float64)
    lens = Pinhole(fx=1.5 / widths, fy=1.5 / widths, cx=1.5, cy=1.0, width=3, height=2, pixel_origin="corner")
    dirs = lens.pixel_rays()[0].flatten(2, 3)
    poses = matrices(turned(), ahead(4.0))
    view_rays = ViewRays.from_poses(poses, dirs, grid=GRID, camera=lens)
    got = exactly(CameraCtrl(rays_per_side=2), view_rays).unflatten(-1, (6, 2, 2)).unflatten(1, (3, 2, 3))
    # Clip 1, view 2, token row 1, column 0, its part of row 0, column 1: the point (0.75, 1.25) of the raster.
    ray = np.array([(0.75 - 1.5) / (1.5 / 2.0), (1.25 - 1.0) / (1.5 / 2.0), 1.0])
    R_first, R = (view_rays.R_world_cam[1, view].numpy() for view in (0, 2))
    expected = R_first.T @ R @ ray / np.linalg.norm(ray)
    np.testing.assert_allclose(got[1, 2, 1, 0, 3:, 0, 1].numpy(), expected, atol=1e-12)


def test_parts_without_a_ray_have_zeros_beside_parts_that_have_one():
    view_rays = scene("fisheye_200deg")
    got = exactly(CameraCtrl(rays_per_side=2), view_rays).unflatten(-1, (6, 4))
    tokens = view_rays.valid.flatten(1)
    _, has_ray = view_rays.lens.resize(height=4, width=6).pixel_rays()
    parts = has_ray.unflatten(0, (2, 2)).unflatten(2, (3, 2)).transpose(1, 2).reshape(6, 4)
    expected = tokens[..., None] & parts.repeat(3, 1)
    assert (expected.any(-1) & ~expected.all(-1)).any()
    assert torch.equal(got.abs().amax(-2) > 0, expected)
    assert ((got[:, :, 3:].norm(dim=-2) - 1).abs()[expected] < 1e-12).all()


def test_parts_need_the_lens():
    without = rays(turned(), ahead(4.0), pinhole_dirs())
    with pytest.raises(ValueError, match=r"rays_per_side=2\) .* needs their lens.*from_poses\(camera="):
        CameraCtrl(rays_per_side=2).features(without)


# Frame, scale, precision


@pytest.mark.parametrize(("name", "encoding"), SERVED)
def test_features_are_finite_zero_without_a_ray_and_float32(name, encoding):
    view_rays = scene(name)
    got = encoding.features(view_rays)
    assert got.dtype == torch.float32 and got.shape == (2, 18, encoding.num_features)
    assert torch.isfinite(got).all()
    assert torch.equal(got.abs().amax(-1) > 0, view_rays.valid.flatten(1))


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_moving_the_whole_clip_changes_nothing_and_moving_its_first_view_changes_all_others(encoding):
    here = random_drive(6)
    there = moved_rigidly(
        here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0], dtype=torch.float64)
    )
    torch.testing.assert_close(exactly(encoding, there), exactly(encoding, here), rtol=0, atol=1e-11)
    R, o = here.R_world_cam.clone(), here.center_world.clone()
    R[:, 0], o[:, 0] = R[:, 0] @ turned()[1, 2], o[:, 0] + 3.0
    change = exactly(encoding, replace(here, R_world_cam=R, center_world=o)) - exactly(encoding, here)
    assert (change[:, 6:].abs().amax(-1) > 0.1).all()


@pytest.mark.parametrize("encoding", WITHOUT_LENS)
def test_map_coordinates_of_five_million_metres_cost_nothing_but_their_rounding(encoding):
    # Quarters of a metre are exact in float64 at five million.
    far = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    steps = torch.tensor([[0.0, 0, 0], [0.75, 0.25, 0.5], [1.5, -1.0, 3.0]], dtype=torch.float64)
    centers = torch.stack([steps, 2 * steps])
    here, there = (rays(turned(), centers + shift, pinhole_dirs()) for shift in (0, far))
    assert torch.equal(exactly(encoding, there), exactly(encoding, here))
    assert torch.equal(encoding.features(there), encoding.features(here))


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_translation_alone_is_scaled(encoding):
    here = random_drive(4)
    shrunk = replace(here, center_world=here.center_world / 8)
    scaled = replace(encoding, scale=TranslationScale(per_metre=1 / 8, reach=1e3))
    torch.testing.assert_close(exactly(scaled, here), exactly(encoding, shrunk), rtol=0, atol=1e-12)


@pytest.mark.parametrize("encoding", [CameraCtrl(), ReCamMaster(), SCoPE()])
def test_a_view_out_of_the_scale_s_reach_warns_once_with_what_was_measured(encoding):
    centers = torch.zeros(1, 2, 3, dtype=torch.float64)
    centers[0, 1, 0] = 64.0
    view_rays = rays(torch.eye(3, dtype=torch.float64), centers, torch.tensor([[0.0, 0, 1]]), grid=(1, 1))
    scale = TranslationScale(per_metre=0.03125, reach=48.0)
    limited = replace(encoding, scale=scale)
    with pytest.warns(ScaleWarning, match=r"a baseline of 64 m leaves the 48 m .*features reach 2\."):
        limited.features(view_rays)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        limited.features(view_rays)
        replace(encoding, scale=TranslationScale(per_metre=0.03125, reach=64.0)).features(view_rays)


@pytest.mark.parametrize(("name", "encoding"), SERVED)
def test_gradients_with_respect_to_poses_are_finite(name, encoding):
    view_rays = scene(name)
    R = view_rays.R_world_cam.clone().requires_grad_()
    o = view_rays.center_world.clone().requires_grad_()
    exactly(encoding, replace(view_rays, R_world_cam=R, center_world=o)).sin().sum().backward()
    assert torch.isfinite(R.grad).all() and torch.isfinite(o.grad).all()


def test_lines_that_meet_have_no_reciprocal_product():
    # The second and third camera look at (1, 2, 9), the fourth misses it; the frame is that of the first.
    centers = torch.tensor([[7.0, 1, 0], [0.0, 0, 0], [4.0, -1, 2], [-3.0, 0.5, 1]], dtype=torch.float64)
    towards = (
        torch.tensor([[1.0, 2, 9], [1.0, 2, 9], [1.0, 2, 9], [1.5, 2, 9]], dtype=torch.float64) - centers
    )
    turn = turned()[0, 1]
    dirs = towards / towards.norm(dim=-1, keepdim=True) @ turn
    view_rays = ViewRays.from_poses(matrices(turn.expand(1, 4, 3, 3), centers[None]), dirs[None, :, None])
    lines = exactly(SCoPE(), view_rays)[0, 1:]
    d, m = lines[:, :3], lines[:, 3:6] * lines[:, 6:].exp()
    product = d @ m.T + m @ d.T
    assert product[0, 1].abs() < 1e-12 and product[0, 2].abs() > 0.01 and product[1, 2].abs() > 0.01


# The backbone's rotary embedding


@pytest.mark.parametrize("size", [64, 128, 192])
@pytest.mark.parametrize("kind", [CameraCtrl, ReCamMaster, SCoPE])
def test_the_operator_is_wan_s_own_rotary_embedding(kind, size):
    # Wan counts latent cells; its tokens are 2 x 2 of them.
    rope = WanRotaryPosEmbed(size, (1, 2, 2), 16)
    cos, sin = rope(torch.zeros(1, 4, 3, 4, 6))
    dense = kind(head_dim=size).operator(random_drive(), dtype=torch.float64).dense()[0]
    cos, sin = cos[0, :, 0].double(), sin[0, :, 0].double()
    assert cos.shape == (18, size)

    def turn(x, at):
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        c, s = cos[at, 0::2], sin[at, 1::2]
        return torch.stack([first * c - second * s, first * s + second * c], -1).flatten(-2)

    query, key = torch.randn(2, size, dtype=torch.float64)
    for a, b in ((0, 0), (0, 17), (11, 4), (6, 1)):
        torch.testing.assert_close(
            query @ dense[a, b] @ key, turn(query, a) @ turn(key, b), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_the_backbone_attends_to_tokens_without_a_ray_as_before(encoding):
    operator = encoding.operator(scene("fisheye_200deg"))
    assert operator.key_valid is None
    assert operator.acts_on == frozenset("qk") == frozenset(encoding.acts_on)
    other = encoding.operator(random_drive())
    assert all(torch.equal(a, b) for a, b in zip(operator.tensors(), other.tensors(), strict=True))


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_they_claim_one_property_and_keep_their_options_in_json(encoding):
    assert isinstance(encoding, FeatureEncoding)
    assert (encoding.claims.metric, encoding.claims.per_token, encoding.claims.norm_preserving) == (0, 1, 0)
    assert encoding.facts.placement == "backbone" and encoding.facts.needs_scale
    changed = replace(encoding, scale=TranslationScale(per_metre=0.2, reach=7.0), head_dim=64)
    assert encoding_from_config(json.loads(json.dumps(encoding_to_config(changed)))) == changed


@pytest.mark.parametrize("encoding", ADDITIVE)
def test_features_are_the_same_bits_under_autocast_and_any_default_dtype(encoding):
    view_rays = random_drive(7)
    outside = encoding.features(view_rays)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoding.features(view_rays), outside)
    torch.set_default_dtype(torch.float64)
    try:
        inside = encoding.features(view_rays)
    finally:
        torch.set_default_dtype(torch.float32)
    assert inside.dtype == torch.float32 and torch.equal(inside, outside)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (CameraCtrl, {"head_dim": 65}, r"head_dim must be even and at least 6.*got 65"),
        (ReCamMaster, {"head_dim": 4}, r"got 4"),
        (SCoPE, {"head_dim": 63}, r"got 63"),
        (CameraCtrl, {"rays_per_side": 0}, r"rays_per_side must be at least 1; got 0"),
        (SCoPE, {"moment_floor": 0.0}, r"moment_floor must be > 0"),
        (ReCamMaster, {"native_base": -1.0}, r"native_base must be > 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)
