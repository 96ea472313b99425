"""Pose estimators: frames and a lens in, a trajectory out (`merope.evaluation.PoseEstimator`).

Without a download: ``ColmapEstimator`` and ``XFeatEstimator`` recover any textured clip up to scale, ``NetworkEstimator``
small street clips in metres and ``ResampledNetworkEstimator`` those of another lens. With weights by path:
``VGGTEstimator``, ``VGGTOmegaEstimator`` and ``DepthAnything3Estimator``. ``PoseFileEstimator`` hands back what another
program recovered. ``ESTIMATORS`` has all that go by a name and ``build_estimator`` makes one.
Names are imported when first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merope.evaluation.estimators.colmap.estimator import ColmapEstimator
    from merope.evaluation.estimators.features.xfeat import XFeatEstimator
    from merope.evaluation.estimators.files import PoseFileEstimator
    from merope.evaluation.estimators.learned.depth_anything_3 import DepthAnything3Estimator
    from merope.evaluation.estimators.learned.vggt import VGGTEstimator
    from merope.evaluation.estimators.learned.vggt_omega import VGGTOmegaEstimator
    from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
    from merope.evaluation.estimators.motion_network.resampled import ResampledNetworkEstimator
    from merope.evaluation.estimators.registry import ESTIMATORS, EstimatorEntry, build_estimator

_HOMES = {
    "ESTIMATORS": "registry",
    "ColmapEstimator": "colmap.estimator",
    "DepthAnything3Estimator": "learned.depth_anything_3",
    "EstimatorEntry": "registry",
    "NetworkEstimator": "motion_network.estimator",
    "PoseFileEstimator": "files",
    "ResampledNetworkEstimator": "motion_network.resampled",
    "VGGTEstimator": "learned.vggt",
    "VGGTOmegaEstimator": "learned.vggt_omega",
    "XFeatEstimator": "features.xfeat",
    "build_estimator": "registry",
}

__all__ = [
    "ESTIMATORS",
    "ColmapEstimator",
    "DepthAnything3Estimator",
    "EstimatorEntry",
    "NetworkEstimator",
    "PoseFileEstimator",
    "ResampledNetworkEstimator",
    "VGGTEstimator",
    "VGGTOmegaEstimator",
    "XFeatEstimator",
    "build_estimator",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
