"""PanShot: tracks in level worlds, lenses of the unified model, and one near depth for each clip of a video.

Tracks are named VIDEO-CLIP-WINDOW-KIND.npy. A list of shots, as UCPE's demos have them, gives the lens and the caption of
each; without one, lens options hold for all. Videos have the names of their tracks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from merope.cameras import UnifiedCamera
from merope.data.clips.clip import Clip
from merope.data.clips.jitter import jitter_deg
from merope.data.clips.video import Frames, read_header
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.files import chosen_folder, only_video, place_of, video_frames, videos_in
from merope.data.datasets.name_lists import read_names
from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.files import read_poses
from merope.data.poses.formats.panshot import (
    divide_by_near_depth,
    near_depth_key,
    read_near_depths,
    without_first_yaw,
)
from merope.data.poses.table import PoseFileError, read_text
from merope.errors import MeropeError
from merope.geometry.poses import Poses

_SOURCE = "panshot"
_RATE = 16.0
# Tracks from which reading them all takes long enough for a bar.
_MANY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PanShotOptions:
    """Where the files are, what is done to the poses, and the lens where no list of shots gives one."""

    poses: str | None = None
    """Folder of tracks below the root; by default the only one of ., pose-train, pose-test, and these in PanShot."""
    near_depths: str | None = None
    """File of near depths; by default near_plane_depth-PART.jsonl in the root or PanFlow, with the PART of pose-PART."""
    normalize: bool = True
    """Divide translations by the near depth of each clip (unit normalized); otherwise the unit is unknown."""
    zero_yaw: bool = True
    """Turn the level world so that the first camera has no yaw; its pitch and roll stay."""
    shots: str | None = None
    """JSON list of shots below the root: pose_path, x_fov (degrees), xi, caption. Without it every track is a clip."""
    fov_x_deg: float | None = None
    """Horizontal field of view of all clips, degrees, where there is no list of shots."""
    xi: float | None = None
    """Mirror parameter of the unified model of all clips, where there is no list of shots; 0 is a pinhole."""
    videos: str | None = None
    """Folder of videos; by default the only one of that of the tracks, video-PART and videos, beside it, that has any."""
    height: int = 480
    """Rows of the frames of a clip without a video, pixels."""
    width: int = 832
    """Columns of the frames of a clip without a video, pixels."""
    fps: float | None = None
    """Frames per second; by default what a video says, and 16 without one."""
    clips: str | None = None
    """File below the root with the names of the tracks to take: one a line, a JSON list, or lists by name (see split)."""
    split: str | None = None
    """Which list of the file of names."""
    max_jitter_deg: float | None = None
    """Leave out clips that shake more than this, see merope.data.clips.jitter."""

    def __post_init__(self) -> None:
        if self.fps is not None and not self.fps > 0:
            raise ValueError(f"fps must be positive; got {self.fps:g}.")
        if self.max_jitter_deg is not None and not self.max_jitter_deg >= 0:
            raise ValueError(f"max_jitter_deg must be 0 or more; got {self.max_jitter_deg:g}.")
        if self.split is not None and self.clips is None:
            raise ValueError("split names a list in the file of names: give clips (--option clips=FILE) too.")
        if self.shots is not None and not (self.fov_x_deg is None and self.xi is None):
            raise ValueError("the list of shots gives each lens; leave fov_x_deg and xi out, or the list.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A track seen through a lens."""

    track: str
    """Path of the track as the list has it; its last part is its name."""
    fov_x_deg: float
    """Horizontal field of view, degrees."""
    xi: float
    """Mirror parameter of the unified model."""
    caption: str = ""

    @property
    def stem(self) -> str:
        """Name of the track without its ending."""
        return Path(self.track).stem


