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
    from merope.encodings.merope import MeRoPE
    from merope.errors import MeropeError
    from merope.geometry.poses import Poses
    from merope.operators import CameraOperator

__version__ = "0.1.0"

_HOMES = {
    "CameraModel": "merope.cameras",
    "CameraOperator": "merope.operators",
    "Equirectangular": "merope.cameras",
    "KannalaBrandt": "merope.cameras",
    "MeRoPE": "merope.encodings.merope",
    "MeropeError": "merope.errors",
    "OpenCV": "merope.cameras",
    "Pinhole": "merope.cameras",
    "Poses": "merope.geometry.poses",
    "TokenGrid": "merope.cameras",
    "UnifiedCamera": "merope.cameras",
    "ViewRays": "merope.cameras.rays",
    "camera_attention": "merope.attention.dispatch",
}

__all__ = [
    "CameraModel",
    "CameraOperator",
    "Equirectangular",
    "KannalaBrandt",
    "MeRoPE",
    "MeropeError",
    "OpenCV",
    "Pinhole",
    "Poses",
    "TokenGrid",
    "UnifiedCamera",
    "ViewRays",
    "__version__",
    "camera_attention",
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
