"""Where an adapter file is: a path, a folder that holds one, or a name on the model hub."""

from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id

from merope.errors import MeropeError

ADAPTER_FILE = "adapter.safetensors"
_PLACES = (ADAPTER_FILE, f"adapter/{ADAPTER_FILE}")


def find_adapter(path: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> Path:
    """The adapter file that ``path`` means: a file, a folder (also of a whole pipeline), else a hub name ``user/name``.

    What the hub has is kept in its cache and taken from there where it is unchanged, or where the hub cannot be
    reached (``HF_HUB_OFFLINE=1`` asks for that). ``revision`` is a branch, tag or commit of the hub's repository;
    ``token`` as `huggingface_hub` takes it.

    Raises:
        FileNotFoundError: if there is none at any of these places.
        ValueError: if a revision is given of something that is on this machine.
        MeropeError: if the hub refuses access or fails.
    """
    here = Path(path)
    if here.exists() and revision is not None:
        raise ValueError(f"revision {revision!r} is of a hub's repository; {path} is on this machine.")
    if here.is_file():
        return here
    if here.is_dir():
        for place in _PLACES:
            if (here / place).is_file():
                return here / place
        raise FileNotFoundError(f"there is no adapter file in {path}; looked for {' and '.join(_PLACES)}.")
    name = str(path)
    if not _may_be_hub_name(name):
        raise FileNotFoundError(f"there is no adapter file at {path}.")
    return _downloaded(name, revision, token)


def _may_be_hub_name(name: str) -> bool:
    if name.count("/") != 1 or name.endswith(".safetensors"):
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _downloaded(name: str, revision: str | None, token: str | bool | None) -> Path:
    of = f"{name}" + (f" at revision {revision}" if revision else "")
    not_cached: Exception | None = None
    for place in _PLACES:
        # Any: the function's overloads depend on an option that is not used here.
        download: Any = hf_hub_download
        try:
            # A hub that could not be reached once is not asked again.
            asked = {"revision": revision, "token": token, "local_files_only": not_cached is not None}
            return Path(download(name, place, **asked))
        except LocalEntryNotFoundError as error:
            not_cached = error
        except EntryNotFoundError:
            continue
        except GatedRepoError as error:
            raise MeropeError(
                f"the hub gives {name} to people whom its owner lets in: ask on its page, then log in with `hf auth login` "
                "or pass token=."
            ) from error
        except RevisionNotFoundError as error:
            raise FileNotFoundError(f"the hub's repository {name} has no revision {revision!r}.") from error
        except RepositoryNotFoundError as error:
            raise FileNotFoundError(
                f"there is no file or folder {name} here, and the hub shows no repository of that name. A private one "
                "needs `hf auth login` or token=."
            ) from error
        except HfHubHTTPError as error:
            raise MeropeError(f"the hub did not give {of}: {error}") from error
    if not_cached is not None:
        raise FileNotFoundError(
            f"there is no file or folder {name} here, the hub's cache has no adapter of {of}, and the hub cannot be reached "
            "(offline, or HF_HUB_OFFLINE is set). Load it once with a connection."
        ) from not_cached
    raise FileNotFoundError(
        f"the hub's repository {of} holds no adapter; looked for {' and '.join(_PLACES)}."
    )
