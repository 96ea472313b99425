"""How much each block's camera branch adds to its self-attention while videos are sampled (Figure 7)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from merope.adapters.flow import NUM_TRAIN_TIMESTEPS
from merope.adapters.wan import CameraAdapter
from merope.errors import MeropeError
from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RED = "#B2182B"
NUM_LARGEST = 2
"""Blocks that are named as the largest, as in Figure 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualPass:
    """Residual norms of one forward pass."""

    noise_level: float
    """What the transformer was told, 0 to 1: that of the frames that are not given."""
    relative: dict[int, float]
    """|branch output| / |self-attention output| by block, both before the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualAmplitudes:
    """Relative norm of the camera branches' residuals, by block and by noise level."""

    num_blocks: int
    """Blocks of the transformer, with a branch or without."""
    blocks: tuple[int, ...]
    """Those with a branch, counted from 0."""
    noise_levels: tuple[float, ...]
    """One per sampling step, falling."""
    by_step: tuple[tuple[float, ...], ...]
    """[step][block], the mean over clips and over both passes of guidance."""
    num_passes: int
    """Forward passes that the means are of."""

    @property
    def relative(self) -> tuple[float, ...]:
        """By block, the mean over sampling steps."""
        table = torch.tensor(self.by_step, dtype=torch.float64)
        return tuple(table.mean(0).tolist())

    @property
    def share(self) -> tuple[float, ...]:
        """By block, the part in the sum over blocks."""
        total = sum(self.relative)
        return tuple(value / total for value in self.relative)

    @property
    def largest(self) -> tuple[int, ...]:
        """The `NUM_LARGEST` blocks of largest relative norm, the largest first."""
        order = sorted(zip(self.relative, self.blocks, strict=True), reverse=True)
        return tuple(block for _, block in order[:NUM_LARGEST])

    @property
    def largest_share(self) -> float:
        """The part of the largest blocks in the sum over blocks."""
        shares = dict(zip(self.blocks, self.share, strict=True))
        return sum(shares[block] for block in self.largest)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with means and shares beside the table."""
        return {
            **asdict(self),
            "relative": self.relative,
            "share": self.share,
            "largest": self.largest,
            "largest_share": self.largest_share,
        }


@contextmanager
def recording_passes(adapter: CameraAdapter) -> Iterator[list[ResidualPass]]:
    """Within the block, collect the residual norms of every forward pass of the adapter's transformer.

    Norms are over all clips of a pass together; pass clips alone for a mean over clips.

    Raises:
        MeropeError: if the encoding has no branch, or no block has one, so that there is no residual.
    """
    require_residual(adapter)
    passes: list[ResidualPass] = []
    # Any: torch types the hook's arguments by position.
    transformer: Any = adapter.transformer
    with adapter.recording_residuals() as norms:

        def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            timestep = kwargs["timestep"] if "timestep" in kwargs else args[1]
            passes.append(
                ResidualPass(
                    noise_level=_noise_level(timestep),
                    relative={block: float(extra / own) for block, (extra, own) in sorted(norms.items())},
                )
            )
            norms.clear()

        handle = transformer.register_forward_hook(note, with_kwargs=True)
        try:
            yield passes
        finally:
            handle.remove()


def require_residual(adapter: CameraAdapter) -> None:
    """Raise MeropeError unless blocks have a branch whose output could be measured."""
    placement = adapter.encoding.facts.placement
    name = type(adapter.encoding).__name__
    if placement == "none":
        raise MeropeError(f"there is no residual to measure: {name} leaves the backbone as it is.")
    if placement != "branch":
        raise MeropeError(
            f"there is no residual to measure: {name} works inside the backbone's own attention and adds nothing beside it. "
            "Figure 7 is of encodings in a parallel branch, such as merope."
        )


def _noise_level(timestep: Tensor) -> float:
    """Given frames are told 0, so the largest is that of the others."""
    return float(timestep.max()) / NUM_TRAIN_TIMESTEPS


def residual_amplitudes(passes: Sequence[ResidualPass], *, num_blocks: int) -> ResidualAmplitudes:
    """Means over the passes of each noise level; sampling steps count alike in the mean over them.

    Raises:
        ValueError: if there is no pass, or passes are of different blocks.
        MeropeError: if all residuals are zero: the branches are untrained, and nothing is the largest.
    """
    if not passes:
        raise ValueError("passes must hold at least one forward pass; got none.")
    blocks = tuple(passes[0].relative)
    if any(tuple(each.relative) != blocks for each in passes):
        raise ValueError(f"passes must be of the same blocks; the first is of {list(blocks)}.")
    levels = sorted({each.noise_level for each in passes}, reverse=True)
    by_step = []
    for level in levels:
        rows = [list(each.relative.values()) for each in passes if each.noise_level == level]
        by_step.append(tuple(torch.tensor(rows, dtype=torch.float64).mean(0).tolist()))
    made = ResidualAmplitudes(
        num_blocks=num_blocks,
        blocks=blocks,
        noise_levels=tuple(levels),
        by_step=tuple(by_step),
        num_passes=len(passes),
    )
    if not any(made.relative):
        raise MeropeError(
            "all residuals are zero: the camera branches have learned nothing yet. Load a trained adapter."
        )
    return made


def plot_residuals(folder: str | Path, result: ResidualAmplitudes, *, title: str) -> list[Path]:
    """Save both drawings as PNG and SVG; the paths written.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    written = []
    drawings = {"residuals": draw_bars(result, title=title), "residuals-by-noise": draw_by_noise(result)}
    for name, figure in drawings.items():
        for ending in ("png", "svg"):
            path = Path(folder) / f"{name}.{ending}"
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=150)
            written.append(path)
    return written


def draw_bars(result: ResidualAmplitudes, *, title: str) -> "Figure":
    """Figure 7: a bar per block with a branch, the largest red and the others blue; other blocks stay empty."""
    figure = new_figure(7.2, 3.4)
    axes = figure.add_subplot()
    colors = [_RED if block in result.largest else COLORS[0] for block in result.blocks]
    axes.bar(result.blocks, result.relative, color=colors, width=0.8)
    axes.set_xlim(-0.7, result.num_blocks - 0.3)
    axes.set_xticks(result.blocks)
    axes.set_xlabel(f"block, of {result.num_blocks} counted from 0")
    axes.set_ylabel("|branch| / |self-attention|")
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    names = " and ".join(str(block) for block in sorted(result.largest))
    axes.set_title(
        f"{title}\nblocks {names}: {100 * result.largest_share:.0f} % of the sum over blocks", fontsize=10
    )
    return figure


def draw_by_noise(result: ResidualAmplitudes) -> "Figure":
    """The relative norm of every block (columns) at every sampling step (rows), noise at the top."""
    figure = new_figure(7.2, 3.8)
    axes = figure.add_subplot()
    picture = axes.imshow(result.by_step, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
    axes.set_xticks(range(len(result.blocks)), [str(block) for block in result.blocks])
    every = max(len(result.noise_levels) // 10, 1)
    rows = range(0, len(result.noise_levels), every)
    axes.set_yticks(rows, [f"{result.noise_levels[row]:.2f}" for row in rows])
    axes.set_xlabel("block with a branch")
    axes.set_ylabel("noise level")
    figure.colorbar(picture, ax=axes, label="|branch| / |self-attention|")
    return figure
