"""``python -m tests.fuzz``: mutated pose files by the thousand, each with its expected outcome."""

import argparse
import resource
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from merope.cli.main import run as run_command
from merope.recipes.tiny_wan import make_tiny_wan
from tests.fuzz.broken_clips import commands, cut, name_of, write_clips
from tests.fuzz.cases import KINDS, run

# Beyond what Python has taken by then: a reader that trusts a header runs into it.
MEMORY = 3 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="mutated files of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same files")
    parser.add_argument("--format", action="append", choices=KINDS, help="kind of file; all without")
    parser.add_argument(
        "--clips", type=int, help="clips in a folder with one broken video; 1000, or 0 with --format"
    )
    flags = parser.parse_args()
    if flags.clips is None:
        flags.clips = 0 if flags.format else 1000
    status = Path("/proc/self/statm").read_text().split()
    used = int(status[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    total, failed = Counter[str](), 0
    for kind in flags.format or KINDS:
        begun = time.monotonic()
        with TemporaryDirectory() as scratch:
            report = run(kind, count=flags.count, seed=flags.seed, scratch=Path(scratch))
        outcomes = ", ".join(f"{number} {name}" for name, number in sorted(report.outcomes.items()))
        print(
            f"{kind}: {outcomes}; {len(report.defects)} wrong ({time.monotonic() - begun:.0f} s)", flush=True
        )
        for defect in report.defects[:20]:
            print(f"  {defect}", flush=True)
        total += report.outcomes
        failed += len(report.defects)
    print(f"{total.total()} files, {failed} with another outcome than expected")
    return 1 if failed + broken_videos(flags.clips) else 0


def broken_videos(count: int) -> int:
    """How many commands do not go on over a broken video, or do not name it."""
    failed = 0
    with TemporaryDirectory() as scratch:
        root, out = Path(scratch) / "clips", Path(scratch) / "out"
        if count:
            write_clips(root, count)
            cut(root / name_of(count // 2) / "video.mp4")
            model = make_tiny_wan(Path(scratch) / "wan")
        for name, command in commands(root, out, model).items() if count else ():
            begun, told = time.monotonic(), StringIO()
            with redirect_stdout(told), redirect_stderr(told):
                code = run_command(command)
            right = code == (name == "check") and name_of(count // 2) in told.getvalue()
            failed += not right
            seconds = time.monotonic() - begun
            outcome = "named, and the rest went on" if right else f"exit code {code}"
            print(f"a broken video among {count}, {name}: {outcome} ({seconds:.0f} s)", flush=True)
    return failed


sys.exit(main())
