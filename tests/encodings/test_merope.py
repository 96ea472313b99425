"""MeRoPE against a second derivation, and the properties that the paper claims for it."""

import copy
import math
import pickle

import pytest
import torch
from diffusers.models.embeddings import get_1d_rotary_pos_embed
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    moved_rigidly,
    pinhole_dirs,
    random_drive,
    rays,
    scene,
    turned,
)
from merope.encodings import HeadLayout, MeRoPE, Native
from tests.encodings.derivation import dense as derived
from tests.support.fresh_python import run_python

BANDS = {"disp": slice(0, 36), "rot": slice(36, 72), "trans": slice(72, 96), "native": slice(96, 128)}


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def orthogonality_error(matrices):
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    return (matrices.mT @ matrices - identity).abs().max().item()


def assert_equals_derivation(encoding, queries, keys, atol=1e-12):
    ours = exactly(encoding, queries, keys)
    torch.testing.assert_close(ours, torch.from_numpy(derived(queries, keys, encoding)), rtol=0, atol=atol)


# Eqs. 5 to 11


@pytest.mark.parametrize("reach", [0.5, 5.0, 57.0])
def test_operator_equals_the_second_derivation_at_baselines_to_100_metres(reach):
    # A cube of 57 m half-side has baselines to 197 m; the drive of this seed stays within 100 m.
    queries = random_drive(3, reach=reach)
    longest = torch.cdist(queries.center_world, queries.center_world).max()
    assert longest < 100
    assert_equals_derivation(MeRoPE(), queries, queries)


@pytest.mark.parametrize("name", SCENES)
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    queries = scene(name)
    # 1 mm of baseline from centres 5e6 m away, or of two nearly equal numbers, has fewer digits.
    loose = {"far_origin": 1e-9, "parked_with_jitter": 1e-10}
    assert_equals_derivation(MeRoPE(head_dim=64), queries, queries, atol=loose.get(name, 1e-12))


@pytest.mark.parametrize(
    "options",
    [
        {"head_dim": 64},
        {"head_dim": 192},
        {"single_frequency": 7.5},
        {"anchor_frames": "transported"},
        {"min_scene_depth": 2.0},
        {"anchor_frames": "transported", "min_scene_depth": 0.3, "native_base": 500.0},
        {"fractions": (0.0, 1.0), "wavelength_min": 1.0, "wavelength_max": 50.0},
        {"components": frozenset(("rot",))},
        {"components": frozenset()},
        {
            "head_dim": 24,
            "layout": HeadLayout(disp=6, rot=6, trans=6, native=(2, 0, 4)),
            "fractions": (0.3, 0.9),
            "single_frequency": 3.0,
        },
        {"head_dim": 32, "layout": HeadLayout(disp=0, rot=12, trans=12, native=(4, 2, 2))},
        {"head_dim": 32, "layout": HeadLayout(disp=18, rot=0, trans=0, native=(6, 4, 4))},
        {"head_dim": 30, "layout": HeadLayout(disp=18, rot=0, trans=12, native=(0, 0, 0))},
    ],
)
def test_every_option_equals_the_second_derivation(options):
    queries = random_drive(1, views=2)
    assert_equals_derivation(MeRoPE(**options), queries, queries)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    dense = exactly(MeRoPE(), queries, keys)
    assert dense.shape == (2, 12, 12, 128, 128)
    assert_equals_derivation(MeRoPE(), queries, keys)
    with pytest.raises(ValueError, match="keys must have the queries' batch 2; got 1"):
        MeRoPE().operator(
            queries, ViewRays.from_poses(torch.eye(4).expand(1, 1, 4, 4), pinhole_dirs()[None, None])
        )


# Claims


@pytest.mark.parametrize("frames", ["minrot", "transported"])
@pytest.mark.parametrize("name", SCENES)
def test_every_pairwise_map_is_orthogonal_in_float32_on_the_standing_scenes(name, frames):
    operator = MeRoPE(anchor_frames=frames).operator(scene(name))
    dense = operator.dense()
    assert dense.dtype == torch.float32
    assert orthogonality_error(dense.double()) < 1e-5


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("options", [{}, {"anchor_frames": "transported", "min_scene_depth": 1.0}])
def test_a_token_meets_itself_through_the_identity(name, options):
    dense = exactly(MeRoPE(**options), scene(name))
    tokens = torch.arange(dense.shape[1])
    itself = dense[:, tokens, tokens]
    identity = torch.eye(128, dtype=torch.float64).expand_as(itself)
    torch.testing.assert_close(itself, identity, rtol=0, atol=1e-14)


