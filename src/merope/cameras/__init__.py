"""Lens models, the token grid, the rays of views, and the poses of latent frames."""

from merope.cameras.base import CameraModel
from merope.cameras.double_sphere import DoubleSphere
from merope.cameras.equirectangular import Equirectangular
from merope.cameras.extended_unified import ExtendedUnified
from merope.cameras.f_theta import FTheta
from merope.cameras.fisheye624 import Fisheye624
from merope.cameras.kannala_brandt import KannalaBrandt
from merope.cameras.latent_poses import latent_pose_index, latent_poses
from merope.cameras.mei import Mei
from merope.cameras.ocam import OCam
from merope.cameras.opencv import OpenCV
from merope.cameras.pinhole import Pinhole
from merope.cameras.radial_polynomial import RadialPolynomial
from merope.cameras.rays import ViewRays
from merope.cameras.tokens import TokenGrid
from merope.cameras.unified import UnifiedCamera

__all__ = [
    "CameraModel",
    "DoubleSphere",
    "Equirectangular",
    "ExtendedUnified",
    "FTheta",
    "Fisheye624",
    "KannalaBrandt",
    "Mei",
    "OCam",
    "OpenCV",
    "Pinhole",
    "RadialPolynomial",
    "TokenGrid",
    "UnifiedCamera",
    "ViewRays",
    "latent_pose_index",
    "latent_poses",
]
