"""``merope benchmark list`` and ``show``: which benchmarks there are, and the protocol of one in words."""

import json as json_text
from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.benchmark.naming import named_benchmark

# Lines of the protocol are folded to this width.
_WIDTH = 110


def list_benchmarks(*, json: bool = False) -> None:
    """List the named benchmarks: clips, frames, estimator, and whether they need a split file.

    Args:
        json: Print one JSON object with the whole protocol of each.
    """
    from merope.evaluation.benchmarks.registry import BENCHMARKS

    if json:
        print(json_text.dumps({name: each.to_dict() for name, each in BENCHMARKS.items()}, indent=1))
        return
    width = max(map(len, BENCHMARKS))
    for each in BENCHMARKS.values():
        split = "needs --split" if each.needs_split else "no split file"
        print(
            f"{each.name:<{width}}  {each.num_clips:>3} clips of {each.num_frames} frames, {each.estimator}, {split}: "
            f"{each.title}"
        )
    print("\nworlds-N and worlds-N-kitti are there for any number of worlds N.")


def show(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")], *, json: bool = False
) -> None:
    """Say a benchmark's protocol, what its split file holds, the commands from data to the table, and the paper's numbers.

    Args:
        name: Its name; `merope benchmark list` has them.
        json: Print one JSON object.
    """
    from merope.evaluation.benchmarks.published import published_tables

    benchmark = named_benchmark(name)
    tables = published_tables(name)
    if json:
        published = [{"title": table.title, "source": table.source, "rows": table.rows} for table in tables]
        print(json_text.dumps({**benchmark.to_dict(), "published": published}, indent=1))
        return
    for line in benchmark.describe().splitlines():
        print(_folded(line))
    print("\ncommands, in this order\n")
    for step in benchmark.steps:
        print(f"  {step}")
    if benchmark.yours:
        print("\nyours in them\n")
        width = max(map(len, benchmark.yours))
        for word, meaning in benchmark.yours.items():
            print(_folded(f"  {word:<{width}}  {meaning}"))
    for table in tables:
        print(f"\n{table.source}: {table.title}\n")
        print(_grid(table.columns, table.rows))


def clips(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    *,
    split: Path | None = None,
    out: Path | None = None,
) -> None:
    """List the clips of a complete run, with the digests of their commands; the file stands for the split.

    Args:
        name: The benchmark; `merope benchmark list` has them.
        split: Its split file or folder, where it needs one.
        out: File that is written, .json or .csv; without it the list is printed.
    """
    from merope.cli.usage import UsageError
    from merope.evaluation.benchmarks.split_files import write_clip_list

    if out is not None and out.suffix not in (".json", ".csv"):
        raise UsageError(f"--out must end in .json or .csv, by which it is read again; got {out}.")
    benchmark = named_benchmark(name)
    expected = benchmark.expected(split)
    if not expected:
        raise UsageError(f"{name} needs --split: {benchmark.split}.")
    if out is None:
        for clip in expected:
            print(f"{clip.clip_id}  {clip.num_frames} frames  {clip.digest or 'no digest'}  {clip.group}")
        return
    write_clip_list(out, benchmark, expected)
    unsaid = sum(clip.digest is None for clip in expected)
    print(f"{len(expected)} clips{f', {unsaid} without a digest' if unsaid else ''}, written to {out}")
    if len(expected) != benchmark.num_clips:
        print(f"{name} has {benchmark.num_clips}: a run of these is not comparable with others of it")


def _folded(line: str) -> str:
    """A name and words, folded behind the name."""
    import textwrap

    margin = len(line) - len(line.lstrip())
    _, gap, words = line[margin:].partition("  ")
    column = len(line) - len(words.lstrip()) if gap else 0
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * column, break_long_words=False)


def _grid(columns: tuple[str, ...], rows: dict[str, dict[str, float]]) -> str:
    from merope.evaluation.protocol import SPECS

    titles = [SPECS[key].label if key in SPECS else key.upper() for key in columns]
    width = max(map(len, rows))
    lines = ["  ".join([" " * width, *(f"{title:>8}" for title in titles)])]
    lines += [
        "  ".join([f"{label:<{width}}", *(f"{values[key]:>8.2f}" for key in columns)])
        for label, values in rows.items()
    ]
    return "\n".join("  " + line for line in lines)
