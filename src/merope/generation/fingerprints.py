"""What model a clip was made with, told from its files in seconds, whatever their size."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import hf_hub_download

from merope.generation.model_files import trained_transformer

# Parts of a large file that are read: training moves all weights, so a few megabytes of each file tell two apart.
_SAMPLES = 16
_SAMPLE_BYTES = 2**20
_WHOLE_BYTES = _SAMPLES * _SAMPLE_BYTES


def model_fingerprint(name_or_folder: str | Path) -> str:
    """Of a pipeline: the hub's commit, or a hash over model_index.json and the files of the components that it names.

    An adapter and whatever else lies in the folder, such as clips, are left out. Files of more than 16 MiB are read in 16
    places. A folder that is moved or copied keeps its fingerprint.
    """
    folder = Path(name_or_folder)
    if folder.is_dir():
        index = folder / "model_index.json"
        parts = sorted(folder / name for name in json.loads(index.read_text(encoding="utf-8")))
        files = (path for part in parts for path in sorted(part.rglob("*")) if path.is_file())
        kept = [
            path for path in files if not any(name.startswith(".") for name in path.relative_to(folder).parts)
        ]
        return files_fingerprint([index, *kept], folder)
    # Of the form .../snapshots/COMMIT/model_index.json.
    return f"commit:{Path(hf_hub_download(str(name_or_folder), 'model_index.json')).parent.name}"


def adapter_fingerprint(file: Path | None) -> str | None:
    """Of an adapter's file and of the transformer that was trained with it; None without an adapter."""
    if file is None:
        return None
    beside = trained_transformer(file)
    others = [] if beside is None else sorted(path for path in beside.rglob("*") if path.is_file())
    return files_fingerprint([file, *others], file.parent)


def files_fingerprint(files: Iterable[Path], folder: Path) -> str:
    """A hash over the names below ``folder``, sizes and content of files; of large ones, samples of the content."""
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            if size <= _WHOLE_BYTES:
                digest.update(file.read())
                continue
            for sample in range(_SAMPLES):
                file.seek(sample * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return f"sha256:{digest.hexdigest()}"
