"""Which optional package comes with which extra of this project."""

from importlib.util import find_spec

from merope.errors import MissingDependency

EXTRA_OF = {
    "cdfvd": "fidelity",
    "cv2": "data",
    "matplotlib": "plot",
    "pyarrow": "data",
    "pycolmap": "eval",
    "scipy": "data",
    "sklearn": "data",
    "tensorboard": "tensorboard",
    "torch_fidelity": "fidelity",
    "torchmetrics": "fidelity",
    "transformers": "text",
    "wandb": "wandb",
}


def require(package: str, *, purpose: str) -> None:
    """Stop a command before its work, not after minutes of it, where an optional package is missing.

    Raises:
        MissingDependency: if the package is not installed; the message names the extra that brings it.
    """
    if find_spec(package) is None:
        raise MissingDependency.for_extra(package, extra=EXTRA_OF[package], purpose=purpose)
