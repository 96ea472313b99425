"""What the command line takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .scopes import DIRECTIONS, SCOPES, Direction, Scope
from .shapes import SHAPES, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Measure what one camera attention block costs: MeRoPE and GTA, relative to UCPE, and plain attention as the floor.

    Refuses (exit status 2) when the tests of the operation fail or the machine does other work. Every column is timed
    once a round, in shuffled order, and ratios are taken within a round. UCPE is the fastest of three ways to compute
    it; if its core costs more than 1.15 x plain attention, or nothing can be compiled, the report says VOID (exit
    status 3).
    """

    shape: Literal["paper", "large", "panshot"] = "paper"
    """paper: 13 x 9 x 16 tokens, 6 heads of 128. panshot: the same, one head of 192. large: 21 x 30 x 52; takes hours."""
    quick: bool = False
    """Tiny sizes and three rounds: shows in a few minutes that everything works, and measures nothing."""
    scopes: tuple[Scope, ...] = SCOPES
    """core: modulation and attention. block: and the output projection, as in the paper. full: and those of the input."""
    directions: Annotated[
        tuple[Direction, ...] | None, tyro.conf.arg(metavar="[{forward,forward+backward} ...]")
    ] = None
    """Backward means gradients of all inputs and weights. Both by default; for large, forward alone."""
    methods: tuple[Literal["gta", "merope"], ...] = ("gta", "merope")
    """What is measured beside UCPE and plain attention, which always are."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of queries, keys, values and weights; the geometry stays float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """CPU threads, PyTorch's choice by default. Ratios on one thread stand beside, in CPU time too (not for large)."""
    rounds: int = 15
    """Rounds for each scope and direction."""
    point_seconds: float = 120.0
    """Seconds after which no further round of a scope and direction begins; three are made in any case."""
    sweep: bool = True
    """Vary the frames (5 to 121) and the tokens per frame (40 to 1560) too, for the plots of growth (not for large)."""
    memory: bool = True
    """Measure peak memory too, each column in a process of its own."""
    trust_tests: bool = False
    """Do not run the operation's tests first. The report says so on top."""
    busy_ok: bool = False
    """Measure although the machine is not idle. The report says BUSY on top."""
    seed: int = 0
    """Seed of the numbers and of the order of columns."""
    out: Path = Path("out/attention-benchmark")
    """Folder for results.json, results.md and the plots."""

    def __post_init__(self) -> None:
        for name in ("rounds", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1; got {value}.")
        for name in ("scopes", "directions", "methods"):
            value = getattr(self, name)
            if value is not None and len(set(value)) != len(value):
                raise ValueError(f"{name} names something twice: {' '.join(value)}.")
        if not self.scopes or self.directions == ():
            raise ValueError("scopes and directions need at least one name each.")

    @property
    def resolved_shape(self) -> Shape:
        return SHAPES["tiny" if self.quick else self.shape]

    @property
    def resolved_directions(self) -> tuple[Direction, ...]:
        if self.directions is not None:
            return self.directions
        return DIRECTIONS[:1] if self.resolved_shape.name == "large" else DIRECTIONS

    @property
    def resolved_rounds(self) -> int:
        return min(self.rounds, 3) if self.quick else self.rounds

    @property
    def sweeps(self) -> bool:
        return self.sweep and self.resolved_shape.name != "large"

    @property
    def one_thread(self) -> bool:
        return self.resolved_shape.name != "large"
