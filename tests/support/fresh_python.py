"""Runs code in a new interpreter, where the shape checks of the test run are not installed.

For ``torch.compile`` (the checks break ``fullgraph``), for what an import pulls in, and for signals.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.shared import REPOSITORY


def run_python(
    code: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """The finished process of ``python -c code``, output as text; the caller looks at returncode."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
