"""Every file of third-party data opens through the public reader of its kind, and is what its data set says it is."""

import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import Equirectangular
from merope.data import ReadOptions
from merope.data.clips.footage import open_footage
from merope.data.clips.video import read_header
from merope.data.datasets import open_dataset
from merope.data.datasets.panshot import read_shots
from merope.data.foreign_files.record_stream import read_records
from merope.data.lenses.calibration_files import load_calibration, read_calibration
from merope.data.lenses.facts import read_pixels
from merope.data.poses.files import load_pose_file, read_times
from merope.data.poses.formats.panshot import read_near_depths
from tests.support.said import agrees
from tests.support.shared import SHARED, shared_file

DATA = SHARED / "data"
# Lists of the files themselves.
LISTS = ("MANIFEST.sha256", "README.md")
FILES = sorted(
    path.relative_to(DATA).as_posix() for path in DATA.rglob("*") if path.is_file() and path.name not in LISTS
)

Opens = Callable[[Path, Path], None]
"""Opens a file; the second path is an empty folder."""


def poses(format: str, num: int, *, of_folder: bool = False, **options: Any) -> Opens:
    """A trajectory; where it lies in several files, the folder is given to the reader."""

    def opens(path: Path, scratch: Path) -> None:
        found = load_pose_file(
            path.parent if of_folder else path, format=format, options=ReadOptions(**options)
        )
        assert len(found.poses) == num
        assert found.poses.center_world.dtype == torch.float64
        assert found.poses.projection_error < 2.5e-6

    return opens


def lens(
    model: str, width: int, height: int, *, camera: str | None = None, sized: bool = False, **options: Any
) -> Opens:
    """A calibration; ``sized`` where the file does not say how large its images are."""

    def opens(path: Path, scratch: Path) -> None:
        size = {"height": height, "width": width} if sized else {}
        found = read_calibration(path, camera=camera, **size, **options)
        assert (found.model, found.width, found.height) == (model, width, height)
        middle = torch.tensor([[width / 2, height / 2]], dtype=torch.float64)
        (direction,), valid = found.unproject(middle)
        assert valid.all() and direction[2] > 0.9

    return opens


def picture(width: int, height: int) -> Opens:
    """A picture, as the only frame of a folder."""

    def opens(path: Path, scratch: Path) -> None:
        (scratch / path.name).symlink_to(path.resolve())
        (frame,) = open_footage(scratch).frames([0])
        assert frame.shape == (height, width, 3)
        assert frame.std() > 10

    return opens


def video(num: int, width: int, height: int, fps: str) -> Opens:
    """A video; frames are counted by decoding them."""

    def opens(path: Path, scratch: Path) -> None:
        footage, header = open_footage(path), read_header(path)
        assert footage.count == num
        (frame,) = footage.frames([num - 1])
        assert frame.shape == (height, width, 3)
        assert agrees(float(header.fps), fps)

    return opens


def times(num: int) -> Opens:
    def opens(path: Path, scratch: Path) -> None:
        seconds = read_times(path)
        assert len(seconds) == num
        assert (seconds.diff() > 0).all()

    return opens


def records(num: int) -> Opens:
    """A table of nuScenes. Those that describe annotations and not cameras are read by nothing else."""

    def opens(path: Path, scratch: Path) -> None:
        entries = [record.values for record in read_records(path)]
        assert len(entries) == num
        assert entries == json.loads(path.read_text())

    return opens


def camera_table(num: int, key: str = "token") -> Opens:
    """A table of nuScenes that its readers look into: a damaged one shows."""

    def opens(path: Path, scratch: Path) -> None:
        records(num)(path, scratch)
        root = scratch / "root"
        shutil.copytree(path.parent, root / path.parent.name)
        (root / "samples").symlink_to(path.parent.parent / "samples")
        assert len(open_dataset("nuscenes", root, cameras="all")) == 6
        copy = root / path.parent.name / path.name
        copy.write_text(copy.read_text().replace(f'"{key}"', '"else"'))
        with pytest.raises(Exception, match=rf"{path.name}.*{key}"):
            open_dataset("nuscenes", root, cameras="all")[0]

    return opens


