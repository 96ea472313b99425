"""RealEstate10K: pose files with time stamps, and videos that hold either the posed frames alone or the whole recording.

A pose file is the address of a recording, then one line a frame: its time, intrinsics as shares of width and height, and the
world-to-camera matrix of a reconstruction without a scale.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlparse

import numpy as np
from jaxtyping import Float

from merope.data.clips.clip import Clip
from merope.data.clips.frame_timing import steady_rate
from merope.data.clips.video import frame_times, read_header
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.files import (
    chosen_folder,
    only_video,
    place_of,
    read_captions,
    read_factors,
    video_frames,
    videos_in,
)
from merope.data.poses.files import load_pose_file
from merope.data.poses.formats.realestate10k import realestate10k_lens
from merope.data.poses.table import ReadOptions, read_lines
from merope.errors import MeropeError
from merope.geometry.poses import Unit

_SOURCE = "realestate10k"

Join = Literal["auto", "sampled", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealEstate10KOptions:
    """Where the files are, and how frames and poses belong together."""

    poses: str | None = None
    """Folder of the pose files below the root; by default the root or pose_files, whichever has any."""
    videos: str | None = None
    """Folder of the videos below the root; by default that of the pose files, reference_videos or videos."""
    frames: Join = "auto"
    """What a video holds: sampled, the posed frames alone, frame i for pose i; full, a recording, whose frames are found
    by their presentation times; auto, whichever of both fits."""
    unit: Unit = "unknown"
    """What a length of 1 is in the poses, after scaling; the reconstructions themselves have no scale."""
    scale_file: str | None = None
    """File below the root with factors for the translations: one number for all, or a line "CLIP_ID FACTOR" each."""
    captions: str | None = None
    """JSON file below the root with captions by the names of the pose files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RealEstate10KSet(ClipSet):
    """A clip for each pose file; its video has the same name, or that of the recording at the file's address."""

    root: Path
    pose_folder: Path
    video_folder: Path
    videos: dict[str, tuple[str, ...]]
    factors: float | dict[str, float]
    captions: dict[str, str]
    options: RealEstate10KOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses, lens and the numbers of the frames; for these the video is decoded as far as the last pose."""
        path = self.pose_folder / f"{clip_id}.txt"
        found = load_pose_file(path, format="realestate10k", options=ReadOptions(unit=self.options.unit))
        address = _address(path)
        video = only_video(self.video_folder, self.videos, [clip_id, *recording_names(address)])
        stamps = found.poses.times
        assert stamps is not None
        if len(stamps) < 2:
            raise MeropeError("it has one pose, which gives no frame rate")
        numbers, joined = join_frames(stamps.numpy(), video, how=self.options.frames)
        header = read_header(video)
        factor = self.factors if isinstance(self.factors, float) else self.factors.get(clip_id)
        if factor is None:
            raise MeropeError(f"{self.options.scale_file} has no factor for it")
        return Clip(
            clip_id=clip_id,
            poses=found.poses.scaled(factor),
            lens=realestate10k_lens(path, height=header.height, width=header.width),
            fps=steady_rate(stamps.numpy()),
            decode=partial(video_frames, video, numbers),
            caption=self.captions.get(clip_id, ""),
            source=self.source,
            provenance={
                "dataset": _SOURCE,
                "pose_file": place_of(path, self.root),
                "video": place_of(video, self.root),
                "recording": address,
                "frames": joined,
                **({} if self.options.scale_file is None else {"scale_factor": factor}),
            },
        )


def join_frames(
    stamps: Float[np.ndarray, "time"], video: Path, *, how: Join
) -> tuple[list[int], dict[str, Any]]:
    """The number of each pose's frame in its video, and the evidence for that as JSON values.

    Either the video holds the posed frames alone: then there are as many frames as poses, and the video's clock says
    nothing. Or it is a recording that the stamps (s) belong to: then each has a frame of its own within half a frame period,
    by the presentation times of decoded frames. Where both hold both give the same frames. The video is decoded from its
    start to the last stamp, never sought.

    Raises:
        MeropeError: if the frames are not as ``how`` says, or under "auto" neither; with what was found.
    """
    times = []
    for time in frame_times(video):
        times.append(time)
        if time > stamps[-1] and len(times) > len(stamps):
            break
    shown = np.array(times)
    same_number = len(shown) == len(stamps)
    nearest = _nearest(shown, stamps)
    deviations = shown[nearest] - stamps
    worst = int(np.abs(deviations).argmax())
    # Of one frame no period is known, and nothing is within half of it.
    half_period = float(np.median(np.diff(shown))) / 2 if len(shown) > 1 else 0.0
    in_time = bool(abs(deviations[worst]) <= half_period and (np.diff(nearest) > 0).all())
    more = " or more" if shown[-1] > stamps[-1] else ""
    counted = f"{video.name} has {len(shown)} frames{more} and there are {len(stamps)} poses"
    timed = (
        f"the pose at {stamps[worst]:.6f} s is {abs(deviations[worst]):.6f} s from the nearest frame, where half a frame "
        f"period is {half_period:.6f} s"
    )
    if abs(deviations[worst]) <= half_period:
        timed = "two poses have the same nearest frame"
    fits = {"sampled": same_number, "full": in_time, "auto": same_number or in_time}
    if not fits[how]:
        if how == "auto":
            raise MeropeError(
                f"its frames fit its poses neither by number nor by time: {counted}; {timed}. Is it the right video, and "
                "complete?"
            )
        other = " (frames='auto' decides by what fits)" if same_number or in_time else ""
        raise MeropeError(f"frames={how!r} does not hold: {counted if how == 'sampled' else timed}{other}")
    joined = "full" if how == "full" or (how == "auto" and in_time) else "sampled"
    evidence: dict[str, Any] = {
        "joined": joined,
        "asked": how,
        "frames_as_many_as_poses": same_number,
        "stamps_within_half_a_period": in_time,
    }
    if in_time:
        evidence |= {
            "max_deviation_s": float(abs(deviations[worst])),
            "mean_deviation_s": float(deviations.mean()),
            "half_period_s": half_period,
        }
    return (nearest.tolist() if joined == "full" else list(range(len(stamps)))), evidence


def recording_names(address: str) -> list[str]:
    """What a recording at this address is called in a folder: the video's name on its site, if the address has one."""
    parts = urlparse(address.strip())
    queried = parse_qs(parts.query).get("v", [])
    return queried or ([parts.path.rsplit("/", 1)[-1]] if parts.path.strip("/") else [])