@dataclass(frozen=True, kw_only=True, eq=False)
class PanShotSet(ClipSet):
    """Clips named like their tracks; those of a list of shots with their number and lens."""

    root: Path
    pose_folder: Path
    video_folder: Path | None
    videos: dict[str, tuple[str, ...]]
    shots: dict[str, Shot]
    near_depths: dict[str, float]
    options: PanShotOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses and lens; a clip without a video can be opened too, and says so when its frames are asked for."""
        shot, options = self.shots[clip_id], self.options
        path = self._track_path(shot)
        raw = read_poses(path, format="panshot")
        poses = divide_by_near_depth(raw, self.near_depths, path) if options.normalize else raw
        if options.zero_yaw:
            poses = without_first_yaw(poses)
        height, width, rate = options.height, options.width, None
        video = None if self.video_folder is None else only_video(self.video_folder, self.videos, [shot.stem])
        if video is not None:
            header = read_header(video)
            if header.num_frames not in (None, len(poses)):
                raise MeropeError(
                    f"{video.name} has {header.num_frames} frames and there are {len(poses)} poses"
                )
            height, width, rate = header.height, header.width, header.fps
        lens = UnifiedCamera.from_fov(fov_x_deg=shot.fov_x_deg, xi=shot.xi, height=height, width=width)
        return Clip(
            clip_id=clip_id,
            poses=poses,
            lens=lens,
            fps=options.fps or float(rate or _RATE),
            decode=partial(_no_video, shot.stem)
            if video is None
            else partial(video_frames, video, range(len(poses))),
            caption=shot.caption,
            source=self.source,
            up_world=(0.0, -1.0, 0.0),
            provenance={
                "dataset": _SOURCE,
                "track": place_of(path, self.root),
                "video": None if video is None else place_of(video, self.root),
                "near_depth": self._near_depth(path),
                "divided_by_near_depth": options.normalize,
                "zero_yaw": options.zero_yaw,
                "jitter_deg": self._jitter(raw, path),
            },
        )

    def jitter_of(self, clip_id: str) -> float:
        """The jitter of a clip in degrees, with its near depth where the table has it; no video is opened.

        Raises:
            MeropeError: if its track cannot be read.
        """
        path = self._track_path(self.shots[clip_id])
        return self._jitter(read_poses(path, format="panshot"), path)

    def _jitter(self, raw: Poses, path: Path) -> float:
        return jitter_deg(raw, near_depth=self._near_depth(path) or math.inf)

    def _near_depth(self, path: Path) -> float | None:
        try:
            return self.near_depths.get(near_depth_key(path))
        except ValueError:
            # A track of another name has none, and needs none unless it is to be divided by it.
            return None

    def _track_path(self, shot: Shot) -> Path:
        if not shot.track.endswith(".npy"):
            raise MeropeError(
                f"{shot.track} is no track of PanShot, which are .npy files; RealEstate10K's have a reader of their own"
            )
        return self.pose_folder / Path(shot.track).name


def read_shots(path: Path) -> tuple[Shot, ...]:
    """A list of shots as UCPE has them: objects with pose_path, x_fov in degrees, xi, and a caption if any.

    Raises:
        PoseFileError: if the file is no such list, with the entry.
    """
    try:
        content = parse_json(read_text(path))
    except (ValueError, RecursionError) as error:
        raise PoseFileError(f"{path} is not JSON: {error!s:.200}.") from None
    if not isinstance(content, list) or not content:
        raise PoseFileError(f"{path} must be a JSON list of shots with pose_path, x_fov and xi.")
    shots = []
    for number, entry in enumerate(content):
        try:
            track, caption = entry["pose_path"], entry.get("caption", "")
            shot = Shot(track=track, fov_x_deg=float(entry["x_fov"]), xi=float(entry["xi"]), caption=caption)
            numbers = all(type(entry[name]) in (int, float) for name in ("x_fov", "xi"))
            if not (numbers and isinstance(track, str) and track and isinstance(caption, str)):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise PoseFileError(
                f"{path}, entry {number} must have pose_path, numbers x_fov and xi, and at most a caption beside them; got "
                f"{entry!r:.80}."
            ) from None
        shots.append(shot)
    return tuple(shots)


def open_panshot(root: Path, options: PanShotOptions) -> PanShotSet:
    """The clips of a folder of tracks or of a list of shots; those that a list or the jitter rules out are in the notes."""
    folders = (".", "pose-train", "pose-test", "PanShot/pose-train", "PanShot/pose-test")
    pose_folder = chosen_folder(root, options.poses, folders, holds="*.npy", option="poses")
    part = pose_folder.name.partition("-")[2]
    video_folder = _video_folder(root, pose_folder, part, options.videos)
    shots, notes = _chosen_shots(root, pose_folder, options)
    clips = PanShotSet(
        source=_SOURCE,
        ids=tuple(shots),
        notes=tuple(notes),
        root=root,
        pose_folder=pose_folder,
        video_folder=video_folder,
        videos={} if video_folder is None else videos_in(video_folder),
        shots=shots,
        near_depths=_near_depths(root, part, options),
        options=options,
    )
    return clips if options.max_jitter_deg is None else _steady(clips, options.max_jitter_deg)


def _chosen_shots(
    root: Path, pose_folder: Path, options: PanShotOptions
) -> tuple[dict[str, Shot], list[str]]:
    """Shots by the names of their clips, and what was left out."""
    notes: list[str] = []
    if options.shots is not None:
        listed = read_shots(root / options.shots)
        shots = {
            f"{number:04d}-{shot.stem}-fov{shot.fov_x_deg:g}-xi{shot.xi:g}": shot
            for number, shot in enumerate(listed)
        }
    else:
        if options.fov_x_deg is None or options.xi is None:
            raise MeropeError(
                "the lens is not known: give the list of shots (--option shots=FILE), or fov_x_deg and xi for all clips "
                "(--option fov_x_deg=100 --option xi=0)."
            )
        # Names on a video site may begin with '-' or '_', names of clips may not.
        shots = {
            stem if stem[0].isalnum() else f"x{stem}": Shot(
                track=f"{stem}.npy", fov_x_deg=options.fov_x_deg, xi=options.xi
            )
            for stem in sorted(path.stem for path in pose_folder.glob("*.npy"))
        }
    if options.clips is not None:
        wanted = {name.removesuffix(".npy") for name in read_names(root / options.clips, part=options.split)}
        found = {clip_id: shot for clip_id, shot in shots.items() if wanted & {clip_id, shot.stem}}
        missing = wanted - set(found) - {shot.stem for shot in found.values()}
        if missing:
            notes.append(
                f"{len(missing)} of the {len(wanted)} names of {options.clips} are not there: {min(missing)} ..."
            )
        shots = found
    if not shots:
        raise MeropeError(f"{root} gives no clip. {' '.join(f'{note}.' for note in notes)}".rstrip())
    return shots, notes


def _near_depths(root: Path, part: str, options: PanShotOptions) -> dict[str, float]:
    if options.near_depths is not None:
        return read_near_depths(root / options.near_depths)
    name = f"near_plane_depth-{part}.jsonl" if part else "near_plane_depth.jsonl"
    for path in (root / name, root / "PanFlow" / name):
        if path.exists():
            return read_near_depths(path)
    if options.normalize:
        raise MeropeError(
            f"{root}: {name} is neither there nor in PanFlow. Name the file of near depths (--option near_depths=FILE), or "
            "keep the lengths as they are (--option normalize=no)."
        )
    return {}


def _video_folder(root: Path, pose_folder: Path, part: str, given: str | None) -> Path | None:
    """The folder that is given or has any videos, None where there are but poses."""
    if given is not None:
        return chosen_folder(root, given, (), holds="videos", option="videos")
    candidates = [pose_folder, pose_folder.parent / f"video-{part}", pose_folder.parent / "videos"]
    found = [folder for folder in candidates if folder.is_dir() and videos_in(folder)]
    if len(found) > 1:
        raise MeropeError(
            f"{' and '.join(place_of(folder, root) for folder in found)} both have videos. Name one: "
            "--option videos=FOLDER."
        )
    return found[0] if found else None


def _steady(clips: PanShotSet, most: float) -> PanShotSet:
    """The clips that shake at most so many degrees; one that cannot be read stays, to be named when it is opened."""
    kept, notes = [], list(clips.notes)
    for clip_id in tqdm(
        clips.ids, desc="jitter", unit="clip", leave=False, disable=None if len(clips.ids) >= _MANY else True
    ):
        try:
            jitter = clips.jitter_of(clip_id)
        except MeropeError:
            jitter = 0.0
        if jitter <= most:
            kept.append(clip_id)
        else:
            notes.append(f"{clip_id}: left out, jitter of {jitter:.3f} degrees where {most:g} are allowed")
    if not kept:
        raise MeropeError(
            f"all {len(clips.ids)} clips shake more than {most:g} degrees (--option max_jitter_deg={most:g})."
        )
    shots = {clip_id: clips.shots[clip_id] for clip_id in kept}
    return replace(clips, ids=tuple(kept), notes=tuple(notes), shots=shots)


def _no_video(stem: str, wanted: Sequence[int]) -> Frames:
    raise MeropeError(
        f"there is no video {stem} for its poses; PanShot's videos are a download of their own. Name their folder "
        "with --option videos=FOLDER"
    )


DATASETS = {
    _SOURCE: DataSet(
        about="PanShot: tracks with lenses of the unified model, near depths, and videos where there are any",
        layout=(
            "VIDEO-CLIP-WINDOW-KIND.npy in the root, pose-PART/ or PanShot/pose-PART/\n"
            "near_plane_depth-PART.jsonl in the root or PanFlow/\n"
            "videos of the same names beside the tracks, in video-PART/ or videos/"
        ),
        options=PanShotOptions,
        open=open_panshot,
    ),
}
