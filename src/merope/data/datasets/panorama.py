"""Panoramas of the full sphere, seen through any lens along any path of directions: clips whose geometry is exact.

A picture gives a camera that turns in place. A video, or a folder of pictures, whose camera moves has a pose for each frame
beside it. PanShot was made from panoramic videos in this way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from merope.cameras import CameraModel, UnifiedCamera
from merope.cameras.panoramas import PanoramaView, nearest_values, padded
from merope.data.clips.clip import Clip
from merope.data.clips.given_frames import PICTURES
from merope.data.clips.video import Frames, read_pictures
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.files import VIDEO_SUFFIXES, for_star, frame_files, named_by_star, place_of
from merope.data.datasets.name_lists import read_caption_file
from merope.data.lenses.files import read_lens
from merope.data.poses.files import load_pose_file
from merope.errors import MeropeError
from merope.files import require_file
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix

_SOURCE = "panorama"
_RATE = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PanoramaOptions:
    """Lens, directions, and what belongs to a panorama beside its pictures."""

    lens: str | None = None
    """File below the root with the lens, as CameraModel.to_dict gives it; it goes before fov_x_deg, xi, height and width."""
    fov_x_deg: float = 100.0
    """Horizontal field of view, degrees, of a lens of the unified model."""
    xi: float = 0.0
    """Its mirror parameter: 0 is a pinhole, 1 stereographic."""
    height: int = 288
    """Rows of the frames, pixels."""
    width: int = 512
    """Columns of the frames, pixels."""
    path: str | None = None
    """Pose file (format merope) below the root with the camera's rotation in the panorama for each frame. It goes before
    the four angles and frames."""
    yaw_deg: float = 0.0
    """Where the first frame looks: degrees to the right of the panorama's middle."""
    pitch_deg: float = 0.0
    """Degrees above the horizon, in all frames."""
    roll_deg: float = 0.0
    """Degrees by which the camera is tilted clockwise about its axis, in all frames."""
    turn_deg: float = 90.0
    """Degrees to the right that the camera turns at constant speed from the first frame to the last."""
    frames: int = 49
    """Frames of a clip from one picture; a video gives as many as it has."""
    fps: float | None = None
    """Frames per second; by default what a video says, and 12 for pictures."""
    poses: str = "*_poses.json"
    """Pose files (format merope) of cameras that move, with a * for the name of the panorama: one pose for each frame."""
    still: bool = False
    """Videos and folders of pictures without poses were taken by a camera at rest."""
    depth: str = "*_depth.png"
    """Depth of pictures, 16-bit, with a * for the name of the panorama: along the ray, 0 where unknown."""
    depth_scale: float = 1000.0
    """What a length of 1 in the poses' unit, most often a metre, is in a depth file."""
    level: bool = False
    """The panoramas, or the worlds of their poses, are upright: gravity points along +y."""
    captions: str | None = None
    """File below the root with captions by the names of the panoramas, JSON or CSV."""

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ValueError(f"frames must be at least 1; got {self.frames}.")
        if self.fps is not None and not self.fps > 0:
            raise ValueError(f"fps must be positive; got {self.fps:g}.")
        if not 0 < self.depth_scale < math.inf:
            raise ValueError(f"depth_scale must be positive; got {self.depth_scale:g}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class PanoramaSet(ClipSet):
    """A clip for each picture, video and folder of pictures, by its name without its ending."""

    root: Path
    files: dict[str, Path]
    lens: CameraModel
    path: Float[Tensor, "time 3 3"] | None
    captions: dict[str, str]
    options: PanoramaOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses of the camera in its panorama; the panorama itself is opened to see its size."""
        source, options = self.files[clip_id], self.options
        poses_file = for_star(self.root, options.poses, clip_id, option="poses")
        is_picture = source.suffix.lower() in PICTURES and source.is_file()
        own = load_pose_file(poses_file, format="merope").poses if poses_file.exists() else None
        fps = options.fps
        if is_picture:
            num_frames = len(self.path) if self.path is not None else options.frames
            if own is not None:
                raise MeropeError(
                    f"{poses_file.name} gives poses to one picture; a panorama is seen from one place"
                )
            height, width = picture_size(source)
            read: Callable[[Sequence[int]], Frames] = partial(_same_picture, source)
        else:
            found = frame_files(source)
            height, width, read, fps = found.height, found.width, found.decode, fps or found.fps
            if own is None and not options.still:
                raise MeropeError(
                    f"there is no {poses_file.name} with the poses of its frames. If its camera stands still, say so: "
                    "--option still=yes"
                )
            if own is not None and found.num_frames not in (None, len(own)):
                raise MeropeError(f"there are {found.num_frames} frames and {len(own)} poses")
            counted = found.num_frames if own is None else len(own)
            if counted is None:
                raise MeropeError(f"{source.name} does not say how many frames it has; give it poses")
            num_frames = counted
        R_pano_cam = self._rotations(num_frames)
        depth_file = for_star(self.root, options.depth, clip_id, option="depth")
        view_size = {"height": height, "width": width}
        return Clip(
            clip_id=clip_id,
            poses=seen_from(own, R_pano_cam),
            lens=self.lens,
            fps=fps or _RATE,
            decode=partial(_views, read, self.lens, view_size, R_pano_cam, is_picture),
            decode_depth=partial(_depth_views, depth_file, self.lens, R_pano_cam, options.depth_scale)
            if is_picture and depth_file.exists()
            else None,
            caption=self.captions.get(clip_id, ""),
            source=self.source,
            up_world=(0.0, -1.0, 0.0) if options.level else None,
            provenance={
                "dataset": _SOURCE,
                "panorama": place_of(source, self.root),
                "panorama_height": height,
                **({} if own is None else {"poses": place_of(poses_file, self.root)}),
                **(
                    {
                        "first_yaw_deg": options.yaw_deg,
                        "pitch_deg": options.pitch_deg,
                        "roll_deg": options.roll_deg,
                        "turn_deg": options.turn_deg,
                    }
                    if options.path is None
                    else {"path": options.path}
                ),
            },
        )

    def _rotations(self, num_frames: int) -> Tensor:
        if self.path is None:
            options = self.options
            return turning(
                num_frames,
                yaw_deg=options.yaw_deg,
                pitch_deg=options.pitch_deg,
                roll_deg=options.roll_deg,
                turn_deg=options.turn_deg,
            )
        if len(self.path) != num_frames:
            raise MeropeError(
                f"{self.options.path} has {len(self.path)} rotations and there are {num_frames} frames"
            )
        return self.path


def turning(
    num_frames: int, *, yaw_deg: float, pitch_deg: float, roll_deg: float, turn_deg: float
) -> Float[Tensor, "time 3 3"]:
    """R_pano_cam of a camera that turns to the right at constant speed, pitched up and tilted clockwise by fixed angles."""
    part = torch.linspace(0, 1, num_frames, dtype=torch.float64)
    yaw = torch.deg2rad(yaw_deg + turn_deg * part)
    zero = torch.zeros_like(yaw)
    R_pano_level = rotvec_to_matrix(torch.stack([zero, yaw, zero], -1))
    tilt = torch.tensor([[pitch_deg, 0.0, 0.0], [0.0, 0.0, roll_deg]], dtype=torch.float64)
    pitched, rolled = rotvec_to_matrix(torch.deg2rad(tilt))
    return R_pano_level @ pitched @ rolled


def seen_from(own: Poses | None, R_pano_cam: Float[Tensor, "time 3 3"]) -> Poses:
    """Cameras in a panorama that has these poses; without them its place is the world's origin, and zero is in metres."""
    if own is None:
        return Poses(
            R_world_cam=R_pano_cam,
            center_world=torch.zeros(len(R_pano_cam), 3, dtype=torch.float64),
            unit="m",
        )
    return Poses.from_matrices(
        torch.cat([own.R_world_cam @ R_pano_cam, own.center_world[..., None]], dim=2),
        times=own.times,
        unit=own.unit,
    )


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width of a picture, which is not decoded.

    Raises:
        MeropeError: if it cannot be opened.
    """
    try:
        require_file(path)
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MeropeError(f"{path} cannot be read as a picture ({error}); is the file complete?") from error


def open_panorama(root: Path, options: PanoramaOptions) -> PanoramaSet:
    """A clip for everything below the root that may be a panorama: pictures, videos, folders of pictures."""
    lens: CameraModel
    if options.lens is not None:
        lens = read_lens(root / options.lens)
    else:
        lens = UnifiedCamera.from_fov(
            fov_x_deg=options.fov_x_deg, xi=options.xi, height=options.height, width=options.width
        )
    depths = set(_matches(root, options.depth, "depth"))
    files: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        is_panorama = path.suffix.lower() in (*PICTURES, *VIDEO_SUFFIXES) if path.is_file() else path.is_dir()
        if not is_panorama or path.name.startswith(".") or path in depths:
            continue
        name = path.stem if path.is_file() else path.name
        if name in files:
            raise MeropeError(f"{files[name].name} and {path.name} would be one clip; rename one.")
        files[name] = path
    if not files:
        raise MeropeError(f"{root} holds no panoramas: no pictures, videos or folders of pictures.")
    return PanoramaSet(
        source=_SOURCE,
        ids=tuple(files),
        root=root,
        files=files,
        lens=lens,
        path=None if options.path is None else _rotation_path(root / options.path),
        captions={} if options.captions is None else read_caption_file(root / options.captions),
        options=options,
    )


def _matches(root: Path, pattern: str, option: str) -> list[Path]:
    try:
        return list(named_by_star(root, pattern, option=option).values())
    except MeropeError:
        return []


def _rotation_path(path: Path) -> Tensor:
    poses = load_pose_file(path, format="merope").poses
    if float((poses.center_world - poses.center_world[0]).norm(dim=-1).max()) > 1e-9:
        raise MeropeError(
            f"{path} moves the camera, and a panorama is seen from one place. Give rotations alone: the poses of a moving "
            "panorama belong to it (poses)."
        )
    return poses.R_world_cam


def _same_picture(path: Path, wanted: Sequence[int]) -> Frames:
    return read_pictures([path])


def _views(
    read: Callable[[Sequence[int]], Frames],
    lens: CameraModel,
    size: dict[str, int],
    R_pano_cam: Tensor,
    is_picture: bool,
    wanted: Sequence[int],
) -> Frames:
    try:
        view = PanoramaView(lens, **size)
    except ValueError as error:
        raise MeropeError(str(error)) from None
    if is_picture:
        return view.frames(padded(read([0])[0]), R_pano_cam[list(wanted)])
    out = []
    # A video is decoded from its start on, so its frames are asked for by the gigabyte.
    at_once = max(1, 2**30 // (3 * size["height"] * size["width"]))
    for start in range(0, len(wanted), at_once):
        numbers = list(wanted[start : start + at_once])
        for number, panorama in zip(numbers, read(numbers), strict=True):
            out.append(view.frame(panorama, R_pano_cam[number]))
    return np.stack(out)


def _depth_views(
    path: Path, lens: CameraModel, R_pano_cam: Tensor, scale: float, wanted: Sequence[int]
) -> Any:
    try:
        require_file(path)
        with Image.open(path) as image:
            depth = np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MeropeError(f"{path} cannot be read as a picture ({error}); is the file complete?") from error
    if depth.ndim != 2 or depth.dtype.kind not in "ui" or depth.shape[1] != 2 * depth.shape[0]:
        raise MeropeError(
            f"{path.name} is {depth.dtype} of shape {list(depth.shape)}; depth is one 16-bit channel, twice as wide as high"
        )
    return nearest_values(depth, lens, R_pano_cam[list(wanted)]) / np.float32(scale)


DATASETS = {
    _SOURCE: DataSet(
        about="full-sphere panoramas, resampled into any lens along any path of directions",
        layout=(
            "NAME.jpg or another picture, seen by a camera that turns; NAME_depth.png, 16-bit, where there is depth\n"
            "NAME.mp4 or NAME/ with pictures, with NAME_poses.json unless the camera stands still"
        ),
        options=PanoramaOptions,
        open=open_panorama,
    ),
}
