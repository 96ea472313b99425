"""Camera encodings: one paper, one file, one frozen dataclass."""

from merope.encodings.base import CameraEncoding, Claims
from merope.encodings.cameractrl import CameraCtrl
from merope.encodings.cape import CaPE
from merope.encodings.crepe import CRePE
from merope.encodings.gta import GTA
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.merope import HeadLayout, MeRoPE
from merope.encodings.native import Native, NoEncoding
from merope.encodings.prope import PRoPE
from merope.encodings.raynova import RayNova
from merope.encodings.rayrope import RayRoPE
from merope.encodings.recammaster import ReCamMaster
from merope.encodings.registry import encoding_from_config, encoding_to_config
from merope.encodings.rerope import CarvedMeRoPE, ReRoPE
from merope.encodings.scope import SCoPE
from merope.encodings.ucpe import UCPE
from merope.encodings.urope import URoPE
from merope.encodings.viewrope import ViewRope

__all__ = [
    "CameraCtrl",
    "CameraEncoding",
    "CaPE",
    "CarvedMeRoPE",
    "Claims",
    "CRePE",
    "GTA",
    "HeadLayout",
    "LatitudeUpMap",
    "MeRoPE",
    "Native",
    "NoEncoding",
    "PRoPE",
    "RayNova",
    "RayRoPE",
    "ReCamMaster",
    "ReRoPE",
    "SCoPE",
    "UCPE",
    "URoPE",
    "ViewRope",
    "encoding_from_config",
    "encoding_to_config",
]
