"""Procedural metric street worlds, a ray caster for any lens, and trajectories to drive through them."""

from merope.worlds.drives import DRIVES, drive, random_drive
from merope.worlds.motions import MOTIONS, free_motion
from merope.worlds.placement import place_on_ground
from merope.worlds.render import Rendered, render
from merope.worlds.world import World, build_world

__all__ = [
    "DRIVES",
    "MOTIONS",
    "Rendered",
    "World",
    "build_world",
    "drive",
    "free_motion",
    "place_on_ground",
    "random_drive",
    "render",
]
