"""Trajectories that test files are written from, measures as documentation gives them, and archives of vehicle poses."""

import io
import tarfile

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from merope.cameras import Pinhole
from merope.geometry.poses import Poses

LENS = Pinhole(fx=900.0, fy=880.0, cx=641.0, cy=357.0, width=1280, height=720, pixel_origin="center")
"""A lens for the formats that want one."""


def drive(seed, *, far=0.0, step=1.0, num=7) -> Poses:
    """A body that turns every way, far from the origin or at it, in large steps or tiny ones."""
    rng = np.random.default_rng(seed)
    centers = np.cumsum(rng.normal(size=(num, 3)) * step, axis=0) + far * np.array([-0.42, -0.67, 0.61])
    return Poses(
        R_world_cam=torch.from_numpy(Rotation.random(num, random_state=seed).as_matrix()),
        center_world=torch.from_numpy(centers),
        times=torch.from_numpy(1.5e9 * (seed % 2) + np.cumsum(rng.uniform(0.01, 0.2, size=num))),
    )


def assert_steps(poses, mean, largest, digits=4):
    assert round(float(poses.step_lengths.mean()), digits) == mean
    assert round(float(poses.step_lengths.max()), digits) == largest


def summed_turn_deg(poses) -> float:
    R = Rotation.from_matrix(poses.R_world_cam.numpy())
    return float(np.degrees((R[:-1].inv() * R[1:]).magnitude().sum()))


def arccos_turn_deg(matrices) -> float:
    """The sum as it was documented for arrays: by arccos of unprojected matrices, which loses digits for small angles."""
    R = matrices[:, :3, :3].astype(np.float64)
    traces = np.trace(R[:-1].transpose(0, 2, 1) @ R[1:], axis1=1, axis2=2)
    return float(np.degrees(np.arccos(np.clip((traces - 1) / 2, -1, 1))).sum())


def array_bytes(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def vehicle_files(poses, numbers=(8, 9, 10, 11)) -> dict[str, bytes]:
    to_flu = torch.tensor([[0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    return {
        f"{number}.vehicle_pose.npy": array_bytes((matrix @ to_flu).numpy().astype(np.float32))
        for number, matrix in zip(numbers, poses.T_world_cam, strict=True)
    }


def tar_of(path, parts, **attributes):
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in attributes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return path
