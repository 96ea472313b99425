"""Choices that several commands offer for pose files: plain names, so that ``--help`` imports nothing heavy."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.poses.table import ReadOptions

Format = Literal[
    "kitti",
    "tum",
    "npy",
    "npz",
    "merope",
    "kitti360",
    "euroc",
    "realestate10k",
    "panshot",
    "comma2k19",
    "rds-hq",
    "aria",
    "argoverse2",
    "tri-dgp",
    "colmap",
    "colmap-binary",
    "nerfstudio",
    "recammaster",
    "motionctrl",
    "ac3d",
    "nuscenes",
]
Unit = Literal["m", "normalized", "unknown"]
Axes = Literal["opencv", "opengl", "flu", "frd", "unreal"]
Direction = Literal["camera-to-world", "world-to-camera"]


@dataclass(frozen=True, kw_only=True)
class ReadFlags:
    """How to read a pose file: its format, and where the file departs from that. One flag per field of ReadOptions."""

    format: Format | None = None
    """Format of the file. It is never guessed: `merope poses inspect FILE` lists what the file may be."""
    unit: Unit | None = None
    """What a length of 1 is in the file; by default what the file says, or else its format."""
    direction: Direction | None = None
    """Which way the matrices of the file map; by default as its format says."""
    camera_axes: Axes | None = None
    """Axes of what the matrices turn; by default as the format says. opencv: x right, y down, z forward; opengl: x right,
    y up, z back; flu: x forward, y left, z up; frd: x forward, y right, z down; unreal: x forward, y right, z up."""
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw"
    """Order of quaternion components in a TUM file; other formats define theirs."""
    mirror: Literal["none", "x", "y", "z"] = "none"
    """World axis to negate, where the world is left-handed and the cameras are not."""
    camera: str | None = None
    """Which camera, in a file or folder of several (Argoverse 2, COLMAP, DGP, nuScenes, ReCamMaster)."""
    scene: str | None = None
    """Which scene or trajectory, in a file or folder of several (nuScenes, Aria)."""
    undo_applied_transform: bool = False
    """Take out the change of the world that a nerfstudio file states of its own poses."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """Unit of the time stamps in a TUM file; other formats define theirs."""
    delimiter: Literal["space", "comma"] = "space"
    """What separates the numbers of a text file."""
    skip_lines: int = 0
    """Lines to leave out at the top of a text file, for a header without '#'."""
    index_column: bool = False
    """A frame number stands before the numbers of the format in each row."""
    tolerance: float = 1e-3
    """How far R^T R may be from the identity (largest entry) before a file is refused."""

    def options(self) -> "ReadOptions":
        """The same as the library takes it.

        Raises:
            UsageError: if a flag is set that readers of the format do not heed; the file would be read as without it.
        """
        from merope.data.poses.formats import FORMATS
        from merope.data.poses.table import ReadOptions

        of_some = {name for kind in FORMATS.values() for name in kind.options}
        for field in fields(ReadFlags):
            is_set = getattr(self, field.name) != field.default
            if is_set and field.name in of_some and self.format is not None:
                heeding = [name for name, kind in FORMATS.items() if field.name in kind.options]
                if self.format not in heeding:
                    raise UsageError(
                        f"--{field.name.replace('_', '-')} is for {', '.join(heeding)}, not for --format {self.format}, "
                        "which says that itself or has no such thing. Leave it out."
                    )
        flags = {field.name for field in fields(ReadFlags)}
        return ReadOptions(
            **{field.name: getattr(self, field.name) for field in fields(ReadOptions) if field.name in flags}
        )

    def required_format(self) -> Format:
        """The format, for commands that cannot do without.

        Raises:
            UsageError: if the flag was left out.
        """
        if self.format is None:
            raise UsageError(
                "--format is missing. It is never guessed; `merope poses inspect FILE` says what a file may be."
            )
        return self.format
