"""Lens models, the token grid and the poses of latent frames."""

from merope.cameras.base import CameraModel
from merope.cameras.latent_poses import latent_pose_index, latent_poses
from merope.cameras.pinhole import Pinhole
from merope.cameras.tokens import TokenGrid

__all__ = ["CameraModel", "Pinhole", "TokenGrid", "latent_pose_index", "latent_poses"]
