"""Plain folders of clips: ``ROOT/CLIP_ID/`` with frames or a video, poses, lens, caption and what else is known.

The format, file by file, is docs/data.md. Reading a clip opens its small files alone; frames stay on disk until they are
asked for.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float16, Float32

from merope.cameras import CameraModel
from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.video import (
    Frames,
    frame_paths,
    read_frames,
    read_header,
    read_video,
    require_frames,
    write_frames,
)
from merope.data.foreign_files.strict_json import parse_json
from merope.data.lenses.files import read_lens
from merope.data.poses.files import load_pose_file, write_poses
from merope.data.poses.table import read_text
from merope.errors import MeropeError
from merope.files import atomic_folder, require_file
from merope.geometry.gravity import Up, unit_up
from merope.geometry.poses import Poses

_FRAMES, _VIDEO, _POSES, _LENS = "frames", "video.mp4", "poses.json", "lens.json"
_CAPTION, _META, _DEPTH = "caption.txt", "meta.json", "depth.npz"
_FORMAT = "merope-clip-1"
_MAX_FPS = 10_000
_KNOWN_META = {"format", "fps", "source", "cluster", "up_world", "provenance"}
# A clip id is the name of a folder, on any system.
_ID = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9._@+-]*")


def clip_ids(root: str | Path) -> list[str]:
    """Names of the clips in a folder, sorted; what has no ``poses.json`` is none.

    Raises:
        FileNotFoundError: if there is no such folder.
        MeropeError: if it holds no clips.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(2, "No such folder of clips", str(root))
    found = sorted(
        path.parent.name for path in root.glob(f"*/{_POSES}") if not path.parent.name.startswith(".")
    )
    if not found:
        raise MeropeError(
            f"{root} holds no clips: there is no CLIP_ID/{_POSES} below it. `merope worlds render` writes such a folder."
        )
    return found


def incomplete_clips(root: str | Path) -> list[str]:
    """Names of folders that hold something of a clip but no ``poses.json``, sorted: `clip_ids` passes over them."""
    signs = (_FRAMES, _VIDEO, _LENS, _META, _DEPTH)
    return sorted(
        entry.name
        for entry in Path(root).iterdir()
        if entry.is_dir()
        and not entry.name.startswith(".")
        and not (entry / _POSES).exists()
        and any((entry / name).exists() for name in signs)
    )


def read_clip(folder: str | Path, *, source: str | None = None) -> Clip:
    """One clip, its frames left on disk. ``source`` goes before what ``meta.json`` says, and the root's name after it.

    The frame rate is that of ``meta.json``, else the video's own. The lens is ``lens.json``, else the one in
    ``poses.json``. Caption, depth and ``meta.json`` may be missing beside a video.

    Raises:
        ClipError: naming the clip, if a file is missing, damaged, or does not fit the others.
    """
    folder = Path(folder)
    clip_id, root = folder.name, folder.resolve().parent.name
    try:
        return _read(folder, clip_id, source, root)
    except (MeropeError, OSError, ValueError, RecursionError) as error:
        raise ClipError(source or root, clip_id, error) from error


def read_clips(
    folders: Iterable[str | Path], *, source: str | None = None, skip_broken: bool = False
) -> Iterator[Clip | ClipError]:
    """The clips in these folders, one after another; ``root / name`` for each of `clip_ids` are all of a root.

    With ``skip_broken`` a clip that cannot be read costs that clip alone: its error stands in its place.

    Raises:
        ClipError: naming the first clip that cannot be read, without ``skip_broken``.
    """
    for folder in folders:
        try:
            yield read_clip(folder, source=source)
        except ClipError as error:
            if not skip_broken:
                raise
            yield error


def require_distinct(folders: Iterable[str | Path], *, source: str | None = None) -> None:
    """Raise unless clips of the same name, in different roots, have different sources; opens ``meta.json`` of these alone.

    Raises:
        ValueError: naming two folders whose clips nothing would tell apart.
    """
    by_name: dict[str, list[Path]] = {}
    for folder in map(Path, folders):
        by_name.setdefault(folder.name, []).append(folder)
    for clip_id, alike in by_name.items():
        seen: dict[str, Path] = {}
        for folder in alike if len(alike) > 1 else []:
            try:
                own = source or _read_meta(folder / _META).get("source", folder.resolve().parent.name)
            except (MeropeError, OSError, ValueError, RecursionError):
                # Reading the clip will say what is wrong with it.
                continue
            if own in seen:
                raise ValueError(
                    f"{seen[own]} and {folder} are both clip {own}/{clip_id}, and clips are told apart by source and "
                    "name. Rename one, or encode its root by itself with a source of its own (--source)."
                )
            seen[own] = folder


