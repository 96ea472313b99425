"""What a command prints, kept for every later test that asks the same of the same files."""

import json
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any

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


def agrees(value: float, known: str) -> bool:
    """Whether a value rounds to a number of so many digits, or is next to the edge of doing so."""
    mantissa, _, power = known.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(power or 0)
    return abs(value - float(known)) <= 0.5001 * 10.0**-decimals
