"""ReRoPE in the backbone's own channels: what stays is Wan's, what is carved out is the camera's."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

from merope.cameras import ViewRays
from merope.cameras.scenes import GRID, SCENES, matrices, pinhole_lens, random_drive, scene, seen_through
from merope.encodings import (
    CarvedMeRoPE,
    HeadLayout,
    MeRoPE,
    ReRoPE,
    encoding_from_config,
    encoding_to_config,
)
from merope.encodings.native import backbone_widths
from merope.encodings.scale import TranslationScale
from tests.encodings.derivation import blocks as merope_blocks
from tests.encodings.derivation import frame, plane
from tests.encodings.projective_by_hand import dense as placed
from tests.encodings.projective_by_hand import lens_matrix, relative_pose

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

SIZES = (64, 128, 192)
CARVED_PAIRS = {64: 6, 128: 12, 192: 16}
BUDGET_64 = HeadLayout.for_head_dim(64)


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def native_turns(queries, keys, at, head_dim, kept):
    """Plane rotations of each axis, the first ``kept`` channels of Wan's split; one list per axis."""
    clip, i, p, j, q = at
    steps = (
        float(keys.time[clip, j] - queries.time[clip, i]),
        float(keys.row[q] - queries.row[p]),
        float(keys.col[q] - queries.col[p]),
    )
    return [
        [plane(step * 10_000 ** (-2 * m / width)) for m in range(stay // 2)]
        for step, width, stay in zip(steps, backbone_widths(head_dim), kept, strict=True)
    ]


def still_rays(time=(0.0, 1.0, 2.0)):
    """Cameras that neither turn nor move."""
    centers = torch.zeros(2, 3, 3, dtype=torch.float64)
    view = seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), centers)
    return ViewRays.from_poses(
        matrices(view.R_world_cam, centers),
        view.dirs_cam,
        grid=GRID,
        camera=view.lens,
        time=torch.tensor(time),
    )


def wan_operator(head_dim, views, grid):
    """Every U_ab of diffusers' own rotary embedding, [N, N, d, d]."""
    rope = WanRotaryPosEmbed(head_dim, (1, 1, 1), 32)
    cos, sin = rope(torch.zeros(1, 1, views, *grid))
    cos, sin = cos[0, :, 0, 0::2].double(), sin[0, :, 0, 1::2].double()  # [N, d / 2]
    turns = torch.zeros(len(cos), head_dim, head_dim, dtype=torch.float64)
    even, odd = torch.arange(0, head_dim, 2), torch.arange(1, head_dim, 2)
    turns[:, even, even], turns[:, odd, odd] = cos, cos
    turns[:, even, odd], turns[:, odd, even] = -sin, sin
    return turns.mT[:, None] @ turns[None]


# What stays


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [ReRoPE, CarvedMeRoPE])
def test_every_channel_that_is_not_carved_turns_as_in_wan(kind, size):
    view = random_drive(3, views=2)
    dense = exactly(kind(head_dim=size), view)
    wan = wan_operator(size, 2, GRID)
    time = backbone_widths(size)[0]
    carved = 2 * CARVED_PAIRS[size] if kind is ReRoPE else {64: 18, 128: 24, 192: 36}[size]
    stays = torch.tensor([channel for channel in range(size) if not time - carved <= channel < time])
    ours = dense[:, :, :, stays][..., stays]
    theirs = wan[:, :, stays][..., stays].expand_as(ours)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    camera = torch.arange(time - carved, time)
    assert dense[:, :, :, camera][..., stays].abs().max() == 0
    assert dense[:, :, :, stays][..., camera].abs().max() == 0


def test_published_band_is_the_twelve_slowest_temporal_pairs_of_128_channels():
    bands = ReRoPE().operator(random_drive()).bands
    assert [(band.name, band.width) for band in bands] == [
        ("native", 20),
        ("pose", 24),
        ("native", 42),
        ("native", 42),
    ]
    assert bands[1].copies == 6
    assert [ReRoPE(head_dim=size).resolved_pairs for size in SIZES] == list(CARVED_PAIRS.values())
    # What a clip of 13 latent frames loses at equal poses.
    assert 12 * 10_000 ** (-20 / 44) < 0.185


@pytest.mark.parametrize("kind", [ReRoPE, CarvedMeRoPE])
def test_tokens_without_a_ray_stay_keys_of_the_backbone(kind):
    view = scene("fisheye_200deg")
    assert not view.valid.all()
    options = {"pretend_pinhole": True} if kind is ReRoPE else {}
    operator = kind(head_dim=64, **options).operator(view)
    assert operator.key_valid is None
    assert torch.isfinite(operator.dense()).all()


# Published blocks


def published_by_hand(queries, keys, encoding):
    def blocks(at):
        clip, i, _, j, _ = at
        pose = relative_pose(queries, keys, at, encoding.scale.per_metre)
        if encoding.with_lens:
            pose = lens_matrix(queries, clip, i) @ pose @ np.linalg.inv(lens_matrix(keys, clip, j))
        time, row, col = native_turns(queries, keys, at, 64, (12, 20, 20))
        return [*time, *[pose] * 3, *row, *col]

    return torch.from_numpy(placed(queries, keys, 64, blocks))


