"""What every lens must do, whatever its equations."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merope.cameras import CameraModel
from tests.cameras.lenses import (
    LENSES,
    boundary_pixels,
    parameter_names,
    random_pixels,
    random_points,
    with_tensor_parameters,
)

lenses = pytest.mark.parametrize("camera", LENSES.values(), ids=LENSES.keys())
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
seeds = st.integers(0, 2**31)
# Many points at once cost little more than few: a lens is inverted step by step, for all of them together.
few = settings(max_examples=4)

HUGE = (1e18, 1e30, -1e30, 3e38)
EXTREME_POINTS = [
    [0.0, 0.0, 0.0],
    [0.0, -0.0, -0.0],
    *([0.0, 0.0, z] for z in (1.0, -1.0, 1e-30, -1e-30, 1e-13, 1e-12, 5e-324, *HUGE)),
    *([x, 0.0, 0.0] for x in (1.0, -1.0, 1e-30, 1e-12, *HUGE)),
    *([0.0, y, 0.0] for y in (1.0, -1.0, 1e-30, 1e-12, *HUGE)),
    [1e30, 1e30, 1e-30],
    [1e-30, 1e-30, 1e30],
    [1e-30, 0.0, 1.0],
    [1e-30, 0.0, -1.0],
    [1e-13, -1e-13, -1.0],
    [1e-12, 0.0, -1.0],
    [2e-12, 0.0, 1.0],
    [1.0, 0.0, 1e-6],
    [1.0, 0.0, -1e-6],
    [1.0, 1e-7, 1e-30],
    [1e-13, 1.0, 1e-13],
    [3.0, 4.0, -12.0],
]
NON_FINITE_POINTS = [[math.nan, 0.0, 1.0], [0.0, math.inf, 1.0], [-math.inf, 0.0, -math.inf]]


def extreme_pixels(camera: CameraModel) -> torch.Tensor:
    fixed = [
        [camera.cx, camera.cy],
        [camera.cx + 1e-13, camera.cy],
        [camera.cx, camera.cy - 1e-9],
        [0.0, 0.0],
        *([u, 0.0] for u in HUGE),
        *([camera.cx, v] for v in HUGE),
        [1e6 * camera.fx + camera.cx, camera.cy],
        [-1e5, 1e7],
        [1e11, -1e11],
    ]
    return torch.stack(
        [torch.tensor(pixel, dtype=torch.float64) for pixel in fixed] + [*boundary_pixels(camera)]
    )


def assert_finite_with_gradients(camera, method, inputs):
    """Values, and gradients with respect to inputs and parameters; what is not finite does not vanish in a sum."""
    names = parameter_names(camera)
    lens = with_tensor_parameters(camera, inputs.dtype)
    inputs = inputs.clone().requires_grad_()
    values, valid = getattr(lens, method)(inputs)
    assert torch.isfinite(values).all(), inputs[~torch.isfinite(values).all(-1)]
    placeholder = values.new_tensor([0.0, 0.0] if method == "project" else [0.0, 0.0, 1.0])
    assert (values[~valid] == placeholder).all()
    sources = [inputs, *(getattr(lens, name) for name in names)]
    for column in values.unbind(-1):
        gradients = torch.autograd.grad(column.sum(), sources, retain_graph=True, allow_unused=True)
        for name, gradient in zip(["input", *names], gradients, strict=True):
            assert gradient is None or torch.isfinite(gradient).all(), (name, gradient)


@lenses
@few
@given(seed=seeds)
def test_pixels_come_back_from_their_rays(camera, seed):
    pixels = random_pixels(camera, 1500, seed)
    dirs_cam, valid = camera.unproject(pixels)
    assert valid.float().mean() > 0.2
    assert (dirs_cam.norm(dim=-1) - 1).abs().max() < 1e-14
    back, seen = camera.project(dirs_cam)
    assert seen[valid].all()
    assert (back - pixels)[valid].abs().max() < 1e-9


@lenses
@few
@given(seed=seeds)
def test_points_lie_on_the_ray_of_their_pixel(camera, seed):
    points_cam = random_points(1500, seed)
    pixels, seen = camera.project(points_cam)
    assert seen.any()
    dirs_cam, valid = camera.unproject(pixels)
    assert valid[seen].all()
    expected = torch.nn.functional.normalize(points_cam, dim=-1)
    # Close to a fold the ray is a square root of the pixel: half the digits are left.
    assert (dirs_cam - expected)[seen].abs().max() < 1e-7


@lenses
@dtypes
def test_extreme_points_leave_values_and_gradients_finite(camera, dtype):
    assert_finite_with_gradients(
        camera, "project", torch.tensor(EXTREME_POINTS, dtype=torch.float64).to(dtype)
    )


@lenses
@dtypes
def test_extreme_pixels_leave_values_and_gradients_finite(camera, dtype):
    assert_finite_with_gradients(camera, "unproject", extreme_pixels(camera).to(dtype))


@lenses
def test_rays_on_the_rim_leave_values_and_gradients_finite(camera):
    rim = [*boundary_pixels(camera)]
    if rim:
        assert_finite_with_gradients(camera, "project", camera.unproject(torch.stack(rim))[0])


@lenses
def test_non_finite_inputs_are_invalid(camera):
    assert_finite_with_gradients(camera, "project", torch.tensor(NON_FINITE_POINTS, dtype=torch.float64))
    assert not camera.project(torch.tensor(NON_FINITE_POINTS, dtype=torch.float64))[1].any()
    pixels = torch.tensor([[math.nan, 0.0], [0.0, math.inf], [-math.inf, math.nan]], dtype=torch.float64)
    assert_finite_with_gradients(camera, "unproject", pixels)
    assert not camera.unproject(pixels)[1].any()


@lenses
def test_zero_point_has_no_pixel_and_the_axis_has_the_principal_point(camera):
    pixels, valid = camera.project(torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 2.5]], dtype=torch.float64))
    assert valid.tolist() == [False, True]
    assert pixels[1].tolist() == pytest.approx([camera.cx, camera.cy], abs=1e-12)


@lenses
def test_gradients_match_finite_differences(camera):
    names = parameter_names(camera)
    pixels = random_pixels(camera, 40, 3)
    dirs_cam, valid = camera.unproject(pixels)
    # Away from the rim, where a step of 1e-6 px would leave the lens.
    middle = pixels.new_tensor([camera.cx, camera.cy])
    keep = valid & camera.unproject(middle + 1.05 * (pixels - middle))[1]
    keep &= (pixels - middle).norm(dim=-1) > 1
    pixels, points_cam = pixels[keep][:3], 3.0 * dirs_cam[keep][:3]
    assert len(pixels) == 3
    parameters = [torch.tensor(float(getattr(camera, n)), dtype=torch.float64) for n in names]
    # Not a limit of the domain: its gradient is zero where differences see a step.
    free = [n != "max_theta" for n in names]

    def rebuilt(values):
        return replace(camera, **dict(zip(names, values, strict=True)))

    inputs = [p.requires_grad_(f) for p, f in zip(parameters, free, strict=True)]
    if getattr(camera, "xi", 1.0) == 0:
        inputs[names.index("xi")].requires_grad_(False)
    # Along random directions of all inputs at once, which a wrong entry of the Jacobian changes too.
    for method, places in (("unproject", pixels), ("project", points_cam)):
        torch.autograd.gradcheck(
            lambda p, *v, method=method: getattr(rebuilt(v), method)(p)[0],
            (places.requires_grad_(), *inputs),
            fast_mode=True,
        )


@lenses
@pytest.mark.parametrize("origin", ["corner", "center"])
def test_resize_keeps_the_ray_of_every_physical_point(camera, origin):
    camera = camera.with_pixel_origin(origin)
    other = camera.resize(height=36, width=200)
    shift = 0.5 if origin == "center" else 0.0
    corner_pixels = random_pixels(camera, 300, 5)
    scale = torch.tensor([200 / 80, 36 / 48], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(corner_pixels - shift)
    resized, resized_valid = other.unproject(corner_pixels * scale - shift)
    assert (valid == resized_valid).all()
    assert (dirs_cam - resized).abs().max() < 1e-12
    again = other.resize(height=48, width=80)
    assert [getattr(again, n) for n in ("fx", "fy", "cx", "cy")] == pytest.approx(
        [getattr(camera, n) for n in ("fx", "fy", "cx", "cy")], abs=1e-12
    )


@lenses
@pytest.mark.parametrize("origin", ["corner", "center"])
def test_crop_keeps_the_ray_of_every_pixel(camera, origin):
    camera = camera.with_pixel_origin(origin)
    part = camera.crop(top=5, left=11, height=17, width=52)
    dirs_cam, valid = camera.pixel_rays()
    cropped, cropped_valid = part.pixel_rays()
    assert cropped.shape == (17, 52, 3)
    assert (cropped - dirs_cam[5:22, 11:63]).abs().max() < 1e-12
    assert (cropped_valid == valid[5:22, 11:63]).all()


@lenses
def test_the_other_pixel_origin_changes_coordinates_but_no_ray(camera):
    other = camera.with_pixel_origin("center" if camera.pixel_origin == "corner" else "corner")
    assert (other.pixel_centers() - camera.pixel_centers()).abs().unique().tolist() == [0.5]
    assert (other.pixel_rays()[0] - camera.pixel_rays()[0]).abs().max() < 1e-12
    assert other.with_pixel_origin(camera.pixel_origin) == camera


@lenses
def test_float32_in_gives_float32_out_close_to_float64(camera):
    pixels = random_pixels(camera, 100, 11)
    dirs_cam, valid = camera.unproject(pixels)
    single, single_valid = camera.unproject(pixels.float())
    assert single.dtype == torch.float32
    both = valid & single_valid
    assert (valid != single_valid).sum() <= 1
    # A float32 pixel near a fold has 1e-3 of its ray's digits.
    assert (single - dirs_cam)[both].abs().quantile(0.95) < 1e-5
    projected, _ = camera.project(dirs_cam.float())
    assert projected.dtype == torch.float32
    assert (projected - pixels)[both].abs().max() < 1e-3


@lenses
def test_json_form_gives_the_same_camera_back(camera):
    data = json.loads(json.dumps(camera.to_dict()))
    again = CameraModel.from_dict(data)
    assert type(again) is type(camera)
    assert again == camera
    assert hash(again) == hash(camera)


@lenses
def test_two_views_that_differ_in_focal_length_alone_have_their_own_rays(camera):
    fx = torch.tensor([[camera.fx, 1.3 * camera.fx, 0.9 * camera.fx]] * 2, dtype=torch.float64)
    per_view = replace(camera, fx=fx)
    assert per_view.view_shape == (2, 3)
    dirs_cam, valid = per_view.pixel_rays()
    assert dirs_cam.shape == (2, 3, 48, 80, 3)
    alone, alone_valid = replace(camera, fx=1.3 * camera.fx).pixel_rays()
    assert (dirs_cam[1, 1] - alone).abs().max() < 1e-14
    assert (valid[1, 1] == alone_valid).all()
    assert (dirs_cam[0, 0] - dirs_cam[0, 1]).abs().max() > 0.01
    pixels, _ = per_view.project(dirs_cam)
    assert (pixels - camera.pixel_centers())[valid].abs().max() < 1e-9
    assert CameraModel.from_dict(per_view.to_dict()) == per_view


@lenses
def test_two_views_that_differ_in_every_parameter_have_their_own_rays(camera):
    names = parameter_names(camera)
    both = {n: torch.tensor([float(getattr(camera, n)), 1.04 * getattr(camera, n)]).double() for n in names}
    if "max_theta" in both:
        both["max_theta"] = torch.tensor([1.7, 1.2], dtype=torch.float64)
    pair = replace(camera, **both)
    dirs_cam, valid = pair.pixel_rays()
    for view in range(2):
        alone = replace(camera, **{n: value[view].item() for n, value in both.items()})
        expected, expected_valid = alone.pixel_rays()
        assert (dirs_cam[view] - expected).abs().max() < 1e-12
        assert (valid[view] == expected_valid).all()
