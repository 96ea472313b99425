"""What VGGT and VGGT-Omega share: a package that no index has, weights kept from clip to clip, a pose encoding per frame."""

import inspect
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from merope.errors import MissingDependency
from merope.evaluation.estimators.base import identity_of
from merope.evaluation.estimators.learned.conventions import ModelCameras, cameras_of_encoding
from merope.evaluation.estimators.weights import load_into, read_state


def package_note(package: str) -> str:
    """The package and its version, for the reader of a report."""
    version = identity_of("", {}, packages=(package,))["versions"][package]
    return f"{package} {version or 'without a version'}"


def missing_package(package: str, what: str, error: ImportError) -> MissingDependency:
    """What to do where a model's package, which no index has, does not import."""
    if error.name and error.name.split(".")[0] != package:
        return MissingDependency(
            f"{what} pose recovery needs the package '{package}', which is installed and cannot be imported: {error}."
        )
    return MissingDependency(
        f"{what} pose recovery needs the package '{package}', which is not installed. It is installed from its repository's "
        "checkout (pip install -e PATH); docs/estimators.md says which."
    )


def build(
    kind: Any, path: Path, device: str, *, without: tuple[str, ...], ignored: tuple[str, ...]
) -> torch.nn.Module:
    """The model with its weights, on ``device``, without the heads that its constructor can leave out.

    It is kept for the next clip, until another model is asked for or the file is written anew.
    """
    written = path.stat()
    return _built(kind, path, (written.st_mtime_ns, written.st_size), device, without, ignored)


# One at most: a model takes gigabytes, and a run asks for the same one clip after clip.
@lru_cache(maxsize=1)
def _built(
    kind: Any,
    path: Path,
    written: tuple[int, int],
    device: str,
    without: tuple[str, ...],
    ignored: tuple[str, ...],
) -> torch.nn.Module:
    known = inspect.signature(kind).parameters
    off = {name: False for name in without if name in known}
    model: torch.nn.Module = kind(**off)
    dropped = ignored if len(off) == len(without) else ()
    load_into(model, read_state(path), path, ignored=dropped)
    return model.to(device).eval()


def run_encoder(model: torch.nn.Module, images: torch.Tensor, device: str) -> ModelCameras:
    """Cameras of images [T, 3, height, width] from a model that gives ``pose_enc`` [1, T, 9]."""
    kind = torch.device(device).type
    with torch.inference_mode(), torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        encoding = model(images.to(device))["pose_enc"]
    return cameras_of_encoding(encoding[0].float())