@pytest.mark.parametrize("frames", ["minrot", "transported"])
@pytest.mark.parametrize("name", [*(name for name in SCENES if name != "far_origin"), "random"])
def test_operator_does_not_see_a_rigid_motion_of_the_world(name, frames):
    here = random_drive(6) if name == "random" else scene(name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    assert not torch.equal(there.center_world, here.center_world)
    encoding = MeRoPE(anchor_frames=frames)
    torch.testing.assert_close(exactly(encoding, there), exactly(encoding, here), rtol=0, atol=1e-9)


def test_operator_does_not_see_map_coordinates_of_five_million_metres():
    # Baselines from 1 m; float64 has 1e-9 m there.
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    steps = torch.tensor([[0.0, 0, 0], [0.8, 0.1, 0.7], [1.4, -1.0, 3.0]], dtype=torch.float64)
    centers = torch.stack([steps, 2 * steps])
    assert torch.cdist(centers, centers)[0][~torch.eye(3, dtype=torch.bool)].min() > 1
    here, there = (rays(turned(), centers + shift, pinhole_dirs()) for shift in (0, origin))
    torch.testing.assert_close(exactly(MeRoPE(), there), exactly(MeRoPE(), here), rtol=0, atol=1e-7)
    moved = moved_rigidly(here, torch.tensor([0.2, 0.5, -0.4]), origin)
    torch.testing.assert_close(exactly(MeRoPE(), moved), exactly(MeRoPE(), here), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", SCENES)
def test_a_shift_of_the_world_that_rounds_nothing_changes_nothing(name):
    here = scene(name)
    shift = torch.tensor([2.0**12, -(2.0**10), 2.0**9], dtype=torch.float64)
    there = rays(here.R_world_cam, here.center_world + shift, here.dirs_cam[0, 0], valid=here.valid)
    back = there.center_world - shift
    if not torch.equal(back, here.center_world):
        there = rays(here.R_world_cam, back + shift, here.dirs_cam[0, 0], valid=here.valid)
        here = rays(here.R_world_cam, back, here.dirs_cam[0, 0], valid=here.valid)
    assert torch.equal(exactly(MeRoPE(head_dim=64), there), exactly(MeRoPE(head_dim=64), here))


@pytest.mark.parametrize("baseline", [0.0, 1.0, 1e2, 1e3, 1e4])
def test_far_baselines_leave_logits_and_norms_bounded(baseline):
    views = torch.zeros(2, 3, 3, dtype=torch.float64)
    views[:, :, 0], views[1, :, 2] = torch.arange(3) * baseline, -torch.arange(3) * baseline / 2
    dense = MeRoPE().operator(rays(turned(), views, pinhole_dirs())).dense()
    q, k = torch.randn(2, 18, 128), torch.randn(2, 18, 128)
    turned_keys = torch.einsum("bacde,bce->bacd", dense, k)
    norms = turned_keys.norm(dim=-1)
    torch.testing.assert_close(norms, k.norm(dim=-1)[:, None].expand_as(norms), rtol=2e-6, atol=0)
    logits = torch.einsum("bad,bacd->bac", q, turned_keys)
    assert (logits.abs() <= q.norm(dim=-1)[:, :, None] * k.norm(dim=-1)[:, None] * (1 + 1e-5)).all()


def test_metres_matter():
    centers = torch.zeros(2, 3, 3, dtype=torch.float64)
    centers[:, :, 2] = torch.arange(3)
    one, two = (exactly(MeRoPE(), rays(turned(), s * centers, pinhole_dirs())) for s in (1, 2))
    assert (
        one[..., BANDS["trans"], BANDS["trans"]] - two[..., BANDS["trans"], BANDS["trans"]]
    ).abs().max() > 0.5
    for name in ("disp", "rot", "native"):
        band = BANDS[name]
        torch.testing.assert_close(one[..., band, band], two[..., band, band], rtol=0, atol=1e-14)


@pytest.mark.parametrize("components", [("disp",), ("rot",), ("trans",), ("disp", "rot"), ()])
def test_a_component_that_is_off_leaves_its_channels_untouched(components):
    queries = random_drive(2, views=2)
    whole = exactly(MeRoPE(), queries)
    part = exactly(MeRoPE(components=frozenset(components)), queries)
    for name, band in BANDS.items():
        block = part[..., band, band]
        if name in (*components, "native"):
            assert torch.equal(block, whole[..., band, band])
        else:
            width = band.stop - band.start
            assert torch.equal(block, torch.eye(width, dtype=torch.float64).expand_as(block))


def test_claims_follow_the_components():
    assert MeRoPE().claims.metric and not MeRoPE().claims.per_token and MeRoPE().claims.norm_preserving
    rot = MeRoPE(components=frozenset(("rot",))).claims
    assert rot.per_token and not rot.metric
    assert not MeRoPE(components=frozenset(("rot",))).operator(random_drive()).grouped
    assert not MeRoPE(components=frozenset(("disp",))).claims.metric
    # Where a camera looks is part of its pose.
    assert not MeRoPE(components=frozenset(("trans",))).claims.metric
    assert MeRoPE(components=frozenset(("trans", "disp"))).claims.metric


def test_claims_follow_the_channels_that_there_are():
    turned_only = MeRoPE(head_dim=32, layout=HeadLayout(disp=0, rot=24, trans=0, native=(4, 2, 2))).claims
    assert turned_only.per_token and not turned_only.metric


# Precision


@pytest.mark.parametrize("distance", [0.1, 7.7, 100.0, 100.2, 333.3, 999.9, 1000.0])
def test_translation_phases_are_those_of_float64_whatever_the_model_s_precision(distance):
    centers = torch.zeros(2, 2, 3, dtype=torch.float64)
    centers[:, 1, 0] = distance
    view = rays(torch.eye(3, dtype=torch.float64), centers, pinhole_dirs())
    band = next(band for band in MeRoPE().operator(view).bands if band.name == "trans")
    truth = torch.tensor([math.cos(2 * math.pi * distance / length) for length in MeRoPE().wavelengths])
    assert (band.right.cos[0, 0, 0, 1, :4] - truth).abs().max() < 2e-7
    assert band.right.cos.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operator_is_bit_identical_under_autocast(dtype):
    queries = random_drive(7)
    for options in ({}, {"anchor_frames": "transported", "min_scene_depth": 1.0}):
        outside = MeRoPE(**options).operator(queries, dtype=dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = MeRoPE(**options).operator(queries, dtype=dtype)
        for a, b in zip(outside.tensors(), inside.tensors(), strict=True):
            assert a.dtype == dtype
            assert torch.equal(a, b)


def test_operator_is_independent_of_the_default_dtype():
    queries = random_drive(7)
    outside = MeRoPE().operator(queries)
    torch.set_default_dtype(torch.float64)
    try:
        inside = MeRoPE().operator(queries)
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(outside.tensors(), inside.tensors(), strict=True):
        assert torch.equal(a, b)


def test_moving_an_operator_never_casts_it():
    operator = MeRoPE().operator(random_drive(7))
    assert {tensor.dtype for tensor in operator.to("cpu").tensors()} == {torch.float32}
    with pytest.raises(TypeError):
        operator.to("cpu", torch.bfloat16)


class NoFloat64OnTheDevice(TorchDispatchMode):
    """A device (here "meta") that has no float64, as some accelerators have none."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                assert leaf.dtype not in (torch.float64, torch.complex64, torch.complex128), function
        return out


@pytest.mark.parametrize("encoding", [MeRoPE(), MeRoPE(anchor_frames="transported"), Native()])
def test_a_device_without_float64_and_complex_numbers_is_served(encoding):
    with NoFloat64OnTheDevice():
        operator = encoding.operator(random_drive(), device="meta")
    assert {(t.device.type, t.dtype) for t in operator.tensors()} == {("meta", torch.float32)}


def test_rays_and_operators_go_between_processes():
    view = pickle.loads(pickle.dumps(random_drive()))
    operator = MeRoPE(head_dim=64).operator(view)
    again = pickle.loads(pickle.dumps(operator))
    assert torch.equal(again.dense(), operator.dense())
    assert torch.equal(copy.deepcopy(operator).dense(), operator.dense())


@pytest.mark.parametrize("name", SCENES)
def test_gradients_with_respect_to_poses_and_rays_are_finite(name):
    view = scene(name)
    leaves = [
        value.clone().requires_grad_() for value in (view.R_world_cam, view.center_world, view.dirs_cam)
    ]
    matrices = torch.cat([leaves[0], leaves[1][..., None]], -1)
    bottom = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(2, 3, 1, 4)
    again = ViewRays.from_poses(torch.cat([matrices, bottom], -2), leaves[2], grid=GRID)
    operator = MeRoPE(head_dim=64).operator(again, dtype=torch.float64)
    sum(tensor.sin().sum() for tensor in operator.tensors()).backward()
    for leaf in leaves:
        assert torch.isfinite(leaf.grad).all()


def test_tokens_without_a_ray_have_finite_operators():
    view = scene("fisheye_200deg")
    assert not view.valid.all()
    assert torch.isfinite(MeRoPE().operator(view).dense()).all()


# The backbone's own rotary embedding


def test_native_band_turns_as_wan_s_own_rotary_embedding_does():
    # Wan splits 32 channels into 12 + 10 + 10; each axis is compared under its own width.
    rows, cols, views = 2, 3, 4
    queries = random_drive(8, views=views)
    dense = exactly(MeRoPE(), queries)[0]
    native = dense[..., 96:, 96:]
    positions = torch.cartesian_prod(torch.arange(views), torch.arange(rows), torch.arange(cols))
    start = 0
    for axis, width in enumerate((16, 8, 8)):
        rope = WanRotaryPosEmbed(3 * width, (1, 1, 1), 32)
        # Its first table has max_seq_len positions of the time axis, whose width is t_dim.
        cos, sin = _wan_table(rope, width)
        x = torch.randn(width, dtype=torch.float64)
        for a, b in ((0, 0), (0, 13), (13, 0), (5, 23), (22, 7)):
            at, to = positions[a, axis], positions[b, axis]
            key = _wan_turn(x, cos[to], sin[to])
            band = native[a, b, start : start + width, start : start + width]
            query = torch.randn(width, dtype=torch.float64)
            torch.testing.assert_close(
                query @ band @ x, _wan_turn(query, cos[at], sin[at]) @ key, rtol=1e-6, atol=1e-6
            )
        start += width


def _wan_table(rope, width):
    assert rope.h_dim == rope.w_dim
    return get_1d_rotary_pos_embed(
        width, 32, 10000.0, use_real=True, repeat_interleave_real=True, freqs_dtype=torch.float64
    )


def _wan_turn(x, cos, sin):
    """The pairwise turn of diffusers' WanAttnProcessor."""
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = cos[0::2], sin[1::2]
    return torch.stack([first * c - second * s, first * s + second * c], -1).flatten(-2)


# Layouts


@pytest.mark.parametrize(
    ("size", "widths"),
    [(64, (18, 18, 12, (8, 4, 4))), (128, (36, 36, 24, (16, 8, 8))), (192, (54, 54, 36, (24, 12, 12)))],
)
def test_head_layouts_are_the_paper_s_and_its_scalings(size, widths):
    layout = HeadLayout.for_head_dim(size)
    assert (layout.disp, layout.rot, layout.trans, layout.native) == widths
    assert layout.head_dim == size
    assert len(MeRoPE(head_dim=size).wavelengths) == {64: 2, 128: 4, 192: 6}[size]


def test_wavelengths_are_log_spaced_between_half_a_metre_and_200_metres():
    assert MeRoPE().wavelengths == pytest.approx((0.5, 3.684, 27.14, 200.0), rel=1e-3)
    assert MeRoPE(single_frequency=9.0).wavelengths == (9.0,) * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 96}, r"no head layout is known for head_dim 96; known are \[64, 128, 192\]"),
        (
            {"head_dim": 64, "layout": HeadLayout(disp=36, rot=36, trans=24, native=(16, 8, 8))},
            r"layout 36 \+ 36 \+ 24 \+ 32 = 128 does not fill head_dim 64",
        ),
        (
            {"layout": HeadLayout(disp=33, rot=39, trans=24, native=(16, 8, 8))},
            r"disp width 33 is not a multiple of 3 x 6 anchors = 18",
        ),
        ({"layout": HeadLayout(disp=36, rot=37, trans=24, native=(15, 8, 8))}, r"rot width 37"),
        ({"layout": HeadLayout(disp=36, rot=36, trans=20, native=(20, 8, 8))}, r"trans width 20.*3 axes x 2"),
        ({"layout": HeadLayout(disp=36, rot=36, trans=24, native=(15, 9, 8))}, r"native widths must be even"),
        ({"layout": HeadLayout(disp=36, rot=-36, trans=96, native=(16, 8, 8))}, r"widths must be >= 0"),
        (
            {"layout": HeadLayout(disp=36, rot=54, trans=6, native=(16, 8, 8))},
            r"Eq. 7 divides by K - 1 = 0.*single_frequency",
        ),
        ({"fractions": ()}, r"0 anchors"),
        ({"fractions": (0.0, 1.5)}, r"fractions must lie in \[0, 1\]; got \(0.0, 1.5\)"),
        ({"wavelength_min": 0.0}, r"0 < min <= max \(metres\); got 0.0 and 200.0"),
        ({"wavelength_min": 300.0}, r"got 300.0 and 200.0"),
        ({"wavelength_max": math.inf}, r"wavelengths must"),
        ({"single_frequency": -1.0}, r"single_frequency is a wavelength in metres"),
        ({"native_base": 0.0}, r"native_base must be > 0"),
        ({"min_scene_depth": -1.0}, r"min_scene_depth must be >= 0 m; got -1.0"),
    ],
)
def test_options_that_do_not_fit_say_so_with_the_arithmetic(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MeRoPE(**options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("anchor_frames='parallel'", "anchor_frames must be 'minrot' or 'transported'; got 'parallel'"),
        ("components=frozenset(('pose',))", "components must be among disp, rot, trans; got ['pose']"),
    ],
)
def test_unknown_words_are_refused_without_the_type_checks_of_the_test_run(option, message):
    ran = run_python(f"from merope.encodings import MeRoPE; MeRoPE({option})")
    assert ran.returncode == 1
    assert f"ValueError: {message}" in ran.stderr
