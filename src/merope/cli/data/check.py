"""``merope data check``: which clips of a data set or cache are missing, damaged, doubled or badly annotated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.data.reader_options import Reader, reader_options
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.checks.report import CheckReport

# How many clips are named for each kind of finding; all are in the manifest.
_NAMED = 5
_NOTES = 10

Ignored = Literal[
    "missing",
    "corrupt",
    "duplicate",
    "jitter",
    "jumps",
    "rotation-jumps",
    "repeated-poses",
    "unregistered",
    "unit",
]


def check(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    reader: Reader = "folder",
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    source: str | None = None,
    expected: Path | None = None,
    out: Path | None = None,
    name: str = "checked",
    manifest: Path | None = None,
    quick: bool = False,
    strict: bool = False,
    ignore: Annotated[tuple[Ignored, ...], tyro.conf.UseAppendAction] = (),
    max_jitter: float = 1.0,
    near_depth: float = 10.0,
    min_registered: float = 0.9,
    workers: int = 2,
    json: bool = False,
) -> int:
    """Look at every clip of data sets and caches of latents, and say which cannot be used and why.

    Opens each clip, decodes all its frames, and looks at its poses; of a cache it compares the hash of every shard and reads
    its latents. The exit code is 0 if nothing is wrong, and 1 if a clip has one of these findings: missing, corrupt,
    duplicate, jitter, jumps, rotation-jumps, repeated-poses, unregistered, unit. Notes do not count: no-unit (without
    --strict), static, gaps. docs/data.md says what each means.

    Args:
        folders: Folders of clips, roots of another data set with --reader, or caches of latents.
        reader: Kind of data set; `merope data readers` lists them.
        option: An option of the reader, as NAME=VALUE; may be given several times.
        source: Name of the data set that clips are given; by default what they say.
        expected: The clips that should be there: a split, or a text file with a name (ID or SOURCE/ID) on each line.
            Others are not opened.
        out: Split of the clips that can be used, which is written.
        name: Name of that split.
        manifest: JSON file that is written: each clip with its hashes, measurements and findings, and what is missing.
        quick: Read no frames and no latents: files that open, sizes and poses alone. Damage within them, and clips that
            are there twice under two names, go unseen.
        strict: Make it a problem where the unit of a clip is not metres.
        ignore: A finding that does not count; may be given several times.
        max_jitter: Degrees by which a clip may shake from frame to frame, root mean square (merope.data.clips.jitter).
        near_depth: Distance of the nearest surface, metres, from which shaking positions are seen, in clips in metres.
        min_registered: Least share of the frames from the first pose to the last that have one.
        workers: Threads that decode.
        json: Print the manifest and nothing else.
    """
    import json as encoder

    from merope.data.checks.checking import CheckConfig
    from merope.data.checks.expected_clips import read_expected
    from merope.data.selection.splits import write_split
    from merope.files import require_folder, write_text_atomically
    from merope.recipes.check import check_data

    if not folders:
        raise UsageError("name at least one folder of clips or cache of latents.")
    for path in (out, manifest):
        if path is not None:
            require_folder(path.parent)
    config = CheckConfig(
        max_jitter_deg=max_jitter,
        near_depth=near_depth,
        min_registered=min_registered,
        quick=quick,
        strict=strict,
        ignore=tuple(ignore),
    )
    report = check_data(
        folders,
        config,
        reader=reader,
        options=reader_options(reader, option),
        source=source,
        expected=None if expected is None else read_expected(expected),
        workers=workers,
    )
    # Names of inputs, not where they lie.
    made = {
        "command": "data check",
        "inputs": [folder.resolve().name for folder in folders],
        "reader": reader,
        "option": list(option),
        "expected": None if expected is None else expected.name,
    }
    plain = {**report.to_dict(), "made": made}
    if manifest is not None:
        write_text_atomically(manifest, encoder.dumps(plain, indent=1, allow_nan=False) + "\n")
    if out is not None:
        write_split(out, report.split(name, made=made))
    if json:
        print(encoder.dumps(plain, indent=1, allow_nan=False))
    else:
        print("\n".join(_lines(report)))
        if manifest is not None:
            print(f"every clip and finding: {manifest}")
        if out is not None:
            print(f"split of the clips that can be used: {out}")
    return 0 if report.is_clean else 1


def _lines(report: "CheckReport") -> list[str]:
    from merope.data.checks.checking import NOTES, PROBLEMS

    lines = [f"note: {note}" for note in report.notes[:_NOTES]]
    if len(report.notes) > _NOTES:
        lines.append(f"note: {len(report.notes) - _NOTES} more like these, in the manifest")
    lines += [f"problem: {problem}" for problem in report.problems]
    lines += _sets(report)
    meanings = {**PROBLEMS, **NOTES}
    kinds = report.by_kind()
    width = max((len(kind) for kind in kinds), default=0)
    for kind, clips in kinds.items():
        counts = "problem" if report.config.is_problem(kind) else "note"
        lines += ["", f"{kind:<{width}}  {len(clips):>7}  {counts:<7}  {meanings[kind]}"]
        for clip in clips[:_NAMED]:
            text = next(finding.text for finding in clip.findings if finding.kind == kind)
            lines.append(f"  {clip.name}: {text}")
        if len(clips) > _NAMED:
            lines.append(f"  ... {len(clips) - _NAMED} more (--manifest, --json)")
    lines += ["", f"{report.num_sound} of {len(report.clips)} clips can be used"]
    if report.config.quick:
        lines.append("frames and latents were not read (--quick)")
    if report.expected is not None:
        lines.append(f"n_used/n_expected: {len(report.used)}/{len(report.expected)}")
        if report.not_expected:
            lines.append(f"{report.not_expected} clips are there and not expected")
        if not report.is_comparable:
            lines.append(
                "fewer than 99 % of the expected clips: results are not comparable with those on all of them"
            )
    return lines


def _sets(report: "CheckReport") -> list[str]:
    """A table of the folders: what they hold, and measurements in which a wrong unit shows."""
    from statistics import median

    rows = [("folder", "clips", "sound", "unit", "median step", "max baseline", "max jitter")]
    for place in dict.fromkeys(clip.place for clip in report.clips if clip.place):
        clips = [clip for clip in report.clips if clip.place == place]
        measured = [clip for clip in clips if clip.median_step is not None]
        steps = [clip.median_step for clip in measured if clip.median_step is not None]
        far = [clip.largest_baseline for clip in measured if clip.largest_baseline is not None]
        shakes = [clip.jitter_deg for clip in measured if clip.jitter_deg is not None]
        rows.append(
            (
                place,
                str(len(clips)),
                str(sum(map(report.is_sound, clips))),
                ", ".join(sorted({str(clip.unit) for clip in measured})) or "-",
                f"{median(steps):.4g}" if steps else "-",
                f"{max(far):.4g}" if far else "-",
                f"{max(shakes):.3g} deg" if shakes else "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in (0, 3) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
