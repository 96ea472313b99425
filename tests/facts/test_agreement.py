"""Facts of frames and poses together, beside those of tests/cli/test_poses_agree.py.

Residuals are medians over the pairs chosen here; with all pairs, and with another detector, they differ by some percent.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from merope.cameras import CameraModel
from merope.data import ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.checks.epipolar import agreement, consistent, match_frames
from merope.data.clips.footage import open_footage
from merope.data.poses.formats.realestate10k import realestate10k_lens
from merope.geometry.poses import Poses
from tests.support.said import said
from tests.support.shared import shared_file

ARIA = "data/fisheye/aria_adt"


def medians(report, reading="as read") -> dict[int, float]:
    return {r["shift"]: r["median_px"] for r in report["residuals"] if r["reading"] == reading}


@pytest.mark.parametrize(("clip", "worse"), [("0bf152ef84195293", 1.3), ("0c11dbe781b1c11c", 2.5)])
def test_realestate10k_lens_is_of_the_whole_picture_not_of_a_crop_of_it(tmp_path, clip, worse):
    video, poses = (shared_file(f"data/re10k/cameractrl/{clip}_16f.{ending}") for ending in ("mp4", "txt"))
    flags = ("--format", "realestate10k", "--gap", 1, "--pairs", 6, "--max-shift", 0)
    whole = said("poses", "agree", video, poses, *flags)
    # As if the frames were the middle of a 16:9 picture of their height.
    wide = realestate10k_lens(poses, height=256, width=round(256 * 16 / 9))
    cropped = wide.crop(top=0, left=(wide.width - 384) // 2, height=256, width=384)
    (tmp_path / "lens.json").write_text(json.dumps(cropped.to_dict()))
    crop = said("poses", "agree", video, poses, *flags, "--lens", tmp_path / "lens.json")
    assert medians(crop)[0] > worse * medians(whole)[0]


def backwards(folder: Path, source: Path, format: str, **options) -> Path:
    """The same poses in the other order, the file's own times kept."""
    poses = read_poses(source, format=format, options=ReadOptions(**options))[:3]
    turned = Poses(
        R_world_cam=poses.R_world_cam.flip(0), center_world=poses.center_world.flip(0), times=poses.times
    )
    write_poses(folder / "backwards.json", turned, format="merope")
    return folder / "backwards.json"


def test_pictures_of_a_vehicle_do_not_fit_poses_that_have_changed_places():
    """Of one pair at a time, whose two poses are exchanged."""
    found = load_pose_file(
        shared_file("data/tri_dgp/poses_calib.json"),
        format="tri-dgp",
        options=ReadOptions(camera="CAMERA_01"),
    )
    assert found.camera is not None
    lens = CameraModel.from_dict(found.camera)
    matches = match_frames(open_footage(shared_file("data/tri_dgp/rgb/CAMERA_01")), [(0, 1), (1, 2)])
    residuals = []
    for match in consistent(matches, lens):
        order = [match.second, match.first]
        poses = Poses(
            R_world_cam=found.poses.R_world_cam[order], center_world=found.poses.center_world[order]
        )
        only = replace(match, first=0, second=1)
        residuals.append(agreement([only], poses, lens, shifts=(0,)).under().median_px)
    assert residuals == pytest.approx([3.9, 2.0], abs=0.1)


def test_a_device_does_not_turn_as_its_poses_in_reverse_say(tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for picture in shared_file(ARIA).glob("camera-slam-left_0*.png"):
        (pictures / picture.name).symlink_to(picture.resolve())
    camera = said("lens", "info", shared_file(f"{ARIA}/calibration.json"), "--camera", "camera-slam-left")
    (tmp_path / "lens.json").write_text(json.dumps(camera["lens"]))
    place = torch.tensor(camera["T_body_cam"], dtype=torch.float64)
    device = read_poses(shared_file(f"{ARIA}/aria_trajectory.csv"), format="aria")[:3]
    seen = device.mounted(place[:3, :3], place[:3, 3])
    write_poses(tmp_path / "seen.json", seen, format="merope")
    reverse = backwards(tmp_path, tmp_path / "seen.json", "merope")
    report = said(
        "poses", "agree", pictures, reverse, "--format", "merope", "--lens", tmp_path / "lens.json",
        "--gap", 2, "--max-shift", 0,
    )  # fmt: skip
    assert report["turned_deg"] == pytest.approx(2.06, abs=0.2)
