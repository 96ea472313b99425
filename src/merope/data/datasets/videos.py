"""A plain folder of videos and pose files in any format, told apart by their names: no format of this project is needed."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from merope.cameras import CameraModel
from merope.data.clips.clip import Clip
from merope.data.clips.frame_timing import steady_rate
from merope.data.clips.video import frame_times
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.files import (
    for_star,
    frame_files,
    named_by_star,
    place_of,
    read_captions,
    some_frames,
)
from merope.data.datasets.matching import Match, frame_numbers
from merope.data.lenses.calibration_files import read_calibration
from merope.data.lenses.calibrations.raw import CalibrationError
from merope.data.poses.files import PoseFile, load_pose_file, read_times
from merope.data.poses.formats import FORMATS
from merope.data.poses.table import Axes, Direction, ReadOptions
from merope.errors import MeropeError
from merope.geometry.poses import Poses, Unit

_SOURCE = "videos"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideosOptions:
    """Names of the files, in which a ``*`` stands for the clip, and what the pose files hold.

    Raises:
        ValueError: if the format of the pose files is not one that there is.
    """

    poses: str = "*.txt"
    """Pose files, below the root."""
    format: str = ""
    """Format of the pose files; it has to be said."""
    videos: str = "*.mp4"
    """Videos, or folders of pictures, below the root."""
    match: Match = "order"
    """Which frame a pose is of: order, frame i for pose i; number, by the frame numbers in the pose file, counted from 0,
    which may leave frames out; name, by the names of pictures in the pose file."""
    lens: str | None = None
    """Calibration files, or one for all, below the root; by default the lens in the pose file."""
    lens_format: str | None = None
    """Format of the calibration files; by default the one that they look like. `merope lens info` lists them."""
    lens_camera: str | None = None
    """Which camera, in calibration files of several."""
    times: str | None = None
    """Files of seconds, one for each frame, below the root; by default the pose file's stamps, else the video's."""
    fps: float | None = None
    """Frames per second where nothing says when frames were taken, or what says it is wrong."""
    captions: str | None = None
    """JSON file below the root with captions by the names of clips."""
    unit: Unit | None = None
    """What a length of 1 is; by default what the file or its format says."""
    direction: Direction | None = None
    """Which way the matrices map; by default what the format says."""
    axes: Axes | None = None
    """Axes of what the matrices turn; by default what the format says."""
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw"
    """Order of quaternion components, in formats that leave it open."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """Unit of stamps, in formats that leave it open."""
    camera: str | None = None
    """Which camera, in pose files of several."""
    scene: str | None = None
    """Which trajectory, in pose files of several."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(
                f"format must say what the pose files are: one of {', '.join(FORMATS)}; got {self.format!r}. "
                "`merope poses inspect FILE` says what a file may be."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class VideosSet(ClipSet):
    """A clip for each pose file, with the video of the same name."""

    root: Path
    pose_files: dict[str, Path]
    captions: dict[str, str]
    options: VideosOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses, lens, and times; where neither files nor options say these, the video is decoded for its own."""
        options = self.options
        place = for_star(self.root, options.videos, clip_id, option="videos")
        frames = frame_files(place)
        found = load_pose_file(
            self.pose_files[clip_id], format=options.format, options=_read_options(options)
        )
        poses = found.poses
        if found.body != "camera":
            raise MeropeError(
                f"{self.pose_files[clip_id].name} holds poses of the {found.body}, not of a camera; convert it to those of "
                "the camera first"
            )
        numbers = frame_numbers(found, frames, how=options.match)
        if options.match == "name":
            order = sorted(range(len(numbers)), key=numbers.__getitem__)
            numbers, poses = [numbers[index] for index in order], poses[order]
        poses, said = self._timed(clip_id, poses, place, numbers)
        return Clip(
            clip_id=clip_id,
            poses=poses,
            lens=self._lens(clip_id, found, frames.height, frames.width),
            fps=self._rate(poses, numbers),
            decode=partial(some_frames, frames.decode, numbers),
            caption=self.captions.get(clip_id, ""),
            source=self.source,
            provenance={
                "dataset": _SOURCE,
                "pose_file": place_of(self.pose_files[clip_id], self.root),
                "format": options.format,
                "frames": place_of(place, self.root),
                "times": said,
            },
        )

    def _timed(self, clip_id: str, poses: Poses, place: Path, numbers: list[int]) -> tuple[Poses, str]:
        """Poses with the times of the frames with these numbers, and who said these."""
        options = self.options
        if options.times is not None:
            times = read_times(for_star(self.root, options.times, clip_id, option="times"))
            if len(times) <= numbers[-1] or (options.match == "order" and len(times) != len(poses)):
                raise MeropeError(f"there are {len(times)} times for frames up to {numbers[-1]}")
            return poses.with_times(times[numbers]), "file of times"
        if options.fps is not None:
            return poses.with_times(torch.tensor(numbers, dtype=torch.float64) / options.fps), "option fps"
        if poses.times is not None:
            return poses, "pose file"
        if place.is_dir():
            return poses, "nobody"
        shown = torch.tensor(list(frame_times(place)), dtype=torch.float64)
        if len(shown) <= numbers[-1] or (options.match == "order" and len(shown) != len(poses)):
            raise MeropeError(
                f"{place.name} has {len(shown)} frames and there are poses up to number {numbers[-1]}"
            )
        return poses.with_times(shown[numbers]), "video"

    def _rate(self, poses: Poses, numbers: list[int]) -> float:
        """The option's rate for frames that follow each other, else that of the times."""
        given = self.options.fps
        if (
            poses.times is None
            or len(poses) < 2
            or (given is not None and numbers[-1] - numbers[0] == len(numbers) - 1)
        ):
            if given is None:
                raise MeropeError("nothing says when its frames were taken; say its rate with the option fps")
            return given
        return steady_rate(poses.times.numpy())

    def _lens(self, clip_id: str, found: PoseFile, height: int, width: int) -> CameraModel:
        if self.options.lens is not None:
            try:
                lens = read_calibration(
                    for_star(self.root, self.options.lens, clip_id, option="lens"),
                    format=self.options.lens_format,
                    camera=self.options.lens_camera,
                    height=height,
                    width=width,
                )
            except CalibrationError as error:
                raise CalibrationError(
                    f"{error} Here the camera of a file is the option lens_camera, and its format lens_format."
                ) from error
        elif found.camera is not None:
            lens = CameraModel.from_dict(found.camera)
        else:
            why = f" ({'; '.join(found.notes)})" if found.notes else ""
            raise MeropeError(f"its pose file has no lens{why}; name a file of it with the option lens")
        if (lens.height, lens.width) != (height, width):
            raise MeropeError(
                f"its lens is for frames of {lens.height} x {lens.width} (height x width), and they are {height} x {width}"
            )
        return lens


def open_videos(root: Path, options: VideosOptions) -> VideosSet:
    """A clip for each pose file that matches."""
    pose_files = named_by_star(root, options.poses, option="poses")
    return VideosSet(
        source=root.resolve().name,
        ids=tuple(pose_files),
        root=root,
        pose_files=pose_files,
        captions={} if options.captions is None else read_captions(root / options.captions),
        options=options,
    )


def _read_options(options: VideosOptions) -> ReadOptions:
    return ReadOptions(
        unit=options.unit,
        direction=options.direction,
        camera_axes=options.axes,
        quaternion_order=options.quaternion_order,
        time_unit=options.time_unit,
        camera=options.camera,
        scene=options.scene,
    )


DATASETS = {
    _SOURCE: DataSet(
        about="videos with pose files in any format, by their names",
        layout="CLIP_ID.mp4 and CLIP_ID.txt, or as the options videos, poses, lens and times say, with * for CLIP_ID",
        options=VideosOptions,
        open=open_videos,
    ),
}
