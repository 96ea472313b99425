"""``python -m tests.fuzz``: mutated pose files by the thousand, each with its expected outcome."""

import argparse
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.cases import KINDS, run

# Beyond what Python has taken by then: a reader that trusts a header runs into it.
MEMORY = 3 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="mutated files of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same files")
    parser.add_argument("--format", action="append", choices=KINDS, help="kind of file; all without")
    flags = parser.parse_args()
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
    return 1 if failed else 0


sys.exit(main())
