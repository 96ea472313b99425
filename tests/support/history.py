"""Small cities of posed clips for an index of frames, and a search of them that looks at every frame, one by one."""

import math
from collections import Counter

import numpy as np
import torch

from merope.cameras import KannalaBrandt, Pinhole
from merope.data.clips.folder import write_clip
from merope.data.history import ClipRows
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion, quaternion_to_matrix, rotvec_to_matrix

PINHOLE = Pinhole(fx=40.0, fy=40.0, cx=32.0, cy=18.0, width=64, height=36, pixel_origin="corner")
FISHEYE = KannalaBrandt(
    fx=20.0,
    fy=20.0,
    cx=31.5,
    cy=17.5,
    width=64,
    height=36,
    pixel_origin="center",
    k1=0.01,
    k2=0.0,
    k3=0.0,
    k4=0.0,
)
LENSES = (PINHOLE, FISHEYE)


def clip_rows(
    name, centers, *, yaw=0.0, world="w", traversal=None, lens=PINHOLE, source="s", tilt=0.0, time=0.0
):
    """A clip with these centres in a world with y down, that looks ``yaw`` (radians) to the right of z, at 4 Hz."""
    count = len(centers)
    yaws = np.broadcast_to(np.asarray(yaw, dtype=np.float64), (count,))
    rotvecs = torch.tensor(np.stack([np.zeros(count), yaws, np.zeros(count)], axis=1))
    R_tilt = rotvec_to_matrix(torch.tensor([tilt, 0.0, tilt / 2], dtype=torch.float64))
    return ClipRows(
        source=source,
        clip_id=name,
        world=world,
        traversal=traversal or f"{source}/{name}",
        lens=lens,
        data_set=None,
        center_world=np.asarray(centers, dtype=np.float64),
        rotation_xyzw=matrix_to_quaternion(rotvec_to_matrix(rotvecs) @ R_tilt).numpy(),
        frame=np.arange(count),
        time=time + np.arange(count) / 4,
    )


def city(seed, num_clips, *, origin, world="w", num_frames=8, size=30.0, prefix="clip"):
    """Clips on a plane that go any way; one in five stands still, and one in six is a copy of the clip before."""
    rng = np.random.default_rng(seed)
    clips = []
    for number in range(num_clips):
        name = f"{prefix}-{number:03d}"
        if number % 6 == 5:
            last = clips[-1]
            clips.append(
                ClipRows(
                    **{
                        key: getattr(last, key)
                        for key in ClipRows.__slots__
                        if key not in ("clip_id", "traversal")
                    },
                    clip_id=name,
                    traversal=f"s/{name}",
                )
            )
            continue
        yaw = rng.uniform(-math.pi, math.pi)
        speed = 0.0 if number % 5 == 0 else rng.uniform(0.2, 2.0)
        # Quarters of a metre: distances of different clips come out equal.
        start = np.round(rng.uniform(0, size, 3) * 4) / 4 * [1, 0.02, 1]
        steps = np.arange(num_frames)[:, None] * speed * np.array([math.sin(yaw), 0, math.cos(yaw)])
        clips.append(
            clip_rows(
                name,
                np.asarray(origin) + start + steps,
                yaw=yaw,
                world=world,
                lens=LENSES[number % 2],
                tilt=rng.uniform(-0.2, 0.2),
                traversal=f"drive-{number // 4}",
                time=100.0 * (number % 4),
            )
        )
    return clips


def brute_force(clips, path, search, *, own_traversal):
    """(source, clip_id, frame, distance, angle, overlap) for each pose, by looking at every frame of ``clips``.

    ``clips`` are in the order of the index: a world after the other in each shard.
    """
    frames = [(clip, place) for clip in clips for place in range(len(clip.frame)) if clip.world == path.world]
    quaternions = np.stack([clip.rotation_xyzw[place] for clip, place in frames])
    rotations = quaternion_to_matrix(torch.from_numpy(quaternions)).numpy()
    view = _view_points(path.lens, search.depths)
    return [
        _of_pose(frames, rotations, path, query, search, own_traversal, view) for query in range(len(path))
    ]


