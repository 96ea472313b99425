"""``merope poses make``: camera moves by name, a command for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.poses.writing import WriteFlags
from merope.cli.usage import UsageError

# The flags are the fields of the presets, so this module needs them at once; `merope poses make` alone lists the commands
# without it.
from merope.geometry.presets import (
    Arc,
    Crane,
    DollyZoom,
    LaneChange,
    Orbit,
    Pan,
    Pedestal,
    Preset,
    Straight,
    Tilt,
    Truck,
    UTurn,
)

if TYPE_CHECKING:
    from merope.cameras import CameraModel


@dataclass(frozen=True, kw_only=True)
class MakeFlags(WriteFlags):
    """Frames, lens and file of a move. The world is the first camera's: x right, y down, z forward, in metres."""

    num_frames: int = 49
    """Frames, the first and the last included."""
    fps: float = 12.0
    """Frames per second: the move takes (num-frames - 1) / fps seconds."""
    easing: Literal["linear", "smooth"] = "linear"
    """linear: constant speed. smooth: at rest at both ends."""
    lens: Path | None = None
    """JSON file of the lens that is written beside the poses (`CameraModel.to_dict`)."""
    fov_x_deg: float | None = None
    """Horizontal field of view of a pinhole lens, degrees, in place of --lens; goes with the two below."""
    image_height: int | None = None
    """Height of its image in pixels."""
    image_width: int | None = None
    """Width of its image in pixels."""

    def camera(self) -> "CameraModel | None":
        """The lens that the flags describe.

        Raises:
            UsageError: if they describe half of one, or two.
        """
        from merope.cameras import Pinhole
        from merope.data.lenses.files import read_lens

        pinhole = (self.fov_x_deg, self.image_height, self.image_width)
        if self.lens is not None:
            if pinhole != (None, None, None):
                raise UsageError(
                    "--lens is a whole lens; leave --fov-x-deg, --image-height and --image-width out, or --lens."
                )
            return read_lens(self.lens)
        if self.fov_x_deg is None and self.image_height is None and self.image_width is None:
            return None
        if self.fov_x_deg is None or self.image_height is None or self.image_width is None:
            raise UsageError(
                "--fov-x-deg, --image-height and --image-width describe a pinhole lens together; give all three."
            )
        return Pinhole.from_fov(fov_x_deg=self.fov_x_deg, height=self.image_height, width=self.image_width)


def _make(preset: Preset, flags: MakeFlags) -> None:
    from merope.data.poses.files import PoseFile

    camera = flags.camera()
    poses = preset.poses(num_frames=flags.num_frames, fps=flags.fps, easing=flags.easing)
    if isinstance(preset, DollyZoom):
        factors = preset.focal_factors(num_frames=flags.num_frames, easing=flags.easing)
        print(f"focal length {_span(factors.tolist())} times that of the first frame")
        if camera is None:
            print(
                "no lens is written; --lens, or --fov-x-deg with --image-height and --image-width, gives one"
            )
        else:
            camera = camera.zoomed(factors)
    flags.write(
        PoseFile(
            poses=poses,
            format=flags.to,
            source=type(preset).__name__,
            camera=None if camera is None else camera.to_dict(),
        )
    )


def _span(values: Sequence[float]) -> str:
    return f"{values[0]:.4g} to {values[-1]:.4g}"


def straight(
    preset: Annotated[Straight, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Drive straight ahead, backwards, or stand still."""
    _make(preset, write)


def arc(
    preset: Annotated[Arc, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Drive along a circle, looking along it."""
    _make(preset, write)


def lane_change(
    preset: Annotated[LaneChange, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Drive into the next lane, along a curve that begins and ends straight, looking along it."""
    _make(preset, write)


def u_turn(
    preset: Annotated[UTurn, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Drive ahead, along half a circle, and back, looking along the path."""
    _make(preset, write)


def orbit(
    preset: Annotated[Orbit, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Go around a subject straight ahead, always looking at it."""
    _make(preset, write)


def dolly_zoom(
    preset: Annotated[DollyZoom, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Approach a subject while the lens zooms out, so that it keeps its size: f_t / f_0 = d_t / d_0 with d its distance.

    With a lens, that of every frame is written beside the poses.
    """
    _make(preset, write)


def pan(
    preset: Annotated[Pan, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Turn to the side on the spot."""
    _make(preset, write)


def tilt(
    preset: Annotated[Tilt, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Turn up or down on the spot."""
    _make(preset, write)


def truck(
    preset: Annotated[Truck, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Move sideways, looking straight ahead."""
    _make(preset, write)


def pedestal(
    preset: Annotated[Pedestal, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Rise straight up, looking straight ahead."""
    _make(preset, write)


def crane(
    preset: Annotated[Crane, tyro.conf.arg(name="")],
    *,
    write: Annotated[MakeFlags, tyro.conf.arg(name="")],
) -> None:
    """Rise, and move forward if wanted, always looking at a subject that was straight ahead."""
    _make(preset, write)
