"""Writing and reading clips: mp4 for eyes, numbered PNG frames for measurement.

Both keep the exact size and the exact number of frames. An mp4 that a writer silently grew to a
multiple of 16 has other intrinsics than the camera that was asked for.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from merope.errors import MeropeError
from merope.files import atomic_path, require_file

# Frame, height, width, colour. Unnamed, since two clips in one call may differ in all three.
Frames = UInt8[np.ndarray, "_ _ _ 3"]

FRAME_PATTERN = "frame_{:05d}.png"

RATE_SLACK = 1e-3
"""Share by which a video may be slower than it is asked to be: 30000/1001 frames a second are 30 to all but clocks."""


def write_video(
    path: str | os.PathLike[str],
    frames: Frames,
    *,
    fps: float | Fraction,
    crf: int = 16,
    odd_size: Literal["error", "pad"] = "error",
) -> None:
    """Write RGB frames as an H.264 mp4 that every player opens.

    The video has the size and the number of the frames given. Its colours are 4:2:0, so it is a
    preview: measure on :func:`write_frames`. 4:2:0 halves both sides, hence ``odd_size``: refuse, or
    repeat the last row or column once. The file appears only when it is complete.

    Raises:
        ValueError: for no frames, a rate that is not positive, or an odd size under "error".
    """
    frames = require_frames(frames)
    rate = exact_rate(fps)
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        if odd_size == "error":
            raise ValueError(
                f"frames of {height} x {width} do not fit an mp4: its colours need even sides. Pass "
                "odd_size='pad' to repeat the last row or column, or keep the exact frames with write_frames."
            )
        frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        height, width = frames.shape[1:3]

    with atomic_path(path) as unfinished, av.open(str(unfinished), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = 1 / rate
        # Without B frames the first frame is at time zero and every decoder returns them in order.
        stream.options = {"crf": str(crf), "preset": "medium", "bf": "0"}
        for index, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            picture.pts, picture.time_base = index, 1 / rate
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def read_video(path: str | os.PathLike[str], indices: Sequence[int] | None = None) -> tuple[Frames, Fraction]:
    """All frames of a video as RGB, or those that ``indices`` number in increasing order, and its rate as an exact fraction.

    Frames are counted as they are decoded, never sought: seeking is off by some frames in many files.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the indices do not increase from 0 or more.
        MeropeError: if the file holds no video that can be decoded, or ends before the last of the indices.
    """
    wanted = None if indices is None else set(require_increasing(indices))
    rate = read_header(path).fps
    frames = []
    for number, frame in enumerate(decoded_frames(Path(path))):
        if wanted is None or number in wanted:
            frames.append(frame.to_ndarray(format="rgb24"))
        if wanted is not None and len(frames) == len(wanted):
            break
    if not frames or rate is None:
        raise MeropeError(f"{path} holds no video frames")
    if indices is not None and len(frames) < len(indices):
        raise MeropeError(f"{path} ends before frame {indices[-1]}; is the file complete?")
    return np.stack(frames), rate


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoHeader:
    """What a video file says of itself without being decoded."""

    height: int
    """Rows, pixels."""
    width: int
    """Columns, pixels."""
    fps: Fraction | None
    """Frames per second on average; None where the file does not say."""
    num_frames: int | None
    """Frames; None where the file does not say. Decoding may find another number."""


def read_header(path: str | os.PathLike[str]) -> VideoHeader:
    """Size, rate and number of frames of a video, as its file states them.

    Raises:
        FileNotFoundError: if there is no such file.
        MeropeError: if it is no video.
    """
    path = Path(path)
    with _opened(path) as (_, stream):
        return VideoHeader(
            height=stream.height,
            width=stream.width,
            fps=None if stream.average_rate is None else Fraction(stream.average_rate),
            num_frames=stream.frames or None,
        )


def frame_times(path: str | os.PathLike[str]) -> Iterator[float]:
    """Seconds at which each frame of a video is shown, in the order of decoding, as `read_video` numbers them.

    These are the presentation times of the decoded frames, not multiples of a rate: many videos have no constant one.
    Stop when enough have come; the rest is not decoded.

    Raises:
        FileNotFoundError: if there is no such file.
        MeropeError: if the file cannot be decoded, holds no frames, or its times do not increase.
    """
    path, latest = Path(path), None
    for number, frame in enumerate(decoded_frames(path)):
        if frame.pts is None or frame.time_base is None:
            raise MeropeError(f"{path} does not say when its frame {number} is shown")
        time = float(frame.pts * frame.time_base)
        if latest is not None and time <= latest:
            raise MeropeError(
                f"{path}: frame {number} is shown at {time:.6f} s, not after the one before ({latest:.6f} s). "
                "Write the video anew with a program that mends its time stamps."
            )
        latest = time
        yield time
    if latest is None:
        raise MeropeError(f"{path} holds no video frames")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """A video file and its stream; what goes wrong within the block is the file's fault, and said so."""
    require_file(path)
    try:
        with av.open(str(path), metadata_errors="replace") as container:
            if not container.streams.video:
                raise MeropeError(
                    f"{path} cannot be decoded as a video: there is none in it; is the file complete?"
                )
            stream = container.streams.video[0]
            # Of a damaged file, or a codec that is not known here; then nothing else can be asked for.
            if stream.codec_context is None:
                raise MeropeError(f"{path} cannot be decoded as a video: its codec is not known")
            yield container, stream
    except av.FFmpegError as error:
        reason = error.strerror or str(error)
        raise MeropeError(f"{path} cannot be decoded as a video ({reason}); is the file complete?") from error


