"""RealEstate10K: world-to-camera matrices, intrinsics as shares of the picture, times in microseconds."""

import pytest

from merope.data import load_pose_file, read_poses, write_poses
from merope.data.poses.formats.realestate10k import realestate10k_lens
from tests.support.shared import shared_file
from tests.support.trajectories import (
    LENS,
    assert_steps,
    drive,
)

RE10K = [
    ("cameractrl/0bf152ef84195293_16f.txt", 16, 2.998, 0.1999, 0.2344, 0.4748, 0.8441, (0.2669, 0.3003)),
    ("cameractrl/0bf152ef84195293_25f.txt", 25, 2.825, 0.1177, 0.166, 0.4748, 0.8441, (0.1668, 0.2002)),
    ("cameractrl/0c11dbe781b1c11c_16f.txt", 16, 2.896, 0.193, 0.2318, 0.4854, 0.8629, (0.2669, 0.3003)),
    ("cameractrl/0c11dbe781b1c11c_25f.txt", 25, 2.864, 0.1193, 0.1507, 0.4854, 0.8629, (0.1668, 0.2002)),
    ("cameractrl/0c9b371cc6225682_16f.txt", 16, 2.692, 0.1795, 0.2272, 0.4793, 0.852, (0.2670, 0.3010)),
    ("cameractrl/0c9b371cc6225682_25f.txt", 25, 2.411, 0.1004, 0.1331, 0.4793, 0.852, (0.1660, 0.2000)),
    ("cameractrl/0f47577ab3441480_16f.txt", 16, 1.827, 0.1218, 0.198, 0.5077, 0.9025, (0.2669, 0.3003)),
    ("cameractrl/0f47577ab3441480_25f.txt", 25, 1.634, 0.0681, 0.1137, 0.5077, 0.9025, (0.1668, 0.2002)),
    ("cameractrl/0f68374b76390082_16f.txt", 16, 2.362, 0.1575, 0.1891, 0.4742, 0.843, (0.2669, 0.3003)),
    ("cameractrl/0f68374b76390082_25f.txt", 25, 2.301, 0.0959, 0.1277, 0.4742, 0.843, (0.1668, 0.2002)),
    ("ucpe_pose_files/20e7a3651ec30386.txt", 279, 4.251, 0.0153, 0.0211, 0.4932, 0.8768, (0.0334, 0.0334)),
    ("ucpe_pose_files/38f7ba7fd9a83069.txt", 102, 1.517, 0.015, 0.027, 0.4963, 0.8823, (0.0334, 0.0334)),
    ("ucpe_pose_files/5451cefde53f06f1.txt", 106, 0.744, 0.0071, 0.01, 0.5014, 0.8913, (0.0334, 0.0334)),
]


@pytest.mark.parametrize(("name", "num", "path_length", "mean", "largest", "fx", "fy", "spacing"), RE10K)
def test_real_realestate10k_files_have_their_documented_numbers(
    name, num, path_length, mean, largest, fx, fy, spacing
):
    path = shared_file(f"data/re10k/{name}")
    file = load_pose_file(path, format="realestate10k")
    poses = file.poses
    assert (len(poses), poses.unit, file.body) == (num, "unknown", "camera")
    assert round(poses.path_length, 3) == path_length
    assert_steps(poses, mean, largest)
    assert poses.projection_error < 1e-7
    assert poses.times.diff().min() == pytest.approx(spacing[0], abs=6e-5)
    assert poses.times.diff().max() == pytest.approx(spacing[1], abs=6e-5)
    assert file.notes[0].startswith("the video is https://www.youtube.com/watch?v=")
    lens = realestate10k_lens(path, height=256, width=384)
    assert (round(lens.fx / 384, 4), round(lens.fy / 256, 4)) == (fx, fy)
    assert (lens.cx, lens.cy, lens.pixel_origin) == (192, 128, "corner")


def re10k(tmp_path, *rows, address="https://www.youtube.com/watch?v=abc"):
    path = tmp_path / "clip.txt"
    path.write_text("\n".join([address, *rows]) + "\n")
    return path


ROW = "{} {fx} {fy} 0.5 0.5 0 0 0 0 1 2 0 1 0 0 -1 0 0 3"


def test_realestate10k_matrices_are_world_to_camera_and_intrinsics_shares_of_the_picture(tmp_path):
    path = re10k(tmp_path, ROW.format(1000000, fx=0.482334223, fy=0.9))
    poses = read_poses(path, format="realestate10k")
    # The camera sees the origin at (2, 0, 3); its x, y, z are the world's z, y, -x.
    assert poses.center_world[0].tolist() == [3, 0, -2]
    assert poses.times.tolist() == [1.0]
    lens = realestate10k_lens(path, height=200, width=256)
    assert round(lens.fx, 4) == 123.4776
    assert (lens.fy, lens.cx, lens.cy) == (180, 128, 100)


def test_intrinsics_that_vary_are_noted_and_kept_per_frame(tmp_path):
    path = re10k(tmp_path, ROW.format(0, fx=0.5, fy=0.9), ROW.format(40000, fx=0.6, fy=0.9))
    assert "vary from line to line: fx 0.5 to 0.6" in load_pose_file(path, format="realestate10k").notes[1]
    lens = realestate10k_lens(path, height=100, width=100)
    assert lens.fx.tolist() == [50, 60]
    poses = drive(2, num=2)
    write_poses(tmp_path / "again.txt", poses, format="realestate10k", camera=lens.to_dict())
    assert realestate10k_lens(tmp_path / "again.txt", height=100, width=100) == lens


def test_a_written_lens_comes_back_from_the_shares(tmp_path):
    write_poses(tmp_path / "a", drive(1), format="realestate10k", camera=LENS.to_dict())
    lens = realestate10k_lens(tmp_path / "a", height=720, width=1280).with_pixel_origin("center")
    for name in ("fx", "fy", "cx", "cy"):
        assert getattr(lens, name) == pytest.approx(getattr(LENS, name), abs=1e-9)


def test_realestate10k_is_written_for_pinholes_with_a_size(tmp_path):
    with pytest.raises(ValueError, match="needs a lens with the size"):
        write_poses(tmp_path / "a", drive(1), format="realestate10k")
    fisheye = {**LENS.to_dict(), "model": "unified", "xi": 1.2}
    with pytest.raises(ValueError, match="pinholes alone, got 'unified'"):
        write_poses(tmp_path / "a", drive(1), format="realestate10k", camera=fisheye)
