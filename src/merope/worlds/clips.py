"""The three drives of a world that are rendered as clips, and what a caption can truly say of them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from merope.geometry.poses import Poses
from merope.geometry.turns import turn_variant
from merope.worlds.drives import random_drive, random_drive_kind
from merope.worlds.layout import BARK, CAR_BODY
from merope.worlds.world import World

Variant = Literal["original", "left", "right"]

# Metres around the cameras in which things are near enough to be seen.
_NEAR = 30.0
_MANY_TREES, _SOME_CARS = 8, 3
_LOW_SUN, _HIGH_SUN = np.radians(38.0), np.radians(55.0)
# Range of haze in metres below which the far end of a street pales.
_HAZY = 280.0
# Metres of path below which a car stands; metres a second.
_STANDING, _SLOW, _FAST = 0.5, 4.0, 12.0
_BEND, _TURN = np.radians(10.0), np.radians(35.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldDrive:
    """One path through a world."""

    variant: Variant
    """The drive itself, or its variant to one side."""
    kind: str
    """The manoeuvre of the drive, one of `DRIVES`."""
    poses: Poses

    @property
    def motion(self) -> str:
        """The kind of motion, what clips are balanced over: "curve", or "curve-left" for its left variant."""
        return self.kind if self.variant == "original" else f"{self.kind}-{self.variant}"


def world_drives(seed: int, *, num_frames: int, fps: float, turn_start: int) -> list[WorldDrive]:
    """A random drive, then its left and its right variant with curvatures from the seed.

    All three share frames 0 to ``turn_start``, so they belong into one world: ``build_world(seed, paths=...)``.

    Raises:
        ValueError: as `random_drive` and `turn_variant`.
    """
    base = random_drive(seed, num_frames, fps)
    kind = random_drive_kind(seed)
    curvatures = np.random.default_rng([seed, 0x7A12]).uniform(0.015, 0.06, size=2)
    drives = [WorldDrive(variant="original", kind=kind, poses=base)]
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    for side, curvature in zip(sides, curvatures, strict=True):
        turned = turn_variant(
            base, side=side, start=turn_start, up_world=(0, 0, 1), curvature=float(curvature), fps=fps
        )
        drives.append(WorldDrive(variant=side, kind=kind, poses=turned))
    return drives


def caption(world: World, poses: Poses) -> str:
    """What the camera sees and does, read off the world and the path: lanes, trees, parked cars, sun, haze, motion.

    Raises:
        ValueError: if the poses carry no times.
    """
    street = "a tree-lined street" if _near(world, poses, BARK) >= _MANY_TREES else "a street"
    lanes = {1: "one lane", 2: "two lanes"}[world.ground.num_lanes]
    cars = " and parked cars" if _near(world, poses, CAR_BODY) >= _SOME_CARS else ""
    elevation = np.arcsin(world.light.sun[2])
    sun = "low sun" if elevation < _LOW_SUN else "high sun" if elevation > _HIGH_SUN else "daylight"
    haze = " and haze" if world.light.haze_range < _HAZY else ""
    return f"View from a car that {_motion(poses)} on {street} with {lanes} each way{cars}, in {sun}{haze}."


def _near(world: World, poses: Poses, material: int) -> int:
    """Things of a material near any camera, in plan."""
    chosen = world.solids.geometry[world.solids.material == material, :2]
    cameras = poses.center_world[:, :2].numpy()
    distance = np.linalg.norm(chosen[:, None] - cameras[None], axis=2)
    return int((distance.min(axis=1, initial=np.inf) < _NEAR).sum())


def _motion(poses: Poses) -> str:
    if poses.times is None:
        raise ValueError("caption needs poses with times, which tell the speed. Construct with times=.")
    if poses.path_length < _STANDING:
        return "stands still"
    speed = poses.path_length / float(poses.times[-1] - poses.times[0])
    pace = " slowly" if speed < _SLOW else " fast" if speed > _FAST else ""
    forward_world = poses.R_world_cam[:, :2, 2].numpy()
    heading = np.unwrap(np.arctan2(forward_world[:, 1], forward_world[:, 0]))
    turned = float(heading[-1] - heading[0])
    side = "left" if turned > 0 else "right"
    if abs(turned) > _TURN:
        return f"turns{pace} to the {side}"
    if abs(turned) > _BEND:
        return f"bears{pace} to the {side}"
    if np.abs(heading - heading[0]).max() > _BEND:
        return f"drives{pace} through bends"
    return f"drives{pace} straight ahead"