def write_clip(
    root: str | Path,
    clip_id: str,
    frames: Frames,
    *,
    poses: Poses,
    lens: CameraModel,
    fps: float,
    source: str,
    caption: str = "",
    cluster: str = "all",
    up_world: Up | None = None,
    provenance: Mapping[str, Any] | None = None,
    depth: Float32[np.ndarray, "_ _ _"] | None = None,
) -> Path:
    """Write a clip's folder in one step, frames lossless; equal arguments give equal bytes.

    ``depth`` is in the poses' unit along the ray of each pixel's centre, infinite in the sky and 0 where a pixel has no
    ray. It is kept in float16, whose steps are at most 0.1 % of the distance; beyond 65 504 it is infinite.

    Raises:
        ValueError: if frames, poses, lens and depth do not fit each other, up is no direction, or the id no plain name.
        FileExistsError: if the clip is there already.
    """
    frames = require_frames(frames)
    if not _ID.fullmatch(clip_id):
        raise ValueError(
            f"clip_id must be letters, digits and . _ @ + - and not begin with a dot; got {clip_id!r}."
        )
    if len(poses) != len(frames) or (lens.height, lens.width) != frames.shape[1:3]:
        raise ValueError(
            f"clip {clip_id}: {len(frames)} frames of {frames.shape[1]} x {frames.shape[2]} need as many poses and a lens "
            f"of their size; got {len(poses)} poses and a lens for {lens.height} x {lens.width}."
        )
    if depth is not None and depth.shape != frames.shape[:3]:
        raise ValueError(
            f"clip {clip_id}: depth must have the shape {frames.shape[:3]} of the frames; got {depth.shape}."
        )
    meta = {
        "format": _FORMAT,
        "fps": fps,
        "source": source,
        "cluster": cluster,
        **({} if up_world is None else {"up_world": unit_up(up_world)}),
        "provenance": dict(provenance or {}),
    }
    folder = Path(root) / clip_id
    with atomic_folder(folder) as unfinished:
        write_frames(unfinished / _FRAMES, frames)
        write_poses(unfinished / _POSES, poses, format="merope", camera=lens.to_dict())
        _write_json(unfinished / _LENS, lens.to_dict())
        _write_json(unfinished / _META, meta)
        if caption:
            (unfinished / _CAPTION).write_text(caption + "\n", encoding="utf-8")
        if depth is not None:
            with np.errstate(over="ignore"):
                np.savez_compressed(unfinished / _DEPTH, depth=depth.astype(np.float16))
    return folder


def _read(folder: Path, clip_id: str, source: str | None, root: str) -> Clip:
    meta = _read_meta(folder / _META)
    pose_file = load_pose_file(folder / _POSES, format="merope")
    if pose_file.pose_policy is not None:
        raise MeropeError(
            f"{_POSES} says that its poses are those of latent frames (pose_policy {pose_file.pose_policy!r}); a clip has "
            "one for each frame"
        )
    if (folder / _LENS).exists():
        lens = read_lens(folder / _LENS)
    elif pose_file.camera is not None:
        try:
            lens = CameraModel.from_dict(pose_file.camera)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise MeropeError(f"{_POSES} has no lens that can be read: {error}") from error
    else:
        raise MeropeError(f"there is no {_LENS}, and no lens in {_POSES}")
    decode, own_rate = _decoder(folder, len(pose_file.poses))
    fps = meta.get("fps", own_rate)
    if fps is None:
        raise MeropeError(f'{_META} does not say "fps", which pictures need')
    depth, up = folder / _DEPTH, meta.get("up_world")
    return Clip(
        clip_id=clip_id,
        poses=pose_file.poses,
        lens=lens,
        fps=float(fps),
        decode=decode,
        decode_depth=(lambda indices: _read_depth(depth, indices)) if depth.exists() else None,
        caption=read_text(folder / _CAPTION).strip() if (folder / _CAPTION).exists() else "",
        source=source or meta.get("source", root),
        cluster=meta.get("cluster", "all"),
        up_world=None if up is None else unit_up(up),
        provenance=meta.get("provenance", {}),
    )


def _decoder(folder: Path, num_poses: int) -> tuple[Any, float | None]:
    """What decodes frames by number, and the rate of a video."""
    if (folder / _FRAMES).is_dir():
        count = len(frame_paths(folder / _FRAMES))
        if count != num_poses:
            raise MeropeError(f"there are {count} frames and {num_poses} poses")
        return lambda indices: read_frames(folder / _FRAMES, indices), None
    video = folder / _VIDEO
    if not video.exists():
        raise MeropeError(f"there is neither {_FRAMES}/ nor {_VIDEO}")
    header = read_header(video)
    # Some containers do not say; then decoding finds out.
    if header.num_frames is not None and header.num_frames != num_poses:
        raise MeropeError(f"{_VIDEO} has {header.num_frames} frames and there are {num_poses} poses")
    return lambda indices: read_video(video, indices)[0], None if header.fps is None else float(header.fps)


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    meta = parse_json(read_text(path))
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise MeropeError(f'{path.name} is not of this format: it needs "format": "{_FORMAT}"')
    if unknown := sorted(set(meta) - _KNOWN_META):
        raise MeropeError(f'{path.name} has unknown entries {unknown}; other facts go under "provenance"')
    for name, kind in (("fps", int | float), ("source", str), ("cluster", str), ("provenance", dict)):
        if name in meta and (not isinstance(meta[name], kind) or isinstance(meta[name], bool)):
            raise MeropeError(f"{path.name}: {name!r} is {meta[name]!r:.60}")
    up = meta.get("up_world")
    if up is not None and not (isinstance(up, list) and all(type(value) in (int, float) for value in up)):
        raise MeropeError(f"{path.name}: 'up_world' is {up!r:.60} and no list of three numbers")
    if not 0 < meta.get("fps", 1) <= _MAX_FPS:
        raise MeropeError(f"{path.name}: fps must be > 0 and at most {_MAX_FPS}; got {meta['fps']!r:.60}")
    return meta


def _read_depth(path: Path, indices: Sequence[int]) -> Float16[np.ndarray, "_ _ _"]:
    try:
        require_file(path)
        with np.load(path, allow_pickle=False) as archive:
            return archive["depth"][list(indices)]
    # A damaged archive raises whatever its bytes lead zipfile and NumPy to: tokenize.TokenError was seen.
    except Exception as error:
        raise MeropeError(f"{path} holds no depth of these frames: {error}") from error


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
