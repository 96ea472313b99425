"""Frames one at a time, of a video or of a folder of pictures: for what looks at many and keeps none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from merope.data.clips.given_frames import PICTURES, pictures_in
from merope.data.clips.video import decoded_frames, read_pictures, require_increasing
from merope.errors import MeropeError

Frame = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, slots=True)
class Footage:
    """Frames of a video file, or pictures of a folder in the order of the numbers in their names."""

    path: Path
    pictures: tuple[Path, ...]
    """The files of a folder; none for a video."""
    count: int

    def frames(self, indices: Sequence[int]) -> Iterator[Frame]:
        """RGB frames by their numbers, which increase; a video is decoded once, from its start.

        Raises:
            ValueError: if the numbers do not increase from 0 or more.
            MeropeError: if a frame cannot be read, or there are fewer.
        """
        wanted = list(require_increasing(indices))
        if wanted[-1] >= self.count:
            raise MeropeError(f"{self.path} ends before frame {wanted[-1]}: it has {self.count} frames.")
        if self.pictures:
            yield from (read_pictures([self.pictures[index]])[0] for index in wanted)
            return
        chosen, found = set(wanted), 0
        for number, frame in enumerate(decoded_frames(self.path)):
            if number in chosen:
                found += 1
                yield frame.to_ndarray(format="rgb24")
            if number >= wanted[-1]:
                break
        if found < len(wanted):
            raise MeropeError(f"{self.path} ends before frame {wanted[-1]}; is the file complete?")


def open_footage(path: str | Path) -> Footage:
    """The frames of a video, counted by decoding them, or the pictures of a folder.

    Raises:
        FileNotFoundError: if there is neither.
        MeropeError: if the video cannot be decoded, or the folder holds no pictures.
    """
    path = Path(path)
    if path.is_dir():
        pictures = tuple(pictures_in(path))
        if not pictures:
            raise MeropeError(f"{path} holds no pictures ({', '.join(sorted(PICTURES))}).")
        return Footage(path, pictures, len(pictures))
    if not path.exists():
        raise FileNotFoundError(2, "No such video or folder of pictures", str(path))
    # Headers of containers are wrong about it too often.
    count = sum(1 for _ in decoded_frames(path))
    if count == 0:
        raise MeropeError(f"{path} holds no video frames.")
    return Footage(path, (), count)
