"""Which frame each pose of a file is of: by order, by the numbers in the file, or by the names of pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from merope.data.clips.given_frames import by_number
from merope.data.datasets.files import FrameFiles
from merope.data.poses.files import PoseFile
from merope.errors import MeropeError

Match = Literal["order", "number", "name"]


def frame_numbers(found: PoseFile, frames: FrameFiles, *, how: Match) -> list[int]:
    """The number of each pose's frame, from 0, in the order of the poses.

    By "order" there are as many frames as poses, and nothing that the file says of its frames contradicts their order.
    By "number" pose files with frame numbers may leave frames out, by "name" those with names of pictures may be in any
    order.

    Raises:
        MeropeError: if poses and frames cannot be matched so; the message names the option that would.
    """
    if how == "number":
        return _by_number(found, frames)
    if how == "name":
        return _by_name(found, frames)
    count = len(found.poses)
    if frames.num_frames is not None and frames.num_frames != count:
        others = " or ".join(
            f"match={other}" for other, given in (("number", found.frame_ids), ("name", found.names)) if given
        )
        hint = f"; the pose file says which frames it is of: {others}" if others else ""
        raise MeropeError(f"there are {frames.num_frames} frames and {count} poses{hint}")
    ids = found.frame_ids
    if ids is not None and (np.diff(ids) != 1).any():
        raise MeropeError(
            f"its pose file leaves frames out (their numbers go {_shown(ids)}), and as many frames as poses cannot all be "
            "its frames in order; match=number takes the frames of these numbers"
        )
    names = found.names
    if names is not None and frames.names is not None and _tails(names) != list(frames.names):
        raise MeropeError(
            f"its pose file names its frames {_shown(_tails(names))}, and the pictures are {_shown(frames.names)}; "
            "match=name goes by the names"
        )
    if names is not None and frames.names is None and list(names) != sorted(names, key=_order):
        raise MeropeError(
            f"its poses are not in the order of the names that the pose file gives their frames ({_shown(names)}), and "
            "frames of a video have no names; use a folder of pictures with match=name"
        )
    return list(range(count))


def _by_number(found: PoseFile, frames: FrameFiles) -> list[int]:
    ids = found.frame_ids
    if ids is None:
        raise MeropeError("its pose file has no frame numbers, which match=number needs")
    if ids[0] < 0 or (np.diff(ids) <= 0).any():
        raise MeropeError(f"the frame numbers of its pose file do not increase from 0 or more: {_shown(ids)}")
    if frames.num_frames is not None and ids[-1] >= frames.num_frames:
        raise MeropeError(
            f"its pose file is of frames up to {ids[-1]}, counted from 0, and there are {frames.num_frames}"
        )
    return list(ids)


def _by_name(found: PoseFile, frames: FrameFiles) -> list[int]:
    if found.names is None or frames.names is None:
        missing = (
            "its pose file does not name its frames"
            if found.names is None
            else "frames of a video have no names"
        )
        raise MeropeError(f"{missing}, which match=name needs")
    places = {name: number for number, name in enumerate(frames.names)}
    tails = _tails(found.names)
    absent = [name for name in tails if name not in places]
    if absent or len(set(tails)) < len(tails):
        what = f"pictures {_shown(absent)} are missing" if absent else "its pose file names a picture twice"
        raise MeropeError(f"{what}; match=name needs a picture of its own for each pose")
    return [places[name] for name in tails]


def _tails(names: Sequence[str]) -> list[str]:
    return [Path(name).name for name in names]


def _order(name: str) -> list[tuple[int, str]]:
    return by_number(Path(name))


def _shown(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")
