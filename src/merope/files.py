"""Files and folders that appear whole or not at all: written under a temporary name, then moved into place."""

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` with the same ending; it replaces ``path`` if the block succeeds.

    The folder is made where it is missing. After an error the temporary file is gone and ``path`` is untouched.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}.{_token()}.tmp{target.suffix}")
    try:
        yield temporary
        # Some writers (safetensors) leave files that only their owner can read; a new file has the usual mode.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def require_new_folder(path: Path) -> None:
    """Raise unless `atomic_folder` could become this folder: for what would be found out after long work.

    Raises:
        FileExistsError: if ``path`` is there and not an empty folder.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(errno.EEXIST, "already there; choose another folder or delete it", str(path))


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder beside ``path``, which becomes ``path`` if the block succeeds and is gone if it fails.

    Raises:
        FileExistsError: if ``path`` is there and not an empty folder.
    """
    target = Path(path)
    require_new_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{_token()}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def only_process(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Within the block no other process enters one on the same ``path``, a file that is made and stays; False if one has.

    The lock ends with its process, however that ends. A file system that knows no locks says True to all.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(descriptor)


def require_file(path: str | os.PathLike[str]) -> int:
    """The size in bytes of a file that can be read to its end: a pipe would be waited on, and a device has no end.

    Raises:
        OSError: naming the path, if it is missing, a folder, or neither file nor folder.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a file but a pipe, a socket or a device", str(path))
    return status.st_size


def require_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder where it is missing: a command stops before its work, not after, where it cannot write.

    Raises:
        OSError: if something else has that name, or nothing can be written there.
    """
    Path(path).mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text to ``path`` in one step."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _token() -> str:
    """Drawn, not the process id: containers that share a file system, or start again, have equal ids."""
    return secrets.token_hex(4)
