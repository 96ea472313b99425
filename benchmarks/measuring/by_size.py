"""A benchmark over several sizes: each in a process of its own, so that the peak memory of one is not that of another."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np


def run_by_size(
    script: str,
    about: str | None,
    *,
    sizes: Sequence[int],
    of: str,
    measure: Callable[[int], dict],
    check: Callable[[int], dict],
    passes: Callable[[dict], bool],
    markdown: Callable[[list[dict], str], str],
) -> int:
    """The command line of ``script``, a benchmark that measures ``sizes``, numbers ``of`` something; its exit status.

    ``--check N`` prints what ``check`` says of N and fails unless it ``passes``. Otherwise JSON and Markdown files named
    after the script are written.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(sizes), help=f"numbers of {of}")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="folder of the two files")
    parser.add_argument(
        "--check", type=int, metavar="N", help=f"compare N {of} with brute force instead of measuring"
    )
    parser.add_argument(
        "--one", type=int, metavar="N", help="one size in this process, as JSON on standard output"
    )
    arguments = parser.parse_args()
    if arguments.check:
        result = check(arguments.check)
        print(json.dumps(result))
        return 0 if passes(result) else 1
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return 0
    results = []
    for size in arguments.sizes:
        command = [sys.executable, script, "--one", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            return 1
        results.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(results[-1]), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / Path(script).stem
    target.with_suffix(".json").write_text(
        json.dumps({"machine": machine, "sizes": results}, indent=1) + "\n"
    )
    target.with_suffix(".md").write_text(markdown(results, machine))
    return 0
