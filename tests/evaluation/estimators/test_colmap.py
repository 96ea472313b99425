"""COLMAP on renders of the procedural world: the noise floor, the lenses, and the failures it must admit."""

import builtins

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import Equirectangular, KannalaBrandt, OpenCV, Pinhole, UnifiedCamera
from merope.errors import MissingDependency
from merope.evaluation import PoseEstimator, RecoveryFailed, evaluate_clip
from merope.evaluation.estimators.colmap import ColmapEstimator, colmap_camera
from merope.worlds import build_world, drive, render

PINHOLE = Pinhole.from_fov(fov_x_deg=70, height=288, width=512)


@pytest.fixture(scope="module")
def pycolmap():
    return pytest.importorskip("pycolmap", reason="pycolmap is not installed: pip install 'merope[eval]'")


def rendered_clip(camera, *, kind, seed, num_frames, fps):
    poses = drive(kind, seed=seed, num_frames=num_frames, fps=fps)
    return poses, render(build_world(seed, paths=[poses]), camera, poses, samples=2).rgb


@pytest.mark.slow
def test_true_renders_are_recovered_within_the_noise_floor(pycolmap):
    poses, frames = rendered_clip(PINHOLE, kind="turn", seed=3, num_frames=17, fps=10.0)
    recovered = ColmapEstimator().estimate(frames, PINHOLE, fps=10.0)
    result = evaluate_clip(poses, recovered)
    assert bool(recovered.registered.all())
    # measured: 0.034 deg and 0.08 %
    assert result.rot_deg < 0.2
    assert result.tr_percent < 1.0
    assert result.auc_3 == 100.0
    assert recovered.scale == "up_to_scale"
    assert result.all["scale_error_percent"].value is None
    assert result.flags == {}


@pytest.mark.slow
def test_a_wide_unified_camera_is_recovered_with_its_own_lens(pycolmap):
    camera = UnifiedCamera.from_fov(fov_x_deg=120, xi=0.8, height=288, width=512)
    poses, frames = rendered_clip(camera, kind="curve", seed=4, num_frames=9, fps=5.0)
    recovered, again = (ColmapEstimator().estimate(frames, camera, fps=5.0) for _ in range(2))
    result = evaluate_clip(poses, recovered)
    # measured: 0.056 deg and 0.08 %
    assert result.rot_deg < 0.2
    assert result.tr_percent < 1.0
    assert torch.equal(again.poses.center_world, recovered.poses.center_world)


def test_a_standing_camera_is_a_failure_not_a_path(pycolmap):
    noise = np.random.default_rng(0).integers(0, 255, size=(36, 64, 3), dtype=np.uint8)
    frame = np.asarray(Image.fromarray(noise).resize((512, 288), Image.Resampling.BICUBIC))
    with pytest.raises(RecoveryFailed, match="registered 0 of 3 frames"):
        ColmapEstimator().estimate(np.stack([frame] * 3), PINHOLE, fps=10.0)


@pytest.mark.parametrize(
    "camera",
    [
        PINHOLE,
        Pinhole(fx=90.0, fy=95.0, cx=61.0, cy=33.0, width=128, height=72, pixel_origin="center"),
        OpenCV(
            fx=90.0,
            fy=95.0,
            cx=61.0,
            cy=33.0,
            width=128,
            height=72,
            pixel_origin="corner",
            k1=-0.05,
            k2=0.01,
            p1=1e-3,
            p2=-2e-3,
            k3=1e-3,
        ),
        KannalaBrandt(
            fx=40.0,
            fy=41.0,
            cx=61.0,
            cy=33.0,
            width=128,
            height=72,
            pixel_origin="center",
            k1=0.01,
            k2=-2e-3,
            k3=1e-4,
            k4=-1e-5,
        ),
        UnifiedCamera.from_fov(fov_x_deg=120, xi=0.0, height=72, width=128),
        UnifiedCamera.from_fov(fov_x_deg=150, xi=1.2, height=72, width=128),
    ],
    ids=lambda camera: f"{type(camera).__name__}-{camera.pixel_origin}",
)
def test_colmap_projects_as_our_lens_does(pycolmap, camera):
    model, parameters = colmap_camera(camera)
    theirs = pycolmap.Camera(model=model, width=camera.width, height=camera.height, params=parameters)
    points = torch.tensor(
        [[0.0, 0.0, 1.0], [0.3, -0.2, 1.0], [-0.7, 0.4, 1.1], [0.5, 0.5, 2.0]], dtype=torch.float64
    )
    pixels, valid = camera.project(points)
    shift = 0.5 if camera.pixel_origin == "center" else 0.0
    assert bool(valid.all())
    np.testing.assert_allclose(theirs.img_from_cam(points.numpy()), pixels.numpy() + shift, atol=1e-9)


def test_lenses_that_colmap_lacks_are_refused_by_name():
    camera = Equirectangular.full_sphere(height=64, width=128)
    with pytest.raises(ValueError, match="got Equirectangular"):
        colmap_camera(camera)


def test_frames_of_another_size_are_refused(pycolmap):
    with pytest.raises(ValueError, match=r"288 x 512 .height x width., got 512 x 288"):
        ColmapEstimator().estimate(np.zeros((3, 512, 288, 3), dtype=np.uint8), PINHOLE, fps=10.0)


def test_without_pycolmap_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pycolmap":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert isinstance(ColmapEstimator(), PoseEstimator)
    with pytest.raises(MissingDependency, match=r"pip install 'merope\[eval\]'"):
        ColmapEstimator().estimate(np.zeros((3, 288, 512, 3), dtype=np.uint8), PINHOLE, fps=10.0)
