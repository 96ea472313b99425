"""The motion network: its integration is pose algebra, its estimator sees frames alone, its training resumes."""

import functools
import inspect
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from merope.cameras import CameraModel, Pinhole
from merope.data.caches.latents import video_from_frames
from merope.errors import CheckpointMismatch
from merope.evaluation.estimators.base import PoseEstimator, RecoveryFailed
from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
from merope.evaluation.estimators.motion_network.network import MotionNetwork, integrate_motion
from merope.evaluation.estimators.motion_network.training import (
    MotionTrainConfig,
    degrade,
    motion_loss,
    train_motion_network,
    validate,
)
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_rotvec
from tests.support.tiny_run import tiny_clips, tiny_codec, tiny_spec

CONFIG = MotionTrainConfig(
    steps=5, batch_size=2, num_frames=13, latest_start=3, num_validation=3, checkpoint_every=2
)


class Knowing(MotionNetwork):
    """Answers with the motion it was given, whatever it sees."""

    def __init__(self, answer):
        super().__init__(height=24, width=32)
        self.answer = answer

    def forward(self, frames):
        assert len(frames) == len(self.answer)
        return self.answer.float()


def true_steps(matrices):
    """Rotation vector and translation of each next camera in the one before."""
    relative = torch.linalg.inv(matrices[..., :-1, :, :]) @ matrices[..., 1:, :, :]
    return torch.cat([matrix_to_rotvec(relative[..., :3, :3]), relative[..., :3, 3]], dim=-1)


def windows(clips=(9, 10, 11), start=2):
    pieces = [tiny_clips().window(clip, start=start, num_frames=13) for clip in clips]
    return torch.stack([frames for frames, _ in pieces]), torch.stack([poses for _, poses in pieces])


@functools.cache
def estimator():
    """Untrained, with weights that half precision holds exactly."""
    torch.manual_seed(3)
    network = MotionNetwork(height=24, width=32)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.half().float())
    return NetworkEstimator(network, camera=tiny_spec().camera, fps=10.0, summary={"steps": 0})


def estimate(frames, **changes):
    values = {"camera": CameraModel.from_dict(tiny_spec().camera), "fps": 10.0}
    values.update(changes)
    return estimator().estimate(frames, values["camera"], fps=values["fps"])


def test_integrated_steps_are_the_product_of_relative_poses():
    steps = torch.randn(3, 7, 6, dtype=torch.float64) * torch.tensor([0.4] * 3 + [2.0] * 3)
    rotations, centers = integrate_motion(steps)
    assert rotations.shape == (3, 8, 3, 3)
    for clip in range(3):
        poses = Poses(R_world_cam=rotations[clip], center_world=centers[clip])
        torch.testing.assert_close(poses.T_world_cam[0], torch.eye(4, dtype=torch.float64))
        torch.testing.assert_close(true_steps(poses.T_world_cam), steps[clip], rtol=0, atol=1e-9)


def test_steps_of_a_trajectory_integrate_back_to_it():
    _, poses = windows()
    rotations, centers = integrate_motion(true_steps(poses))
    torch.testing.assert_close(rotations, poses[..., :3, :3], rtol=0, atol=1e-9)
    torch.testing.assert_close(centers, poses[..., :3, 3], rtol=0, atol=1e-9)


def test_standing_still_integrates_with_finite_gradients():
    steps = torch.zeros(2, 4, 6, dtype=torch.float64, requires_grad=True)
    rotations, centers = integrate_motion(steps)
    (rotations.sum() + centers.square().sum()).backward()
    assert torch.isfinite(steps.grad).all()
    assert (centers == 0).all()


@pytest.mark.parametrize(("height", "width"), [(24, 32), (40, 64), (32, 8)])
def test_network_gives_six_finite_numbers_per_step_at_any_size(height, width):
    network = MotionNetwork(height=height, width=width)
    out = network(torch.rand(2, 5, 3, height, width) * 2 - 1)
    assert out.shape == (2, 4, 6)
    assert torch.isfinite(out).all()


def test_size_that_does_not_divide_into_cells_is_refused():
    with pytest.raises(ValueError, match="multiples of 8 pixels; got 36 x 20"):
        MotionNetwork(height=36, width=20)


