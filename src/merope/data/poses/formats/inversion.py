"""World-to-camera transforms and back, to the last digit of a centre.

At 6.4e6 m from the origin neighbouring float64 numbers are 0.9 nm apart, and a product with a rotation that is orthonormal
to rounding alone is off by several of them. So both ways are computed in extended precision, and the way out undoes exactly
what the way in will do.
"""

import numpy as np
from jaxtyping import Float


def inverse_offsets(
    R_a_b: Float[np.ndarray, "time 3 3"], offset_a: Float[np.ndarray, "time 3"]
) -> Float[np.ndarray, "time 3"]:
    """The offsets -R^T t of inverse transforms: camera centres, for world-to-camera ones."""
    return np.asarray(-_turned(_extended(R_a_b.transpose(0, 2, 1)), _extended(offset_a)), dtype=np.float64)


def offsets_of_centers(
    R_cam_world: Float[np.ndarray, "time 3 3"], center_world: Float[np.ndarray, "time 3"]
) -> Float[np.ndarray, "time 3"]:
    """The offsets t for which `inverse_offsets` gives these centres back, with the rotations as a reader will have them."""
    rotations, centers = _extended(R_cam_world), _extended(center_world)
    offsets = -_turned(rotations, centers)
    offsets = offsets - _turned(rotations, centers + _turned(rotations.transpose(0, 2, 1), offsets))
    return np.asarray(offsets, dtype=np.float64)


def _extended(values: np.ndarray) -> np.ndarray:
    return values.astype(np.longdouble)


def _turned(rotations: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.asarray((rotations @ vectors[:, :, None])[:, :, 0])
