"""`keyframe_path`: a smooth camera path through a few poses."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from merope.errors import TrajectoryError
from merope.geometry.pacing import ArcLength, Easing, frame_times, moments, shares
from merope.geometry.pose_checks import require_measurable
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_rotvec, rotvec_to_matrix

Shape = Literal["spline", "straight"]
"""spline: a centripetal Catmull-Rom spline through the centres. straight: straight pieces between them."""
Pace = Literal["constant", "times"]
"""constant: constant speed by arc length. times: each keyframe at its own time."""

# Two keyframes are a half turn apart, and the way between them is not determined, within this many radians.
_HALF_TURN = 1e-9


def keyframe_path(
    keyframes: Poses,
    *,
    num_frames: int | None = None,
    fps: float | None = None,
    shape: Shape = "spline",
    pace: Pace = "constant",
    easing: Easing = "linear",
) -> Poses:
    """A path of many frames through these poses, in their world and unit.

    Centres follow a centripetal Catmull-Rom spline, which passes every keyframe without loops between close ones, or
    straight pieces. Rotations turn the shorter way from each keyframe to the next, in proportion to the way covered between
    them. Matrices have no sign that could send them the longer way, as quaternions of a file have.

    With ``pace`` "constant" the ``num_frames`` frames at ``fps`` are equally far apart along the whole path (or eased by
    "smooth"), so that the camera passes keyframes when it gets there; ``easing`` applies to this pace. Where all centres are
    the same, the angular speed is constant instead. With "times" each keyframe is passed at its time, with constant speed
    from one to the next, in ``num_frames`` frames at equal times from first to last or at ``fps`` as far as they go.

    Keyframes that are half a turn apart (to 1e-9 rad) have two shorter ways. The one taken is about the axis whose largest
    component, in the first one's axes, is positive: a half turn about the camera's y axis goes to the right. `half_turns`
    names them; a keyframe between them says which way.

    Raises:
        ValueError: if counts, rates or names are not among the possible ones.
        TrajectoryError: if there are fewer than two keyframes, times are needed and missing, or at constant speed two
            keyframes have the same centre and different rotations while others move.
    """
    if shape not in ("spline", "straight"):
        raise ValueError(f"shape must be 'spline' or 'straight'; got {shape!r}.")
    if len(keyframes) < 2:
        raise TrajectoryError("a path needs two or more keyframes; there is one. Add another pose.")
    require_measurable(keyframes.center_world)
    centers = keyframes.center_world - keyframes.center_world[0]
    chords = centers.diff(dim=0)
    out_of, into = (chords, chords) if shape == "straight" else _tangents(centers)
    curve = ArcLength(lambda places: _speed(chords, out_of, into, places), num_pieces=len(chords))
    rotvecs = _shorter_ways(keyframes.R_world_cam)
    if pace == "constant":
        if num_frames is None or fps is None:
            raise ValueError("constant speed needs num_frames and fps (--num-frames, --fps): give both.")
        share = shares(num_frames, easing)
        times = frame_times(num_frames, fps)
        piece, fraction = _at_constant_speed(curve.pieces, rotvecs.norm(dim=-1), share)
    elif pace == "times":
        if easing != "linear":
            raise ValueError(
                "easing is for constant speed; keyframes with times say themselves how fast the camera is."
            )
        times = _wanted_times(keyframes, num_frames, fps)
        piece, fraction = _at_times(keyframes, times)
    else:
        raise ValueError(f"pace must be 'constant' or 'times'; got {pace!r}.")
    # The share of a piece's length, from its start: the parameter of a spline is not in proportion to it.
    before = torch.cat([torch.zeros(1, dtype=torch.float64), curve.pieces.cumsum(0)])[piece]
    place = curve.parameter(before + fraction * curve.pieces[piece])
    # A piece of no length has no parameter of its own, and a length at its end may be put into the next.
    place = torch.minimum(torch.maximum(place, piece.double()), piece.double() + 1) - piece
    offset = _offset(chords[piece], out_of[piece], into[piece], place[:, None])
    return Poses(
        R_world_cam=keyframes.R_world_cam[piece] @ rotvec_to_matrix(rotvecs[piece] * fraction[:, None]),
        center_world=keyframes.center_world[piece] + offset,
        times=times,
        unit=keyframes.unit,
        projection_error=keyframes.projection_error,
    )


def half_turns(keyframes: Poses) -> list[int]:
    """Numbers of the keyframes from which the next is half a turn away, to 1e-9 rad: the way there is not determined."""
    angles = _shorter_ways(keyframes.R_world_cam).norm(dim=-1)
    return [int(number) for number in (math.pi - angles <= _HALF_TURN).nonzero()[:, 0]]


def _shorter_ways(R_world_cam: Tensor) -> Float[Tensor, "piece 3"]:
    """Rotation vectors from each keyframe to the next, in the axes of the first."""
    rotvecs = matrix_to_rotvec(R_world_cam[:-1].mT @ R_world_cam[1:])
    largest = torch.take_along_dim(rotvecs, rotvecs.abs().argmax(dim=-1, keepdim=True), dim=-1)
    undetermined = math.pi - rotvecs.norm(dim=-1, keepdim=True) <= _HALF_TURN
    return torch.where(undetermined & (largest < 0), -rotvecs, rotvecs)


def _tangents(centers: Float[Tensor, "keyframe 3"]) -> tuple[Tensor, Tensor]:
    """Derivatives of a centripetal Catmull-Rom spline at both ends of each piece, by the piece's own parameter in [0, 1].

    Knots are apart by the square root of the distance (Yuksel et al. 2011). Beyond the ends the path goes on as its first
    and last chord do. Repeated centres are passed once, and the pieces between them have no tangents.
    """
    lengths = centers.diff(dim=0).norm(dim=-1)
    moving = lengths > 0
    out_of = torch.zeros(len(lengths), 3, dtype=torch.float64)
    into = torch.zeros_like(out_of)
    chords = centers.diff(dim=0)[moving]
    if len(chords) == 0:
        return out_of, into
    knots = lengths[moving].sqrt()[:, None]
    chords, knots = torch.cat([chords[:1], chords, chords[-1:]]), torch.cat([knots[:1], knots, knots[-1:]])
    slopes = chords / knots
    # The derivative of the parabola through three neighbouring points at the middle one.
    at_points = (slopes[:-1] * knots[1:] + slopes[1:] * knots[:-1]) / (knots[:-1] + knots[1:])
    out_of[moving], into[moving] = at_points[:-1] * knots[1:-1], at_points[1:] * knots[1:-1]
    return out_of, into


def _offset(chord: Tensor, out_of: Tensor, into: Tensor, place: Tensor) -> Tensor:
    """Where on a cubic piece that begins at zero; ``place`` in [0, 1]."""
    return (
        out_of * (place * (1 - place) ** 2)
        + chord * (place**2 * (3 - 2 * place))
        + into * (place**2 * (place - 1))
    )


def _speed(chords: Tensor, out_of: Tensor, into: Tensor, places: Tensor) -> Tensor:
    """Lengths of the derivative at parameters that count pieces."""
    piece = places.floor().long().clamp(0, len(chords) - 1)
    place = (places - piece)[..., None]
    derivative = (
        out_of[piece] * (1 - place) * (1 - 3 * place)
        + chords[piece] * 6 * place * (1 - place)
        + into[piece] * place * (3 * place - 2)
    )
    return derivative.norm(dim=-1)


def _at_constant_speed(lengths: Tensor, angles: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Piece of each frame, and the share of the piece that is behind it."""
    standing = (lengths == 0) & (angles > 0)
    if (lengths > 0).any():
        if standing.any():
            first = int(standing.nonzero()[0, 0])
            raise TrajectoryError(
                f"keyframes {first} and {first + 1} have the same centre and different rotations: constant speed leaves "
                "no time to turn there. Move one, or give the keyframes times (pace='times', --pace times)."
            )
    else:
        lengths = angles
        if not standing.any():
            raise TrajectoryError("the keyframes are all the same pose: there is no path between them.")
    ends = lengths.cumsum(0)
    way = share * ends[-1]
    piece = torch.searchsorted(ends, way).clamp(max=len(lengths) - 1)
    return piece, ((way - (ends - lengths)[piece]) / lengths[piece]).nan_to_num(0.0).clamp(0.0, 1.0)


def _wanted_times(keyframes: Poses, num_frames: int | None, fps: float | None) -> Float[Tensor, "time"]:
    if keyframes.times is None:
        raise TrajectoryError(
            "pace 'times' needs keyframes with times, and these have none. Give them (Poses.with_times, --times), or take "
            "constant speed."
        )
    if (num_frames is None) == (fps is None):
        raise ValueError(
            "with pace 'times' the keyframes say how long the path takes: give either num_frames or fps "
            "(--num-frames, --fps)."
        )
    if num_frames is not None:
        first, last = float(keyframes.times[0]), float(keyframes.times[-1])
        return first + shares(num_frames) * (last - first)
    assert fps is not None
    return moments(keyframes.times, fps)


def _at_times(keyframes: Poses, times: Tensor) -> tuple[Tensor, Tensor]:
    """Piece of each frame, and the share of the piece's time that is behind it."""
    assert keyframes.times is not None
    piece = (torch.searchsorted(keyframes.times, times, right=True) - 1).clamp(0, len(keyframes) - 2)
    start, end = keyframes.times[piece], keyframes.times[piece + 1]
    return piece, ((times - start) / (end - start)).clamp(0.0, 1.0)
