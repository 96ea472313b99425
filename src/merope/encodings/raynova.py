"""RayNova: rotary embedding over time and Plücker coordinates in one fixed frame (Xie et al. 2026b)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    assemble,
    key_rays,
    require_acts_on,
    require_positive,
)
from merope.encodings.first_view import dirs_world, in_first_view, moments
from merope.encodings.rotary import axis_phases, inverse_power_frequencies, rotary_band
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNova:
    """Seven coordinates of a token turn the eight equal parts [t t dx dy dz cx cy cz] of its head.

    t is time, d the ray and c its Plücker moment o x d (the paper) or its camera's centre o (the released
    code), all three in one frame for the whole clip. An axis of D channels turns by
    ``scale x coordinate x base ** (-2 m / D)``; the pairwise rotation is by (key - query).

    **It depends on the frame.** Differences of coordinates are taken per axis, so turning the world changes
    them; a moment changes with the origin even between two lines of one direction, and grows with the distance
    from it. By default the frame is that of the first query view: moving the whole clip then changes nothing,
    and moving the first view alone still changes the relation of all other pairs. That is why it is not
    metric in the sense of Table 1, although metres enter unscaled.

    The direction band repeats: its shortest wavelength at 128 channels is 0.126, and components range over 2.

    Raises:
        ValueError: if 16 does not divide ``head_dim``, or a constant is not positive.
    """

    facts: ClassVar[Facts] = Facts(title="RayNova", source="Xie et al. 2026b, arXiv 2602.20685")

    head_dim: int = 128
    position: Literal["moment", "center"] = "moment"
    """"moment" is o x d, as published; "center" is o, as released (`as_released`)."""
    frame: Literal["first_view", "world"] = "first_view"
    """Whose origin and axes: the first query view's, or the world's that the poses came in."""
    base: float = 100.0
    """Base of the frequencies; the first release had 10 000."""
    time_scale: float = 30.0
    """Radians per second of the fastest pair; the first release had 10."""
    direction_scale: float = 50.0
    """Radians per unit of a direction's component, fastest pair."""
    position_scale: float = 2.0
    """Radians per metre of the fastest pair; the first release had 20 for moments and 10 for centres."""
    seconds_per_step: float = 1 / 3
    """Seconds per unit of `ViewRays.time`: four frames at the 12 Hz of nuScenes. At another rate it is
    the temporal stride over frames per second."""
    acts_on: ActsOn = "qk"
    """Values stay as they are in RayNova."""

    def __post_init__(self) -> None:
        if self.head_dim < 16 or self.head_dim % 16:
            raise ValueError(
                f"head_dim must be a multiple of 16, eight parts of whole pairs; {self.head_dim} / 8 = "
                f"{self.head_dim / 8:g} channels."
            )
        for name, choices in (("position", ("moment", "center")), ("frame", ("first_view", "world"))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be {choices[0]!r} or {choices[1]!r}; got {getattr(self, name)!r}."
                )
        require_positive(
            base=self.base,
            time_scale=self.time_scale,
            direction_scale=self.direction_scale,
            position_scale=self.position_scale,
            seconds_per_step=self.seconds_per_step,
        )
        require_acts_on(self.acts_on)

    @classmethod
    def as_released(cls, *, head_dim: int = 128) -> Self:
        """What the released configuration computes: the camera's centre in place of the moment."""
        return cls(head_dim=head_dim, position="center")

    @property
    def claims(self) -> Claims:
        """Norm-preserving and per token; it depends on the frame, not on the pair alone."""
        return Claims(metric=False, per_token=True, norm_preserving=True)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays; ``keys`` None means the queries themselves.

        Keys are expressed in the frame of the queries' first view too.
        """
        keys = key_rays(queries, keys)
        first = queries
        if self.frame == "first_view":
            queries, keys = in_first_view(queries, first), in_first_view(keys, first)
        band = rotary_band("plucker", self._phases(queries), self._phases(keys))
        return assemble((band,), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)

    def _phases(self, rays: ViewRays) -> Float[Tensor, "batch token pair"]:
        dirs = dirs_world(rays)  # [B, V, P, 3]
        centers = rays.center_world[:, :, None].expand_as(dirs)
        position = moments(centers, dirs) if self.position == "moment" else centers
        time = rays.time[:, :, None].expand(rays.valid.shape)
        coordinates = [
            self.time_scale * self.seconds_per_step * time,
            *(self.direction_scale * dirs).unbind(-1),
            *(self.position_scale * position).unbind(-1),
        ]
        part = self.head_dim // 8
        widths = [2 * part, *[part] * 6]
        frequencies = [inverse_power_frequencies(width, self.base) for width in widths]
        return axis_phases(coordinates, frequencies).flatten(1, 2)
