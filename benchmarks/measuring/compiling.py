"""torch.compile: whether it works here, what it said if not, and functions that share nothing of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def why_no_compiler() -> str | None:
    """Why torch.compile cannot make code on this machine, or None: it is tried on a line."""
    try:
        compiled = torch.compile(_one_line, fullgraph=True, dynamic=False)
        compiled(torch.ones(64))
    except Exception as error:  # Whatever the tool chain says; the report repeats it.
        return (
            f"torch.compile fails here, is there a C++ compiler? {type(error).__name__}: {first_line(error)}"
        )
    return None


def _one_line(x: Tensor) -> Tensor:
    return torch.sin(x) * 2 + 1


def first_line(error: Exception) -> str:
    """The first line of an error's text that says anything."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def compiled_alone(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The function, compiled to one graph for fixed shapes, with a code object of its own.

    What was compiled is kept by code object, and functions of one source would share a list of it.
    """
    own: Any = function
    own.__code__ = own.__code__.replace(co_name="_".join(name.split()))
    return torch.compile(own, fullgraph=True, dynamic=False)
