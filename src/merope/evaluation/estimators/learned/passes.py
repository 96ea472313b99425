"""A feed-forward model over a clip: in one pass, or in pieces that share frames and are joined by them."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.evaluation.estimators.base import Recovered, RecoveryFailed
from merope.evaluation.estimators.learned.conventions import ModelCameras, fov_note
from merope.evaluation.estimators.learned.frames import FramePlan, prepare_frames
from merope.geometry.poses import Poses
from merope.geometry.rotations import mean_rotation, project_to_so3


def check_pieces(max_frames: int, overlap: int) -> None:
    """Raises ValueError unless pieces of ``max_frames`` can share ``overlap`` frames."""
    if not 2 <= overlap < max_frames:
        raise ValueError(
            f"overlap must be at least 2 and less than max_frames, got {overlap} and {max_frames}: pieces are joined by the "
            "frames that they share."
        )


def pieces_of(num_frames: int, *, max_frames: int, overlap: int) -> list[range]:
    """Runs of at most ``max_frames`` frames of about one length, each sharing ``overlap`` with the one before."""
    if num_frames <= max_frames:
        return [range(num_frames)]
    number = math.ceil((num_frames - overlap) / (max_frames - overlap))
    starts = [round(index * (num_frames - max_frames) / (number - 1)) for index in range(number)]
    return [range(start, start + max_frames) for start in starts]


def join_pieces(pieces: Sequence[tuple[range, Poses]], *, metric: bool) -> tuple[Poses, tuple[str, ...]]:
    """One path from paths of overlapping runs of frames, each in a world and (unless ``metric``) a scale of its own.

    A piece is turned by the mean of what its shared frames say, scaled by the ratio of their distances from their middle,
    and moved so that the middles agree: a similarity that straight paths do not leave undetermined. Shared frames take the
    earlier piece's poses.

    Degenerate: where the camera stood still in the shared frames the scale cannot be seen; it is kept and noted.
    """
    (first, whole), notes = pieces[0], []
    rotations, centers = [*whole.R_world_cam], [*whole.center_world]
    for run, poses in pieces[1:]:
        shared = len(rotations) - run.start
        R_before = torch.stack(rotations[run.start :])
        before = torch.stack(centers[run.start :])
        R_now, now = poses.R_world_cam[:shared], poses.center_world[:shared]
        turn = mean_rotation(R_before @ R_now.mT)
        spread_before = (before - before.mean(0)).norm()
        spread_now = (now - now.mean(0)).norm()
        scale = 1.0
        if not metric:
            moving = min(float(spread_before), float(spread_now)) > 1e-9
            scale = float(spread_before / spread_now) if moving else 1.0
            if not moving:
                notes.append(
                    f"the camera stands in frames {run.start} to {run.start + shared - 1}: the scale after them is a guess"
                )
        rotations += list(project_to_so3(turn @ poses.R_world_cam[shared:]))
        moved = scale * (poses.center_world - now.mean(0)) @ turn.mT + before.mean(0)
        centers += list(moved[shared:])
    assert first.start == 0
    joined = Poses(R_world_cam=torch.stack(rotations), center_world=torch.stack(centers), unit=whole.unit)
    return joined, tuple(notes)


def recover(
    frames: UInt8[np.ndarray, "time height width 3"],
    camera: CameraModel,
    plan: FramePlan,
    run: Callable[[torch.Tensor], ModelCameras],
    *,
    max_frames: int,
    overlap: int,
    notes: Sequence[str] = (),
) -> Recovered:
    """Poses of all frames by ``run``, which takes images [T, 3, height, width] in [0, 1] and gives their cameras.

    Raises:
        ValueError: if the frames are not of the lens's size, or the lens differs by view.
        RecoveryFailed: if there is one frame only, the model's numbers are no poses, or its device has too little memory.
    """
    prepared = prepare_frames(frames, camera, plan)
    runs = pieces_of(len(frames), max_frames=max_frames, overlap=overlap)
    found = []
    for piece in runs:
        part = np.ascontiguousarray(prepared.frames[piece.start : piece.stop])
        images = torch.from_numpy(part).permute(0, 3, 1, 2).float() / 255
        try:
            cameras = run(images)
        except torch.OutOfMemoryError as error:
            raise RecoveryFailed(
                f"{len(piece)} frames of {images.shape[2]} x {images.shape[3]} are too many for the memory of the device. "
                f"Take less at a time (max_frames, now {max_frames}) or smaller ones (resolution, now {plan.resolution})."
            ) from error
        if len(cameras.poses) != len(piece):
            raise RecoveryFailed(f"the model gave {len(cameras.poses)} cameras for {len(piece)} frames.")
        found.append(cameras)
    metric = all(cameras.is_metric for cameras in found)
    poses, joins = join_pieces(
        [(piece, cameras.poses) for piece, cameras in zip(runs, found, strict=True)], metric=metric
    )
    said = [*notes, *prepared.notes]
    if len(runs) > 1:
        said.append(f"seen in {len(runs)} pieces of {max_frames} frames that share at least {overlap}")
    together = ModelCameras(
        poses=poses,
        fov_x=torch.cat([cameras.fov_x for cameras in found]),
        fov_y=torch.cat([cameras.fov_y for cameras in found]),
    )
    disagreement = fov_note(together, prepared.camera)
    said += [*joins, *([disagreement] if disagreement else [])]
    unit = Poses(
        R_world_cam=poses.R_world_cam, center_world=poses.center_world, unit="m" if metric else "unknown"
    )
    return Recovered.complete(unit, scale="metric" if metric else "up_to_scale", notes=tuple(said))