def nuscenes_image(path: Path, scratch: Path) -> None:
    """An image of nuScenes, as the frame of the clip of its camera."""
    clips = open_dataset("nuscenes", path.parents[2], cameras=path.parent.name)
    (clip,) = clips
    assert (clip.lens.width, clip.lens.height) == (1600, 900)
    assert np.array_equal(clip.frames()[0], np.asarray(Image.open(path).convert("RGB")))


def mounting(path: Path, scratch: Path) -> None:
    """Where Argoverse's sensors sit, which the calibrations of its cameras and their poses take from here."""
    for name in ("intrinsics.feather", path.name):
        shutil.copy(path.with_name(name), scratch / name)
    camera = "ring_front_center"
    found = load_calibration(scratch / "intrinsics.feather", camera=camera)
    assert found.T_body_cam is not None
    (scratch / path.name).unlink()
    assert load_calibration(scratch / "intrinsics.feather", camera=camera).T_body_cam is None


def comma_extra(column: str) -> Opens:
    """A file beside the poses of comma2k19, of which the notes tell."""

    def opens(path: Path, scratch: Path) -> None:
        notes = load_pose_file(path.parent, format="comma2k19").notes
        assert any(column in note for note in notes)

    return opens


def rays(num: int) -> Opens:
    """Pixels for ``merope lens rays --pixels``; what their rays are is another test's."""

    def opens(path: Path, scratch: Path) -> None:
        assert read_pixels(path).shape == (num, 2)

    return opens


def shots(num: int) -> Opens:
    def opens(path: Path, scratch: Path) -> None:
        assert len(read_shots(path)) == num

    return opens


def near_depths(path: Path, scratch: Path) -> None:
    assert len(read_near_depths(path)) == 59


def factor(path: Path, scratch: Path) -> None:
    """One factor for the translations of every clip."""
    for name in ("0bf152ef84195293_16f.txt", "0bf152ef84195293_16f.mp4"):
        (scratch / name).symlink_to(shared_file(f"data/re10k/cameractrl/{name}").resolve())
    (scratch / "factors").mkdir()
    shutil.copy(path, scratch / "factors")
    plain = open_dataset("realestate10k", scratch)[0].poses
    scaled = open_dataset("realestate10k", scratch, scale_file=f"factors/{path.name}")[0].poses
    assert scaled.path_length / plain.path_length == pytest.approx(0.9569655060768127, rel=1e-12)