def _of_pose(frames, rotations, path, query, search, own_traversal, view):
    center, rotation = path.poses.center_world[query].numpy(), path.poses.R_world_cam[query].numpy()
    overlaps = _overlaps(frames, rotations, center, view @ rotation.T)
    axes, axis = rotations[:, :, 2], rotation[:, 2]
    angles = np.arctan2(np.linalg.norm(np.cross(axes, axis), axis=1), axes @ axis)
    found = []
    for number, (clip, place) in enumerate(frames):
        dx, dy, dz = (clip.center_world[place] - center).tolist()
        distance = math.sqrt(dx * dx + dy * dy + dz * dz)
        angle = float(angles[number])
        if distance > search.max_distance or angle > search.max_angle:
            continue
        if path.clip == (clip.source, clip.clip_id) or overlaps[number] < search.min_overlap:
            continue
        if clip.traversal == own_traversal and not (
            search.min_time_apart < math.inf
            and abs(clip.time[place] - float(path.poses.times[query])) >= search.min_time_apart
        ):
            continue
        # Scores that are equal on paper differ in the last digits; ties go by the order of the index.
        score = round(distance / search.max_distance + angle / search.max_angle, 9)
        found.append((score, number, distance, angle))
    taken, per_clip = [], Counter()
    for _, number, distance, angle in sorted(found):
        clip, place = frames[number]
        if len(taken) < search.k and per_clip[clip.clip_id] < search.max_per_clip:
            per_clip[clip.clip_id] += 1
            taken.append(
                (clip.source, clip.clip_id, int(clip.frame[place]), distance, angle, overlaps[number])
            )
    return taken


def _overlaps(frames, rotations, center, points_world):
    """The share of points, from the pose's centre on, that each frame sees."""
    centers = np.stack([clip.center_world[place] for clip, place in frames])
    points_cam = (points_world + (center - centers)[:, None]) @ rotations
    overlaps = np.empty(len(frames))
    for lens in {id(clip.lens): clip.lens for clip, _ in frames}.values():
        own = [number for number, (clip, _) in enumerate(frames) if clip.lens is lens]
        pixels, valid = lens.project(torch.from_numpy(points_cam[own]))
        overlaps[own] = (valid & lens.in_image(pixels)).double().mean(-1).numpy()
    return overlaps


def _view_points(lens, depths):
    """Points along the rays of the centres of 8 x 5 equal parts of the image."""
    shift = 0.0 if lens.pixel_origin == "corner" else -0.5
    points = []
    for row in range(5):
        for column in range(8):
            pixel = [(column + 0.5) * lens.width / 8 + shift, (row + 0.5) * lens.height / 5 + shift]
            ray, valid = lens.unproject(torch.tensor(pixel, dtype=torch.float64))
            points += [ray.numpy() * depth for depth in depths if valid]
    return np.asarray(points)


def straight_drive(x=0.0, *, count=6, unit="m"):
    """Along z at this x, a metre and a quarter of a second a frame, far from the origin."""
    number = torch.arange(count, dtype=torch.float64)
    centers = torch.stack([6.4e6 + x + 0 * number, 0 * number, number], dim=1)
    rotations = torch.eye(3, dtype=torch.float64).expand(count, 3, 3)
    return Poses(R_world_cam=rotations, center_world=centers, times=number / 4, unit=unit)


def grey_clip(root, name, x=0.0, *, world="w", **more):
    """A clip whose frame i is of the grey value 10 i + x."""
    poses = straight_drive(x, **more)
    grey = (10 * np.arange(len(poses)) + x).astype(np.uint8)
    frames = np.broadcast_to(grey[:, None, None, None], (len(poses), 36, 64, 3))
    said = {} if world is None else {"world": world}
    write_clip(
        root,
        name,
        np.ascontiguousarray(frames),
        poses=poses,
        lens=PINHOLE,
        fps=4,
        source="s",
        provenance=said,
    )
