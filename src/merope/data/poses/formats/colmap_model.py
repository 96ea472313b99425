"""What COLMAP's files hold, whichever way they are written."""

from dataclasses import dataclass
from typing import TypeVar

from merope.data.poses.formats.colmap_lenses import ColmapCamera

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmapImage:
    """A registered image: its world-to-camera rotation and offset, its camera and name, and where in the file it stands."""

    place: str
    identity: int
    quaternion_wxyz: tuple[float, ...]
    offset: tuple[float, ...]
    camera: int
    name: str


@dataclass(frozen=True, slots=True)
class ColmapModel:
    """Cameras by their ids, and images."""

    cameras: dict[int, ColmapCamera]
    images: list[ColmapImage]
