"""`Poses`: where each camera of a sequence is and how it is turned, in float64."""

from collections.abc import Sequence
from operator import index as as_integer
from typing import Any, Literal, Self, SupportsIndex, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from merope.geometry.pacing import MAX_FRAMES, moments
from merope.geometry.pose_checks import (
    orthonormality_error,
    own_copy,
    read_matrices,
    require_finite,
    require_rotations,
)
from merope.geometry.rotations import project_to_so3, slerp

Unit = Literal["m", "normalized", "unknown"]


class Poses:
    """A sequence of camera poses: rotations ``R_world_cam`` and centres ``center_world``.

    ``R_world_cam`` maps camera coordinates into the world, ``center_world`` is the optical centre there;
    together they are the camera-to-world transform (R_t, o_t of the paper). Camera axes are OpenCV's:
    x right, y down, z forward. Everything is float64 on the CPU, whatever comes in: map coordinates of
    millions of metres lose centimetres in float32.

    Construct with keywords; rotations must be orthonormal to 1e-9. Matrices read from a file go through
    `from_matrices`, which accepts the file's own rounding, projects to SO(3) and reports how far off the
    file was in `projection_error`.

    Raises:
        ValueError: if a value is not finite, shapes disagree, or a matrix is not a rotation.
    """

    __slots__ = ("R_world_cam", "center_world", "projection_error", "times", "unit")

    R_world_cam: Tensor
    """Rotations from camera to world coordinates, [T, 3, 3] float64."""
    center_world: Tensor
    """Optical centres in world coordinates, [T, 3] float64, in `unit`."""
    times: Tensor | None
    """Capture times in seconds, [T] float64, strictly increasing; None where unknown."""
    unit: Unit
    """"m" for metres; "normalized" for a per-clip or per-data-set scale; "unknown"."""
    projection_error: float
    """Largest entry of R^T R - I in what was read, before projection to SO(3)."""

    def __init__(
        self,
        *,
        R_world_cam: Tensor,
        center_world: Tensor,
        times: Tensor | None = None,
        unit: Unit = "m",
        projection_error: float = 0.0,
    ) -> None:
        rotations = own_copy(R_world_cam)
        centers = own_copy(center_world)
        if rotations.ndim != 3 or rotations.shape[1:] != (3, 3):
            raise ValueError(f"R_world_cam must have shape [T, 3, 3]; got {list(rotations.shape)}.")
        if centers.shape != (rotations.shape[0], 3):
            raise ValueError(
                f"center_world must have shape [{rotations.shape[0]}, 3] to match R_world_cam; "
                f"got {list(centers.shape)}."
            )
        if len(rotations) == 0:
            raise ValueError("Poses needs at least one camera; got none.")
        require_rotations(rotations, tolerance=1e-9, remedy="Use Poses.from_matrices for rounded input.")
        require_finite("center_world", centers)
        if unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {get_args(Unit)}; got {unit!r}.")
        if times is not None:
            times = own_copy(times)
            if times.shape != (len(rotations),):
                raise ValueError(f"times must have shape [{len(rotations)}]; got {list(times.shape)}.")
            require_finite("times", times)
            if (times.diff() <= 0).any():
                index = int((times.diff() <= 0).nonzero()[0, 0])
                raise ValueError(
                    f"times must increase; times[{index + 1}] = {times[index + 1]:.6f} s follows "
                    f"{times[index]:.6f} s. Sort the poses by time, or drop the repeated stamp."
                )
        for name, value in (
            ("R_world_cam", rotations),
            ("center_world", centers),
            ("times", times),
            ("unit", unit),
            ("projection_error", float(projection_error)),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Poses cannot be changed; make new ones instead of setting {name!r}.")

    def __reduce__(self) -> tuple[Any, ...]:
        # Data workers send poses between processes; the default would set the slots one by one.
        values = (self.R_world_cam, self.center_world, self.times, self.unit, self.projection_error)
        return _rebuilt, (type(self), *values)

    @classmethod
    def from_matrices(
        cls,
        T_world_cam: Float[Tensor, "time rows 4"],
        *,
        times: Tensor | None = None,
        unit: Unit = "m",
        tolerance: float = 1e-3,
    ) -> Self:
        """Poses from camera-to-world matrices, [T, 4, 4] or [T, 3, 4], with the file's own rounding.

        Rotations further than 1e-12 from orthonormal are projected to the nearest rotation, and the
        largest entry of R^T R - I is kept in `projection_error`. Beyond ``tolerance`` they are refused:
        such a matrix holds a scale, a shear, or another convention.

        Raises:
            ValueError: if a matrix is not finite, is left-handed, or is off by more than ``tolerance``.
        """
        rotations, offsets, error = read_matrices("T_world_cam", T_world_cam, tolerance)
        return cls(
            R_world_cam=rotations, center_world=offsets, times=times, unit=unit, projection_error=error
        )

    @classmethod
    def from_world_to_camera(
        cls,
        T_cam_world: Float[Tensor, "time rows 4"],
        *,
        times: Tensor | None = None,
        unit: Unit = "m",
        tolerance: float = 1e-3,
    ) -> Self:
        """Poses from world-to-camera matrices ("extrinsics"), inverted in closed form: (R^T, -R^T t)."""
        R_cam_world, offsets, error = read_matrices("T_cam_world", T_cam_world, tolerance)
        R_world_cam = R_cam_world.mT
        return cls(
            R_world_cam=R_world_cam,
            center_world=-(R_world_cam @ offsets[..., None]).squeeze(-1),
            times=times,
            unit=unit,
            projection_error=error,
        )

    def __len__(self) -> int:
        return self.R_world_cam.shape[0]

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Self:
        """The chosen cameras as new Poses; a single index gives a sequence of one."""
        if isinstance(index, slice):
            index = list(range(len(self))[index])
        elif not hasattr(index, "__len__") or getattr(index, "ndim", 1) == 0:
            place = as_integer(cast(SupportsIndex, index))
            if not -len(self) <= place < len(self):
                raise IndexError(f"index {place} is outside a sequence of {len(self)} poses.")
            index = [place]
        chosen = torch.as_tensor(index, device="cpu")
        if chosen.numel() == 0:
            chosen = chosen.long()
        times = None if self.times is None else self.times[chosen]
        return self._replace(self.R_world_cam[chosen], self.center_world[chosen], times)

    def __repr__(self) -> str:
        return f"Poses({len(self)} cameras, path {self.path_length:.3f} {self.unit})"

    @property
    def T_world_cam(self) -> Float[Tensor, "time 4 4"]:
        """Camera-to-world matrices."""
        return _matrices(self.R_world_cam, self.center_world)

    @property
    def T_cam_world(self) -> Float[Tensor, "time 4 4"]:
        """World-to-camera matrices, the closed-form inverse."""
        R_cam_world = self.R_world_cam.mT
        return _matrices(R_cam_world, -(R_cam_world @ self.center_world[..., None]).squeeze(-1))

    @property
    def step_lengths(self) -> Float[Tensor, "steps"]:
        """Distances between neighbouring centres, in `unit`."""
        return self.center_world.diff(dim=0).norm(dim=-1)

    @property
    def path_length(self) -> float:
        """Sum of the step lengths, in `unit`."""
        return float(self.step_lengths.sum())

    def relative(self, query: int, key: int) -> tuple[Float[Tensor, "3 3"], Float[Tensor, "3"]]:
        """R_query_key and the key's centre in the query's frame: the two parts of T_i^-1 T_j (Eq. 2)."""
        R_query_world = self.R_world_cam[query].mT
        offset = self.center_world[key] - self.center_world[query]
        return R_query_world @ self.R_world_cam[key], R_query_world @ offset

    def rebase_to_first(self) -> Self:
        """The same motion seen from the first camera: T_1^-1 T_t (Eq. 35)."""
        R_first_world = self.R_world_cam[0].mT
        offsets = self.center_world - self.center_world[0]
        return self._replace(R_first_world @ self.R_world_cam, offsets @ R_first_world.mT, self.times)

    def transformed(self, R_new_world: Float[Tensor, "3 3"], offset_new: Float[Tensor, "3"]) -> Self:
        """The same cameras in other world coordinates: x_new = R_new_world x_world + offset_new.

        Raises:
            ValueError: if ``R_new_world`` is not a rotation; a change of scale goes through `scaled`.
        """
        R_new_world = _mended_rotation(R_new_world, remedy="Use Poses.scaled for a change of scale.")
        centers_new = self.center_world @ R_new_world.mT + own_copy(offset_new)
        return self._replace(R_new_world @ self.R_world_cam, centers_new, self.times)

    def mounted(self, R_body_cam: Float[Tensor, "3 3"], center_body: Float[Tensor, "3"]) -> Self:
        """Cameras fixed to these bodies: T_world_body T_body_cam, with the camera's centre and rotation in body axes.

        With these poses' rotations in OpenCV axes, as all `Poses` are, so are the body's.

        Raises:
            ValueError: if ``R_body_cam`` is not a rotation.
        """
        R_body_cam = _mended_rotation(R_body_cam, remedy="Pass the rotation from camera to body.")
        offset_world = self.R_world_cam @ own_copy(center_body)
        return self._replace(self.R_world_cam @ R_body_cam, self.center_world + offset_world, self.times)

    def with_times(self, times: Float[Tensor, "time"]) -> Self:
        """The same cameras at these capture times, seconds.

        Raises:
            ValueError: if there is not one time for each camera, or they do not increase.
        """
        return self._replace(self.R_world_cam, self.center_world, times)

    def scaled(self, factor: float) -> Self:
        """Centres multiplied by ``factor`` about the world origin; rotations and unit stay."""
        return self._replace(self.R_world_cam, self.center_world * factor, self.times)

    def interpolate(self, times: Float[Tensor, "out"]) -> Self:
        """Poses at other times: centres linearly, rotations along the shorter way at constant speed.

        Raises:
            ValueError: if these poses carry no times, or a wanted time lies outside them.
        """
        if self.times is None:
            raise ValueError("interpolate needs poses with times; these have none. Construct with times=.")
        wanted = torch.as_tensor(times).to("cpu", torch.float64)
        first, last = float(self.times[0]), float(self.times[-1])
        if (wanted < first).any() or (wanted > last).any():
            raise ValueError(
                f"times must lie within [{first:.6f}, {last:.6f}] s; got "
                f"[{float(wanted.min()):.6f}, {float(wanted.max()):.6f}] s. Poses are never extrapolated."
            )
        if len(self) == 1:
            return self._replace(
                self.R_world_cam.expand(len(wanted), 3, 3), self.center_world.expand(len(wanted), 3), wanted
            )
        after = torch.searchsorted(self.times, wanted, right=True).clamp(1, len(self) - 1)
        before = after - 1
        fraction = (wanted - self.times[before]) / (self.times[after] - self.times[before])
        rotations = slerp(self.R_world_cam[before], self.R_world_cam[after], fraction)
        centers = torch.lerp(self.center_world[before], self.center_world[after], fraction[:, None])
        return self._replace(rotations, centers, wanted)

    def resample(self, num: int) -> Self:
        """``num`` poses at equal times from the first to the last; frame numbers stand in for times."""
        if not 1 <= num <= MAX_FRAMES:
            raise ValueError(f"num must be at least 1 and at most {MAX_FRAMES}; got {num}.")
        clock = self.times
        if clock is None:
            clock = torch.arange(len(self), dtype=torch.float64)
        if len(self) == 1 and num > 1:
            raise ValueError(f"resample cannot make {num} poses of one: there is no motion between them.")
        timed = self._replace(self.R_world_cam, self.center_world, clock)
        wanted = torch.linspace(float(clock[0]), float(clock[-1]), num, dtype=torch.float64)
        out = timed.interpolate(wanted)
        return out if self.times is not None else out._replace(out.R_world_cam, out.center_world, None)

    def at_rate(self, fps: float) -> Self:
        """Poses every 1 / ``fps`` s from the first to the last, interpolated as by `interpolate`.

        Raises:
            ValueError: if these poses carry no times, or ``fps`` is not positive.
        """
        if self.times is None:
            raise ValueError(
                "at_rate needs poses with times; these have none. Give them with Poses.with_times."
            )
        return self.interpolate(moments(self.times, fps))

    def _replace(self, rotations: Tensor, centers: Tensor, times: Tensor | None) -> Self:
        if orthonormality_error(rotations) > 1e-12:
            rotations = project_to_so3(rotations)
        return type(self)(
            R_world_cam=rotations,
            center_world=centers,
            times=times,
            unit=self.unit,
            projection_error=self.projection_error,
        )


def _rebuilt(
    kind: type[Poses],
    rotations: Tensor,
    centers: Tensor,
    times: Tensor | None,
    unit: Unit,
    projection_error: float,
) -> Poses:
    return kind(
        R_world_cam=rotations, center_world=centers, times=times, unit=unit, projection_error=projection_error
    )


def _matrices(rotations: Tensor, centers: Tensor) -> Tensor:
    matrices = torch.zeros(len(rotations), 4, 4, dtype=torch.float64)
    matrices[:, :3, :3] = rotations
    matrices[:, :3, 3] = centers
    matrices[:, 3, 3] = 1
    return matrices


def _mended_rotation(rotation: Float[Tensor, "3 3"], *, remedy: str) -> Float[Tensor, "3 3"]:
    """A rotation of the caller's in float64, its rounding mended."""
    rotation = own_copy(rotation)
    require_rotations(rotation[None], tolerance=1e-6, remedy=remedy)
    return project_to_so3(rotation) if orthonormality_error(rotation[None]) > 1e-12 else rotation
