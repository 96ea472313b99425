"""Where the last latent frame looks as the same drive grows longer in metres (Figure 1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters.command import latent_rays
from merope.adapters.flow import predict_velocity
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter
from merope.cameras.rays import ViewRays
from merope.evaluation.plots.canvas import new_figure
from merope.files import atomic_path
from merope.operators import Block, CameraOperator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Metres per latent frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveMass:
    """Attention mass of one model's query by key frame, for every step length."""

    steps: tuple[float, ...]
    """Metres per latent frame."""
    mass: tuple[tuple[float, ...], ...]
    """[step][key frame], the mean over clips, heads and blocks; each row sums to one."""
    blocks: Mapping[int, tuple[tuple[float, ...], ...]]
    """The same of every block, the mean over clips and heads."""

    @property
    def age(self) -> tuple[float, ...]:
        """By step: how many latent frames back the mass lies on average, over the preceding frames alone."""
        return tuple(_age(row) for row in self.mass)

    @property
    def first(self) -> tuple[float, ...]:
        """By step: share of the first frame in the mass on the preceding frames."""
        return tuple(row[0] / sum(row[:-1]) for row in self.mass)

    @property
    def previous(self) -> tuple[float, ...]:
        """By step: share of the frame before the query's in the mass on the preceding frames."""
        return tuple(row[-2] / sum(row[:-1]) for row in self.mass)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the shares beside the masses."""
        return {**asdict(self), "age": self.age, "first": self.first, "previous": self.previous}


def _age(row: Sequence[float]) -> float:
    last = len(row) - 1
    return sum((last - view) * mass for view, mass in enumerate(row[:-1])) / sum(row[:-1])


def attention_mass(
    query: Float[Tensor, "batch head query_token chan"],
    key: Float[Tensor, "batch head key_token chan"],
    operator: CameraOperator | None,
    *,
    query_token: int,
    tokens_per_view: int,
) -> Float[Tensor, "batch head key_view"]:
    """Weights of one query over all keys, ``softmax_b(q_a^T U_ab k_b / sqrt(d))``, summed over each key view.

    ``operator`` None, or one that leaves queries and keys alone, is plain attention. Only the query's own row of U is
    made. Keys without a ray have no weight.

    Raises:
        ValueError: if the keys are no whole number of views.
    """
    if key.shape[2] % tokens_per_view:
        raise ValueError(
            f"{key.shape[2]} keys are no whole number of views of {tokens_per_view} tokens. Pass the tokens of one view."
        )
    one = query[:, :, query_token]
    if operator is None or "q" not in operator.acts_on:
        dtype = torch.promote_types(one.dtype, torch.float32)
        logits = torch.einsum("bhd,bhnd->bhn", one.to(dtype), key.to(dtype))
    else:
        logits = _logits(one, key, of_one_query(operator, query_token))
    logits = logits / math.sqrt(query.shape[-1])
    if operator is not None and operator.key_valid is not None:
        logits = logits.masked_fill(~operator.key_valid[:, None], -math.inf)
    return logits.softmax(-1).unflatten(-1, (-1, tokens_per_view)).sum(-1)


def _logits(one: Tensor, key: Tensor, operator: CameraOperator) -> Tensor:
    """q^T U k of one query and all keys, [B, H, N], band by band: block m meets its copies, neighbours first."""
    total, start = key.new_zeros(()), 0
    for band in operator.bands:
        at = slice(start, start + band.width)
        shape = (band.num_blocks, band.copies, band.size)
        u = operator.band_pairs(band).squeeze(2)  # [B, H, N, M, s, s], H is 1 where heads share
        u = u.expand(-1, one.shape[1], -1, -1, -1, -1)
        dtype = torch.promote_types(torch.promote_types(one.dtype, u.dtype), torch.float32)
        q, k = (x[..., at].unflatten(-1, shape).to(dtype) for x in (one, key))
        turned = torch.einsum("bhmcs,bhnmst->bhnmct", q, u.to(dtype))
        total = total + (turned * k).sum((-3, -2, -1))
        start += band.width
    return total


def of_one_query(operator: CameraOperator, query_token: int) -> CameraOperator:
    """The operator between one query token and all keys."""
    camera = query_token // (operator.num_queries // operator.num_query_cameras)

    def only(block: Block | None, place: int) -> Block | None:
        return None if block is None else block.map_tensors(lambda tensor: tensor[:, :, place : place + 1])

    bands = []
    for band in operator.bands:
        entries = 1 if band.left is None else band.left.entries(2)
        left = only(band.left, query_token // (operator.num_queries // entries))
        bands.append(replace(band, left=left, right=only(band.right, camera) if band.grouped else band.right))
    return replace(operator, bands=tuple(bands), num_query_cameras=1, num_queries=1)


def straight_drive(step: float, spec: VideoSpec, *, clips: int) -> ViewRays:
    """Rays of clips that go straight ahead by ``step`` metres per latent frame, without a turn."""
    matrices = torch.eye(4, dtype=torch.float64).repeat(clips, spec.latent_frames, 1, 1)
    matrices[:, :, 2, 3] = step * torch.arange(spec.latent_frames, dtype=torch.float64)
    return latent_rays(matrices, spec)


def center_token(spec: VideoSpec) -> int:
    """The token in the middle of the last latent frame; the lower right one of four where sizes are even."""
    rows, cols = spec.token_grid
    return (spec.latent_frames - 1) * rows * cols + (rows // 2) * cols + cols // 2


@torch.no_grad()
def mass_along_drive(
    adapter: CameraAdapter,
    clean: Float[Tensor, "clip chan time row col"],
    noise: Float[Tensor, "clip chan time row col"],
    *,
    sigma: float,
    spec: VideoSpec,
    steps: Sequence[float] = STEPS,
) -> DriveMass:
    """Attention mass of the centre query of the last frame under straight drives of growing step length.

    The latents are the same for every step length: ``clean`` at noise level ``sigma``, its given frames clean.
    Only the cameras change. What is read is the attention that meets the cameras: the branch's, or the backbone's own
    where the encoding works inside it.

    Raises:
        ValueError: if no attention of this adapter meets cameras.
    """
    device = next(adapter.transformer.parameters()).device
    clips = clean.shape[0]
    level = torch.full((clips,), sigma, device=device)
    clean, noise = clean.to(device), noise.to(device)
    noisy = (1 - sigma) * clean + sigma * noise
    rows, cols = spec.token_grid
    found: dict[int, list[tuple[float, ...]]] = {}
    for step in steps:
        signals = adapter.signals(straight_drive(step, spec, clips=clips), device=device)
        with adapter.recording_attention() as records:
            predict_velocity(adapter.transformer, adapter, noisy, clean, level, signals, spec)
        if not records:
            raise ValueError(
                f"no attention meets cameras under {type(adapter.encoding).__name__} "
                f"(placement {adapter.encoding.facts.placement!r})."
            )
        for block, record in records.items():
            mass = attention_mass(
                record.query,
                record.key,
                record.operator,
                query_token=center_token(spec),
                tokens_per_view=rows * cols,
            )
            found.setdefault(block, []).append(tuple(mass.double().mean((0, 1)).tolist()))
    every = torch.tensor(list(found.values()), dtype=torch.float64).mean(0)
    return DriveMass(
        steps=tuple(steps),
        mass=tuple(tuple(row) for row in every.tolist()),
        blocks={block: tuple(table) for block, table in sorted(found.items())},
    )


def plot_attention_mass(path: str | Path, results: Mapping[str, DriveMass]) -> None:
    """Save `draw_attention_mass`; the format follows the ending of ``path`` (png, svg, pdf).

    Raises:
        ValueError: if there is nothing to draw.
        MissingDependency: if matplotlib is not installed.
    """
    figure = draw_attention_mass(results)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def draw_attention_mass(results: Mapping[str, DriveMass]) -> "Figure":
    """One panel per model: mass by key frame, a line per step length from light (short) to dark (long).

    The dotted line is equal mass on all frames.
    """
    if not results:
        raise ValueError("no model to draw; pass at least one.")
    figure = new_figure(3.6 * len(results) + 1.2, 3.8)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    from matplotlib import colormaps

    for axes, (label, result) in zip(panels, results.items(), strict=True):
        views = len(result.mass[0])
        for index, (step, row) in enumerate(zip(result.steps, result.mass, strict=True)):
            shade = colormaps["viridis_r"](0.1 + 0.9 * index / max(len(result.steps) - 1, 1))
            axes.plot(range(views), row, color=shade, lw=1.6, marker="o", ms=3, label=f"{step:g} m")
        axes.axhline(1 / views, color="#999999", lw=0.8, ls=":")
        axes.set_title(label, fontsize=11)
        axes.set_xlabel("key latent frame (last: the query's own)")
        axes.set_xticks(range(views))
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    # Once for all: a limit stops the panels that follow from widening the axis that they share.
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("attention mass")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        title="per latent frame",
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        loc="outside right upper",
    )
    return figure
