"""Every lens model behind the encodings: rays of its tokens, a lens that zooms, and attention over tokens without a ray."""

from dataclasses import replace

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras import CameraModel, TokenGrid, ViewRays
from merope.cameras.base import _MODELS
from merope.encodings import LatitudeUpMap
from merope.encodings.pairwise import without_warnings
from merope.encodings.registry import default_encoding
from tests.cameras.lenses import LENSES, rim_radius

VIEWS, ROWS, COLS = 13, 9, 16
# The first of each model.
OF_MODEL = {lens.model: lens for lens in reversed(LENSES.values())}
WIDE = {"double_sphere", "extended_unified", "mei", "f_theta", "ocam", "radial_polynomial", "fisheye624"}
# By rays, and two that project into views.
ENCODINGS = ("ucpe", "urope", "crepe")


def drive(lens: CameraModel, *, views: int = VIEWS, rows: int = ROWS, cols: int = COLS) -> ViewRays:
    """Half a metre forward per view, through the lens zoomed out so that its rim, if it has one, is inside the raster."""
    rim = rim_radius(lens)
    lens = lens.zoomed(0.5 if rim is None else 25 / (lens.fx * rim)).resize(height=16 * rows, width=16 * cols)
    dirs_cam, valid = TokenGrid(rows=rows, cols=cols).token_rays(lens)
    poses = torch.eye(4, dtype=torch.float64).repeat(1, views, 1, 1)
    poses[0, :, 2, 3] = 0.5 * torch.arange(views)
    expand = (1, views, -1)
    return ViewRays.from_poses(
        poses, dirs_cam.expand(*expand, 3), valid=valid.expand(expand), grid=(rows, cols), camera=lens
    )


def attended(rays: ViewRays, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Output of one head and its gradient with respect to the input."""
    encoding = without_warnings(default_encoding(name, head_dim=64, num_heads=1))
    tokens = torch.randn(
        1, 1, rays.num_tokens, 64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    out = camera_attention(tokens, tokens, tokens, encoding.operator(rays, dtype=torch.float32))
    return out, torch.autograd.grad(out.square().sum(), tokens)[0]


def test_a_lens_of_every_registered_model_is_here():
    assert OF_MODEL.keys() == _MODELS.keys()
    for model in WIDE:
        assert 0.1 < drive(OF_MODEL[model], views=1).valid.double().mean() < 1


@pytest.mark.parametrize("model", OF_MODEL)
def test_attention_over_a_clip_is_finite_and_ignores_tokens_without_a_ray(model):
    rays = drive(OF_MODEL[model])
    out, gradient = attended(rays, "merope")
    assert torch.isfinite(out).all() and torch.isfinite(gradient).all()
    assert rays.lens is not None and rays.lens.model == model
    up = LatitudeUpMap(up_world=(0.0, -1.0, 0.0)).features(rays)
    assert torch.isfinite(up).all() and not up[0][~rays.valid.flatten()].any()


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("model", sorted(WIDE))
def test_encodings_take_every_lens(model, name):
    out, gradient = attended(drive(OF_MODEL[model], views=2, rows=3, cols=4), name)
    assert torch.isfinite(out).all() and torch.isfinite(gradient).all()


@pytest.mark.parametrize("model", OF_MODEL)
def test_views_of_any_lens_are_taken_apart_and_joined_again(model):
    whole = drive(OF_MODEL[model], views=4, rows=3, cols=4)
    zoomed = replace(whole, lens=whole.lens.zoomed(torch.ones(1, 4, dtype=torch.float64)))
    for rays in (whole, zoomed):
        parts = [rays.for_views(0, 1), rays.for_views(1, 4)]
        assert ViewRays.cat(parts).lens == rays.lens


def test_lenses_of_other_choices_do_not_become_one():
    rays = drive(OF_MODEL["f_theta"], views=2, rows=3, cols=4)
    other = drive(LENSES["f_theta_of_angle"], views=2, rows=3, cols=4)
    with pytest.raises(ValueError, match=r"one kind of lens.*angle.*radius"):
        ViewRays.cat([rays, other])
