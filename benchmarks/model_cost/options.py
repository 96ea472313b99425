"""What the command line takes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .methods import METHODS, Method, Trains
from .sizes import SIZES, ModelSize
from .steps import MODES, Mode

_WHOLE = Annotated[int | None, tyro.conf.arg(metavar="INT")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Measure what cameras cost a whole Wan transformer: MeRoPE, GTA and the base, relative to UCPE (Table 6).

    A training step (forward, backward, AdamW) and a denoising loop (two passes a step, guidance on), batch 1, random
    weights, cameras in every second block at C = 4. Making the operator from poses counts: once a training step, once a
    denoised clip. Refuses (exit status 2) when tests fail or the machine does other work. Every method runs once a
    round, in shuffled order, and ratios are taken within a round. UCPE's and GTA's attention is computed in the fastest of
    three ways, found on the branch alone; if UCPE's core costs more than 1.15 x plain attention, or nothing can be
    compiled, the report says VOID (exit status 3).
    """

    width: Literal["auto", "small", "1.3b", "5b"] = "auto"
    """Of the transformer. small: 512, four layers, the rest in the 5B model's proportion. auto: 5b on a GPU, else small."""
    heads: _WHOLE = None
    """Heads of 128 channels in place of the preset's; ffn and text follow the 5B model's proportion."""
    layers: _WHOLE = None
    """Layers in place of the preset's."""
    ffn: _WHOLE = None
    """Width inside the feed-forward layers in place of the preset's."""
    tokens: tuple[int, int, int] = (13, 9, 16)
    """Latent frames, rows and columns of tokens."""
    quick: bool = False
    """Tiny sizes and three rounds: shows that everything works, and measures nothing."""
    modes: Annotated[tuple[Mode, ...], tyro.conf.arg(metavar="[{training,denoising} ...]")] = MODES
    """What is measured."""
    methods: tuple[Literal["base", "gta"], ...] = ("base", "gta")
    """What is measured beside UCPE and MeRoPE, which always are."""
    trains: Trains = "all"
    """What a training step trains. Where that is the branch, the base trains nothing and has no training step."""
    checkpointing: bool = True
    """Recompute blocks in the backward pass."""
    steps: int = 8
    """Denoising steps of the loop that is timed."""
    compile: bool = False
    """Compile the transformer's blocks."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the arithmetic and of what does not train; what trains stays float32, and so does the geometry."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one."""
    threads: _WHOLE = None
    """CPU threads, PyTorch's choice by default."""
    rounds: int = 9
    """Rounds of each mode, and of the branch alone."""
    mode_seconds: float = 1800.0
    """Seconds after which no further round of a mode begins; three are made in any case."""
    memory: bool = True
    """Measure peak memory too, each method in a process of its own."""
    trust_tests: bool = False
    """Do not run the tests of attention and adapters first. The report says so on top."""
    busy_ok: bool = False
    """Measure although the machine is not idle. The report says BUSY on top."""
    seed: int = 0
    """Seed of the numbers and of the order of methods."""
    out: Path = Path("out/model-benchmark")
    """Folder for results.json and results.md."""

    def __post_init__(self) -> None:
        for name in ("rounds", "threads", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1; got {value}.")
        for name in ("modes", "methods"):
            value = getattr(self, name)
            if len(set(value)) != len(value):
                raise ValueError(f"{name} names something twice: {' '.join(value)}.")
        if not self.modes:
            raise ValueError("modes needs at least one name.")
        if self.quick and (self.heads or self.layers or self.ffn or self.width != "auto"):
            raise ValueError("quick has a size of its own; leave out width, heads, layers and ffn.")

    def size(self, device: str) -> ModelSize:
        """The transformer and its clip on this device."""
        if self.quick:
            return SIZES["tiny"]
        preset = SIZES[("5b" if device == "cuda" else "small") if self.width == "auto" else self.width]
        size = preset
        if self.heads is not None:
            size = scaled(size, self.heads)
        frames, rows, cols = self.tokens
        size = replace(size, frames=frames, rows=rows, cols=cols)
        size = replace(size, layers=self.layers or size.layers, ffn=self.ffn or size.ffn)
        if replace(size, frames=13, rows=9, cols=16) != preset:
            size = replace(size, name=f"{preset.name}, changed")
        return size

    @property
    def resolved_rounds(self) -> int:
        return min(self.rounds, 3) if self.quick else self.rounds

    @property
    def resolved_steps(self) -> int:
        return min(self.steps, 2) if self.quick else self.steps

    def resolved_methods(self, mode: Mode) -> tuple[Method, ...]:
        """The methods of a mode, in the order of the table."""
        chosen = {"ucpe", "merope", *self.methods}
        if mode == "training" and self.trains == "branch":
            chosen.discard("base")
        return tuple(method for method in METHODS if method in chosen)


def scaled(size: ModelSize, heads: int) -> ModelSize:
    """The size with another number of heads, and with the 5B model's proportions."""
    width, real = heads * size.head_dim, SIZES["5b"]
    return replace(
        size,
        heads=heads,
        ffn=round(real.ffn * width / real.width),
        text_dim=max(round(real.text_dim * width / real.width), 1),
    )
