"""Metric rotary position embedding for camera-controlled video generation.

Names are imported when first used, so ``import merope`` is quick and pulls in no torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merope.attention.dispatch import camera_attention
    from merope.cameras import (
        CameraModel,
        Equirectangular,
        KannalaBrandt,
        OpenCV,
        Pinhole,
        TokenGrid,
        UnifiedCamera,
    )
    from merope.cameras.rays import ViewRays
    from merope.encodings.cameractrl import CameraCtrl
    from merope.encodings.cape import CaPE
    from merope.encodings.crepe import CRePE
    from merope.encodings.gta import GTA
    from merope.encodings.merope import MeRoPE
    from merope.encodings.native import Native, NoEncoding
    from merope.encodings.prope import PRoPE
    from merope.encodings.raynova import RayNova
    from merope.encodings.rayrope import RayRoPE
    from merope.encodings.recammaster import ReCamMaster
    from merope.encodings.rerope import CarvedMeRoPE, ReRoPE
    from merope.encodings.scale import TranslationScale
    from merope.encodings.scope import SCoPE
    from merope.encodings.ucpe import UCPE
    from merope.encodings.urope import URoPE
    from merope.encodings.viewrope import ViewRope
    from merope.errors import MeropeError
    from merope.generation.pipeline import MeropePipeline
    from merope.geometry.poses import Poses
    from merope.operators import CameraOperator

__version__ = "0.1.0"

_HOMES = {
    "camera_attention": "merope.attention.dispatch",
    "CameraCtrl": "merope.encodings.cameractrl",
    "CameraModel": "merope.cameras",
    "CameraOperator": "merope.operators",
    "CaPE": "merope.encodings.cape",
    "CarvedMeRoPE": "merope.encodings.rerope",
    "CRePE": "merope.encodings.crepe",
    "Equirectangular": "merope.cameras",
    "GTA": "merope.encodings.gta",
    "KannalaBrandt": "merope.cameras",
    "MeRoPE": "merope.encodings.merope",
    "MeropeError": "merope.errors",
    "MeropePipeline": "merope.generation.pipeline",
    "Native": "merope.encodings.native",
    "NoEncoding": "merope.encodings.native",
    "OpenCV": "merope.cameras",
    "Pinhole": "merope.cameras",
    "Poses": "merope.geometry.poses",
    "PRoPE": "merope.encodings.prope",
    "RayNova": "merope.encodings.raynova",
    "RayRoPE": "merope.encodings.rayrope",
    "ReCamMaster": "merope.encodings.recammaster",
    "ReRoPE": "merope.encodings.rerope",
    "SCoPE": "merope.encodings.scope",
    "TokenGrid": "merope.cameras",
    "TranslationScale": "merope.encodings.scale",
    "UCPE": "merope.encodings.ucpe",
    "UnifiedCamera": "merope.cameras",
    "URoPE": "merope.encodings.urope",
    "ViewRays": "merope.cameras.rays",
    "ViewRope": "merope.encodings.viewrope",
}

__all__ = [
    "__version__",
    "camera_attention",
    "CameraCtrl",
    "CameraModel",
    "CameraOperator",
    "CaPE",
    "CarvedMeRoPE",
    "CRePE",
    "Equirectangular",
    "GTA",
    "KannalaBrandt",
    "MeRoPE",
    "MeropeError",
    "MeropePipeline",
    "Native",
    "NoEncoding",
    "OpenCV",
    "Pinhole",
    "Poses",
    "PRoPE",
    "RayNova",
    "RayRoPE",
    "ReCamMaster",
    "ReRoPE",
    "SCoPE",
    "TokenGrid",
    "TranslationScale",
    "UCPE",
    "UnifiedCamera",
    "URoPE",
    "ViewRays",
    "ViewRope",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'merope' has no attribute '{name}'; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
