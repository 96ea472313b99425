"""Trajectories that every format's own writer makes files of: one pose and many, far away and turned, still and moving."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from merope.data.poses.files import write_poses
from merope.data.poses.formats import FORMATS
from merope.geometry.poses import Poses
from tests.fuzz.outcome import Truth, truth_in
from tests.support.trajectories import LENS, drive, tar_of, vehicle_files

FILES = {
    "kitti": "poses.txt",
    "tum": "poses.txt",
    "kitti360": "poses.txt",
    "euroc": "data.csv",
    "realestate10k": "clip.txt",
    "aria": "closed_loop_trajectory.csv",
    "npy": "poses.npy",
    "npz": "poses.npz",
    "panshot": "track.npy",
    "rds-hq": "vehicle_pose.npy",
    "rds-hq.tar": "clip.tar",
    "comma2k19": "global_pose",
    "argoverse2": "city_SE3_egovehicle.feather",
    "merope": "poses.json",
    "nerfstudio": "transforms.json",
    "recammaster": "cameras.json",
    "motionctrl": "poses.json",
    "ac3d": "camera_info.json",
    "tri-dgp": "scene",
    "nuscenes": "v1.0-mini",
    "colmap": "sparse",
    "colmap-binary": "sparse",
}
"""The file or folder of every format; one that is read from several kinds of file stands here once for each."""


@dataclass(frozen=True, eq=False)
class Seed:
    """Files of one trajectory as the format's writer made them."""

    files: Mapping[str, bytes]
    target: str
    """The file or folder that is read, a name below which the files lie."""
    baseline: Truth
    """What the reader makes of the unchanged files, which is checked against the poses that were written."""


def format_of(kind: str) -> str:
    """The format that a kind of file is read as."""
    return kind.partition(".")[0]


@cache
def seeds_of(kind: str) -> tuple[Seed, ...]:
    """The files of every trajectory, read back and compared with it."""
    return tuple(_written(kind, poses) for poses in trajectories())


@lru_cache(maxsize=1)
def trajectories() -> tuple[Poses, ...]:
    straight = Poses(
        R_world_cam=torch.eye(3, dtype=torch.float64).repeat(5, 1, 1),
        center_world=torch.tensor([[0.0, 0.0, float(index)] for index in range(5)]),
        times=torch.arange(5) * 0.5 + 1.0,
        unit="m",
    )
    return (
        straight,
        drive(0, num=1),
        drive(2, num=6),
        drive(4, far=6.4e6, num=4),
        drive(6, step=1e-7, num=3),
        drive(1, far=1e3, num=9),
    )


def _written(kind: str, poses: Poses) -> Seed:
    format, target = format_of(kind), FILES[kind]
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / target
        if kind == "rds-hq.tar":
            numbers = tuple(range(8, 8 + len(poses)))
            tar_of(path, vehicle_files(poses, numbers))
        else:
            write_poses(path, poses, format=format, camera=LENS.to_dict())
        read = truth_in(path, format)
        found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        files = {file.relative_to(scratch).as_posix(): file.read_bytes() for file in found}
    _require_written(kind, poses, read)
    return Seed(files, target, Truth(read.R_world_cam, read.center_world, read.times, same_bits=True))


def _require_written(kind: str, poses: Poses, read: Truth) -> None:
    """The round trip itself: the files hold the poses, so the numbers that mutations must keep are true."""
    if kind == "motionctrl":
        poses = poses.rebase_to_first()
    slack = 1e-9
    if kind == "rds-hq.tar":
        slack = 1e-7 * (1 + float(poses.center_world.abs().max()))
    assert np.abs(read.R_world_cam - poses.R_world_cam.numpy()).max() <= max(slack, 1e-9), kind
    assert np.abs(read.center_world - poses.center_world.numpy()).max() <= slack, kind
    assert set(FORMATS) == {format_of(kind) for kind in FILES}
