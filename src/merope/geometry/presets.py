"""Camera moves by name: what vehicles do (straight, arc, lane change, U-turn) and what film cameras do.

The world is that of the first camera in OpenCV axes: x right, y down, z forward, the first camera at the origin looking
along +z, metres. Gravity points along +y for a camera that starts level.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from merope.geometry.pacing import ArcLength, Easing, frame_times, shares, smooth_step, smooth_step_slope
from merope.geometry.poses import Poses

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(ABC):
    """A camera move in the world of its first camera.

    Raises:
        ValueError: if a parameter has no meaning.
    """

    def poses(self, *, num_frames: int, fps: float, easing: Easing = "linear") -> Poses:
        """The move in ``num_frames`` frames at ``fps``, in metres; ``easing`` is "linear" (constant speed) or "smooth".

        It takes (num_frames - 1) / fps seconds, so the speed is the path's length over that.

        Raises:
            ValueError: if there are fewer than two frames, or ``fps`` is not positive.
        """
        yaw, pitch, center_world = self._at(shares(num_frames, easing))
        return Poses(
            R_world_cam=looking(yaw, pitch),
            center_world=center_world,
            times=frame_times(num_frames, fps),
            unit="m",
        )

    @abstractmethod
    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Yaw to the left and pitch up in radians, and centres [T, 3], where ``share`` of the move is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straight(Preset):
    """Drive straight ahead."""

    distance: float = 20.0
    """Metres; negative drives backwards, 0 stands still."""

    def __post_init__(self) -> None:
        _require("distance", self.distance)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return still, still, _center(z=self.distance * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc(Preset):
    """Drive along a circle, looking along it."""

    radius: float = 20.0
    """Metres from the circle's centre to the camera."""
    angle_deg: float = 60.0
    """Degrees of the circle, which are also those by which the camera turns."""
    side: Side = "left"
    """Which way it turns."""

    def __post_init__(self) -> None:
        _require("radius", self.radius, above=0.0)
        _require("angle_deg", self.angle_deg, above=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle = math.radians(self.angle_deg) * share
        left = _left(self.side)
        center = _center(x=-left * self.radius * _versine(angle), z=self.radius * angle.sin())
        return left * angle, torch.zeros_like(share), center


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneChange(Preset):
    """Drive into the next lane along a curve that begins and ends straight, looking along it.

    Over ``distance`` metres z of road the camera is ``offset`` w(z / distance) to the side, with
    w(t) = 10 t^3 - 15 t^4 + 6 t^5, so that heading and curvature are zero at both ends.
    """

    distance: float = 40.0
    """Metres along the road."""
    offset: float = 3.5
    """Metres to the side: the width of a lane."""
    side: Side = "left"
    """To which side."""

    def __post_init__(self) -> None:
        _require("distance", self.distance, above=0.0)
        _require("offset", self.offset, above=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # By arc length: a share of the path is not the same share of the road.
        curve = ArcLength(
            lambda road: torch.hypot(
                torch.full_like(road, self.distance), self.offset * smooth_step_slope(road)
            )
        )
        road = curve.parameter(share * curve.total)
        left = _left(self.side)
        slope = torch.atan2(self.offset * smooth_step_slope(road), torch.full_like(road, self.distance))
        center = _center(x=-left * self.offset * smooth_step(road), z=self.distance * road)
        return left * slope, torch.zeros_like(share), center


@dataclass(frozen=True, slots=True, kw_only=True)
class UTurn(Preset):
    """Drive ahead, along half a circle, and back, looking along the path."""

    radius: float = 8.0
    """Metres: half the distance between the way there and the way back."""
    lead: float = 5.0
    """Metres straight ahead before the half circle, and after it."""
    side: Side = "left"
    """Which way it turns."""

    def __post_init__(self) -> None:
        _require("radius", self.radius, above=0.0)
        _require("lead", self.lead, at_least=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length = share * (2 * self.lead + math.pi * self.radius)
        angle = ((length - self.lead) / self.radius).clamp(0.0, math.pi)
        ahead = length.clamp(max=self.lead)
        back = (length - self.lead - math.pi * self.radius).clamp(min=0.0)
        left = _left(self.side)
        center = _center(x=-left * self.radius * _versine(angle), z=ahead + self.radius * angle.sin() - back)
        return left * angle, torch.zeros_like(share), center


@dataclass(frozen=True, slots=True, kw_only=True)
class Orbit(Preset):
    """Go around a subject straight ahead, always looking at it."""

    radius: float = 5.0
    """Metres to the subject."""
    angle_deg: float = 90.0
    """Degrees around it; 360 ends where it began."""
    side: Side = "right"
    """To which side the camera sets off."""

    def __post_init__(self) -> None:
        _require("radius", self.radius, above=0.0)
        _require("angle_deg", self.angle_deg, above=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle = math.radians(self.angle_deg) * share
        right = -_left(self.side)
        center = _center(x=right * self.radius * angle.sin(), z=self.radius * _versine(angle))
        return right * angle, torch.zeros_like(share), center


@dataclass(frozen=True, slots=True, kw_only=True)
class DollyZoom(Preset):
    """Approach a subject while the lens zooms out, so that the subject keeps its size and what is behind it recedes.

    The subject, straight ahead, keeps its size where f_t / f_0 = d_t / d_0 with d its distance along the axis: see
    `focal_factors`.
    """

    subject_distance: float = 10.0
    """Metres from the first camera to the subject."""
    travel: float = 6.0
    """Metres towards the subject; negative moves away from it and zooms in."""

    def __post_init__(self) -> None:
        _require("subject_distance", self.subject_distance, above=0.0)
        _require("travel", self.travel)
        if self.travel >= self.subject_distance:
            raise ValueError(
                f"travel must be less than subject_distance ({self.subject_distance} m), or the camera reaches the subject; "
                f"got {self.travel}."
            )

    def focal_factors(self, *, num_frames: int, easing: Easing = "linear") -> Float[Tensor, "time"]:
        """What the focal length of each frame is in focal lengths of the first.

        ``CameraModel.zoomed`` multiplies a lens by them.
        """
        return 1 - self.travel / self.subject_distance * shares(num_frames, easing)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return still, still, _center(z=self.travel * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pan(Preset):
    """Turn to the side on the spot."""

    angle_deg: float = 45.0
    """Degrees."""
    side: Side = "left"
    """Which way it turns."""

    def __post_init__(self) -> None:
        _require("angle_deg", self.angle_deg, above=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return _left(self.side) * math.radians(self.angle_deg) * share, still, _center(z=still)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilt(Preset):
    """Turn up or down on the spot."""

    angle_deg: float = 20.0
    """Degrees upwards; negative turns down."""

    def __post_init__(self) -> None:
        _require("angle_deg", self.angle_deg)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return still, math.radians(self.angle_deg) * share, _center(z=still)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truck(Preset):
    """Move sideways, looking straight ahead."""

    distance: float = 2.0
    """Metres."""
    side: Side = "left"
    """To which side."""

    def __post_init__(self) -> None:
        _require("distance", self.distance, above=0.0)
        _require_side(self.side)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return still, still, _center(x=-_left(self.side) * self.distance * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pedestal(Preset):
    """Rise straight up, looking straight ahead."""

    height: float = 1.0
    """Metres; negative sinks."""

    def __post_init__(self) -> None:
        _require("height", self.height)

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        still = torch.zeros_like(share)
        return still, still, _center(y=-self.height * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crane(Preset):
    """Rise, and move forward if wanted, along a straight line, always looking at a subject that was straight ahead."""

    height: float = 4.0
    """Metres upwards; negative sinks."""
    forward: float = 0.0
    """Metres forward; negative moves back."""
    subject_distance: float = 10.0
    """Metres from the first camera to the subject."""

    def __post_init__(self) -> None:
        _require("height", self.height)
        _require("forward", self.forward)
        _require("subject_distance", self.subject_distance, above=0.0)
        if self.forward >= self.subject_distance:
            raise ValueError(
                f"forward must be less than subject_distance ({self.subject_distance} m), or the camera passes the subject; "
                f"got {self.forward}."
            )

    def _at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rise, ahead = self.height * share, self.forward * share
        return (
            torch.zeros_like(share),
            -torch.atan2(rise, self.subject_distance - ahead),
            _center(y=-rise, z=ahead),
        )


def looking(yaw: Float[Tensor, "time"], pitch: Float[Tensor, "time"]) -> Float[Tensor, "time 3 3"]:
    """R_world_cam of level cameras turned by ``yaw`` to the left, then by ``pitch`` upwards, radians; y is down."""
    sin_yaw, cos_yaw, sin_pitch, cos_pitch = yaw.sin(), yaw.cos(), pitch.sin(), pitch.cos()
    zero = torch.zeros_like(yaw)
    rows = [
        [cos_yaw, -sin_yaw * sin_pitch, -sin_yaw * cos_pitch],
        [zero, cos_pitch, -sin_pitch],
        [sin_yaw, cos_yaw * sin_pitch, cos_yaw * cos_pitch],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def _center(*, x: Tensor | None = None, y: Tensor | None = None, z: Tensor | None = None) -> Tensor:
    """Centres from the coordinates that are not zero."""
    given = next(value for value in (x, y, z) if value is not None)
    zero = torch.zeros_like(given)
    return torch.stack([zero if value is None else value for value in (x, y, z)], dim=-1)


def _versine(angle: Tensor) -> Tensor:
    """1 - cos, with all its digits for small angles."""
    return 2 * (angle / 2).sin() ** 2


def _left(side: Side) -> float:
    return 1.0 if side == "left" else -1.0


def _require(name: str, value: float, *, above: float = -math.inf, at_least: float = -math.inf) -> None:
    if not (math.isfinite(value) and value > above and value >= at_least):
        bound = (
            f" > {above:g}"
            if above > -math.inf
            else f" >= {at_least:g}"
            if at_least > -math.inf
            else " finite"
        )
        raise ValueError(f"{name} must be{bound}; got {value}.")


def _require_side(side: str) -> None:
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right'; got {side!r}.")
