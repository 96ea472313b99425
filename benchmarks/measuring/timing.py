"""Interleaved rounds: every column once a round, in an order of its own, and ratios taken within a round."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MIN_ROUNDS = 3
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float


@dataclass(slots=True)
class Rounds:
    """Seconds of every column in every round."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    """CPU time of the process, all of its threads."""
    order: list[list[str]] = field(default_factory=list)


def round_order(names: Sequence[str], number: int, *, seed: int = 0) -> list[str]:
    """The order of columns in a round: shuffled anew each time, so that no column has the same neighbour always."""
    shuffled = list(names)
    random.Random(seed * 1_000_003 + number).shuffle(shuffled)
    return shuffled


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    seconds: float,
    seed: int = 0,
    wait: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Rounds:
    """Time every column once a round: ``rounds`` of them, fewer once ``seconds`` are over, but never below three.

    ``wait`` returns when the device has finished. Nothing is warmed up here.
    """
    taken = Rounds({name: [] for name in runs}, {name: [] for name in runs})
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = clock()
        for number in range(rounds):
            if number >= MIN_ROUNDS and clock() - started > seconds:
                break
            order = round_order(list(runs), number, seed=seed)
            for name in order:
                wait()
                cpu, wall = cpu_clock(), clock()
                result = runs[name]()
                wait()
                taken.wall[name].append(clock() - wall)
                taken.cpu[name].append(cpu_clock() - cpu)
                # Freed before the next column's clock starts.
                del result
            taken.order.append(order)
    finally:
        if collecting:
            gc.enable()
    return taken


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles; of fewer than three values the ends."""
    if len(values) < MIN_ROUNDS:
        return Spread(statistics.median(values), min(values), max(values))
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def paired_ratio(values: Sequence[float], reference: Sequence[float]) -> Spread:
    """The ratio within each round, then its median and quartiles: what slows a whole round cancels."""
    return spread([value / base for value, base in zip(values, reference, strict=True)])


def fastest(rounds: Rounds, names: Sequence[str]) -> str:
    """Of these columns, the one with the least median of wall time."""
    return min(names, key=lambda name: statistics.median(rounds.wall[name]))
