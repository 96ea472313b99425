"""Files that several data sets have: videos by their names, captions by the names of clips, and numbers for each clip."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from merope.data.clips.given_frames import PICTURES, pictures_in
from merope.data.clips.video import Frames, read_header, read_pictures, read_video
from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.table import plain_number, read_lines, read_text
from merope.errors import MeropeError

VIDEO_SUFFIXES = (".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v")
"""Endings of files that are taken for videos."""


def videos_in(folder: Path) -> dict[str, tuple[str, ...]]:
    """Names of the video files in a folder by their stems; one stem may have several endings."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith("."):
            found[path.stem] = (*found.get(path.stem, ()), path.name)
    return found


def chosen_folder(
    root: Path, given: str | None, candidates: Sequence[str], *, holds: str, option: str
) -> Path:
    """The folder below ``root`` that an option names, else the only candidate with files of this pattern.

    ``holds`` is a glob pattern, or "videos".

    Raises:
        FileNotFoundError: if there is no folder of the given name.
        MeropeError: if no candidate has such files, or several have.
    """
    if given is not None:
        if not (root / given).is_dir():
            raise FileNotFoundError(2, f"No such folder ({option}={given!r})", str(root / given))
        return root / given
    found = []
    for name in candidates:
        folder = root / name
        if not folder.is_dir():
            continue
        if videos_in(folder) if holds == "videos" else any(folder.glob(holds)):
            found.append(name)
    if len(found) != 1:
        what = "none of them has" if not found else f"{' and '.join(found)} have"
        raise MeropeError(
            f"{root}: {holds} are looked for in {', '.join(candidates)}, and {what} any. Name the folder with {option}."
        )
    return root / found[0]


def only_video(folder: Path, found: Mapping[str, Sequence[str]], stems: Sequence[str]) -> Path:
    """The video that has one of these stems.

    Raises:
        MeropeError: if there is none, or more than one.
    """
    names = [name for stem in dict.fromkeys(stems) for name in found.get(stem, ())]
    if not names:
        raise MeropeError(f"there is no video {' or '.join(dict.fromkeys(stems))} in {folder.name}")
    if len(names) > 1:
        raise MeropeError(f"{' and '.join(names)} in {folder.name} could both be its video; keep one")
    return folder / names[0]


def video_frames(path: Path, numbers: Sequence[int], wanted: Sequence[int]) -> Frames:
    """The frames of a video that a clip has at the places ``wanted``, where ``numbers`` are its frames in the video."""
    return some_frames(partial(_of_video, path), numbers, wanted)


def some_frames(
    decode: Callable[[Sequence[int]], Frames], numbers: Sequence[int], wanted: Sequence[int]
) -> Frames:
    """The frames that a clip has at the places ``wanted``, where ``numbers`` are its frames in what ``decode`` reads."""
    return decode([numbers[place] for place in wanted])


def read_captions(path: Path) -> dict[str, str]:
    """Captions by the names of clips, from a JSON object of texts; of a list of texts the first is taken.

    Raises:
        MeropeError: if the file is no such object.
    """
    try:
        content = parse_json(read_text(path))
        if not isinstance(content, dict):
            raise ValueError("the outermost value is no object")
        captions = {}
        for name, value in content.items():
            text = value[0] if isinstance(value, list) and value else value
            if not isinstance(text, str):
                raise ValueError(f"the caption of {name!r} is {value!r:.60}")
            captions[name] = " ".join(text.split())
    except (ValueError, RecursionError) as error:
        raise MeropeError(f'{path} must be a JSON object {{"CLIP_ID": "caption", ...}}: {error}.') from None
    return captions


