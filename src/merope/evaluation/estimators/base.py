"""What recovers camera poses from frames: the protocol every estimator follows, and what it hands back."""

import dataclasses
import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import MeropeError
from merope.geometry.poses import Poses

Scale = Literal["metric", "up_to_scale"]


class RecoveryFailed(MeropeError):
    """No trajectory could be recovered from the frames; the message says how far it got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A recovered trajectory: one pose per frame, and which of them were really observed.

    ``registered`` is False where an estimator found no pose; ``poses`` holds filled-in values there and
    ``fill`` says by which rule. ``scale`` says whether centres are metres or right up to one factor.
    ``notes`` are for the reader of a report.
    """

    poses: Poses
    registered: Bool[Tensor, "time"]
    scale: Scale
    fill: str = "none needed"
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.registered.shape != (len(self.poses),):
            raise ValueError(
                f"registered must have one entry per pose, [{len(self.poses)}]; got {list(self.registered.shape)}."
            )
        if not bool(self.registered.any()):
            raise ValueError("registered must be True for at least one frame; raise RecoveryFailed instead.")

    @classmethod
    def complete(cls, poses: Poses, *, scale: Scale = "metric", notes: tuple[str, ...] = ()) -> "Recovered":
        """A trajectory whose every frame was observed."""
        return cls(poses=poses, registered=torch.ones(len(poses), dtype=torch.bool), scale=scale, notes=notes)


@runtime_checkable
class PoseEstimator(Protocol):
    """Frames and lens in, trajectory out. An estimator never sees the command.

    Raises `RecoveryFailed` where the frames do not hold enough to recover a trajectory.

    ``identity`` is everything beside frames, lens and frame rate that the answer depends on, in JSON types: name,
    options, versions of packages, sha256 of weights. Poses recovered earlier are used again while it stays the same.
    """

    name: str

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, in OpenCV axes, in any world frame."""
        ...

    def identity(self) -> dict[str, Any]:
        """What the answer depends on beside the arguments of `estimate`; see `identity_of`."""
        ...


def identity_of(
    name: str,
    options: Mapping[str, Any],
    *,
    packages: Sequence[str] = (),
    weights: Path | None = None,
    weights_sha256: str | None = None,
) -> dict[str, Any]:
    """An estimator's identity in JSON types: name, options, versions of this library and of ``packages``, hash of weights.

    A package that is not installed has the version None. Arrays among the options are given by their sha256.
    """
    versions = {package: _version(package) for package in ("merope", *packages)}
    if weights is not None:
        weights_sha256 = sha256_of_path(weights)
    return {
        "name": name,
        "options": {key: _plain(value) for key, value in sorted(options.items())},
        "versions": versions,
        "weights_sha256": weights_sha256,
    }


def sha256_of_path(path: Path) -> str:
    """The sha256 of a file's bytes, or of the names and bytes of all files in a folder, in order of their names."""
    if not path.exists():
        raise ValueError(
            f"what an estimator reads must be there to be known by its bytes; there is nothing at {path}."
        )
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()}\0{sha256_of_path(file)}\0".encode())
        return digest.hexdigest()
    with path.open("rb") as stream:
        while block := stream.read(2**22):
            digest.update(block)
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    """``value`` in JSON types."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        head = f"{value.dtype.str} {list(value.shape)} ".encode()
        return {"sha256": hashlib.sha256(head + np.ascontiguousarray(value).tobytes()).hexdigest()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [_plain(entry) for entry in value]
    raise TypeError(
        f"an estimator's identity holds JSON types, arrays and dataclasses, got {type(value).__name__}."
    )


def fill_unregistered(poses: Poses, frame_ids: list[int], num_frames: int) -> Poses:
    """One pose for each of ``num_frames`` frames from poses at ``frame_ids``.

    Between registered frames centres go linearly and rotations along the shorter way at constant speed;
    before the first and after the last the nearest pose is held.

    Raises:
        ValueError: if the frame numbers do not increase, or leave the clip.
    """
    if frame_ids != sorted({*frame_ids} & {*range(num_frames)}):
        raise ValueError(f"frame_ids must increase within [0, {num_frames}), got {frame_ids[:10]}.")
    first, last = frame_ids[0], frame_ids[-1]
    between = poses
    if first != last:
        ids = torch.tensor(frame_ids, dtype=torch.float64)
        timed = Poses(
            R_world_cam=poses.R_world_cam, center_world=poses.center_world, times=ids, unit=poses.unit
        )
        between = timed.interpolate(torch.arange(first, last + 1, dtype=torch.float64))
    rows = torch.arange(num_frames).clamp(first, last) - first
    return Poses(
        R_world_cam=between.R_world_cam[rows], center_world=between.center_world[rows], unit=poses.unit
    )
