"""``merope poses agree`` on real clips, against what was measured of them with another program.

The residuals depend on the version of the feature detector by some percent; shifts and readings are told apart by much more.
"""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from merope.cameras import Pinhole
from merope.cli.main import run
from tests.support.shared import shared_file

RE10K = "data/re10k/cameractrl/"
# Median epipolar residual in pixels of neighbouring frames, at pose shifts -1, 0, +1.
CLIPS = [
    ("0bf152ef84195293_16f", (0.909, 0.201, 0.782)),
    ("0c11dbe781b1c11c_16f", (0.899, 0.24, 0.914)),
    ("0c9b371cc6225682_16f", (1.333, 0.422, 1.695)),
    ("0f47577ab3441480_16f", (0.788, 0.184, 0.851)),
    ("0f68374b76390082_16f", (0.473, 0.159, 0.483)),
    ("0bf152ef84195293_25f", (0.576, 0.177, 0.519)),
    ("0c11dbe781b1c11c_25f", (0.536, 0.198, 0.505)),
    ("0c9b371cc6225682_25f", (1.036, 0.361, 1.223)),
    ("0f47577ab3441480_25f", (0.592, 0.152, 0.604)),
    ("0f68374b76390082_25f", (0.352, 0.125, 0.396)),
]


def agree(capsys, *arguments: str) -> dict:
    assert run(["poses", "agree", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def medians(report: dict, reading: str = "as read") -> dict[int, float]:
    return {r["shift"]: r["median_px"] for r in report["residuals"] if r["reading"] == reading}


@pytest.mark.parametrize(("clip", "expected"), CLIPS, ids=[clip for clip, _ in CLIPS])
def test_realestate10k_poses_are_those_of_their_frames(clip, expected, capsys):
    path = shared_file(RE10K + clip + ".txt")
    flags = ["--format", "realestate10k", "--gap", "1", "--pairs", "24"]
    report = agree(capsys, shared_file(RE10K + clip + ".mp4"), path, *flags)
    assert (report["best"]["shift"], report["best"]["reading"]) == (0, "as read")
    found = medians(report)
    for shift, value in zip((-1, 0, 1), expected, strict=True):
        assert found[shift] == pytest.approx(value, rel=0.1)


def kitti(capsys, *, gap: int, pairs: int) -> dict:
    folder = "data/kitti_odom/video/"
    video, poses, lens = (
        shared_file(folder + name) for name in ("06_first51_gray.mp4", "06_poses_first51.txt", "06_calib.txt")
    )
    return agree(
        capsys, video, poses, "--format", "kitti", "--lens", lens, "--lens-camera", "P0", "--lens-height", "370",
        "--lens-width", "1226", "--gap", gap, "--pairs", pairs,
    )  # fmt: skip


# What these few pairs have; over all of them it is 0.41, and 0.87 and 1.1 when shifted by one and two (gap 1: 0.29, and 0.46
# to 0.58), and 2.5 inverted.
KITTI = [
    (3, 6, (0.562, 0.533, 0.369, 1.008, 1.442), 2.247),
    (1, 4, (0.544, 0.388, 0.152, 0.698, 0.764), 1.967),
]


@pytest.mark.parametrize(("gap", "pairs", "expected", "inverted"), KITTI)
def test_kitti_tells_shifts_and_directions_apart(gap, pairs, expected, inverted, capsys):
    report = kitti(capsys, gap=gap, pairs=pairs)
    assert report["conclusion"] == "agree" and not report["equals"]
    assert [*medians(report).values()] == pytest.approx(expected, rel=0.1)
    assert medians(report, "inverted")[0] == pytest.approx(inverted, rel=0.1)


def test_ac3d_poses_lead_their_frames(capsys):
    folder = "data/re10k/ac3d/018f7907401f2fef"
    report = agree(
        capsys, shared_file(folder + ".mp4"), shared_file(folder + ".camera_info.json"), "--format", "ac3d",
        "--gap", "15", "--pairs", "6",
    )  # fmt: skip
    found = medians(report)
    assert report["best"]["shift"] == -1
    # Of these six pairs; over all of them 0.41, 0.33, 0.40 and 0.54.
    for shift, value in zip((-2, -1, 0, 1), (0.485, 0.401, 0.442, 0.661), strict=True):
        assert found[shift] == pytest.approx(value, rel=0.1)
    assert report["conclusion"] == "other"


@pytest.mark.parametrize(("camera", "expected"), [("CAMERA_01", (0.26, 0.39)), ("CAMERA_06", (0.67, 1.30))])
def test_pictures_of_a_vehicle_agree_pair_by_pair(camera, expected, capsys):
    folder = "data/tri_dgp/"
    report = agree(
        capsys, shared_file(folder + "rgb/" + camera), shared_file(folder + "poses_calib.json"), "--format", "tri-dgp",
        "--camera", camera, "--gap", "1", "--max-shift", "0",
    )  # fmt: skip
    assert report["num_frames"] == report["num_poses"] == 3
    # The digits given are two.
    assert [pair["median_px"] for pair in report["pairs"]] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("camera", "unturned_deg", "turned_deg", "slack"),
    [("camera-slam-left", 0.95, 0.19, 0.03), ("camera-rgb", 0.98, 0.14, 0.01)],
)
def test_a_device_turns_as_its_poses_say(tmp_path, camera, unturned_deg, turned_deg, slack, capsys):
    folder = shared_file("data/fisheye/aria_adt")
    for picture in folder.glob(f"{camera}_0*.*g"):
        shutil.copy(picture, tmp_path)
    flags = ["--lens", folder / "calibration.json", "--lens-camera", camera, "--gap", "2", "--max-shift", "0"]
    report = agree(capsys, tmp_path, folder / "aria_trajectory.csv", "--format", "aria", *flags)
    assert report["unturned_deg"] == pytest.approx(unturned_deg, abs=0.015)
    assert report["turned_deg"] == pytest.approx(turned_deg, abs=slack)


def test_the_answer_names_the_flags_that_mend_it(capsys):
    clip = RE10K + CLIPS[4][0]
    files = [str(shared_file(clip + ".mp4")), str(shared_file(clip + ".txt"))]
    flags = ["--format", "realestate10k", "--gap", "1", "--direction", "camera-to-world"]
    assert run(["poses", "agree", *files, *flags]) == 0
    printed = capsys.readouterr().out
    assert "best: matrices that map the other way" in printed and "try --direction world-to-camera" in printed
    assert "16 frames of 384 x 256, 16 poses, gap 1, lens pinhole" in printed


def test_a_clip_that_stands_still_is_no_proof(tmp_path, capsys):
    random = np.random.default_rng(0)
    picture = np.kron(random.integers(0, 256, (24, 32, 3), dtype=np.uint8), np.ones((6, 6, 1), np.uint8))
    for number in range(6):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    poses = tmp_path / "poses.txt"
    poses.write_text("".join(f"1 0 0 0 0 1 0 0 0 0 1 {z}\n" for z in range(6)))
    lens = tmp_path / "lens.json"
    lens.write_text(json.dumps(Pinhole.from_fov(fov_x_deg=70, height=144, width=192).to_dict()))
    flags = ["--format", "kitti", "--lens", str(lens), "--gap", "1"]
    assert run(["poses", "agree", str(tmp_path), str(poses), *flags]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("best: cannot tell: the picture stands still") and "--gap" in last


def test_what_is_missing_is_asked_for(tmp_path, capsys):
    folder = "data/kitti_odom/video/"
    video, poses = (
        str(shared_file(folder + name)) for name in ("06_first51_gray.mp4", "06_poses_first51.txt")
    )
    assert run(["poses", "agree", video, poses]) == 2
    assert "--format is missing" in capsys.readouterr().err
    assert run(["poses", "agree", video, poses, "--format", "kitti"]) == 2
    assert "no lens" in capsys.readouterr().err
    lens = str(shared_file("data/fisheye/calib/kitti_cam04-12.yaml"))
    assert run(["poses", "agree", video, poses, "--format", "kitti", "--lens", lens]) == 1
    assert "--resize-lens" in capsys.readouterr().err
    device = str(shared_file("data/fisheye/aria_adt/aria_trajectory.csv"))
    assert run(["poses", "agree", video, device, "--format", "aria"]) == 2
    assert run(["poses", "agree", video, device, "--format", "aria", "--lens", lens, "--resize-lens"]) == 1
    assert "poses of the device" in capsys.readouterr().err
