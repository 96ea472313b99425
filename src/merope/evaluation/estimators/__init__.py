"""Pose estimators: frames and a lens in, a trajectory out (`merope.evaluation.PoseEstimator`).

``ColmapEstimator`` recovers any textured clip up to scale, ``NetworkEstimator`` small street clips in metres and
``ResampledNetworkEstimator`` those of another lens; ``PoseFileEstimator`` hands back what another program recovered.
``ESTIMATORS`` has all that go by a name, those of other packages included; ``build_estimator`` makes one. Names are
imported when first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merope.evaluation.estimators.colmap import ColmapEstimator
    from merope.evaluation.estimators.files import PoseFileEstimator
    from merope.evaluation.estimators.network import NetworkEstimator
    from merope.evaluation.estimators.registry import ESTIMATORS, EstimatorEntry, build_estimator
    from merope.evaluation.estimators.resampled import ResampledNetworkEstimator

_HOMES = {
    "ESTIMATORS": "merope.evaluation.estimators.registry",
    "ColmapEstimator": "merope.evaluation.estimators.colmap",
    "EstimatorEntry": "merope.evaluation.estimators.registry",
    "NetworkEstimator": "merope.evaluation.estimators.network",
    "PoseFileEstimator": "merope.evaluation.estimators.files",
    "ResampledNetworkEstimator": "merope.evaluation.estimators.resampled",
    "build_estimator": "merope.evaluation.estimators.registry",
}

__all__ = [
    "ESTIMATORS",
    "ColmapEstimator",
    "EstimatorEntry",
    "NetworkEstimator",
    "PoseFileEstimator",
    "ResampledNetworkEstimator",
    "build_estimator",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
