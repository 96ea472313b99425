"""One whole measurement: the main shape in every scope and direction, one thread beside it, memory, and the sweeps.

What comes out is one dictionary of JSON values:

- ``points``: timings of a shape, scope, direction and number of threads, ``purpose`` "main", "one thread", "frames" or
  "tokens"; every round's seconds are kept.
- ``memory``: bytes of a column, under the same keys.
- ``absent``: columns that could not be measured, and why; ``incomplete``: memory that could not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ..measuring.compiling import first_line, why_no_compiler
from ..measuring.guards import Refused, cores_between, sample_or_none
from ..measuring.memory import MemoryFailed
from ..measuring.timing import Rounds, fastest, interleaved, paired_ratio, spread
from .columns import Column, columns_for
from .memory import weighed_apart
from .options import Options
from .scopes import Case, Direction, Scope, make_case
from .shapes import BACKWARD_TOKENS, Shape, frame_sweep, token_sweep

# Largest difference between two ways to compute the same, relative to the largest entry.
_AGREEMENT = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


class Session:
    """Runs the measurements of one command and keeps what they gave."""

    def __init__(self, options: Options, step: Callable[[str], None], *, device: str, threads: int) -> None:
        self.options = options
        self.step = step
        """Called with a line before everything that takes time."""
        self.device = device
        self.threads = threads
        self.points: list[dict[str, Any]] = []
        self.memory: list[dict[str, Any]] = []
        self.absent: dict[str, str] = {}
        self.incomplete: list[str] = []

    def run(self) -> dict[str, Any]:
        """Everything that the options ask for.

        Raises:
            Refused: if two ways to compute the same encoding disagree.
        """
        options, shape = self.options, self.options.resolved_shape
        columns, self.absent = columns_for(
            options.methods,
            shape,
            device=self.device,
            dtype=getattr(torch, options.dtype),
            compile_reason=why_no_compiler(),
        )
        for scope in options.scopes:
            for direction in options.resolved_directions:
                main = self.time(shape, scope, direction, columns, purpose="main")
                chosen = shortlist(main, columns, every_merope=True)
                if self.device == "cpu" and self.threads > 1 and options.one_thread:
                    self.time(shape, scope, direction, chosen, purpose="one thread", threads=1)
                self.weigh(shape, scope, direction, chosen, purpose="main")
        if options.sweeps:
            self.sweep(shape, columns)
        return {
            "points": self.points,
            "memory": self.memory,
            "absent": self.absent,
            "incomplete": self.incomplete,
        }

    def sweep(self, shape: Shape, columns: Sequence[Column]) -> None:
        """The core at other numbers of frames, and of tokens in each, with the fastest form of each method."""
        chosen = [
            column
            for column in shortlist(self.points[0], columns, every_merope=False)
            if column.family != "identity" and column.route != "reference"
        ]
        for purpose, shapes in (("frames", frame_sweep(shape)), ("tokens", token_sweep(shape))):
            for other in shapes:
                for direction in self.options.resolved_directions:
                    if direction == "forward" or other.tokens <= BACKWARD_TOKENS:
                        self.time(other, "core", direction, chosen, purpose=purpose)
                        self.weigh(other, "core", direction, chosen, purpose=purpose)

    def time(
        self,
        shape: Shape,
        scope: Scope,
        direction: Direction,
        columns: Sequence[Column],
        *,
        purpose: str,
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Interleaved rounds of these columns."""
        threads = threads or self.threads
        self.step(f"{purpose}: {shape.name}, {scope}, {direction}, {threads} threads")
        torch._dynamo.reset()
        torch.set_num_threads(threads)
        cases = self._warm(shape, scope, direction, columns)
        before = sample_or_none()
        rounds = interleaved(
            {name: case.run for name, case in cases.items()},
            rounds=self.options.resolved_rounds,
            seconds=self.options.point_seconds,
            seed=self.options.seed,
            wait=torch.cuda.synchronize if self.device == "cuda" else lambda: None,
        )
        after = sample_or_none()
        torch.set_num_threads(self.threads)
        point = {
            **_key(shape, scope, direction, purpose),
            "threads": threads,
            "others_cores": cores_between(before, after),
            **summary(rounds, {name: case.column for name, case in cases.items()}),
            "geometry_bytes": {name: case.geometry_bytes for name, case in cases.items()},
            "rounds": asdict(rounds),
        }
        self.points.append(point)
        return point

    def _warm(
        self, shape: Shape, scope: Scope, direction: Direction, columns: Sequence[Column]
    ) -> dict[str, Case]:
        """Compile, run twice, and hold the forms of an encoding to each other."""
        cases: dict[str, Case] = {}
        first: dict[str, tuple[str, tuple[torch.Tensor, ...]]] = {}
        for column in columns:
            case = make_case(
                column,
                shape,
                scope,
                direction,
                dtype=getattr(torch, self.options.dtype),
                device=self.device,
                seed=self.options.seed,
            )
            try:
                result = case.compared(case.run())
            except Exception as error:
                if not column.compiled:
                    raise
                # Said in the report: this row is missing, and no other stands for it.
                self.absent[f"{column.name} ({shape.name}, {scope}, {direction})"] = (
                    f"does not compile: {type(error).__name__}: {first_line(error)}"
                )
                continue
            name, expected = first.setdefault(column.family, (column.name, result))
            require_agreement(name, expected, column.name, result, tolerance=_AGREEMENT[self.options.dtype])
            case.run()
            cases[column.name] = case
        return cases

    def weigh(
        self, shape: Shape, scope: Scope, direction: Direction, columns: Sequence[Column], *, purpose: str
    ) -> None:
        """Peak memory of these columns, each in its own process."""
        if not self.options.memory:
            return
        for column in columns:
            self.step(f"memory: {shape.name}, {scope}, {direction}, {column.name}")
            try:
                found = weighed_apart(
                    column.name,
                    shape,
                    scope,
                    direction,
                    dtype=self.options.dtype,
                    device=self.device,
                    threads=self.threads,
                )
            except MemoryFailed as failure:
                # An hour of other measurements is not thrown away: the report says INCOMPLETE and why.
                self.incomplete.append(f"{shape.name}: {failure}")
                continue
            self.memory.append({**_key(shape, scope, direction, purpose), "column": column.name, **found})


