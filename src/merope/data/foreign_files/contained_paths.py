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
    """`below`, for a file that is to be opened: no link on the way may lead out, but for one directly in ``root``.

    Users link whole folders into a root ("samples" on another disk), and then that folder is the limit; links further
    down came with the data.

    Raises:
        MeropeError: if the name or a link leads out.
    """
    path = below(root, name)
    top = Path(root) / path.relative_to(root).parts[0]
    limit = top if top.is_symlink() and top.is_dir() else Path(root)
    if not path.resolve().is_relative_to(limit.resolve()):
        raise MeropeError(
            f"the file name {name!r:.200} leads through a link out of {limit}. Put the files there, or link the whole "
            f"folder into {root}."
        )
    return path
