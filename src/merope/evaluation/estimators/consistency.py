"""Whether an estimator agrees with itself when it looks again: `check_consistency`, for any estimator."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.evaluation.estimators.base import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.scoring import evaluate_clip
from merope.geometry.poses import Poses

SecondPass = Literal["reversed", "every_second", "mirrored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """Two recoveries of one clip against each other. ``unreliable`` marks a clip; nothing is dropped for it.

    ``rot_deg`` and ``center_percent`` are the mean turn and the mean distance of centres between both passes, the
    latter in percent of the path, with the first common frame and the scale taken out (the paper's rot and tr). They
    are None where the second pass failed, fewer than three frames have a pose in both, or there is no path to compare.
    """

    second_pass: SecondPass
    first: Recovered
    """What the estimator says of the clip as it is."""
    rot_deg: float | None
    center_percent: float | None
    scale: float | None
    """Lengths of the first pass per length of the second; near 1 for an estimator in metres that agrees with itself."""
    num_compared: int
    """Frames that have a pose in both passes."""
    unreliable: bool
    reason: str
    """In words, what was found."""


def check_consistency(
    estimator: PoseEstimator,
    frames: UInt8[np.ndarray, "time height width 3"],
    camera: CameraModel,
    *,
    fps: float,
    second_pass: SecondPass = "reversed",
    rot_limit_deg: float = 2.0,
    center_limit_percent: float = 5.0,
) -> Consistency:
    """Recover a clip twice and say how far the two answers are apart.

    The second pass sees the frames in reverse order, every second frame at half the rate, or left for right. An
    estimator that was trained on one direction of travel and one speed is checked by "mirrored", whose answer is mirrored
    back. Agreement is no proof: a large moving object can hold both passes in the same wrong frame of reference.
    Disagreement beyond a limit, or a second pass that fails, is a mark.

    Raises:
        ValueError: if there are fewer than three frames, or five for "every_second", or the lens is not symmetric for
            "mirrored".
        RecoveryFailed: if the first pass fails.
    """
    needed = 5 if second_pass == "every_second" else 3
    if len(frames) < needed:
        raise ValueError(f"second_pass {second_pass!r} needs at least {needed} frames, got {len(frames)}.")
    if second_pass == "mirrored" and not is_symmetric(camera):
        raise ValueError(
            'second_pass "mirrored" needs a lens that sees the same to both sides; use "reversed".'
        )
    first = estimator.estimate(frames, camera, fps=fps)
    order = torch.arange(0, len(frames), 2 if second_pass == "every_second" else 1)
    if second_pass == "reversed":
        order = order.flip(0)
    shown = frames[order.numpy()]
    if second_pass == "mirrored":
        shown = shown[:, :, ::-1]
    rate = fps / 2 if second_pass == "every_second" else fps
    try:
        second = estimator.estimate(np.ascontiguousarray(shown), camera, fps=rate)
    except RecoveryFailed as failure:
        return Consistency(
            second_pass=second_pass,
            first=first,
            rot_deg=None,
            center_percent=None,
            scale=None,
            num_compared=0,
            unreliable=True,
            reason=f"the second pass ({second_pass}) failed: {failure}",
        )
    # Rows of the second pass in the clip's own order.
    rows = order.argsort()
    both = first.registered[order[rows]] & second.registered[rows]
    rows = rows[both]
    rot_deg = center_percent = scale = None
    if len(rows) >= 3:
        again = _mirrored(second.poses) if second_pass == "mirrored" else second.poses
        scores = evaluate_clip(first.poses[order[rows]], again[rows])
        rot_deg, center_percent = scores.all["rot_deg"].value, scores.all["tr_percent"].value
        scale = scores.all["scale"].value
    reasons = _beyond(rot_deg, center_percent, scale, len(rows), rot_limit_deg, center_limit_percent)
    return Consistency(
        second_pass=second_pass,
        first=first,
        rot_deg=rot_deg,
        center_percent=center_percent,
        scale=scale,
        num_compared=len(rows),
        unreliable=bool(reasons),
        reason="; ".join(reasons) if reasons else f"both passes agree on {len(rows)} frames",
    )


def is_symmetric(camera: CameraModel) -> bool:
    """Whether a picture turned left for right is one that the same lens takes of the mirrored world."""
    rays_cam, seen = camera.pixel_rays()
    turned = rays_cam.flip(-2) * rays_cam.new_tensor([-1.0, 1.0, 1.0])
    return bool(torch.equal(seen, seen.flip(-1)) and torch.allclose(rays_cam[seen], turned[seen], atol=1e-6))


def _mirrored(poses: Poses) -> Poses:
    """The cameras of the mirrored world, x negated in world and camera."""
    mirror = torch.diag(poses.center_world.new_tensor([-1.0, 1.0, 1.0]))
    return Poses(
        R_world_cam=mirror @ poses.R_world_cam @ mirror,
        center_world=poses.center_world @ mirror,
        unit=poses.unit,
    )


def _beyond(
    rot_deg: float | None,
    center_percent: float | None,
    scale: float | None,
    num_compared: int,
    rot_limit_deg: float,
    center_limit_percent: float,
) -> list[str]:
    if num_compared < 3:
        return [f"only {num_compared} frames have a pose in both passes"]
    found = []
    if rot_deg is None or rot_deg > rot_limit_deg:
        words = (
            "are undefined" if rot_deg is None else f"differ by {rot_deg:.2f} deg (limit {rot_limit_deg:g})"
        )
        found.append(f"rotations {words}")
    if center_percent is None:
        found.append("one of the two paths stands still")
    elif center_percent > center_limit_percent:
        found.append(f"centres differ by {center_percent:.1f} % of the path (limit {center_limit_percent:g})")
    if scale is not None and scale <= 0:
        found.append("the two paths run in opposite directions")
    return found
