"""The second look at a clip: honest for the network on true frames, and on frames that are none."""

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.estimators.consistency import check_consistency, is_symmetric
from merope.evaluation.estimators.registry import build_estimator
from merope.evaluation.runs.recovery import recover_clips
from merope.evaluation.runs.sources import generated_sources
from merope.worlds import build_world, render
from merope.worlds.clips import world_drives
from tests.evaluation.runs.clips import write_clip
from tests.evaluation.trajectories import turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)
# Its left variant turns sharply, and no training saw it.
SEED = 1_000_504


@pytest.fixture(scope="module")
def turn():
    drives = world_drives(SEED, num_frames=25, fps=10.0, turn_start=8)
    world = build_world(SEED, paths=[drive.poses for drive in drives])
    poses = next(drive.poses for drive in drives if drive.variant == "left")
    return poses, render(world, LENS, poses).rgb


def network():
    return build_estimator("network")


def test_the_network_agrees_with_itself_in_a_mirror_on_true_frames_alone(turn, tmp_path):
    poses, frames = turn
    for name, shown in (
        ("a/true", frames),
        ("b/noise", np.random.default_rng(0).integers(0, 256, frames.shape, dtype=np.uint8)),
        ("c/shuffled", np.random.default_rng(0).permutation(frames)),
    ):
        write_clip(tmp_path / "clips", name, poses=poses, lens=LENS, fill=shown)
    sources = generated_sources(tmp_path / "clips")
    done = recover_clips(sources, network, tmp_path / "run", reliability=tmp_path / "check", progress=False)
    assert {name: found["unreliable"] for name, found in done.reliability.items()} == {
        "a/true": False,
        "b/noise": True,
        "c/shuffled": True,
    }
    found = done.reliability["a/true"]
    assert found["second_pass"] == "mirrored"
    assert found["rot_deg"] < 1 and found["center_percent"] < 1 and abs(found["scale"] - 1) < 0.1


def test_steps_and_directions_that_the_network_does_not_know_say_nothing(turn):
    # Why neither of them is its second look: both would mark this clip, which it recovers well.
    _, frames = turn
    for second_pass in ("reversed", "every_second"):
        found = check_consistency(network(), frames, LENS, fps=10.0, second_pass=second_pass)
        assert found.unreliable


def test_a_lens_that_is_not_symmetric_has_no_mirror(turn, tmp_path):
    aside = LENS.crop(top=0, left=0, height=40, width=56)
    assert is_symmetric(LENS) and not is_symmetric(aside)
    poses, frames = turn
    with pytest.raises(ValueError, match="sees the same to both sides"):
        check_consistency(network(), frames[:, :, :56], aside, fps=10.0, second_pass="mirrored")
    write_clip(tmp_path / "clips", "a/aside", poses=poses, lens=aside, fill=frames[:, :, :56])
    (source,) = generated_sources(tmp_path / "clips")
    done = recover_clips([source], network, tmp_path / "run", reliability=tmp_path / "check", progress=False)
    assert not done.reliability["a/aside"]["unreliable"]
    assert "not symmetric" in done.reliability["a/aside"]["reason"]


class FirstPixel:
    """An estimator whose answer turns to the side of the brighter column."""

    name = "first-pixel"

    def identity(self):
        return {"name": self.name}

    def estimate(self, frames, camera, *, fps):
        left = bool(frames[0, 0, 0, 0] > frames[0, 0, -1, 0])
        return Recovered.complete(turning(len(frames), turn_deg=20.0 if left else -20.0))


def test_what_was_seen_in_the_mirror_is_turned_back():
    frames = np.zeros((9, 40, 64, 3), np.uint8)
    frames[:, :, 0] = 9
    found = check_consistency(FirstPixel(), frames, LENS, fps=10.0, second_pass="mirrored")
    assert not found.unreliable
    torch.testing.assert_close(
        torch.tensor([found.rot_deg, found.center_percent]), torch.zeros(2), atol=1e-6, rtol=0
    )
