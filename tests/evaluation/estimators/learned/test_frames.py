"""Frames and their lens go through one crop and one resize: rays stay."""

import math

import numpy as np
import pytest
import torch

from merope.cameras import Equirectangular, KannalaBrandt, Pinhole
from merope.evaluation.estimators.learned.frames import FramePlan, prepare_frames

VGGT = FramePlan(patch=14, resolution=518, sizing="width")
OMEGA = FramePlan(patch=16, resolution=512, sizing="area", aspect_limits=(0.5, 2.0))
DA3 = FramePlan(patch=14, resolution=504, sizing="longest")


def blank(camera):
    return np.zeros((2, camera.height, camera.width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("plan", "camera", "cut", "shown"),
    [
        # The crop by hand, as top, left, height, width; the size as the official loaders give it.
        (VGGT, Pinhole.from_fov(fov_x_deg=70, height=480, width=640), (0, 0, 480, 640), (392, 518)),
        (OMEGA, Pinhole.from_fov(fov_x_deg=70, height=480, width=640), (0, 0, 480, 640), (448, 592)),
        (OMEGA, Pinhole.from_fov(fov_x_deg=70, height=416, width=624), (0, 0, 416, 624), (416, 624)),
        (DA3, Pinhole.from_fov(fov_x_deg=70, height=480, width=640), (0, 0, 480, 640), (378, 504)),
        # KITTI 06: the principal point is 11 pixels left of the middle and 2 above, counted from the first centre.
        (
            OMEGA,
            Pinhole(fx=707.1, fy=707.1, cx=601.9, cy=183.1, width=1226, height=370, pixel_origin="center"),
            (0, 235, 367, 734),
            (368, 720),
        ),
        # Pixels squeezed to a third across: the image is square once they are square.
        (
            DA3,
            Pinhole(fx=30.0, fy=90.0, cx=15.0, cy=45.0, width=30, height=90, pixel_origin="corner"),
            (0, 0, 90, 30),
            (504, 504),
        ),
    ],
)
def test_a_point_keeps_its_ray_through_crop_and_resize(plan, camera, cut, shown):
    prepared = prepare_frames(blank(camera), camera, plan)
    height, width = prepared.frames.shape[1:3]
    assert (prepared.camera.height, prepared.camera.width) == (height, width)
    assert height % plan.patch == 0 and width % plan.patch == 0
    assert (height, width) == shown
    top, left, rows, columns = cut
    pixels = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = pixels * torch.tensor([columns, rows]) + torch.tensor([left, top])
    shift = 0.5 if camera.pixel_origin == "center" else 0.0
    before, _ = camera.unproject(inside - shift)
    after, _ = prepared.camera.unproject(pixels * torch.tensor([width, height], dtype=torch.float64))
    assert float((before - after).abs().max()) < 1e-9


def test_the_middle_of_what_the_model_sees_is_the_principal_point():
    camera = Pinhole(fx=700.0, fy=700.0, cx=600.0, cy=180.0, width=1226, height=370, pixel_origin="corner")
    prepared = prepare_frames(blank(camera), camera, DA3)
    assert abs(float(prepared.camera.cx) / prepared.camera.width - 0.5) < 1e-3
    assert abs(float(prepared.camera.cy) / prepared.camera.height - 0.5) < 3e-3
    assert any("about the principal point" in note for note in prepared.notes)


def test_content_and_lens_agree_where_a_bright_column_lands():
    camera = Pinhole(fx=200.0, fy=200.0, cx=150.0, cy=60.0, width=320, height=120, pixel_origin="corner")
    frames = blank(camera)
    frames[:, :, 200:204] = 255
    prepared = prepare_frames(frames, camera, DA3)
    row = prepared.frames[0, prepared.frames.shape[1] // 2, :, 0].astype(float)
    middle = (row * (np.arange(len(row)) + 0.5)).sum() / row.sum()
    ray = torch.tensor([[(202.0 - 150.0) / 200.0, 0.0, 1.0]], dtype=torch.float64)
    pixel, _ = prepared.camera.project(ray)
    assert float(pixel[0, 0]) == pytest.approx(middle, abs=0.05)


def test_high_frames_lose_rows_of_both_ends_under_vggt():
    camera = Pinhole.from_fov(fov_x_deg=50, height=300, width=150)
    prepared = prepare_frames(blank(camera), camera, VGGT)
    assert prepared.frames.shape[1:3] == (518, 518)
    assert float(prepared.camera.cy) == pytest.approx(259.0)
    assert float(prepared.camera.fx) == pytest.approx(float(prepared.camera.fy))


def test_a_fisheye_becomes_a_pinhole_that_it_covers():
    lens = KannalaBrandt(
        fx=40.0,
        fy=40.0,
        cx=64.0,
        cy=36.0,
        width=128,
        height=72,
        pixel_origin="corner",
        k1=0.0,
        k2=0.0,
        k3=0.0,
        k4=0.0,
    )
    prepared = prepare_frames(np.full((2, 72, 128, 3), 90, dtype=np.uint8), lens, DA3)
    # 1.6 rad to each side is more than a pinhole takes.
    tangent = prepared.camera.width / 2 / float(prepared.camera.fx)
    assert math.degrees(2 * math.atan(tangent)) == pytest.approx(110.0)
    assert any("KannalaBrandt frames resampled" in note for note in prepared.notes)
    assert int(prepared.frames.min()) > 80


def test_frames_of_another_size_and_lenses_by_view_are_refused():
    camera = Pinhole.from_fov(fov_x_deg=70, height=40, width=60)
    with pytest.raises(ValueError, match="40 x 60"):
        prepare_frames(np.zeros((2, 60, 40, 3), dtype=np.uint8), camera, DA3)
    views = Pinhole.from_fov(fov_x_deg=torch.tensor([60.0, 70.0]), height=40, width=60)
    with pytest.raises(ValueError, match="one lens for all frames"):
        prepare_frames(blank(camera), views, DA3)


def test_a_full_sphere_is_looked_at_straight_ahead():
    lens = Equirectangular.full_sphere(height=64, width=128)
    prepared = prepare_frames(blank(lens), lens, DA3)
    tangent = prepared.camera.width / 2 / float(prepared.camera.fx)
    assert math.degrees(2 * math.atan(tangent)) == pytest.approx(110.0)
