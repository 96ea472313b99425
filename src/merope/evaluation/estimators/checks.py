"""What estimators ask of their arguments alike: frames, options, a device. Each says what came and the way out."""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch

from merope.cameras import CameraModel
from merope.evaluation.estimators.base import RecoveryFailed

# Seeds go to libraries that hold them in 32 bits with a sign.
_SEEDS = 2**31


def check_frames(frames: Any, camera: CameraModel) -> None:
    """Raises unless these are frames of one lens, and two at least.

    Raises:
        ValueError: if frames are not bytes [T, height, width, 3] of the lens's size, or the lens differs by view.
        RecoveryFailed: if there are fewer than two.
    """
    shape = list(getattr(frames, "shape", ()))
    kind = getattr(frames, "dtype", type(frames).__name__)
    if not isinstance(frames, np.ndarray) or kind != np.uint8 or len(shape) != 4 or shape[3] != 3:
        raise ValueError(
            f"frames must be a numpy array of bytes (uint8) [time, height, width, 3], got {kind} of shape {shape}. "
            "Repeat a grey channel three times; scale values in [0, 1] by 255."
        )
    if shape[1:3] != [camera.height, camera.width]:
        raise ValueError(
            f"frames must have the camera's size, {camera.height} x {camera.width} (height x width), got "
            f"{shape[1]} x {shape[2]}. Resize the camera with camera.resize(height=, width=)."
        )
    if camera.view_shape != ():
        raise ValueError(
            f"camera must be one lens for all frames; it has views {list(camera.view_shape)}. Pass that of one view."
        )
    if len(frames) < 2:
        raise RecoveryFailed(f"{len(frames)} frames hold no motion; give at least two.")


def check_options(estimator: Any, **least: float) -> None:
    """Raises ValueError unless the options of a dataclass can be.

    A field of several words holds one of them, ``min_registered`` is a share, ``seed`` fits 31 bits, and each field
    in ``least`` is finite and not below its bound; None passes.
    """
    for name, hint in get_type_hints(type(estimator)).items():
        value = getattr(estimator, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            words = " or ".join(repr(word) for word in get_args(hint))
            raise ValueError(f"{name} must be {words}, got {value!r}.")
    present = {field.name for field in dataclasses.fields(estimator)}
    if "min_registered" in present and not 0 < estimator.min_registered <= 1:
        raise ValueError(f"min_registered must lie in (0, 1], got {estimator.min_registered}.")
    if "seed" in present and not 0 <= estimator.seed < _SEEDS:
        raise ValueError(f"seed must lie in [0, {_SEEDS}), got {estimator.seed}.")
    for name, bound in least.items():
        value = getattr(estimator, name)
        if value is not None and not (math.isfinite(value) and value >= bound):
            raise ValueError(f"{name} must be at least {bound:g}, got {value}.")


def check_device(device: str) -> None:
    """Raises ValueError unless torch knows this device and it is there."""
    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device must be one that torch knows, such as cpu or cuda, got {device!r}."
        ) from error
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not there: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs. Use 'cpu', "
            "or install a build of torch for your GPU."
        )