def test_step_depends_on_its_neighbourhood_in_time_and_clips_stay_apart():
    network = MotionNetwork(height=24, width=32).eval()
    frames = torch.rand(2, 13, 3, 24, 32)
    with torch.no_grad():
        before = network(frames)
        changed = frames.clone()
        changed[1, 12] = 0
        after = network(changed)
    assert torch.equal(before[0], after[0])
    differs = (before[1] != after[1]).any(-1)
    # Three convolutions over three steps reach three steps back from the last.
    assert differs.tolist() == [False] * 8 + [True] * 4


def test_estimate_is_one_metric_pose_per_frame_from_the_first_camera():
    frames, _ = windows()
    recovered = estimate(frames[0].numpy())
    assert len(recovered.poses) == 13
    assert recovered.registered.all()
    assert recovered.scale == "metric"
    assert recovered.poses.unit == "m"
    torch.testing.assert_close(recovered.poses.T_world_cam[0], torch.eye(4, dtype=torch.float64))
    assert isinstance(estimator(), PoseEstimator)


def test_estimator_is_given_frames_lens_and_rate_alone():
    names = list(inspect.signature(NetworkEstimator.estimate).parameters)
    assert names == ["self", "frames", "camera", "fps"]


def test_estimate_depends_on_the_frames_alone():
    frames, _ = windows()
    first = estimate(frames[0].numpy()).poses
    torch.manual_seed(77)
    estimate(frames[1].numpy())
    assert torch.equal(estimate(frames[0].numpy()).poses.T_world_cam, first.T_world_cam)
    assert not torch.equal(estimate(frames[1].numpy()).poses.T_world_cam, first.T_world_cam)


def test_estimate_of_a_network_that_knows_is_the_truth():
    frames, poses = windows(clips=(4,))
    knowing = NetworkEstimator(Knowing(true_steps(poses)), camera=tiny_spec().camera, fps=10.0, summary={})
    camera = CameraModel.from_dict(tiny_spec().camera)
    out = knowing.estimate(frames[0].numpy(), camera, fps=10.0).poses.T_world_cam
    # The network speaks float32.
    torch.testing.assert_close(out, poses[0], rtol=0, atol=1e-4)


def test_other_lens_rate_or_length_is_refused_with_a_way_out():
    frames = windows()[0][0].numpy()
    narrow = Pinhole.from_fov(fov_x_deg=60.0, height=24, width=32)
    for changes in ({"camera": narrow}, {"fps": 25.0}):
        with pytest.raises(
            RecoveryFailed, match=r"reads 32 x 24 frames of its own lens at 10 Hz.*ColmapEstimator"
        ):
            estimate(frames, **changes)
    large = Pinhole.from_fov(fov_x_deg=90.0, height=48, width=64)
    with pytest.raises(RecoveryFailed, match="these are 64 x 48"):
        estimate(np.zeros((5, 48, 64, 3), np.uint8), camera=large)
    with pytest.raises(RecoveryFailed, match="at least two"):
        estimate(frames[:1])


@pytest.mark.parametrize("shape", [(5, 32, 24, 3), (5, 48, 64, 3), (5, 24, 32, 4)])
def test_frames_that_are_not_of_the_lens_are_refused(shape):
    # Four channels fail the shape checks of the test run before the estimator's own.
    with pytest.raises((ValueError, TypeError), match=r"frames"):
        estimate(np.zeros(shape, np.uint8))


def test_saved_estimator_estimates_the_same(tmp_path):
    frames = windows()[0][0].numpy()
    path = tmp_path / "estimator.safetensors"
    estimator().save(path)
    loaded = NetworkEstimator.load(path)
    camera = CameraModel.from_dict(tiny_spec().camera)
    out = loaded.estimate(frames, camera, fps=10.0).poses
    assert torch.equal(out.T_world_cam, estimate(frames).poses.T_world_cam)
    assert (loaded.fps, loaded.camera, loaded.summary) == (10.0, tiny_spec().camera, {"steps": 0})
    assert [entry.name for entry in tmp_path.iterdir()] == ["estimator.safetensors"]


def test_files_that_are_no_motion_network_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(2)}, str(path))
    with pytest.raises(
        CheckpointMismatch, match=r"other.safetensors is not a motion network: its format is None"
    ):
        NetworkEstimator.load(path)
    path.write_bytes(b"{}")
    with pytest.raises(CheckpointMismatch, match="damaged"):
        NetworkEstimator.load(path)
    config = json.dumps({"camera": {}, "fps": 10.0, "height": 24, "width": 32, "summary": {}})
    save_file(
        {"x": torch.zeros(2)}, str(path), metadata={"format": "merope-motion-network-1", "config": config}
    )
    with pytest.raises(CheckpointMismatch, match="another version"):
        NetworkEstimator.load(path)


