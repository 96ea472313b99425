"""PRoPE against the released answers and a second derivation; which lenses it takes."""

import math
from dataclasses import replace

import pytest
import torch

from merope.cameras import KannalaBrandt, OpenCV, Pinhole, UnifiedCamera, ViewRays
from merope.cameras.scenes import (
    GRID,
    SCENES,
    matrices,
    pinhole_lens,
    random_drive,
    scene,
    seen_through,
    turned,
)
from merope.encodings import GTA, MeRoPE, PRoPE
from merope.encodings.prope import normalised_lens
from merope.encodings.scale import TranslationScale
from tests.encodings.projective_by_hand import dense, image_turns, lens_matrix, relative_pose
from tests.support.released import (
    HEAD_DIM,
    attended,
    pinhole_rays,
    released,
)

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def derived(queries, keys, encoding):
    half = encoding.tiles == "half"
    width = encoding.head_dim // 2 if half else encoding.head_dim

    def blocks(at):
        clip, i, _, j, _ = at
        pose = relative_pose(queries, keys, at, encoding.scale.per_metre)
        K_i, K_j = lens_matrix(queries, clip, i), lens_matrix(keys, clip, j)
        if encoding.center_principal_point:
            K_i[:2, 2] = K_j[:2, 2] = 0
        inverse = torch.linalg.inv(torch.from_numpy(K_j)).numpy()
        turns = image_turns(queries, keys, at, encoding.head_dim // 2) if half else []
        return [K_i @ pose @ inverse] * (width // 4) + turns

    return torch.from_numpy(dense(queries, keys, encoding.head_dim, blocks))


def zoom_drive():
    """Every view of both clips has a lens of its own, with its axis off the middle."""
    rows, cols = GRID
    zoom = torch.linspace(1.0, 3.0, 6, dtype=torch.float64).reshape(2, 3)
    lens = Pinhole(
        fx=zoom,
        fy=1.3 * zoom,
        cx=0.3 * zoom,
        cy=1.0 + 0.1 * zoom,
        width=cols,
        height=rows,
        pixel_origin="corner",
    )
    dirs = lens.pixel_rays()[0].flatten(-3, -2)
    centers = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return ViewRays.from_poses(matrices(turned(), centers), dirs, grid=GRID, camera=lens)


def identity_lens_drive():
    """Behind a lens whose matrix, in units of the image, is the identity."""
    rows, cols = GRID
    lens = Pinhole(fx=cols, fy=rows, cx=cols / 2, cy=rows / 2, width=cols, height=rows, pixel_origin="corner")
    return seen_through(lens, turned(), random_drive(1).center_world)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_attention_answers_as_the_released_code_does(backend):
    arrays = released()
    operator = PRoPE(head_dim=HEAD_DIM).operator(pinhole_rays(arrays), dtype=torch.float64)
    theirs = arrays["prope_out"]
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-6)
    # What is left is the release's table of image-plane phases in float32.
    encoding = PRoPE(head_dim=HEAD_DIM, single_precision_image=True)
    operator = encoding.operator(pinhole_rays(arrays), dtype=torch.float64)
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tiles": "whole"},
        {"center_principal_point": True},
        {"tiles": "whole", "center_principal_point": True, "scale": TranslationScale(per_metre=0.1)},
    ],
)
def test_operator_equals_the_second_derivation_for_a_lens_per_view(options):
    view, encoding = zoom_drive(), PRoPE(head_dim=16, **options)
    torch.testing.assert_close(exactly(encoding, view), derived(view, view, encoding), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SCENES if name != "ray_at_antipode"])
def test_operator_equals_the_second_derivation_on_the_standing_scenes(name):
    view = scene(name)
    encoding = PRoPE(head_dim=16, pretend_pinhole=name == "fisheye_200deg")
    torch.testing.assert_close(exactly(encoding, view), derived(view, view, encoding), rtol=0, atol=1e-12)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = zoom_drive(), random_drive(5, views=2, grid=(1, 4))
    encoding = PRoPE(head_dim=16)
    expected = derived(queries, keys, encoding)
    assert expected.shape == (2, 18, 8, 16, 16)
    torch.testing.assert_close(exactly(encoding, queries, keys), expected, rtol=0, atol=1e-11)


