"""``merope info``: what is installed and what this machine can do."""

import importlib.metadata
import os
import platform
from json import dumps

import merope
from merope.cli.extras import EXTRA_OF

CORE = ("torch", "numpy", "diffusers", "accelerate", "safetensors", "numba", "av", "pillow", "tyro")


def versions() -> dict[str, str | None]:
    """Installed version per package, None where it is missing."""
    found: dict[str, str | None] = {}
    for package in (*CORE, *EXTRA_OF):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def info(*, json: bool = False) -> None:
    """Print versions, devices and optional packages.

    Args:
        json: print one JSON object instead of a table.
    """
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    facts = {
        "merope": merope.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "packages": versions(),
    }
    if json:
        print(dumps(facts, indent=2))
        return
    for name in ("merope", "python", "platform", "cores", "threads"):
        print(f"{name:<14}{facts[name]}")
    print(f"{'devices':<14}{', '.join(devices)}")
    for package, version in versions().items():
        extra = EXTRA_OF.get(package)
        missing = f"missing; pip install 'merope[{extra}]'" if extra else "missing"
        print(f"{package:<14}{version or missing}")
