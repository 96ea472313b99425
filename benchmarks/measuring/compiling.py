"""Whether torch.compile works here, and what it said if not."""

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
