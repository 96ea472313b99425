"""Which frames are compared and how: what must be equal before two Fréchet or kernel distances may be compared.

FVD moves by half with the way frames are resized, FID with N, and both with whether given frames count; so all of it is
chosen here, printed, and stored with every number.
"""

from dataclasses import dataclass
from typing import Literal

ResizeMode = Literal["nearest", "area", "bilinear", "bicubic"]
_ANTIALIASED = ("bilinear", "bicubic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Frames brought to one size before the network sees them, in float32, then rounded to uint8 again.

    Raises:
        ValueError: if antialiasing is asked of a mode that has none, or one of two sizes is missing or not positive.
    """

    mode: ResizeMode
    height: int | None = None
    """Rows; without height and width the network's own input size."""
    width: int | None = None
    antialias: bool = False

    def __post_init__(self) -> None:
        if self.antialias and self.mode not in _ANTIALIASED:
            raise ValueError(f"antialias goes with {' and '.join(_ANTIALIASED)}; got mode {self.mode!r}.")
        if (self.height is None) != (self.width is None):
            raise ValueError(f"height and width belong together; got {self.height} and {self.width}.")
        if self.height is not None and self.width is not None and min(self.height, self.width) < 1:
            raise ValueError(f"height and width must be positive; got {self.height} x {self.width}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityProtocol:
    """Which frames of how many clips are compared, and how frames reach the network.

    Raises:
        ValueError: if a count is out of range.
    """

    exclude_prefix: int
    """Leading frames of every clip that are left out, of real and generated ones alike: those that were given."""
    num_frames: int | None = None
    """Frames of each clip; without, all that remain behind the prefix."""
    frame_step: int = 1
    """Every which frame behind the prefix is taken."""
    whole_clips: bool = False
    """Refuse clips with more frames than are taken."""
    num_clips: int | None = None
    """Clips of each set, the first ones by name; without, as many as the smallest set has."""
    resize: Resize | None = None
    """Without, frames go to the network as they are, and it resizes as its backend does."""
    kernel_subsets: int | None = None
    """Random subsets of the kernel distance; without, all pairs."""
    kernel_subset_size: int = 1000
    seed: int = 0
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.exclude_prefix < 0 or self.frame_step < 1:
            raise ValueError(
                f"exclude_prefix must be >= 0 and frame_step >= 1; got {self.exclude_prefix}, {self.frame_step}."
            )
        for name, least in (
            ("num_frames", 1),
            ("num_clips", 2),
            ("kernel_subsets", 1),
            ("kernel_subset_size", 2),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}; got {value}.")

    def frames_of(self, length: int) -> range:
        """Numbers of the frames that are taken of a clip of this many.

        Raises:
            ValueError: if the clip has too few, or with ``whole_clips`` too many.
        """
        left = range(self.exclude_prefix, length, self.frame_step)
        if self.num_frames is None:
            if not left:
                raise ValueError(
                    f"it has {length} frames, and {self.exclude_prefix} are excluded as its prefix"
                )
            return left
        if len(left) < self.num_frames or (self.whole_clips and len(left) != self.num_frames):
            raise ValueError(
                f"it has {length} frames, which leave {len(left)} behind a prefix of {self.exclude_prefix} in steps of "
                f"{self.frame_step}; the protocol {self.name!r} takes {'exactly ' if self.whole_clips else ''}"
                f"{self.num_frames}"
            )
        return left[: self.num_frames]


PRESETS: dict[str, FidelityProtocol] = {
    # Section 4.1: 512 clips of 49 frames, the 9 given ones left out; 20 480 frames for FID, 512 videos for FVD.
    "nuscenes-512": FidelityProtocol(
        name="nuscenes-512", exclude_prefix=9, num_frames=40, whole_clips=True, num_clips=512
    ),
}
