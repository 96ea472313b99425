"""Lenses in JSON files, as `CameraModel.to_dict` gives them."""

from pathlib import Path

from merope.cameras import CameraModel
from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.table import read_text
from merope.errors import MeropeError


def read_lens(path: str | Path) -> CameraModel:
    """A lens from a JSON file, as `CameraModel.to_dict` gives it.

    Raises:
        MeropeError: if the file is missing or no lens.
    """
    try:
        content = parse_json(read_text(Path(path)))
        if not isinstance(content, dict):
            raise ValueError(f"a lens is an object with 'model' and its parameters; got {content!r:.60}.")
        return CameraModel.from_dict(content)
    # Numbers of any size and values of any type reach the lens's own arithmetic.
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise MeropeError(f"{path} is no lens: {error}") from None