def read_factors(path: Path) -> float | dict[str, float]:
    """Factors from a text file: one number for all clips, or a line "CLIP_ID FACTOR" for each.

    Raises:
        MeropeError: if a line is neither, a factor is not positive and finite, or a name stands twice.
    """
    factors: dict[str, float] = {}
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), start=1)]
    lines = [(number, fields) for number, fields in lines if fields]
    for number, fields in lines:
        name = fields[0] if len(fields) == 2 else ""
        try:
            factor = plain_number(fields[-1])
        except ValueError:
            factor = float("nan")
        if not (0 < factor < float("inf")) or len(fields) > 2 or (len(fields) == 1 and len(lines) > 1):
            raise MeropeError(
                f"{path}, line {number} must be 'CLIP_ID FACTOR' with a positive factor, or the file one number for "
                f"all clips; got {' '.join(fields)!r:.60}."
            )
        if name in factors:
            raise MeropeError(f"{path}, line {number}: {name} has a factor already.")
        factors[name] = factor
    return factors.get("", factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFiles:
    """Frames on disk, a video file or a folder of pictures, not decoded yet."""

    height: int
    """Rows, pixels."""
    width: int
    """Columns, pixels."""
    fps: float | None
    """What a video says of its rate."""
    num_frames: int | None
    """Pictures in the folder, or what a video says; None where it says nothing."""
    names: tuple[str, ...] | None
    """File names of pictures; None for a video."""
    decode: Callable[[Sequence[int]], Frames]
    """Frames by their numbers, which increase in a video."""


def frame_files(path: Path) -> FrameFiles:
    """The frames at a path; pictures of a folder in the order of the numbers in their names.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        MeropeError: if it is neither a video nor a folder of pictures.
    """
    if not path.is_dir():
        header = read_header(path)
        return FrameFiles(
            height=header.height,
            width=header.width,
            fps=None if header.fps is None else float(header.fps),
            num_frames=header.num_frames,
            names=None,
            decode=partial(_of_video, path),
        )
    pictures = pictures_in(path)
    if not pictures:
        raise MeropeError(f"{path} holds no pictures ({', '.join(sorted(PICTURES))})")
    height, width = read_pictures(pictures[:1]).shape[1:3]
    return FrameFiles(
        height=height,
        width=width,
        fps=None,
        num_frames=len(pictures),
        names=tuple(picture.name for picture in pictures),
        decode=partial(_of_pictures, pictures),
    )


def _of_video(path: Path, numbers: Sequence[int]) -> Frames:
    return read_video(path, numbers)[0]


def _of_pictures(pictures: Sequence[Path], numbers: Sequence[int]) -> Frames:
    if max(numbers) >= len(pictures):
        raise MeropeError(
            f"{pictures[0].parent} ends before frame {max(numbers)}: it has {len(pictures)} pictures"
        )
    return read_pictures([pictures[number] for number in numbers])


def named_by_star(root: Path, pattern: str, *, option: str) -> dict[str, Path]:
    """Files or folders below ``root`` by what the one ``*`` of a pattern stands for in them, sorted.

    Raises:
        ValueError: if the pattern has not exactly one ``*``.
        MeropeError: if nothing matches.
    """
    before, after = _around_star(pattern, option=option)
    found = {}
    for path in root.glob(pattern):
        if path.name.startswith("."):
            continue
        name = path.relative_to(root).as_posix()
        found[name[len(before) : len(name) - len(after)]] = path
    if not found:
        raise MeropeError(f"{root} holds nothing that matches {pattern}. Say where it is with {option}.")
    return dict(sorted(found.items()))


def for_star(root: Path, pattern: str, name: str, *, option: str) -> Path:
    """The path of a pattern with ``name`` in the place of its ``*``; a pattern without one is the same for all.

    Raises:
        ValueError: if the pattern has more than one ``*``.
    """
    if "*" not in pattern:
        return root / pattern
    before, after = _around_star(pattern, option=option)
    return root / f"{before}{name}{after}"


def _around_star(pattern: str, *, option: str) -> tuple[str, str]:
    before, star, after = pattern.partition("*")
    if not star or "*" in after or pattern.startswith("/") or any(sign in pattern for sign in "?["):
        raise ValueError(
            f"{option} must be a path below the root with one '*' for the clip's name; got {pattern!r}."
        )
    return before, after


def place_of(path: Path, root: Path) -> str:
    """Where a file is, seen from the root, for provenance: no folder of a machine's own appears in it."""
    return Path(os.path.relpath(path, root)).as_posix()
