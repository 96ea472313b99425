"""Markdown, and what every report says of the run and the machine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def banners(results: Mapping[str, Any]) -> list[str]:
    """What a reader must know before any number."""
    said = [f"VOID: {reason}." for reason in results["void"]]
    said += [f"BUSY: {reason}." for reason in results["busy"]]
    said += [f"INCOMPLETE: {reason}" for reason in results["incomplete"]]
    if results["quick"]:
        said.append(
            "QUICK: sizes at which nothing can be concluded; neither targets nor UCPE's bar are judged."
        )
    if results["tests"] is None:
        said.append("TESTS NOT RUN: they were trusted, not run (--trust-tests).")
    if results["machine"]["uncommitted"]:
        said.append("UNCOMMITTED: the checkout differs from its commit.")
    return said


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def spread_text(values: Mapping[str, float] | None, digits: int) -> str:
    """ "median (low - high)"."""
    if values is None:
        return "-"
    return f"{values['median']:.{digits}f} ({values['low']:.{digits}f} - {values['high']:.{digits}f})"


def count(number: int, word: str) -> str:
    """ "1 round", "2 rounds"."""
    return f"{number} {word}{'s' * (number != 1)}"


def machine_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Machine, versions, load and how memory was read, as a list."""
    for name, value in results["machine"].items():
        yield f"- {name}: {value}"
    for when, load in results["idle"].items():
        yield f"- {when} the run: {load['text']}"
    hows = sorted({entry["how"] for entry in results["memory"]})
    if hows:
        yield f"- peak memory read from: {', '.join(hows)}"
    if results["tests"] is not None:
        yield f"- tests: {results['tests']}"