def open_realestate10k(root: Path, options: RealEstate10KOptions) -> RealEstate10KSet:
    """A clip for each ``*.txt`` in the folder of pose files."""
    poses = chosen_folder(root, options.poses, (".", "pose_files"), holds="*.txt", option="poses")
    beside = place_of(poses, root)
    candidates = tuple(dict.fromkeys((beside, ".", "reference_videos", "videos")))
    videos = chosen_folder(root, options.videos, candidates, holds="videos", option="videos")
    scale = None if options.scale_file is None else root / options.scale_file
    ids = tuple(sorted(path.stem for path in poses.glob("*.txt") if path != scale))
    if not ids:
        raise MeropeError(f"{poses} holds no pose files; they are CLIP_ID.txt.")
    return RealEstate10KSet(
        source=_SOURCE,
        ids=ids,
        root=root,
        pose_folder=poses,
        video_folder=videos,
        videos=videos_in(videos),
        factors=1.0 if scale is None else read_factors(scale),
        captions={} if options.captions is None else read_captions(root / options.captions),
        options=options,
    )


def _nearest(shown: Float[np.ndarray, "shown"], stamps: Float[np.ndarray, "time"]) -> np.ndarray:
    """Numbers of the shown frames nearest to each stamp; of two equally near ones the earlier."""
    after = np.searchsorted(shown, stamps).clip(0, len(shown) - 1)
    before = (after - 1).clip(0)
    return np.where(stamps - shown[before] <= shown[after] - stamps, before, after)


def _address(path: Path) -> str:
    return read_lines(path)[0].strip()


DATASETS = {
    _SOURCE: DataSet(
        about="RealEstate10K pose files (time stamps, normalised intrinsics) with their videos",
        layout=(
            "CLIP_ID.txt in the root or pose_files/\n"
            "CLIP_ID.mp4 beside them, in reference_videos/ or videos/, or RECORDING.mp4 named as in the pose file's address"
        ),
        options=RealEstate10KOptions,
        open=open_realestate10k,
    ),
}
