"""Lens models, the token grid, the rays of views, and the poses of latent frames."""

from merope.cameras.base import CameraModel
from merope.cameras.equirectangular import Equirectangular
from merope.cameras.kannala_brandt import KannalaBrandt
from merope.cameras.latent_poses import latent_pose_index, latent_poses
from merope.cameras.opencv import OpenCV
from merope.cameras.pinhole import Pinhole
from merope.cameras.rays import ViewRays
from merope.cameras.tokens import TokenGrid
from merope.cameras.unified import UnifiedCamera

__all__ = [
    "CameraModel",
    "Equirectangular",
    "KannalaBrandt",
    "OpenCV",
    "Pinhole",
    "TokenGrid",
    "UnifiedCamera",
    "ViewRays",
    "latent_pose_index",
    "latent_poses",
]