@pytest.mark.parametrize("with_lens", [True, False])
@pytest.mark.parametrize("name", [*(name for name in SCENES if name != "ray_at_antipode"), "random"])
def test_carved_blocks_are_projective(name, with_lens):
    view = random_drive(2) if name == "random" else scene(name)
    pretend = with_lens and name == "fisheye_200deg"
    encoding = ReRoPE(
        head_dim=64, with_lens=with_lens, pretend_pinhole=pretend, scale=TranslationScale(per_metre=0.3)
    )
    expected = published_by_hand(view, view, encoding)
    torch.testing.assert_close(exactly(encoding, view), expected, rtol=0, atol=1e-11)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    encoding = ReRoPE(head_dim=64)
    expected = published_by_hand(queries, keys, encoding)
    assert expected.shape == (2, 12, 12, 64, 64)
    torch.testing.assert_close(exactly(encoding, queries, keys), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("made", ["rerope", "slow", "budget"])
def test_camera_blocks_are_the_identity_at_equal_poses(made, size):
    encoding = {
        "rerope": ReRoPE(head_dim=size),
        "slow": CarvedMeRoPE(head_dim=size),
        "budget": CarvedMeRoPE(head_dim=size, layout=HeadLayout.for_head_dim(size)),
    }[made]
    operator = encoding.operator(still_rays((0.0, 0.0, 0.0)), dtype=torch.float64)
    dense, start = operator.dense(), 0
    camera = 0
    for band in operator.bands:
        run = slice(start, start + band.width)
        if band.name != "native":
            identity = torch.eye(band.width, dtype=torch.float64).expand_as(dense[..., run, run])
            torch.testing.assert_close(dense[..., run, run], identity, rtol=0, atol=1e-14)
            camera += band.width
        start += band.width
    assert camera == (
        2 * CARVED_PAIRS[size] if made == "rerope" else size - sum(encoding.resolved_layout.native)
    )


# MeRoPE's blocks


def carved_by_hand(queries, keys, encoding, runs):
    """``runs`` lists, for each axis, how many disparity, rotation and translation blocks stand after its native run."""
    layout = encoding.resolved_layout
    inner = MeRoPE(
        head_dim=layout.disp + layout.rot + layout.trans,
        layout=HeadLayout(disp=layout.disp, rot=layout.rot, trans=layout.trans, native=(0, 0, 0)),
    )

    def blocks(at):
        clip, i, p, j, q = at
        camera = [block for block in merope_blocks(queries, keys, inner, at) if len(block)]
        if encoding.frames == "camera":
            A_p = frame(queries.dirs_cam[clip, i, p].numpy())
            A_q = frame(keys.dirs_cam[clip, j, q].numpy())
            camera = [A_p @ block @ A_q.T if len(block) == 3 else block for block in camera]
        triplets = [block for block in camera if len(block) == 3]
        pairs = [block for block in camera if len(block) == 2]
        out = []
        for own, (num_triplets, num_pairs) in zip(
            native_turns(queries, keys, at, encoding.head_dim, layout.native), runs, strict=True
        ):
            out += own + triplets[:num_triplets] + pairs[:num_pairs]
            triplets, pairs = triplets[num_triplets:], pairs[num_pairs:]
        assert not triplets and not pairs
        return out

    return torch.from_numpy(placed(queries, keys, encoding.head_dim, blocks))


@pytest.mark.parametrize("frames", ["camera", "ray"])
@pytest.mark.parametrize("name", ["random", "ray_at_antipode"])
def test_slow_temporal_channels_hold_rotation_and_translation(name, frames):
    view = random_drive(2, views=2) if name == "random" else scene(name)
    encoding = CarvedMeRoPE(head_dim=64, frames=frames)
    expected = carved_by_hand(view, view, encoding, [(2, 6), (0, 0), (0, 0)])
    torch.testing.assert_close(exactly(encoding, view), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("frames", ["camera", "ray"])
@pytest.mark.parametrize("name", ["random", "ray_at_antipode"])
def test_merope_s_own_budget_fills_what_all_three_axes_free(name, frames):
    view = random_drive(2, views=2) if name == "random" else scene(name)
    encoding = CarvedMeRoPE(head_dim=64, frames=frames, layout=BUDGET_64)
    # 16 channels after 8 of time, 4 of rows and 4 of columns: 4 triplets and 2 pairs each.
    expected = carved_by_hand(view, view, encoding, [(4, 2), (4, 2), (4, 2)])
    torch.testing.assert_close(exactly(encoding, view), expected, rtol=0, atol=1e-12)


def test_the_paper_s_budget_of_a_full_head_keeps_its_32_fastest_native_channels():
    queries, keys = random_drive(4, views=2, grid=(1, 2)), random_drive(5, views=1, grid=(2, 1))
    encoding = CarvedMeRoPE(layout=HeadLayout.for_head_dim(128))
    # 28 = 8 x 3 + 2 x 2, 34 = 10 x 3 + 2 x 2, 34 = 6 x 3 + 8 x 2.
    expected = carved_by_hand(queries, keys, encoding, [(8, 2), (10, 2), (6, 8)])
    torch.testing.assert_close(exactly(encoding, queries, keys), expected, rtol=0, atol=1e-12)


def test_default_allocation_of_a_full_head_is_twelve_and_twelve():
    assert CarvedMeRoPE().resolved_layout == HeadLayout(disp=0, rot=12, trans=12, native=(20, 42, 42))
    queries = random_drive(4, views=2, grid=(1, 2))
    expected = carved_by_hand(queries, queries, CarvedMeRoPE(), [(4, 6), (0, 0), (0, 0)])
    torch.testing.assert_close(exactly(CarvedMeRoPE(), queries), expected, rtol=0, atol=1e-12)


def test_rotation_blocks_are_kept_once_per_camera_unless_they_follow_rays():
    view = random_drive()
    for frames, entries in (("camera", 3), ("ray", 18)):
        bands = CarvedMeRoPE(frames=frames).operator(view).bands
        rot = next(band for band in bands if band.name == "rot")
        assert rot.left.entries(2) == rot.right.entries(2) == entries


def test_frames_of_rays_do_not_leave_one_camera_alone():
    dense = exactly(CarvedMeRoPE(head_dim=64, frames="ray"), still_rays())
    rotation = dense[..., 6:12, 6:12]
    assert (rotation - torch.eye(6, dtype=torch.float64)).abs().max() > 0.1


def test_translation_alone_may_be_carved():
    layout = HeadLayout(disp=0, rot=0, trans=24, native=(20, 42, 42))
    encoding = CarvedMeRoPE(layout=layout, wavelength_max=50.0)
    view = random_drive(2, views=2)
    ours = exactly(encoding, view)[..., 20:44, 20:44]
    inner = MeRoPE(
        head_dim=24, layout=HeadLayout(disp=0, rot=0, trans=24, native=(0, 0, 0)), wavelength_max=50.0
    )
    assert torch.equal(ours, exactly(inner, view))
    assert encoding.claims.metric
    rotation = CarvedMeRoPE(layout=HeadLayout(disp=0, rot=24, trans=0, native=(20, 42, 42))).claims
    assert rotation.per_token and not rotation.metric


# Options


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ReRoPE(pairs=3), r"pairs must be even.*22 temporal pairs of head_dim 128; got 3"),
        (lambda: ReRoPE(pairs=0), r"between 2 and the 22"),
        (lambda: ReRoPE(head_dim=64, pairs=14), r"the 12 temporal pairs of head_dim 64; got 14"),
        (lambda: ReRoPE(native_base=0.0), r"native_base must be > 0"),
        (
            lambda: CarvedMeRoPE(head_dim=96),
            r"no channels to free are known for head_dim 96.*\[64, 128, 192\]",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=12, trans=12, native=(48, 40, 16))),
            r"layout.native \(48, 40, 16\) must keep at most the \(44, 42, 42\) channels",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=12, trans=12, native=(20, 42, 40))),
            r"layout 0 \+ 12 \+ 12 \+ 102 = 126 does not fill head_dim 128",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=0, trans=0, native=(44, 42, 42))),
            r"keeps all 128 native channels and frees none",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=12, trans=12, native=(21, 41, 42))),
            r"layout.native must be even; got \(21, 41, 42\)",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=13, trans=12, native=(20, 42, 41))),
            r"must be even",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=9, trans=12, native=(44, 42, 21))),
            r"layout.native must be even",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=6, trans=0, native=(42, 40, 40))),
            r"frees \(2, 2, 2\) channels for time, row and column, which 2 blocks of 3 and 0 of 2 cannot fill",
        ),
        (
            lambda: CarvedMeRoPE(layout=HeadLayout(disp=0, rot=18, trans=6, native=(20, 42, 42))),
            r"Eq. 7 divides by K - 1 = 0.*single_frequency",
        ),
    ],
)
def test_what_does_not_fit_says_so_with_the_arithmetic(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_lens_that_is_missing_or_no_pinhole_is_said_to_be_rerope_s():
    seen = random_drive()
    with pytest.raises(ValueError, match=r"^ReRoPE projects points .* needs their lens"):
        ReRoPE().operator(replace(seen, lens=None))
    with pytest.raises(ValueError, match=r"^ReRoPE needs a pinhole; the rays come from KannalaBrandt"):
        ReRoPE().operator(scene("fisheye_200deg"))
    assert ReRoPE(with_lens=False).operator(replace(seen, lens=None)).head_dim == 128


@pytest.mark.parametrize(
    "encoding",
    [ReRoPE(head_dim=64), ReRoPE(pairs=8, with_lens=False), CarvedMeRoPE(head_dim=64, layout=BUDGET_64)],
)
def test_a_carved_encoding_survives_json(encoding):
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    again = encoding_from_config(stored)
    view = random_drive(views=2)
    assert type(again) is type(encoding)
    assert torch.equal(again.operator(view).dense(), encoding.operator(view).dense())
    assert stored["name"] == {ReRoPE: "rerope", CarvedMeRoPE: "rerope-merope"}[type(encoding)]
