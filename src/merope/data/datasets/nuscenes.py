"""nuScenes by its tables: the images of a camera in a scene, or windows of them, as clips.

Each image has its own time and its own ego pose; the lidar's, or the key frame's, is up to half a metre away from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from merope.cameras import Pinhole
from merope.data.clips.clip import Clip
from merope.data.clips.frame_timing import FrameTiming, stretches
from merope.data.clips.given_frames import fit_view
from merope.data.clips.video import Frames, read_pictures
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.datasets.name_lists import read_caption_file, read_names
from merope.data.foreign_files.contained_paths import inside
from merope.data.nuscenes.index import read_tables_indexed
from merope.data.nuscenes.tables import (
    IMAGE_RATE,
    KEY_FRAME_RATE,
    NuScenesTables,
    Track,
    find_tables,
    shortened,
)
from merope.errors import MeropeError
from merope.geometry.poses import Poses

_SOURCE = "nuscenes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NuScenesOptions:
    """Which images make a clip, what is known about them, and their size."""

    cameras: str = "CAM_FRONT"
    """Cameras, separated by commas, or "all"."""
    images: Literal["all", "key"] = "all"
    """all: about 12 a second, key frames and the sweeps between them. key: the 2 a second that are annotated."""
    fps: float | None = None
    """Nominal images per second, where they are not 12, or 2 of key frames: other data sets have tables like these."""
    frames: int | None = None
    """Images in a clip, such as 49. Without it a clip is a whole stretch without a gap, most often a scene."""
    stride: int | None = None
    """Images from the start of a clip to that of the next; by default clips share none. Needs frames."""
    allow_gaps: bool = False
    """Let clips cross steps of more than 1.5 nominal spacings, where images are missing."""
    height: int | None = None
    """Rows of the frames, pixels: frames and lens are resized. Needs width. By default they stay as they are."""
    width: int | None = None
    """Columns of the frames, pixels."""
    crop: bool = False
    """Cut frames of another shape about the middle first."""
    captions: str | None = None
    """File below the root with captions by clip or scene, JSON or CSV; by default nuScenes' descriptions of the scenes."""
    scenes: str | None = None
    """File below the root with the names of the scenes to take: one a line, a JSON list, or lists by name (see split)."""
    split: str | None = None
    """Which list of the file of scenes, such as train."""
    version: str | None = None
    """Folder of tables below the root, such as v1.0-trainval, where there are several."""
    index: str | None = None
    """File, relative to the root, that keeps what was read of the tables; it is made where it is missing or outdated."""

    def __post_init__(self) -> None:
        for name in ("frames", "stride", "height", "width"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        if self.fps is not None and not self.fps > 0:
            raise ValueError(f"fps must be positive; got {self.fps:g}.")
        if self.stride is not None and self.frames is None:
            raise ValueError(
                "stride is between clips of so many frames: give frames (--option frames=N) too."
            )
        if (self.height is None) != (self.width is None):
            raise ValueError("height and width belong together; give both or neither.")
        if self.split is not None and self.scenes is None:
            raise ValueError(
                "split names a list in the file of scenes: give scenes (--option scenes=FILE) too."
            )

    @property
    def rate(self) -> float:
        """Nominal images per second."""
        return self.fps or (KEY_FRAME_RATE if self.images == "key" else IMAGE_RATE)


@dataclass(frozen=True, kw_only=True, eq=False)
class NuScenesSet(ClipSet):
    """Clips named SCENE_CAMERA, with "@00049" behind if they begin at image 49 of the camera in the scene."""

    root: Path
    version: str
    tracks: dict[str, Track]
    captions: dict[str, str]
    options: NuScenesOptions

    def open_clip(self, clip_id: str) -> Clip:
        """Poses and lens from the tables; no image is looked for before its frame is decoded."""
        track = self.tracks[clip_id]
        own_lens = track.lens
        if own_lens is None:
            raise MeropeError(f"the tables have no intrinsics for {track.camera}")
        paths = [inside(self.root, name) for name in track.files]
        size = _wanted_size(self.options)
        lens = own_lens if size is None else fit_view(None, own_lens, **size)[1]
        times = track.times_us / 1e6
        caption = self.captions.get(clip_id, self.captions.get(track.scene, track.description))
        timing = FrameTiming.of(times)
        return Clip(
            clip_id=clip_id,
            poses=Poses.from_matrices(
                torch.from_numpy(track.T_world_cam), times=torch.from_numpy(times), unit="m"
            ),
            lens=lens,
            fps=self.options.rate,
            decode=partial(_decode, paths, own_lens, size),
            caption=caption,
            source=self.source,
            up_world=(0.0, 0.0, 1.0),
            provenance={
                "dataset": _SOURCE,
                "tables": self.version,
                "scene": track.scene,
                "camera": track.camera,
                # Scenes of one location share its map's coordinates; cameras and scenes of one log are one drive.
                **({"world": f"nuscenes/{track.location}"} if track.location else {}),
                **({"traversal": track.log} if track.log else {}),
                "first_image": track.files[0],
                "images": self.options.images,
                **(
                    {}
                    if timing is None
                    else {
                        "step_min_s": timing.dt_min,
                        "step_mean_s": timing.dt_mean,
                        "step_max_s": timing.dt_max,
                    }
                ),
            },
        )


def open_nuscenes(root: Path, options: NuScenesOptions) -> NuScenesSet:
    """The clips of the chosen cameras and scenes; steps with missing images are in the notes."""
    folder = find_tables(root, options.version)
    tables = (
        NuScenesTables.read(folder)
        if options.index is None
        else read_tables_indexed(folder, root / options.index)
    )
    cameras = _cameras(tables, options.cameras)
    scenes, notes = _scenes(root, tables, options)
    found: dict[str, Track] = {}
    for scene in scenes:
        for camera in cameras:
            track = tables.track(camera=camera, scene=scene)
            if options.images == "key":
                track = track[np.flatnonzero(track.is_key_frame)]
            if len(track) > 0:
                clips, more = _clips_of(track, options)
                found |= clips
                notes += more
    if not found:
        raise MeropeError(f"{root} gives no clip. {' '.join(f'{note}.' for note in notes[:5])}".rstrip())
    return NuScenesSet(
        source=_SOURCE,
        ids=tuple(found),
        notes=tuple(notes),
        # Tables may be given by themselves; then the images are beside them, if anywhere.
        root=root if folder != root else root.parent,
        version=folder.resolve().name,
        tracks=found,
        captions={} if options.captions is None else read_caption_file(root / options.captions),
        options=options,
    )


def _clips_of(track: Track, options: NuScenesOptions) -> tuple[dict[str, Track], list[str]]:
    """Clips of one camera in one scene, and what was left out."""
    name = f"{track.scene}_{track.camera}"
    notes = [f"{name}: {gap}" for gap in track.gaps(options.rate)]
    if notes and not options.allow_gaps:
        notes.append(f"{name}: no clip crosses these gaps (--option allow_gaps=yes does)")
    parts = [range(len(track))]
    if not options.allow_gaps:
        parts = stretches(track.times_us / 1e6, fps=options.rate)
    # A clip has one lens.
    changes = np.flatnonzero(np.diff(track.calibration)) + 1
    parts = [piece for part in parts for piece in _split(part, changes.tolist())]
    clips: dict[str, Track] = {}
    for part in parts:
        if options.frames is None:
            clips[name if len(parts) == 1 else f"{name}@{part.start:05d}"] = track[part]
            continue
        if len(part) < options.frames:
            notes.append(
                f"{name}@{part.start:05d}: left out, {len(part)} images without a gap where a clip has {options.frames}"
            )
        for start in range(part.start, part.stop - options.frames + 1, options.stride or options.frames):
            clips[f"{name}@{start:05d}"] = track[start : start + options.frames]
    return clips, notes


def _split(part: range, places: Sequence[int]) -> list[range]:
    bounds = [part.start, *(place for place in places if part.start < place < part.stop), part.stop]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _cameras(tables: NuScenesTables, wanted: str) -> tuple[str, ...]:
    if wanted == "all":
        return tables.cameras
    names = tuple(dict.fromkeys(name.strip() for name in wanted.split(",")))
    if unknown := [name for name in names if name not in tables.cameras]:
        raise MeropeError(
            f"no image was taken by {', '.join(unknown)}; there are {', '.join(tables.cameras)}. Choose with cameras "
            "(--option cameras=NAME,NAME)."
        )
    return names


def _scenes(root: Path, tables: NuScenesTables, options: NuScenesOptions) -> tuple[list[str], list[str]]:
    """The scenes to take, and what was left out."""
    notes = list(tables.notes)
    if options.scenes is None:
        return list(tables.scenes), notes
    wanted = read_names(root / options.scenes, part=options.split)
    if missing := sorted(set(wanted) - set(tables.scenes)):
        notes.append(
            f"{len(missing)} of the {len(wanted)} scenes of {options.scenes} are not in the tables: {shortened(missing)}"
        )
    return [scene for scene in tables.scenes if scene in wanted], notes


def _wanted_size(options: NuScenesOptions) -> dict[str, Any] | None:
    if options.height is None:
        return None
    return {"height": options.height, "width": options.width, "crop": options.crop}


def _decode(paths: list[Path], lens: Pinhole, size: dict[str, Any] | None, wanted: Sequence[int]) -> Frames:
    frames = read_pictures([paths[number] for number in wanted])
    if size is None:
        return frames
    fitted = fit_view(frames, lens, **size)[0]
    assert fitted is not None
    return fitted


DATASETS = {
    _SOURCE: DataSet(
        about="nuScenes, read from its tables: images at 12 Hz with the ego pose of each, in metres",
        layout=(
            "v1.0-*/ with sample_data.json, ego_pose.json, calibrated_sensor.json; sample.json and scene.json for scenes\n"
            "samples/CAMERA/*.jpg and sweeps/CAMERA/*.jpg"
        ),
        options=NuScenesOptions,
        open=open_nuscenes,
    ),
}
