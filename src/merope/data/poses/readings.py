"""Which convention a file's matrices are in, by the motion: most cameras, and all cars, move the way they look.

Evidence for a reader of the file, never applied by itself: a camera may well move sideways, or backwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from merope.data.poses.table import R_AXES_OPENCV, Axes, Direction

FITS = 0.7
"""A reading explains the motion where the mean cosine between motion and viewing direction is at least this (45 degrees)."""
CLEARLY = 0.3
"""A reading explains it better than another where its cosine is larger by more than this."""
ORDER = 0.1
"""... and the other order of quaternions, by more than this: a wrong one scrambles directions, and few come out right."""
SHORTER = 0.1
"""A path of less than this share of the other's speaks for its direction: the wrong one swings about a far origin."""
TRANSPOSED = (0.95, 0.1)
"""Transposed rotations are said where the motion fits them this well, and better than all readings by more than this."""
TIE = 0.05
"""Readings whose cosines differ by less are not told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to read the matrices of a file, and how the cameras move under it."""

    direction: Direction
    camera_axes: Axes
    quaternion_order: str | None = None
    """Where the file holds quaternions: the order that was assumed."""
    heading: float
    """Mean cosine between viewing direction and motion, each step weighted by its length; 0 where nothing moves."""
    upright: float
    """Share of all turning that is about the up axis, as of a car in a bend; 0 where nothing turns."""
    path_length: float
    max_step: float

    def changes_from(self, other: "Reading") -> dict[str, str]:
        """Fields of `ReadOptions` to set to get from ``other`` to this reading."""
        names = ("direction", "camera_axes", "quaternion_order")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(other, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the motion says of the reading that was asked for."""

    outcome: Literal["agrees", "disagrees", "silent"]
    text: str
    better: tuple[Reading, ...] = ()
    """Readings under which the cameras move forward, where the one asked for does not; those nearest to it."""


def readings(
    matrices: Float[np.ndarray, "time 3 4"], *, quaternion_order: str | None = None
) -> tuple[Reading, ...]:
    """Both directions under all axes conventions, for matrices as a file holds them; a scale of rotations is taken out."""
    found = []
    with np.errstate(over="ignore"):
        scale = np.cbrt(np.abs(np.linalg.det(matrices[:, :, :3]))).clip(1e-12)
    rotations = matrices[:, :, :3] / scale[:, None, None]
    matrices = np.concatenate([rotations, matrices[:, :, 3:]], axis=2)
    for direction in get_args(Direction):
        R_world_body, centers = _bodies(matrices, direction)
        motion, path_length, max_step = _motion(R_world_body, centers)
        turning = _turning(R_world_body)
        for axes in get_args(Axes):
            found.append(
                Reading(
                    direction=direction,
                    camera_axes=axes,
                    quaternion_order=quaternion_order,
                    heading=float(motion @ R_AXES_OPENCV[axes][:, 2]),
                    upright=float(turning @ np.abs(R_AXES_OPENCV[axes][:, 1])),
                    path_length=path_length,
                    max_step=max_step,
                )
            )
    return tuple(found)


def _bodies(
    matrices: Float[np.ndarray, "time 3 4"], direction: str
) -> tuple[Float[np.ndarray, "time 3 3"], Float[np.ndarray, "time 3"]]:
    """Rotations from the axes that the matrices turn to the world, and centres."""
    rotations, offsets = matrices[:, :, :3], matrices[:, :, 3]
    if direction == "camera-to-world":
        return rotations, offsets
    R_world_body = rotations.transpose(0, 2, 1)
    return R_world_body, -(R_world_body @ offsets[:, :, None])[:, :, 0]


def _motion(
    R_world_body: Float[np.ndarray, "time 3 3"], centers: Float[np.ndarray, "time 3"]
) -> tuple[Float[np.ndarray, "3"], float, float]:
    """Mean direction of motion in the axes of the body, weighted by length; path length and longest step."""
    steps = np.diff(centers, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    total = float(lengths.sum())
    if total == 0:
        return np.zeros(3), 0.0, 0.0
    # Halfway between two poses: the chord of an arc points between its two headings.
    R_body_world = (R_world_body[:-1] + R_world_body[1:]).transpose(0, 2, 1) / 2
    return (R_body_world @ steps[:, :, None])[:, :, 0].sum(axis=0) / total, total, float(lengths.max())


def _turning(R_world_body: Float[np.ndarray, "time 3 3"]) -> Float[np.ndarray, "3"]:
    """How much of the turning from pose to pose is about each axis of the body, as shares of the whole."""
    relative = R_world_body[:-1].transpose(0, 2, 1) @ R_world_body[1:]
    # Twice the sine of the angle along the axis of rotation.
    turns = np.stack(
        [relative[:, j, i] - relative[:, i, j] for i, j in ((1, 2), (2, 0), (0, 1))],
        axis=1,
    )
    total = float(np.linalg.norm(turns, axis=1).sum())
    return np.abs(turns).sum(axis=0) / total if total > 1e-6 else np.zeros(3)


def fits_transposed(matrices: Float[np.ndarray, "time 3 4"], found: Sequence[Reading]) -> float | None:
    """The cosine if the rotations alone stand transposed in the file, where only that explains the motion, else None.

    No option reads such a file: its rotations are those of one direction and its positions those of the other.
    """
    turned = np.concatenate([matrices[:, :, :3].transpose(0, 2, 1), matrices[:, :, 3:]], axis=2)
    heading = max(reading.heading for reading in readings(turned))
    fits, better = TRANSPOSED
    return heading if heading >= fits and heading - max(r.heading for r in found) > better else None


def judge(found: Sequence[Reading], asked: Reading, *, moves: bool, rig: bool = False) -> Verdict:
    """What the motion says of the reading ``asked``, one of those ``found``; ``moves`` is whether the cameras do.

    ``rig`` says that the camera is one of several on a body, which look ahead, to the sides and back.
    """
    if not moves:
        return Verdict(
            outcome="silent",
            text="the cameras do not move: nothing tells the direction or the axes of the matrices",
        )
    best = max(reading.heading for reading in found)
    same_order = max(
        reading.heading for reading in found if reading.quaternion_order == asked.quaternion_order
    )
    shorter = _shorter(found, asked)
    if asked.heading >= FITS and shorter:
        return Verdict(
            outcome="disagrees",
            text=f"the cameras move the way they look as read (mean cosine {asked.heading:.2f}) and if read otherwise, but "
            f"along {asked.path_length:.4g} as read and {shorter[0].path_length:.4g} otherwise: the longer path is a swing "
            "about an origin far away, in the wrong direction",
            better=shorter,
        )
    if asked.heading >= FITS and best - asked.heading <= CLEARLY and best - same_order <= ORDER:
        return Verdict(
            outcome="agrees",
            text=f"the cameras move the way they look (mean cosine {asked.heading:.2f}), as read{_also(found, asked)}",
        )
    if rig:
        return Verdict(
            outcome="silent",
            text=f"the camera, one of several, looks away from its motion (mean cosine {rounded(asked.heading)}), as those "
            "at the sides and the back do: nothing tells the direction or the axes of the matrices",
        )
    fitting = [reading for reading in found if reading.heading >= max(best - TIE, FITS)]
    fewest = min((len(reading.changes_from(asked)) for reading in fitting), default=0)
    nearest = [reading for reading in fitting if len(reading.changes_from(asked)) == fewest]
    supported = [reading for reading in nearest if _explains_turns(reading, asked)]
    if not supported or best - asked.heading <= (CLEARLY if best - same_order <= ORDER else ORDER):
        others = [" ".join(reading.changes_from(asked).values()) for reading in nearest]
        return Verdict(
            outcome="silent",
            text=f"the cameras move mostly across their viewing direction (mean cosine {rounded(asked.heading)} as read): a "
            "sideways, orbiting or handheld motion does not tell the direction or the axes of the matrices"
            + (f"; only if they look where they go, the file is {' or '.join(others)}" if others else ""),
        )
    # The direction is confused more often than axes are.
    better = tuple(sorted(supported, key=lambda reading: reading.direction == asked.direction))
    way = (
        "backwards"
        if asked.heading <= -FITS
        else "not quite the way they look"
        if asked.heading >= FITS
        else "mostly across their viewing direction"
    )
    return Verdict(
        outcome="disagrees",
        text=f"as read, the cameras move {way} (mean cosine {rounded(asked.heading)}), which some do; they move forward "
        f"(up to {best:.2f}) if the file is read otherwise",
        better=better,
    )


def _shorter(found: Sequence[Reading], asked: Reading) -> tuple[Reading, ...]:
    """Readings in the other direction that fit the motion along a path much shorter; those nearest to ``asked``."""
    fitting = [
        reading
        for reading in found
        if reading.direction != asked.direction
        and reading.quaternion_order == asked.quaternion_order
        and reading.heading >= FITS
        and reading.path_length < SHORTER * asked.path_length
    ]
    fewest = min((len(reading.changes_from(asked)) for reading in fitting), default=0)
    return tuple(reading for reading in fitting if len(reading.changes_from(asked)) == fewest)


def _also(found: Sequence[Reading], asked: Reading) -> str:
    """Readings in the other direction or quaternion order that the same motion fits as well, for the end of a sentence."""
    as_well = []
    for reading in found:
        changes = reading.changes_from(asked)
        other_direction = changes.keys() >= {"direction"} and "quaternion_order" not in changes
        same_path = abs(reading.path_length - asked.path_length) <= 0.01 * asked.path_length
        if reading.heading >= asked.heading - TIE and (
            (other_direction and same_path) or changes.keys() == {"quaternion_order"}
        ):
            as_well.append(" ".join(changes.values()))
    return f"; so they do as {' or '.join(as_well)}, which this motion does not tell apart" if as_well else ""


def rounded(cosine: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(cosine, 2) + 0.0:.2f}"


def _explains_turns(reading: Reading, asked: Reading) -> bool:
    """Whether turns speak for ``reading`` too, where it looks along another line of the body than ``asked``.

    A camera that moves to its left is like a vehicle whose x points forward. They differ in what they turn about: the camera
    about its y axis, the vehicle about its z axis.
    """
    same_line = bool(_line(reading) == _line(asked)) or reading.quaternion_order != asked.quaternion_order
    return same_line or (reading.upright >= 0.5 and reading.upright > asked.upright)


def _line(reading: Reading) -> int:
    return int(np.abs(R_AXES_OPENCV[reading.camera_axes][:, 2]).argmax())
