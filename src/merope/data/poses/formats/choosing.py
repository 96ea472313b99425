"""Which camera of a file of several is meant: named by the caller, never taken by its place."""

from collections.abc import Sequence
from pathlib import Path

from merope.data.poses.table import PoseFileError, ReadOptions


def chosen_camera(path: Path, options: ReadOptions, names: Sequence[str]) -> str:
    """The camera that the options name, or the only one there is.

    Raises:
        PoseFileError: if none is named where there are several, or there is none of that name; it lists them.
    """
    if options.camera is None:
        if len(names) == 1:
            return names[0]
        raise PoseFileError(
            f"{path} holds {len(names)} cameras: {_listed(names)}. Choose one with camera= (--camera NAME)."
        )
    if options.camera not in names:
        raise PoseFileError(
            f"{path} has no camera {options.camera!r}; camera= (--camera) must be one of {_listed(names)}."
        )
    return options.camera


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name[:60] for name in names[:30])
    return f"{shown} and {len(names) - 30} more" if len(names) > 30 else shown