def decoded_frames(path: Path) -> Iterator[av.VideoFrame]:
    """The frames of a video from the first on; one that the decoder had to make up in part is refused."""
    with _opened(path) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            if frame.is_corrupt:
                raise MeropeError(f"{path} is damaged at frame {number}; fetch it again.")
            yield frame


def write_frames(folder: str | os.PathLike[str], frames: Frames) -> None:
    """Write each frame losslessly as ``frame_00000.png``, ``frame_00001.png``, ... in a new folder.

    An older folder of frames at the same place is replaced as a whole, so a shorter clip leaves no
    frames of a longer one behind.

    Raises:
        MeropeError: if the folder exists and holds anything but such frames.
    """
    frames = require_frames(frames)
    folder = Path(folder)
    if folder.exists():
        foreign = [entry.name for entry in folder.iterdir() if not _is_frame(entry)]
        if foreign:
            raise MeropeError(
                f"{folder} holds other files ({', '.join(sorted(foreign)[:3])}); frames need a folder of their own"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        for index, frame in enumerate(frames):
            Image.fromarray(frame).save(unfinished / FRAME_PATTERN.format(index), compress_level=4)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_frames(folder: str | os.PathLike[str], indices: Sequence[int] | None = None) -> Frames:
    """All frames of a folder written by :func:`write_frames`, or those that ``indices`` number in increasing order.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if the indices do not increase from 0 or more.
        MeropeError: if there are no frames, a number is missing, a picture is damaged, or sizes differ.
    """
    paths = frame_paths(folder)
    if indices is not None:
        chosen = require_increasing(indices)
        if chosen[-1] >= len(paths):
            raise MeropeError(f"{folder} ends before frame {chosen[-1]}: it has {len(paths)} frames")
        paths = [paths[index] for index in chosen]
    return read_pictures(paths)


def read_pictures(paths: Sequence[Path]) -> Frames:
    """Picture files as frames of RGB, grey ones with three equal colours.

    Raises:
        MeropeError: if a picture is missing, damaged or of more than 8 bits of grey, or sizes differ.
    """
    frames: list[np.ndarray] = []
    for path in paths:
        try:
            require_file(path)
            with Image.open(path) as image:
                if image.mode.startswith(("I", "F")):
                    # Pillow would cut them off at 255, which makes a white picture.
                    raise MeropeError(
                        f"{path} holds grey values of more than 8 bits (Pillow's mode {image.mode}), and which of them is "
                        "white is not known. Write it with 8 bits."
                    )
                frames.append(np.asarray(image.convert("RGB")))
        # Pillow raises SyntaxError for a damaged chunk of a PNG.
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise MeropeError(
                f"{path} cannot be read as a picture ({error}); is the file complete?"
            ) from error
        if frames[-1].shape != frames[0].shape:
            raise MeropeError(f"{path} is {frames[-1].shape[:2]}, the first frame {frames[0].shape[:2]}")
    return np.stack(frames)


def frame_paths(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a folder of frames, in order and without a gap, unopened.

    Raises:
        FileNotFoundError: if there is no such folder.
        MeropeError: if there are no frames, or a number is missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(2, "No such folder of frames", str(folder))
    paths = sorted(entry for entry in folder.iterdir() if _is_frame(entry))
    if not paths:
        raise MeropeError(f"{folder} holds no frames; they are named {FRAME_PATTERN.format(0)} and so on")
    for index, path in enumerate(paths):
        if path.name != FRAME_PATTERN.format(index):
            raise MeropeError(
                f"{folder}: {FRAME_PATTERN.format(index)} is missing (the next one is {path.name})"
            )
    return paths


def require_increasing(indices: Sequence[int]) -> Sequence[int]:
    """The frame numbers themselves, if there are any and they increase from 0 or more.

    Raises:
        ValueError: otherwise.
    """
    if len(indices) == 0 or indices[0] < 0 or (np.diff(indices) <= 0).any():
        raise ValueError(
            f"indices must be frame numbers that increase from 0 or more; got {list(indices)[:8]}."
        )
    return indices


def require_frames(frames: np.ndarray) -> Frames:
    """The frames themselves, if they are a clip of 8-bit RGB with at least one frame.

    Raises:
        ValueError: otherwise, naming shape and type.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or 0 in frames.shape:
        raise ValueError(
            f"frames must be uint8 of shape [frame, height, width, 3] with at least one frame, got "
            f"{frames.dtype} of shape {list(frames.shape)}. Scale to 0..255 and round first."
        )
    return frames


def exact_rate(fps: float | Fraction) -> Fraction:
    """A frame rate as a fraction: 29.97 becomes 30000/1001, 12.5 becomes 25/2.

    Raises:
        ValueError: if the rate is not positive and finite.
    """
    if not (np.isfinite(float(fps)) and fps > 0):
        raise ValueError(f"fps must be positive, got {fps}")
    if isinstance(fps, Fraction):
        return fps
    # Broadcast rates are written with two or three digits; the true value has 1001 below the line.
    broadcast = Fraction(round(fps * 1001 / 1000) * 1000, 1001)
    if fps != int(fps) and abs(float(broadcast) - fps) < 5e-3:
        return broadcast
    return Fraction(fps).limit_denominator(1001)


def _is_frame(path: Path) -> bool:
    return path.suffix == ".png" and path.stem.startswith("frame_") and path.stem[6:].isdigit()
