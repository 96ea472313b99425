"""What must hold before a number may be reported: green tests, and a machine that does nothing else."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BUSY_CORES = 0.10
"""Work of others, in cores, from which on a machine is not idle."""
_SECONDS = 2.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Refused(Exception):
    """The reason for which nothing is reported."""


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds spent since the start of the machine, of us, and of every process by id."""

    at: float
    busy: float
    own: float
    processes: Mapping[int, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Load:
    """What others did on this machine during a stretch of time."""

    cores: float
    """CPU seconds of others per second, those that a hypervisor took from us included."""
    load_average: tuple[float, ...]
    busiest: tuple[tuple[str, float], ...]
    """Names with process ids, and cores each; the busiest first."""

    @property
    def busy(self) -> bool:
        return self.cores > BUSY_CORES

    def __str__(self) -> str:
        who = ", ".join(f"{name} {cores:.2f}" for name, cores in self.busiest) or "nobody by name"
        averages = " ".join(f"{value:.2f}" for value in self.load_average)
        return f"others use {self.cores:.2f} cores (at most {BUSY_CORES:.2f} is idle): {who}; load average {averages}"


def sample(*, processes: bool = False) -> Sample:
    """Now; which process did what costs a look at each of them.

    Raises:
        Refused: if the system does not tell what its CPUs do.
    """
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except (OSError, ValueError, IndexError) as error:
        raise Refused(
            f"no /proc/stat says whether other programs are running ({error}). --busy-ok measures all the same."
        ) from None
    # user nice system idle iowait irq softirq steal; what follows is counted in user already.
    busy = (sum(fields[:8]) - fields[3] - fields[4]) / _TICKS
    return Sample(time.perf_counter(), busy, sum(os.times()[:4]), _processes() if processes else {})


def _processes() -> dict[int, tuple[str, float]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (folder / "stat").read_text().rpartition(")")
        except OSError:
            # It has ended since.
            continue
        fields = tail.split()
        found[int(folder.name)] = (head.split("(", 1)[1], (int(fields[11]) + int(fields[12])) / _TICKS)
    return found


def load_between(before: Sample, after: Sample, *, load_average: tuple[float, ...] = ()) -> Load:
    """What others did between two samples."""
    seconds = after.at - before.at
    others = (after.busy - before.busy) - (after.own - before.own)
    spent = []
    for number, (name, total) in after.processes.items():
        cores = (total - before.processes.get(number, (name, 0.0))[1]) / seconds
        if number != os.getpid() and cores >= 0.01:
            spent.append((f"{name} ({number})", cores))
    spent.sort(key=lambda entry: -entry[1])
    return Load(max(others / seconds, 0.0), load_average, tuple(spent[:5]))


def watch(seconds: float = _SECONDS) -> Load:
    """Look at the machine for a while, doing nothing."""
    before = sample(processes=True)
    time.sleep(seconds)
    return load_between(before, sample(processes=True), load_average=os.getloadavg())


def require_idle(load: Load, *, busy_ok: bool) -> None:
    """Raise Refused on a busy machine unless the caller wants a report that says BUSY."""
    if load.busy and not busy_ok:
        raise Refused(
            f"the machine is not idle: {load}. Another process on two cores can triple a figure. "
            "Wait for it to end, or mark the report with --busy-ok."
        )


def test_command(*tests: str) -> list[str]:
    """The command whose exit status says whether what these tests cover may be measured at all."""
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", *tests]


def require_green(command: list[str]) -> str:
    """Run tests; the last line that they print.

    Raises:
        Refused: if a test fails, or none could run.
    """
    ran = subprocess.run(
        command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    if ran.returncode != 0:
        raise Refused(
            f"the tests of what is measured are not green (exit status {ran.returncode} of {' '.join(command[1:])}): "
            + " | ".join(said[-5:])
            + ". What is wrong has no speed; --trust-tests leaves them out, and the report says so."
        )
    return said[-1] if said else ""


def busy_reasons(
    idle: Mapping[str, Mapping[str, Any]], stretches: Iterable[tuple[str, float | None]]
) -> list[str]:
    """When others worked on the machine: before or after the run (``idle``), or in a stretch of it, given its name."""
    reasons = [f"{when} the run {load['text']}" for when, load in idle.items() if load["busy"]]
    for name, cores in stretches:
        if cores is None or cores > BUSY_CORES:
            words = "nobody can say what others did" if cores is None else f"others used {cores:.2f} cores"
            reasons.append(f"{words} during {name}")
    return reasons


def sample_or_none() -> Sample | None:
    """`sample`, or None where the system does not tell."""
    try:
        return sample()
    except Refused:
        return None


def cores_between(before: Sample | None, after: Sample | None) -> float | None:
    """Cores that others used between two samples; None where nobody can say."""
    return load_between(before, after).cores if before and after else None
