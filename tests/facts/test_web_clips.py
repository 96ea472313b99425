"""Facts of clips from the web and of what models were released with, as commands show them."""

import json

import numpy as np
import pytest

from tests.support.said import agrees, converted, printed, said
from tests.support.shared import shared_file

AC3D = "data/re10k/ac3d/018f7907401f2fef"


@pytest.mark.parametrize(
    ("clip", "rate", "kinds"),
    [
        ("0bf152ef84195293_16f", 29.97, {8, 9}),
        ("0c11dbe781b1c11c_16f", 29.97, {8, 9}),
        ("0f47577ab3441480_16f", 29.97, {8, 9}),
        ("0f68374b76390082_16f", 29.97, {8, 9}),
        ("0bf152ef84195293_25f", 29.97, {5, 6}),
        ("0c11dbe781b1c11c_25f", 29.97, {5, 6}),
        ("0f47577ab3441480_25f", 29.97, {5, 6}),
        ("0f68374b76390082_25f", 29.97, {5, 6}),
    ],
)
def test_realestate10k_samples_alternate_between_two_numbers_of_frames(tmp_path, clip, rate, kinds):
    path = shared_file(f"data/re10k/cameractrl/{clip}.txt")
    _, times = converted(tmp_path, path, "--format", "realestate10k")
    frames = np.diff(times) * rate
    # Stamps are whole microseconds cut off; 1 % of a frame is 0.3 ms.
    assert np.abs(frames - frames.round()).max() < 0.01
    assert set(frames.round().astype(int).tolist()) == kinds


def test_ac3d_metres_are_the_reconstruction_times_a_number(tmp_path):
    plain, metric = (
        converted(tmp_path, shared_file(AC3D + name), "--format", "ac3d")[0]
        for name in (".camera_info.json", ".camera_info_metric.json")
    )
    assert np.abs(plain[:, :, :3] - metric[:, :, :3]).max() < 1e-7
    factors = (
        metric[:, :, 3].ravel() @ plain[:, :, 3].ravel() / (plain[:, :, 3].ravel() @ plain[:, :, 3].ravel())
    )
    assert agrees(factors, "0.679452")
    assert np.abs(metric[:, :, 3] - factors * plain[:, :, 3]).max() < 1e-6


def test_motionctrl_is_every_ninth_pose_of_ac3d_relative_to_pose_2(tmp_path):
    flags = ("--format", "ac3d", "--start", "2", "--count", "16", "--step", "9", "--rebase")
    out = tmp_path / "made.json"
    source = str(shared_file(AC3D + ".camera_info.json"))
    printed("poses", "convert", source, str(out), *flags, "--to", "motionctrl")
    made = json.loads(out.read_text())
    published = json.loads(shared_file("data/re10k/motionctrl/test_camera_018f7907401f2fef.json").read_text())
    # float32 rotations are made orthonormal here, which moves them by 1e-7.
    assert np.abs(np.array(made) - np.array(published)).max() < 1.5e-7


TRACKS = {
    "ai-airmountains_env_scenic_spiral_climb_20": False,
    "istock-city-pond_orbit_left": True,
    "istock-country-road_truck_left": True,
    "istock-skier_real_part1_4b3e9a9b48_0-185": True,
    "istock-stingray_real_gt": True,
    "omni-forest_real_split14_003889": False,
}


@pytest.mark.parametrize("name", TRACKS)
def test_scope_paths_have_81_poses_and_most_begin_at_the_identity(tmp_path, name):
    path = shared_file(f"data/scope/{name}.npy")
    found = said("poses", "inspect", path, "--format", "npy")
    assert found["facts"]["num_poses"] == 81
    assert found["matrices"]["r_rt_error"] < 5e-7
    assert found["unit"] == "unknown"
    ((first, *_), _) = converted(tmp_path, path, "--format", "npy")
    assert (np.abs(first - np.eye(3, 4)).max() < 1e-7) == TRACKS[name]


def test_panshot_tracks_of_one_video_share_their_path(tmp_path):
    paths = (
        shared_file(f"data/panshot/pose-test/N99hmkAJwlQ-3-0-{kind}_aug_0.npy") for kind in ("linear", "yaw")
    )
    linear, yaw = (converted(tmp_path, path, "--format", "panshot")[0] for path in paths)
    assert np.array_equal(linear[:, :, 3], yaw[:, :, 3])
    assert np.abs(linear[:, :, :3] - yaw[:, :, :3]).max() > 0.1


@pytest.mark.parametrize("number", range(12))
def test_released_demo_lenses(number):
    pairs = [(100, 0), (120, 0), (140, 0.8), (160, 1.5), (180, 2.0), (200, 2.3)]
    path = shared_file("data/panshot/demo_lens.json")
    found = said("lens", "info", path, "--camera", number, "--height", 480, "--width", 832)
    fov_x_deg, xi = pairs[number % 6]
    assert found["fov_x_deg"] == pytest.approx(fov_x_deg, abs=1e-9)
    assert found["lens"].get("xi", 0.0) == xi


@pytest.mark.parametrize(
    ("name", "fx", "fy"),
    [("0bf152ef84195293", "0.4748", "0.8441"), ("0c9b371cc6225682", "0.4793", "0.8520")],
)
def test_realestate10k_intrinsics_are_shares_of_the_whole_picture(name, fx, fy):
    # The command has to read frames to know their size; one pair of them is enough.
    folder = shared_file("data/re10k/cameractrl")
    found = said(
        "poses", "agree", folder / f"{name}_16f.mp4", folder / f"{name}_16f.txt",
        "--format", "realestate10k", "--gap", 1, "--pairs", 1, "--max-shift", 0,
    )  # fmt: skip
    lens = found["lens"]
    assert agrees(lens["fx"] / 384, fx) and agrees(lens["fy"] / 256, fy)
    assert (found["num_frames"], found["num_poses"]) == (16, 16)
