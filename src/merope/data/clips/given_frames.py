"""Given frames of a clip, from a video, a folder of pictures or one picture, brought to a model's size with their lens."""

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from merope.cameras import CameraModel
from merope.data.clips.video import RATE_SLACK, Frames, read_pictures
from merope.errors import MeropeError

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm"}
"""Endings that are read as pictures; any other file is opened as a video."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFrames:
    """The first frames of a clip and, in sentences, how they were taken from their source."""

    frames: Frames
    notes: tuple[str, ...] = ()


def read_given_frames(path: str | Path, *, num_frames: int, fps: float) -> GivenFrames:
    """The first ``num_frames`` frames at ``fps`` of a video file, a folder of pictures or one picture.

    Of a faster video those nearest in time are taken; a slower one is refused, since frames would have to be repeated.
    Pictures of a folder, in the order of the numbers in their names, stand for frames at ``fps``.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        MeropeError: if it cannot be decoded, has too few frames or too low a rate, or its pictures differ in size.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    if path.is_dir():
        return _from_folder(path, num_frames)
    if path.suffix.lower() in PICTURES:
        if num_frames > 1:
            raise MeropeError(
                f"{path} is one picture and {num_frames} frames are to be given. Give a video or a folder of pictures, or "
                "use --prefix-frames 1 if the model takes one frame."
            )
        return GivenFrames(frames=read_pictures([path]))
    return _from_video(path, num_frames, fps)


def _from_folder(folder: Path, num_frames: int) -> GivenFrames:
    entries = pictures_in(folder)
    if len(entries) < num_frames:
        raise MeropeError(
            f"{folder} has {len(entries)} pictures ({', '.join(sorted(PICTURES))}) and {num_frames} frames are to be given."
        )
    pictures = [read_pictures([entry])[0] for entry in entries[:num_frames]]
    for entry, picture in zip(entries, pictures, strict=False):
        if picture.shape != pictures[0].shape:
            raise MeropeError(
                f"{entry} is {picture.shape[0]} x {picture.shape[1]} (height x width), {entries[0].name} is "
                f"{pictures[0].shape[0]} x {pictures[0].shape[1]}. All frames of a clip have one size."
            )
    return GivenFrames(frames=np.stack(pictures))


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a folder, in the order of the numbers in their names; hidden files are none."""
    entries = [entry for entry in folder.iterdir() if entry.suffix.lower() in PICTURES]
    return sorted((entry for entry in entries if not entry.name.startswith(".")), key=by_number)


def by_number(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts frame_9 before frame_10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _from_video(path: Path, num_frames: int, fps: float) -> GivenFrames:
    """Decodes no more than is needed: a prefix is short, a recording may be hours long."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            rate = Fraction(stream.average_rate or 0)
            if float(rate) < fps * (1 - RATE_SLACK):
                raise MeropeError(
                    f"{path} has {float(rate):g} frames a second and the model {fps:g}; frames would have to be repeated. "
                    "Give a video of that rate or a faster one, or a folder of pictures at the model's rate."
                )
            indices = [round(index * float(rate) / fps) for index in range(num_frames)]
            frames: list[np.ndarray] = []
            for index, frame in enumerate(container.decode(stream)):
                while len(frames) < num_frames and index == indices[len(frames)]:
                    frames.append(frame.to_ndarray(format="rgb24"))
                if len(frames) == num_frames:
                    break
    except (av.FFmpegError, IndexError) as error:
        raise MeropeError(f"{path} cannot be decoded as a video ({error}); is the file complete?") from error
    if len(frames) < num_frames:
        raise MeropeError(
            f"{path} ends too early: {num_frames} frames at {fps:g} Hz are to be given, which are its frames 0 to "
            f"{indices[-1]}, and it has {len(frames)} of them. Give a longer video."
        )
    notes = () if indices[-1] == num_frames - 1 else (_taken(indices, rate, fps),)
    return GivenFrames(frames=np.stack(frames), notes=notes)


def _taken(indices: list[int], rate: Fraction, fps: float) -> str:
    shown = ", ".join(map(str, indices[:4])) + (", ..." if len(indices) > 4 else "")
    return f"frames {shown} of the video at {float(rate):g} Hz are given, for {fps:g} Hz"


def fit_view(
    frames: Frames | None, lens: CameraModel, *, height: int, width: int, crop: bool = False
) -> tuple[Frames | None, CameraModel, tuple[str, ...]]:
    """Given frames and their lens, both at ``height`` x ``width``; every remaining point of the image keeps its ray.

    Both are resized where the shape agrees to a pixel, and cut about the middle first under ``crop``. A lens that is for
    frames of the wanted size already stays as it is, and then the frames alone are resized. Returns frames, lens, and
    what was done in sentences.

    Raises:
        MeropeError: if the shape differs and ``crop`` is not set, or the lens is for frames of a third size.
    """
    size = (lens.height, lens.width) if frames is None else frames.shape[1:3]
    if (lens.height, lens.width) not in (size, (height, width)):
        raise MeropeError(
            f"the lens is for frames of {lens.height} x {lens.width} (height x width), the given frames are {size[0]} x "
            f"{size[1]} and {height} x {width} is wanted. Give the lens of the given frames."
        )
    if size == (height, width):
        return frames, lens, ()
    rows, cols = _largest_part(size, height, width)
    cut = (rows, cols) != size
    # Less than a pixel along one side is rounding of the size itself, not another shape.
    if cut and not crop and max(size[0] - rows, size[1] - cols) > 1:
        raise MeropeError(
            f"{'the lens is for' if frames is None else 'the given frames are'} {size[0]} x {size[1]} (height x width), "
            f"another shape than {height} x {width}, which is wanted. Use --crop to cut {size[0] - rows} rows and "
            f"{size[1] - cols} columns about the middle."
        )
    if not crop:
        rows, cols = size
    top, left = (size[0] - rows) // 2, (size[1] - cols) // 2
    own = (lens.height, lens.width) == size
    if cut and crop and not own:
        raise MeropeError(
            f"the lens is for frames of {height} x {width} and the given frames are {size[0]} x {size[1]}, which have to be "
            "cut: give the lens of the given frames, which is cut with them."
        )
    if own:
        lens = lens.crop(top=top, left=left, height=rows, width=cols).resize(height=height, width=width)
    if frames is not None:
        box = (left, top, left + cols, top + rows)
        resized = [
            Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS, box=box)
            for frame in frames
        ]
        frames = np.stack([np.asarray(frame) for frame in resized])
    words = "frames and lens" if frames is not None and own else "frames" if frames is not None else "lens"
    note = f"{words} resized from {rows} x {cols} to {height} x {width}"
    if (rows, cols) != size:
        note += f", the middle of {size[0]} x {size[1]}"
    return frames, lens, (note,)


def _largest_part(size: tuple[int, int], height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the largest part of ``size`` with the shape of ``height`` x ``width``."""
    rows, cols = size
    if rows * width > cols * height:
        return max(1, round(cols * height / width)), cols
    return rows, max(1, round(rows * width / height))
