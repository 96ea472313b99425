"""What pose matrices must satisfy, and what is said when they do not."""

import torch
from torch import Tensor

from merope.errors import TrajectoryError
from merope.geometry.rotations import project_to_so3


def own_copy(values: Tensor) -> Tensor:
    """A float64 copy on the CPU: what the caller does to the source later does not reach the poses."""
    return torch.as_tensor(values).detach().to("cpu", torch.float64, copy=True)


def read_matrices(name: str, values: Tensor, tolerance: float) -> tuple[Tensor, Tensor, float]:
    """Rotations, offsets and the rotations' error before projection."""
    matrices = own_copy(values)
    if matrices.ndim != 3 or matrices.shape[1:] not in ((3, 4), (4, 4)):
        raise ValueError(f"{name} must have shape [T, 4, 4] or [T, 3, 4]; got {list(matrices.shape)}.")
    if len(matrices) == 0:
        raise ValueError(f"{name} must hold at least one matrix; got none.")
    require_finite(name, matrices)
    if matrices.shape[1] == 4:
        last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
        off = (matrices[:, 3] - last).abs().amax(-1)
        if off.max() > 1e-6:
            index = int(off.argmax())
            raise ValueError(
                f"{name} must end in the row [0, 0, 0, 1]; entry {index} ends in "
                f"{matrices[index, 3].tolist()}. A translation in the last row means the matrices are "
                "transposed: pass T.mT."
            )
    rotations = matrices[:, :3, :3]
    require_rotations(
        rotations,
        tolerance=tolerance,
        remedy=f"Raise tolerance (now {tolerance:g}) if the file is that coarse.",
    )
    error = orthonormality_error(rotations)
    if error > 1e-12:
        rotations = project_to_so3(rotations)
    return rotations, matrices[:, :3, 3], error


def require_finite(name: str, values: Tensor) -> None:
    """Raise unless every number is finite; the first bad entry is named."""
    bad = ~torch.isfinite(values).flatten(1).all(-1) if values.ndim > 1 else ~torch.isfinite(values)
    if bad.any():
        index = int(bad.nonzero()[0, 0])
        raise ValueError(
            f"{name} must be finite; entry {index} holds {values[index].tolist()}. "
            "Drop the frames that were not registered before building Poses."
        )


def orthonormality_error(rotations: Tensor) -> float:
    """Largest entry of R^T R - I."""
    if rotations.numel() == 0:
        return 0.0
    identity = torch.eye(3, dtype=torch.float64)
    return float((rotations.mT @ rotations - identity).abs().max())


def determinant(matrices: Tensor) -> Tensor:
    """Determinants of [*, 3, 3] matrices, as the triple product of their rows.

    torch.det factorises each matrix; with two threads on a busy machine 49 of them took up to 14 ms, and every clip's poses
    are checked several times.
    """
    first, second, third = matrices.unbind(-2)
    return (torch.linalg.cross(first, second) * third).sum(-1)


def require_rotations(rotations: Tensor, *, tolerance: float, remedy: str) -> None:
    """Raise unless every matrix is right-handed and orthonormal to ``tolerance``."""
    require_finite("rotations", rotations)
    identity = torch.eye(3, dtype=torch.float64)
    error = (rotations.mT @ rotations - identity).abs().amax((-1, -2))
    # Finite numbers of 1e200 have no finite square: their error may be NaN, which is larger than nothing.
    wrong = ~(error <= tolerance)
    determinants = determinant(rotations)
    left_handed = determinants < 0
    if left_handed.any():
        index = int(left_handed.nonzero()[0, 0])
        raise ValueError(
            f"rotations must be right-handed; the determinant of entry {index} is "
            f"{float(determinants[index]):.6f}. The source is left-handed: convert the axes of the "
            "world and of the camera, not of one alone."
        )
    if wrong.any():
        index = int(error.argmax())
        raise ValueError(
            f"rotations must be orthonormal to {tolerance:g}; entry {index} is off by "
            f"{float(error[index]):.3g} (largest entry of R^T R - I). {remedy}"
        )


def require_measurable(center_world: Tensor) -> None:
    """Refuse finite coordinates whose distances are not: squares of 1e160 have no number.

    Raises:
        TrajectoryError: if a step from one centre to the next has no finite length, or the whole path.
    """
    lengths = center_world.diff(dim=0).norm(dim=-1)
    if not bool(torch.isfinite(lengths.sum())):
        raise TrajectoryError(
            f"the path has no finite length: coordinates reach {float(center_world.abs().max()):.3g}. The file is damaged, "
            "or not of the format that it was read in."
        )