def test_truth_has_no_loss_and_errors_count_in_their_units():
    _, poses = windows()
    steps = true_steps(poses).float()
    assert float(motion_loss(steps, poses)) < 1e-5
    # Only the last step is off, so the path is off in its last frame alone: by 5 cm, a tenth of the typical
    # step ahead, where the smooth loss is 0.05; one number of 12 x 6.
    off = steps.clone()
    off[:, -1, 5] += 0.05
    length = poses[:, :, :3, 3].diff(dim=1).norm(dim=-1).sum(-1)
    last_axes = poses[:, -2, :3, 2].abs().sum(-1)
    path = float((0.05 * last_axes / (0.05 * length + 0.2)).sum()) / (3 * 13 * 3)
    assert float(motion_loss(off, poses)) == pytest.approx(0.05 / (12 * 6) + 0.02 * path, rel=0.01)


def test_validation_is_in_degrees_metres_and_metres_per_metre():
    _, poses = windows()
    config = MotionTrainConfig(num_frames=13, num_validation=3, batch_size=3)
    perfect = validate(Knowing(true_steps(poses)), tiny_clips(), config)
    assert perfect["end_rotation_deg"] < 0.05
    assert perfect["end_distance_m"] < 1e-3
    still = validate(Knowing(torch.zeros(3, 12, 6)), tiny_clips(), config)
    gaps = poses[:, -1, :3, 3].norm(dim=-1)
    assert still["end_distance_m"] == pytest.approx(float(gaps.mean()), rel=1e-5)
    length = poses[:, :, :3, 3].diff(dim=1).norm(dim=-1).sum()
    assert still["end_distance_share"] == pytest.approx(float(gaps.sum() / length), rel=1e-5)
    turns = matrix_to_rotvec(poses[:, -1, :3, :3]).norm(dim=-1).rad2deg()
    assert still["end_rotation_deg"] == pytest.approx(float(turns.mean()), rel=1e-4)


def test_degraded_clips_keep_shape_and_range_and_follow_their_generator():
    frames, _ = windows(clips=tuple(range(12)))
    video = video_from_frames(frames)
    first = degrade(video, tiny_codec(), torch.Generator().manual_seed(1))
    assert first.shape == video.shape
    assert torch.isfinite(first).all()
    assert first.abs().max() <= 1
    assert torch.equal(first, degrade(video, tiny_codec(), torch.Generator().manual_seed(1)))
    assert not torch.equal(first, degrade(video, tiny_codec(), torch.Generator().manual_seed(2)))


def test_a_fifth_of_the_clips_is_left_as_it_is():
    video = video_from_frames(windows(clips=(0, 1, 2, 3))[0][:, :5])
    untouched = total = 0
    for seed in range(30):
        out = degrade(video, tiny_codec(), torch.Generator().manual_seed(seed))
        same = (out == video).flatten(1).all(1)
        untouched, total = untouched + int(same.sum()), total + len(same)
    # 120 draws at 0.2: a deviation of 4.4.
    assert 10 <= untouched <= 40


def run(folder, config=CONFIG):
    return train_motion_network(
        folder, tiny_clips(), tiny_codec(), config, height=24, width=32, progress=False
    )


def test_interrupted_training_ends_with_the_same_bits(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole").state_dict()
    log = (tmp_path / "whole" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [2, 4, 5]
    clips, window, asked = tiny_clips(), tiny_clips().window, []

    def dying(*args, **named):
        asked.append(args)
        # Batches of two and three validation clips per checkpoint: in the fifth step.
        if len(asked) == 2 * 4 + 3 * 2 + 2:
            raise KeyboardInterrupt
        return window(*args, **named)

    monkeypatch.setattr(clips, "window", dying)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken")
    monkeypatch.setattr(clips, "window", window)
    torch.manual_seed(99)
    resumed = run(tmp_path / "broken").state_dict()
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    with pytest.raises(CheckpointMismatch, match="another configuration"):
        run(tmp_path / "broken", MotionTrainConfig(steps=9, batch_size=2, num_frames=13, num_validation=3))
    assert run(tmp_path / "broken").training is False
    assert (tmp_path / "broken" / "log.jsonl").read_text().count("\n") == 3


def test_training_needs_clips_beyond_those_for_validation(tmp_path):
    with pytest.raises(ValueError, match="12 clips leave none for training after 12 for validation"):
        run(tmp_path, MotionTrainConfig(num_frames=13, num_validation=12))
