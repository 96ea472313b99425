"""What stands where a file should be: nothing, a folder, a pipe, a device, a link to nowhere or to itself."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.outcome import REFUSED, Case, reads
from tests.fuzz.seeds import Seed


def mutations(seed: Seed) -> Iterator[Case]:
    """Every file of a seed in turn."""
    for name in seed.files:
        if "points3D" in name or "calibration/" in name or "sparse/cameras." in name:
            # What a lens is in may be missing.
            continue
        others = {key: content for key, content in seed.files.items() if key != name}

        def at(root: Path, name: str = name) -> Path:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            return path

        # Of nuScenes' tables these may be left out.
        spare = name.endswith(("/sample.json", "/scene.json", "/sensor.json"))
        yield Case("missing", others, reads(seed.baseline) if spare else REFUSED)
        yield Case("a folder", others, REFUSED, lambda root, at=at: at(root).mkdir())
        yield Case("a pipe", others, REFUSED, lambda root, at=at: os.mkfifo(at(root)))
        yield Case("a socket", others, REFUSED, lambda root, at=at: _socket(at(root)))
        for device in ("/dev/zero", "/dev/null", "/dev/tty"):
            yield Case(
                device, others, REFUSED, lambda root, at=at, device=device: at(root).symlink_to(device)
            )
        yield Case("a link to nowhere", others, REFUSED, lambda root, at=at: at(root).symlink_to("nowhere"))
        yield Case(
            "a link to itself", others, REFUSED, lambda root, at=at: at(root).symlink_to(at(root).name)
        )
        yield Case(
            "a link to a file",
            {**others, "elsewhere/of.any.name": seed.files[name]},
            reads(seed.baseline),
            lambda root, at=at: at(root).symlink_to(root / "elsewhere/of.any.name"),
        )


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(before)