def test_a_lens_in_units_of_the_image_leaves_gta():
    view = identity_lens_drive()
    assert torch.equal(normalised_lens(view), torch.tensor([1.0, 1, 0, 0]).double().expand(2, 3, 4))
    torch.testing.assert_close(
        exactly(PRoPE(head_dim=32), view), exactly(GTA(head_dim=32), view), rtol=0, atol=1e-13
    )


def test_the_lens_is_read_in_units_of_the_image_whatever_its_raster():
    lens = Pinhole(fx=90.0, fy=92.0, cx=66.0, cy=30.0, width=128, height=64, pixel_origin="corner")
    centered = lens.with_pixel_origin("center")
    expected = torch.tensor([90 / 128, 92 / 64, 66 / 128 - 0.5, 30 / 64 - 0.5], dtype=torch.float64)
    for camera in (lens, centered):
        dirs = camera.resize(height=2, width=4).pixel_rays()[0].flatten(0, 1)
        view = ViewRays.from_poses(
            torch.eye(4).expand(2, 3, 4, 4), dirs.expand(2, 3, -1, -1), grid=(2, 4), camera=camera
        )
        torch.testing.assert_close(normalised_lens(view)[1, 2], expected, rtol=0, atol=1e-14)
    middle = normalised_lens(view, center_principal_point=True)
    assert torch.equal(middle[..., 2:], torch.zeros(2, 3, 2, dtype=torch.float64))


def test_another_zoom_is_another_operator():
    wide, narrow = (
        seen_through(pinhole_lens(half_width=half_width), turned(), random_drive(1).center_world)
        for half_width in (1.0, 0.5)
    )
    assert (exactly(PRoPE(head_dim=8), wide) - exactly(PRoPE(head_dim=8), narrow)).abs().max() > 0.5
    # MeRoPE sees the zoom in its rays, and the displacement as before.
    change = exactly(MeRoPE(), wide) - exactly(MeRoPE(), narrow)
    rot, trans = slice(36, 72), slice(72, 96)
    assert change[..., rot, rot].abs().max() > 0.1
    assert torch.equal(change[..., trans, trans], torch.zeros_like(change[..., trans, trans]))


def test_a_lens_that_is_no_pinhole_is_refused_with_the_way_out():
    rows, cols = GRID
    fisheye = KannalaBrandt(
        fx=1.5, fy=1.5, cx=1.5, cy=1.0, width=cols, height=rows, pixel_origin="corner", max_theta=math.pi / 2
    )
    unified = UnifiedCamera.from_fov(fov_x_deg=100.0, xi=0.6, height=rows, width=cols)
    for lens in (fisheye, unified):
        view = seen_through(lens, turned(), torch.zeros(2, 3, 3, dtype=torch.float64))
        with pytest.raises(ValueError, match=rf"{type(lens).__name__}.*pretend_pinhole=True.*UCPE, MeRoPE"):
            PRoPE().operator(view)
    # UCPE's code takes the focal length of its unified camera, which is ours.
    pretended = PRoPE(head_dim=8, pretend_pinhole=True)
    same = Pinhole(
        fx=unified.fx, fy=unified.fy, cx=1.5, cy=1.0, width=cols, height=rows, pixel_origin="corner"
    )
    behind = seen_through(same, turned(), torch.zeros(2, 3, 3, dtype=torch.float64))
    assert torch.equal(exactly(pretended, view), exactly(PRoPE(head_dim=8), behind))


def test_a_lens_whose_curvature_is_zero_is_a_pinhole():
    rows, cols = GRID
    pinhole = Pinhole.from_fov(fov_x_deg=70.0, height=rows, width=cols)
    unified = UnifiedCamera.from_fov(fov_x_deg=70.0, xi=0.0, height=rows, width=cols)
    matrix = {name: getattr(pinhole, name) for name in ("fx", "fy", "cx", "cy")}
    undistorted = OpenCV(**matrix, width=cols, height=rows, pixel_origin="corner")
    centers = random_drive(1).center_world
    theirs = exactly(PRoPE(head_dim=8), seen_through(pinhole, turned(), centers))
    for lens in (unified, undistorted):
        ours = exactly(PRoPE(head_dim=8), seen_through(lens, turned(), centers))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    distorted = seen_through(replace(undistorted, p2=1e-3), turned(), centers)
    with pytest.raises(ValueError, match="come from OpenCV, which no 3 x 3 matrix"):
        PRoPE(head_dim=8).operator(distorted)
