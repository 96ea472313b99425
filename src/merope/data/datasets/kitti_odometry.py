"""KITTI odometry: sequences of one of four rectified cameras, with metric poses and the frames' own times.

The files of poses belong to camera 0, the left grey one; the other cameras sit at the offsets that the calibration gives.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from merope.cameras import Pinhole
from merope.data.clips.clip import Clip
from merope.data.clips.frame_timing import steady_rate
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.files import for_star, frame_files, named_by_star, place_of
from merope.data.poses.files import kitti_camera, kitti_projection, load_pose_file, read_times
from merope.errors import MeropeError

_SOURCE = "kitti_odometry"


@dataclass(frozen=True, slots=True, kw_only=True)
class KittiOdometryOptions:
    """Which camera, and where the files are; a ``*`` stands for the sequence."""

    camera: Literal["image_0", "image_1", "image_2", "image_3"] = "image_0"
    """Camera: image_0 and image_1 are the grey ones, left and right, image_2 and image_3 the colour ones."""
    poses: str = "poses/*.txt"
    """Poses of camera 0, below the root."""
    frames: str | None = None
    """Folder of pictures or video, below the root; by default sequences/*/CAMERA, else sequences/*/video.mp4."""
    times: str = "sequences/*/times.txt"
    """Seconds of every frame of the sequence, below the root."""
    calibration: str = "sequences/*/calib.txt"
    """Projection matrices of the cameras, below the root."""
    first_frame: int | None = None
    """Number of the first frame, where frames and poses are a part of a sequence and the times are of all of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KittiOdometrySet(ClipSet):
    """A clip for each file of poses: "06-image_0" is camera 0 of sequence 06."""

    root: Path
    pose_files: dict[str, Path]
    options: KittiOdometryOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses moved to the camera, its lens, and the times of the frames."""
        camera = self.options.camera
        sequence = clip_id.removesuffix(f"-{camera}")
        place = self._frames_of(sequence)
        frames = frame_files(place)
        found = load_pose_file(self.pose_files[sequence], format="kitti")
        poses = found.poses
        if found.frame_ids is not None:
            raise MeropeError(
                f"{place_of(self.pose_files[sequence], self.root)} has 13 numbers a row, where the data set's own files "
                "have 12: an estimate that may leave frames out. Read it as videos (format=kitti, match=number)"
            )
        if frames.num_frames is not None and frames.num_frames != len(poses):
            raise MeropeError(f"{place.name} has {frames.num_frames} frames and there are {len(poses)} poses")
        times = self._times_of(sequence, len(poses))
        calibration = for_star(self.root, self.options.calibration, sequence, option="calibration")
        projection = kitti_projection(calibration, camera=int(camera[-1]))
        return Clip(
            clip_id=clip_id,
            poses=kitti_camera(poses.with_times(times), calibration, camera=int(camera[-1])),
            lens=_lens(projection, height=frames.height, width=frames.width),
            fps=steady_rate(times.numpy()),
            decode=frames.decode,
            source=self.source,
            provenance={
                "dataset": _SOURCE,
                "sequence": sequence,
                "camera": camera,
                "world": f"{_SOURCE}/{sequence}",
                "traversal": f"{_SOURCE}/{sequence}",
                "pose_file": place_of(self.pose_files[sequence], self.root),
                "frames": place_of(place, self.root),
                "calibration": place_of(calibration, self.root),
            },
        )

    def _frames_of(self, sequence: str) -> Path:
        if self.options.frames is not None:
            return for_star(self.root, self.options.frames, sequence, option="frames")
        folder = self.root / "sequences" / sequence
        pictures, video = folder / self.options.camera, folder / "video.mp4"
        if not pictures.is_dir() and not video.is_file():
            raise MeropeError(
                f"there is neither a folder {place_of(pictures, self.root)} nor a video {place_of(video, self.root)}; say "
                "where its frames are with the option frames"
            )
        return pictures if pictures.is_dir() else video

    def _times_of(self, sequence: str, count: int) -> Float[Tensor, "time"]:
        path = for_star(self.root, self.options.times, sequence, option="times")
        times, first = read_times(path), self.options.first_frame
        if first is not None and first >= 0:
            times = times[first : first + count]
        if len(times) != count:
            raise MeropeError(
                f"{place_of(path, self.root)} has {len(times)} times for {count} poses; where they are a part of the "
                "sequence, say the number of its first frame with the option first_frame"
            )
        return times


def open_kitti_odometry(root: Path, options: KittiOdometryOptions) -> KittiOdometrySet:
    """A clip for each file of poses."""
    pose_files = named_by_star(root, options.poses, option="poses")
    return KittiOdometrySet(
        source=_SOURCE,
        ids=tuple(f"{sequence}-{options.camera}" for sequence in pose_files),
        root=root,
        pose_files=pose_files,
        options=options,
    )


def _lens(projection: Float[np.ndarray, "3 4"], *, height: int, width: int) -> Pinhole:
    """The rectified camera's lens: K of P = K [I | t], whose last row is 0 0 1."""
    return Pinhole(
        fx=float(projection[0, 0]),
        fy=float(projection[1, 1]),
        cx=float(projection[0, 2]),
        cy=float(projection[1, 2]),
        height=height,
        width=width,
        pixel_origin="center",
    )


DATASETS = {
    _SOURCE: DataSet(
        about="KITTI odometry sequences: metric poses, the frames' own times, any of the four cameras",
        layout=(
            "poses/SEQUENCE.txt\n"
            "sequences/SEQUENCE/image_0/ ... image_3/, pictures of each camera; or video.mp4\n"
            "sequences/SEQUENCE/times.txt\n"
            "sequences/SEQUENCE/calib.txt"
        ),
        options=KittiOdometryOptions,
        open=open_kitti_odometry,
    ),
}
