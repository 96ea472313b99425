"""Where tests find third-party data: trajectories, lenses and clips that are not part of the repository.

The folder is the environment variable ``MEROPE_SHARED``, else ``shared`` beside the checkout. A test
that needs a file asks :func:`shared_file`, which skips the test and names the file when it is absent.
"""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("MEROPE_SHARED") or REPOSITORY.parent / "shared")


def shared_file(relative: str) -> Path:
    """The path of a shared file or folder; skips the calling test where it is missing."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"third-party data missing: {relative} (set MEROPE_SHARED to the folder that holds it)")
    return path
