"""What a command prints, kept for every later test that asks the same of the same files."""

import json
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from merope.cli.main import run


@cache
def printed(*arguments: str) -> str:
    """Standard output of ``merope ARGUMENTS``, which has to succeed."""
    out = StringIO()
    with redirect_stdout(out):
        assert run(list(arguments)) == 0, arguments
    return out.getvalue()


def said(*arguments: object) -> Any:
    """The JSON that ``merope ARGUMENTS --json`` prints."""
    return json.loads(printed(*map(str, arguments), "--json"))


def converted(folder: Path, source: Path, *flags: object) -> tuple[np.ndarray, np.ndarray | None]:
    """T_world_cam [pose, 3, 4] and times as ``merope poses convert`` writes them into ``folder``, with every digit."""
    out = folder / f"{len(list(folder.iterdir()))}.json"
    printed("poses", "convert", str(source), str(out), *map(str, flags), "--to", "merope")
    written = json.loads(out.read_text())
    times = written["times"]
    return np.array(written["T_world_cam"]).reshape(-1, 3, 4), None if times is None else np.array(times)


def agrees(value: float, known: str) -> bool:
    """Whether a value rounds to a number of so many digits, or is next to the edge of doing so."""
    mantissa, _, power = known.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(power or 0)
    return abs(value - float(known)) <= 0.5001 * 10.0**-decimals
