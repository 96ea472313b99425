"""Text for a terminal: columns that stand under each other, and prose of bounded width."""

import textwrap
from collections.abc import Sequence

_WIDTH = 120


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,), indent: str = "") -> list[str]:
    """Lines whose cells are padded to common widths, the first one underlined; columns not in ``left`` end flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        indent
        + "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], indent + "  ".join("-" * width for width in widths), *lines[1:]]


def wrapped(text: str, *, indent: str = "") -> list[str]:
    """Lines of at most 120 characters, two further in from the second on; words, such as paths, are never broken."""
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
