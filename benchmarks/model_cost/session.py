"""One whole measurement: the branch alone in every form, memory, then whole transformers in interleaved rounds.

What comes out is one dictionary of JSON values:

- ``branch``: what `attention_cost` found for the branch of this size, the core and all of it; the fastest form of
  UCPE and of GTA is what the transformers run with (``forms``).
- ``points``: for each mode every round's seconds, what the operator took of them, and ratios.
- ``memory``: bytes of a method in a mode; ``incomplete``: those that could not be measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from ..attention_cost.columns import Column, columns_for
from ..attention_cost.options import Options as BranchOptions
from ..attention_cost.scopes import Direction
from ..attention_cost.session import Session as BranchSession
from ..measuring.compiling import why_no_compiler
from ..measuring.guards import cores_between, sample_or_none
from ..measuring.memory import MemoryFailed
from ..measuring.timing import Rounds, interleaved, paired_ratio, spread
from .memory import weighed_apart
from .methods import Method
from .options import Options
from .projection import DENOISING_STEPS, projected
from .sizes import SIZES
from .steps import Mode, Run, make_runs

_WARM_UPS = 2


class Session:
    """Runs the measurements of one command and keeps what they gave."""

    def __init__(self, options: Options, step: Callable[[str], None], *, device: str, threads: int) -> None:
        self.options = options
        self.step = step
        """Called with a line before everything that takes time."""
        self.device = device
        self.threads = threads
        self.size = options.size(device)

    def run(self) -> dict[str, Any]:
        """Everything that the options ask for.

        Raises:
            Refused: if two ways to compute the same encoding disagree.
        """
        options = self.options
        branch = self.time_branch()
        results: dict[str, Any] = {
            "size": {"values": asdict(self.size), "text": str(self.size)},
            "quick": options.quick,
            "trains": options.trains,
            "checkpointing": options.checkpointing,
            "compiled": options.compile,
            "branch": branch,
            "points": [],
            "memory": [],
            "incomplete": [],
        }
        forms = {mode: self.forms(branch, mode) for mode in options.modes}
        # Before the models of this process are made: on a GPU there may be no room for both.
        for mode in options.modes if options.memory else ():
            self.weigh(mode, forms[mode], results)
        for mode in options.modes:
            results["points"].append(self.time(mode, forms[mode]))
        # Nothing follows from sizes at which calls cost more than arithmetic.
        results["projection"] = {
            point["mode"]: projected(results, point, SIZES["5b"])
            for point in results["points"]
            if not options.quick
        }
        return results

    def time_branch(self) -> dict[str, Any]:
        """The branch of this size alone, in all forms of UCPE and GTA, and as `CameraBranch` runs MeRoPE."""
        options, shape = self.options, self.size.branch
        session = BranchSession(
            BranchOptions(
                rounds=options.resolved_rounds,
                dtype=options.dtype,
                seed=options.seed,
                memory=False,
                sweep=False,
                quick=options.quick,
            ),
            self.step,
            device=self.device,
            threads=self.threads,
        )
        families = [*(name for name in options.methods if name == "gta"), "merope"]
        columns, absent = columns_for(
            families,
            shape,
            device=self.device,
            dtype=getattr(torch, options.dtype),
            compile_reason=why_no_compiler(),
        )
        names = [column.name for column in columns]
        ours = "merope fused" if "merope fused" in names else "merope chunked"
        if options.compile and f"{ours} compiled" in names:
            ours = f"{ours} compiled"
        kept = [
            column for column in columns if column.family in ("sdpa", "ucpe", "gta") or column.name == ours
        ]
        directions = self.directions()
        for scope in ("core", "full"):
            for direction in directions:
                session.time(shape, scope, direction, kept, purpose="main")
        session.absent |= {name: reason for name, reason in absent.items() if not name.startswith("merope")}
        return {
            "points": session.points,
            "absent": session.absent,
            "quick": options.quick,
            "directions": directions,
        }

    def directions(self) -> list[Direction]:
        """What the branch alone has to be measured in, for these modes."""
        wanted: list[Direction] = []
        if "denoising" in self.options.modes or self.options.checkpointing:
            wanted.append("forward")
        if "training" in self.options.modes:
            wanted.append("forward+backward")
        return wanted

    def forms(self, branch: Mapping[str, Any], mode: Mode) -> dict[Method, Column | None]:
        """How each method's attention is computed: UCPE's and GTA's in their fastest form, MeRoPE's as the library does."""
        direction = "forward" if mode == "denoising" else "forward+backward"
        (point,) = [p for p in branch["points"] if (p["scope"], p["direction"]) == ("full", direction)]
        chosen: dict[Method, Column | None] = {}
        for method in self.options.resolved_methods(mode):
            chosen[method] = None
            if method in ("ucpe", "gta"):
                fastest = min(
                    (name for name in point["columns"] if name.split()[0] == method),
                    key=lambda name: point["columns"][name]["ms"]["median"],
                )
                column = Column.from_name(fastest)
                chosen[method] = None if column == Column(method, "op") else column
        return chosen

    def time(self, mode: Mode, forms: Mapping[Method, Column | None]) -> dict[str, Any]:
        """Interleaved rounds of whole transformers."""
        self.step(f"{mode}: {len(forms)} transformers, {self.options.resolved_rounds} rounds")
        torch._dynamo.reset()
        runs = make_runs(
            self.size, forms, mode, **{**self.settings(), "dtype": getattr(torch, self.options.dtype)}
        )
        for run in runs.values():
            for _ in range(_WARM_UPS):
                run()
            run.operator_seconds.clear()
        before = sample_or_none()
        rounds = interleaved(
            dict(runs),
            rounds=self.options.resolved_rounds,
            seconds=self.options.mode_seconds,
            seed=self.options.seed,
            wait=torch.cuda.synchronize if self.device == "cuda" else lambda: None,
        )
        after = sample_or_none()
        steps = self.options.resolved_steps if mode == "denoising" else 1
        return {
            "mode": mode,
            "steps": steps,
            "others_cores": cores_between(before, after),
            "num_rounds": len(rounds.order),
            "forms": {name: None if column is None else column.name for name, column in forms.items()},
            "methods": summary(rounds, runs, steps=steps if mode == "denoising" else None),
            "rounds": asdict(rounds),
            "operator_seconds": {name: run.operator_seconds for name, run in runs.items()},
        }

    def weigh(
        self, mode: Mode, forms: Mapping[Method, Column | None], results: Mapping[str, list[Any]]
    ) -> None:
        """Peak memory of these methods, each in its own process."""
        for method, column in forms.items():
            self.step(f"memory: {mode}, {method}")
            try:
                found = weighed_apart(method, column, self.size, mode, **self.settings())
            except MemoryFailed as failure:
                # What else was measured is not thrown away: the report says INCOMPLETE and why.
                results["incomplete"].append(str(failure))
                continue
            results["memory"].append({"mode": mode, "method": method, **found})

    def settings(self) -> dict[str, Any]:
        """What `make_runs` takes, as JSON values."""
        options = self.options
        return {
            "trains": options.trains,
            "checkpointing": options.checkpointing,
            "compiled": options.compile,
            "steps": options.resolved_steps,
            "dtype": options.dtype,
            "device": self.device,
            "seed": options.seed,
        }


def summary(rounds: Rounds, runs: Mapping[str, Run], *, steps: int | None) -> dict[str, Any]:
    """Medians and quartiles by method; ratios are of throughput, so 0.99 means one percent fewer clips.

    ``without_operator`` leaves out what the cameras took; ``to_ucpe_in_use`` counts them once for as many denoising steps as
    a clip has in use, and stands only where ``steps`` are those of a loop.
    """
    bare = {
        name: [wall - own for wall, own in zip(rounds.wall[name], run.operator_seconds, strict=True)]
        for name, run in runs.items()
    }
    found: dict[str, Any] = {}
    for name, run in runs.items():
        found[name] = {
            "seconds": asdict(spread(rounds.wall[name])),
            "clips_per_second": 1 / spread(rounds.wall[name]).median,
            "operator_seconds": asdict(spread(run.operator_seconds)),
            "to_ucpe": asdict(paired_ratio(rounds.wall["ucpe"], rounds.wall[name])),
            "without_operator": asdict(paired_ratio(bare["ucpe"], bare[name])),
        }
        if "base" in runs:
            found[name]["to_base"] = asdict(paired_ratio(rounds.wall["base"], rounds.wall[name]))
        if steps is not None:
            scale = DENOISING_STEPS / steps
            clip, reference = (
                [own + scale * rest for own, rest in zip(runs[key].operator_seconds, bare[key], strict=True)]
                for key in (name, "ucpe")
            )
            found[name]["to_ucpe_in_use"] = asdict(paired_ratio(reference, clip))
    return found


def num_steps(options: Options) -> int:
    """How many steps a session has, for a progress bar."""
    directions = ("denoising" in options.modes or options.checkpointing) + ("training" in options.modes)
    weighed = sum(len(options.resolved_methods(mode)) for mode in options.modes)
    return 2 * directions + weighed * options.memory + len(options.modes)
