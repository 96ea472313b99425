"""Weight files of feature networks: by path or from the model hub, told apart by sha256, never fetched behind one's back."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from merope.errors import MeropeError

OFFLINE_VARIABLES = ("MEROPE_OFFLINE", "HF_HUB_OFFLINE")
_HUB = "hf://"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """The file that most people use for a network: its name, and size and hash where they are known."""

    name: str
    num_bytes: int | None = None
    sha256: str | None = None
    torch_hub_name: str | None = None
    """Its name in torch's cache, where the library that owns it leaves it."""

    def __str__(self) -> str:
        known = [f"{self.num_bytes} bytes"] if self.num_bytes is not None else []
        known += [f"sha256 {self.sha256}"] if self.sha256 is not None else ["sha256 not known here"]
        return f"{self.name} ({', '.join(known)})"


INCEPTION = WeightFile(
    name="weights-inception-2015-12-05-6726825d.pth",
    num_bytes=95_628_359,
    sha256="6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    torch_hub_name="weights-inception-2015-12-05-6726825d.pth",
)
INCEPTION_TORCHSCRIPT = WeightFile(
    name="inception-2015-12-05.pt",
    sha256="f58cb9b6ec323ed63459aa4fb441fe750cfe39fafad6da5cb504a16f19e958f4",
)
I3D_TORCHSCRIPT = WeightFile(
    name="i3d_torchscript.pt",
    num_bytes=51_235_320,
    sha256="bec6519f66ea534e953026b4ae2c65553c17bf105611c746d904657e5860a5e2",
)
I3D_CDFVD = WeightFile(name="i3d_pretrained_400.pt")


def offline() -> bool:
    """Whether ``MEROPE_OFFLINE`` or ``HF_HUB_OFFLINE`` forbids to reach for another machine."""
    return any(
        os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off") for name in OFFLINE_VARIABLES
    )


def find_weights(given: str | Path | None, usual: WeightFile, *, flag: str) -> Path:
    """The weight file: a path, ``hf://OWNER/REPOSITORY/FILE`` of the model hub, or without either torch's cache.

    A file that the hub's cache has is taken from there without a connection.

    Raises:
        MeropeError: if there is none, naming the file, its size and sha256 where known, and ``flag``; so too where it
            would have to be fetched and `offline` forbids it.
    """
    if given is None:
        cached = _in_torch_cache(usual)
        if cached is not None:
            return cached
        raise MeropeError(f"no weights were given: this network needs {usual}. Give it by {flag} PATH.")
    text = str(given)
    if text.startswith(_HUB):
        return _from_hub(text, usual, flag=flag)
    path = Path(given)
    if not path.is_file():
        raise MeropeError(f"{path} is no file; {flag} takes {usual}, or {_HUB}OWNER/REPOSITORY/FILE.")
    return path


def file_sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _in_torch_cache(usual: WeightFile) -> Path | None:
    if usual.torch_hub_name is None:
        return None
    import torch

    path = Path(torch.hub.get_dir()) / "checkpoints" / usual.torch_hub_name
    return path if path.is_file() else None


def _from_hub(name: str, usual: WeightFile, *, flag: str) -> Path:
    parts = name.removeprefix(_HUB).split("/")
    if len(parts) < 3 or not all(parts):
        raise MeropeError(f"{flag} {name} is no file of the hub; write {_HUB}OWNER/REPOSITORY/FILE.")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, file = "/".join(parts[:2]), "/".join(parts[2:])
    try:
        return Path(hf_hub_download(repository, file, local_files_only=offline()))
    except HFValidationError as error:
        raise MeropeError(f"{flag} {name} is no file of the hub: {error}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = (
            f"it is not in the hub's cache, and {' or '.join(OFFLINE_VARIABLES)} forbids to fetch it"
            if offline()
            else f"it cannot be fetched: {str(error).splitlines()[0]:.200}"
        )
        raise MeropeError(
            f"{name}: {why}. The network needs {usual}; give a local file by {flag} PATH."
        ) from error