def _key(shape: Shape, scope: str, direction: str, purpose: str) -> dict[str, Any]:
    return {
        "purpose": purpose,
        "shape": {**asdict(shape), "tokens": shape.tokens},
        "scope": scope,
        "direction": direction,
    }


def summary(rounds: Rounds, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Medians and paired ratios: to the fastest UCPE (``reference``) and to the faster plain attention (``floor``)."""

    def best(family: str) -> str | None:
        names = [name for name, column in columns.items() if column.family == family]
        return fastest(rounds, names) if names else None

    reference, floor = best("ucpe"), best("sdpa")
    found: dict[str, Any] = {}
    for name in columns:
        found[name] = {"ms": asdict(spread([1e3 * value for value in rounds.wall[name]]))}
        for word, base in (("to_ucpe", reference), ("to_sdpa", floor)):
            if base is not None:
                found[name][word] = asdict(paired_ratio(rounds.wall[name], rounds.wall[base]))
        found[name]["cpu_ms"] = asdict(spread([1e3 * value for value in rounds.cpu[name]]))
        if reference is not None and min(rounds.cpu[reference]) > 0:
            found[name]["cpu_to_ucpe"] = asdict(paired_ratio(rounds.cpu[name], rounds.cpu[reference]))
    return {
        "num_rounds": len(rounds.order),
        "reference": reference,
        "floor": floor,
        "columns": found,
        "op_to_plain": {
            family: asdict(ratio) for family in ("ucpe", "gta") if (ratio := _op_to_plain(family, rounds))
        },
    }


def _op_to_plain(family: str, rounds: Rounds) -> Any:
    """Our op, in its faster form, against the plain implementation; None where one of them is missing."""
    plain = f"{family} plain compiled"
    ours = [name for name in (f"{family} op", f"{family} op compiled") if name in rounds.wall]
    if plain not in rounds.wall or not ours:
        return None
    return paired_ratio(rounds.wall[fastest(rounds, ours)], rounds.wall[plain])


def shortlist(point: Mapping[str, Any], columns: Sequence[Column], *, every_merope: bool) -> list[Column]:
    """The fastest column of each family; of MeRoPE every one, or the fastest of each backend."""
    measured = point["columns"]
    best: dict[str, Column] = {}
    for column in columns:
        if column.name not in measured:
            continue
        group = column.family
        if group == "merope":
            group = column.name if every_merope else f"{group} {column.route}"
        rival = best.get(group)
        if rival is None or measured[column.name]["ms"]["median"] < measured[rival.name]["ms"]["median"]:
            best[group] = column
    return list(best.values())


def require_agreement(
    name: str,
    expected: Sequence[torch.Tensor],
    other: str,
    result: Sequence[torch.Tensor],
    *,
    tolerance: float,
) -> None:
    """Raise Refused if two forms of one encoding gave different answers: their times would compare different things."""
    for index, (x, y) in enumerate(zip(expected, result, strict=True)):
        scale = float(x.abs().max())
        apart = float((x.double() - y.double()).abs().max()) / (scale or 1.0)
        if not apart <= tolerance:
            raise Refused(
                f"{name!r} and {other!r} should compute the same and differ by {apart:.2g} of the largest entry "
                f"(tensor {index}; {tolerance:.0e} is allowed)."
            )


def num_steps(options: Options, *, device: str, threads: int) -> int:
    """About how many steps a session has, for a progress bar."""
    pairs = len(options.scopes) * len(options.resolved_directions)
    weighed = 2 + len(options.methods) + ("merope" in options.methods)
    one_thread = device == "cpu" and threads > 1 and options.one_thread
    steps = pairs * (1 + one_thread + weighed * options.memory)
    if options.sweeps:
        shape = options.resolved_shape
        for other in frame_sweep(shape) + token_sweep(shape):
            for direction in options.resolved_directions:
                if direction == "forward" or other.tokens <= BACKWARD_TOKENS:
                    steps += 1 + (2 + len(options.methods)) * options.memory
    return steps