def panorama(width: int, height: int) -> Opens:
    """A panorama, through a small part of its own lens."""

    def opens(path: Path, scratch: Path) -> None:
        assert Image.open(path).size == (width, height) == (2 * height, height)
        (scratch / path.name).symlink_to(path.resolve())
        part = Equirectangular.full_sphere(height=height, width=width).crop(
            top=height // 2, left=0, height=8, width=64
        )
        (scratch / "lens.json").write_text(json.dumps(part.to_dict()))
        (clip,) = open_dataset("panorama", scratch, lens="lens.json", frames=1)
        whole = np.asarray(Image.open(path).convert("RGB"))
        assert np.array_equal(clip.frames()[0], whole[height // 2 : height // 2 + 8, :64])

    return opens


def panorama_depth(path: Path, scratch: Path) -> None:
    clip = open_dataset("panorama", path.parent, height=18, width=32, fov_x_deg=60.0).clip("hohonet_bedroom")
    depth = clip.depth([0])
    assert depth is not None and 0.9 <= depth.min() < depth.max() <= 7.35


# A pattern for each kind, and how files of that kind open. A file belongs to the first pattern that fits it.
KINDS: tuple[tuple[str, Opens], ...] = (
    ("av2/7fab2350/city_SE3_egovehicle.feather", poses("argoverse2", 2706)),
    ("av2/adcf7d18/city_SE3_egovehicle.feather", poses("argoverse2", 2637)),
    ("av2/*/intrinsics.feather", lens("pinhole", 1550, 2048, camera="ring_front_center")),
    ("av2/*/egovehicle_SE3_sensor.feather", mounting),
    ("comma2k19/camera_intrinsics.txt", lens("pinhole", 1164, 874)),
    ("comma2k19/preview_frame0.png", picture(1164, 874)),
    ("comma2k19/frame_velocities.npy", comma_extra("frame_velocities")),
    ("comma2k19/frame_gps_times.npy", comma_extra("GPS week 2012")),
    ("comma2k19/frame_*.npy", poses("comma2k19", 1200, of_folder=True)),
    ("fisheye/aria_adt/aria_trajectory.csv", poses("aria", 6)),
    ("fisheye/aria_adt/calibration.json", lens("fisheye624", 1408, 1408, camera="camera-rgb")),
    ("fisheye/aria_adt/camera-rgb_0*.jpg", picture(1408, 1408)),
    ("fisheye/aria_adt/camera-slam-*_0*.png", picture(640, 480)),
    ("fisheye/aria_adt/camera-rgb_rays.csv", rays(47)),
    ("fisheye/aria_adt/camera-slam-*_rays.csv", rays(65)),
    ("fisheye/calib/kitti_cam00-02.yaml", lens("opencv", 1241, 376)),
    ("fisheye/calib/kitti_cam04-12.yaml", lens("opencv", 1241, 376)),
    ("fisheye/calib/mynteye_left_mei.yaml", lens("mei", 752, 480)),
    ("fisheye/calib/tumvi_ds.json", lens("double_sphere", 512, 512, camera="cam0")),
    ("fisheye/calib/tumvi_eucm.json", lens("extended_unified", 512, 512, camera="cam1")),
    ("fisheye/calib/tumvi_kb4.yaml", lens("kannala_brandt", 512, 512, camera="cam0")),
    ("fisheye/calib/vi_car_cam0_mei.yaml", lens("mei", 752, 480)),
    ("fisheye/calib/vi_car_cam0_pinhole.yaml", lens("opencv", 752, 480)),
    ("fisheye/pyocam_Fisheye1_*.jpg", picture(1032, 778)),
    ("fisheye/pyocam_fisheye_1.json", lens("ocam", 1032, 778, sized=True)),
    ("fisheye/rays/surround_view_left.csv", rays(54)),
    ("fisheye/rays/*.csv", rays(81)),
    ("fisheye/surround_view_front.png", picture(960, 640)),
    ("fisheye/surround_view_front.yaml", lens("kannala_brandt", 960, 640, format="opencv-fisheye")),
    ("fisheye/woodscape_front.jpg", picture(1280, 966)),
    ("fisheye/woodscape_front.json", lens("radial_polynomial", 1280, 966)),
    ("kitti360/*_test_0.txt", poses("kitti360", 933)),
    ("kitti_odom/estimates/00_*.txt.gz", poses("kitti", 4541)),
    ("kitti_odom/estimates/09_example_0.txt", poses("kitti", 1589)),
    ("kitti_odom/estimates/09_example_1.txt", poses("kitti", 1591)),
    ("kitti_odom/poses/00.txt", poses("kitti", 4541)),
    ("kitti_odom/poses/04.txt", poses("kitti", 271)),
    ("kitti_odom/poses/06.txt", poses("kitti", 1101)),
    ("kitti_odom/poses/09.txt", poses("kitti", 1591)),
    ("kitti_odom/times_00.txt", times(4541)),
    ("kitti_odom/times_06.txt", times(1101)),
    ("kitti_odom/video/06_000000_*.png", picture(1226, 370)),
    ("kitti_odom/video/06_calib.txt", lens("pinhole", 1226, 370, camera="P0", sized=True)),
    ("kitti_odom/video/06_first51_gray.mp4", video(51, 1226, 370, "10")),
    ("kitti_odom/video/06_poses_first51.txt", poses("kitti", 51)),
    ("nuscenes/scene-0061_CAM_FRONT_transforms.json", poses("nerfstudio", 39)),
    ("nuscenes/scene-0553_CAM_FRONT_transforms.json", poses("nerfstudio", 41)),
    ("nuscenes/*/samples/CAM_*/*.jpg", nuscenes_image),
    ("nuscenes/*/attribute.json", records(8)),
    ("nuscenes/*/category.json", records(23)),
    ("nuscenes/*/visibility.json", records(4)),
    ("nuscenes/*/calibrated_sensor.json", camera_table(7)),
    ("nuscenes/*/ego_pose.json", camera_table(7)),
    ("nuscenes/*/sample.json", camera_table(1)),
    ("nuscenes/*/sample_data.json", camera_table(7, "ego_pose_token")),
    ("nuscenes/*/scene.json", camera_table(1)),
    ("nuscenes/*/sensor.json", camera_table(12)),
    ("panorama/equilib_park.jpg", panorama(5376, 2688)),
    ("panorama/hohonet_bedroom.png", panorama(1024, 512)),
    ("panorama/hohonet_bedroom_depth.png", panorama_depth),
    ("panshot/demo_lens.json", shots(12)),
    ("panshot/demo_pose.json", shots(22)),
    ("panshot/near_plane_depth-test.jsonl", near_depths),
    ("panshot/pose-test/*.npy", poses("panshot", 81)),
    ("rds_hq/ftheta_*.npy", lens("f_theta", 1920, 1080)),
    ("rds_hq/pinhole_*.npy", lens("pinhole", 1920, 1080)),
    ("rds_hq/vehicle_pose.npy", poses("rds-hq", 300)),
    ("re10k/ac3d/*.camera_info*.json", poses("ac3d", 189)),
    ("re10k/ac3d/*.mp4", video(189, 1024, 576, "29.97")),
    ("re10k/cameractrl/*_16f.mp4", video(16, 384, 256, "8")),
    ("re10k/cameractrl/*_25f.mp4", video(25, 576, 320, "8")),
    ("re10k/cameractrl/*_16f.txt", poses("realestate10k", 16)),
    ("re10k/cameractrl/*_25f.txt", poses("realestate10k", 25)),
    ("re10k/motionctrl/test_camera_*.json", poses("motionctrl", 16)),
    ("re10k/ucpe_pose_files/traj_normalization.txt", factor),
    ("re10k/ucpe_pose_files/20e7a3651ec30386.txt", poses("realestate10k", 279)),
    ("re10k/ucpe_pose_files/38f7ba7fd9a83069.txt", poses("realestate10k", 102)),
    ("re10k/ucpe_pose_files/5451cefde53f06f1.txt", poses("realestate10k", 106)),
    ("recammaster/camera_extrinsics.json", poses("recammaster", 81, camera="cam05")),
    ("scope/*.npy", poses("npy", 81)),
    ("tri_dgp/poses_calib.json", poses("tri-dgp", 3, camera="CAMERA_06")),
    ("tri_dgp/rgb/CAMERA_0[16]/*.jpg", picture(1936, 1216)),
    ("tum/freiburg1_xyz-groundtruth.txt", poses("tum", 3000)),
    ("tum/freiburg1_xyz-rgbdslam*.txt", poses("tum", 788)),
    ("tum/freiburg1_xyz-ORB_kf_mono.txt", poses("tum", 32)),
)  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_it_opens_through_the_reader_of_its_kind(file, tmp_path):
    opens = next((opens for pattern, opens in KINDS if fnmatch(file, pattern)), None)
    assert opens is not None, "no reader is known for it: give its kind a row"
    opens(shared_file(f"data/{file}"), tmp_path)


def test_no_kind_is_without_a_file():
    shared_file("data/MANIFEST.sha256")
    for pattern, _ in KINDS:
        assert any(fnmatch(file, pattern) for file in FILES), pattern


def test_every_file_that_should_be_there_is():
    listed = [line.split(None, 1)[1] for line in shared_file("data/MANIFEST.sha256").read_text().splitlines()]
    assert len(listed) == 156
    assert set(listed) <= set(FILES)
