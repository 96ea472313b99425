"""Names of files that other files hold: none may lead out of the folder of its data set."""

import os
from pathlib import Path, PurePosixPath

from merope.errors import MeropeError


def below(root: str | os.PathLike[str], name: str) -> Path:
    """The path of a name that a file, list or archive holds: it has to stay in ``root``, as far as the name says.

    Raises:
        MeropeError: if the name is empty, absolute, or has a ``..`` in it, with slashes of either kind.
    """
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or ":" in parts.parts[0] or "\0" in name:
        raise MeropeError(f"the file name {name!r:.200} leads out of the folder of the data set.")
    return Path(root) / parts


def inside(root: str | os.PathLike[str], name: str) -> Path:
    """`below`, for a file that is to be opened: no link on the way may lead out of ``root`` either.

    Raises:
        MeropeError: if the name or a link leads out.
    """
    path = below(root, name)
    if not path.resolve().is_relative_to(Path(root).resolve()):
        raise MeropeError(
            f"the file name {name!r:.200} leads through a link out of {root}. Give the folder that holds the files as root, "
            "or put them there."
        )
    return path
