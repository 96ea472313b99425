"""results.json, results.md and the two plots of growth."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path, write_text_atomically

from ..measuring.writing import banners, count, machine_lines, spread_text, table
from .verdicts import memory_of, memory_ratio, targets, total_bytes

SCOPE_TITLES = {
    "core": "Core: modulation and attention",
    "block": "The paper's block: with the output projection",
    "full": "Full block: with the input projections too",
}
_MIB = 2**20
# The x axis of a sweep, and what is read off a shape.
_SWEEPS = {
    "frames": ("latent frames", lambda shape: shape["frames"]),
    "tokens": ("tokens per frame", lambda shape: shape["rows"] * shape["cols"]),
}


def write_report(folder: Path, results: Mapping[str, Any]) -> list[Path]:
    """Write everything; the paths written, Markdown first."""
    written = [folder / "results.md", folder / "results.json"]
    pictures = []
    for purpose in _SWEEPS:
        points = [point for point in results["points"] if point["purpose"] == purpose]
        if points:
            figure = growth_figure(results, purpose)
            for ending in ("png", "svg"):
                pictures.append(folder / f"growth-{purpose}.{ending}")
                with atomic_path(pictures[-1]) as temporary:
                    figure.savefig(temporary, dpi=150)
    write_text_atomically(written[1], json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_text_atomically(written[0], markdown(results))
    return written + pictures


def target_lines(results: Mapping[str, Any]) -> list[str]:
    """PASS and MISS, or why there is nothing to judge."""
    if results["quick"]:
        return ["No target is judged at tiny sizes."]
    found = [str(verdict) for verdict in targets(results)]
    return found or ["No targets are set for this shape, precision and device, or MeRoPE was not measured."]


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report as Markdown."""
    machine = results["machine"]
    shape = results["shape"]
    lines = ["# Cost of one attention block", ""]
    for banner in banners(results):
        lines += [f"**{banner}**", ""]
    lines += [
        f"{shape['name']}: {shape['text']}; batch {shape['batch']}, {machine['dtype']}, {machine['device']}.",
        "",
        "Median (quartiles) over interleaved rounds in one process. Ratios are taken within a round. The reference is the "
        "fastest UCPE of each table. Peak memory is above the inputs, and counts the geometry's stored tensors.",
        "",
        "## Targets",
        "",
        *[f"- {line}" for line in target_lines(results)],
        "",
    ]
    for scope, title in SCOPE_TITLES.items():
        points = [
            p for p in results["points"] if p["scope"] == scope and p["purpose"] in ("main", "one thread")
        ]
        if points:
            lines += [f"## {title}", ""]
        for point in points:
            lines += [*_point_table(results, point), ""]
    lines += _op_to_plain(results)
    for purpose, (axis, place) in _SWEEPS.items():
        lines += _sweep_table(results, purpose, axis, place)
    if results["absent"]:
        lines += ["## Not measured", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in results["absent"].items()] + [""]
    lines += ["## Machine", "", *machine_lines(results)]
    return "\n".join(lines) + "\n"


def _point_table(results: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    threads = point["threads"]
    one_thread = point["purpose"] == "one thread"
    where = count(threads, "thread") if results["machine"]["device"] == "cpu" else "GPU"
    lines = [
        f"{point['direction'].capitalize()}, {where}, {count(point['num_rounds'], 'round')}; "
        f"reference `{point['reference']}`, floor `{point['floor']}`.",
        "",
    ]
    header = ["", "latency (ms)", "/ UCPE", "/ plain attention"]
    header += (
        ["CPU time (ms)", "CPU time / UCPE"]
        if one_thread
        else ["peak memory (MiB)", "of it geometry", "by torch's allocator", "memory / UCPE"]
    )
    rows = []
    for name, column in point["columns"].items():
        row = [
            f"`{name}`",
            spread_text(column["ms"], 2),
            spread_text(column.get("to_ucpe"), 3),
            spread_text(column.get("to_sdpa"), 3),
        ]
        if one_thread:
            row += [spread_text(column["cpu_ms"], 2), spread_text(column.get("cpu_to_ucpe"), 3)]
        else:
            row += _memory_cells(results, point, name)
        rows.append(row)
    return lines + table(header, rows)


def _memory_cells(results: Mapping[str, Any], point: Mapping[str, Any], name: str) -> list[str]:
    entry = memory_of(results, point, name)
    if entry is None:
        return ["-"] * 4
    ratio = memory_ratio(results, point, name)
    return [
        f"{total_bytes(entry) / _MIB:.1f}",
        f"{entry['geometry'] / _MIB:.1f}",
        f"{(entry['allocated'] + entry['geometry']) / _MIB:.1f}",
        "-" if ratio is None else f"{ratio:.3f}",
    ]


def _op_to_plain(results: Mapping[str, Any]) -> list[str]:
    rows = [
        [family, point["scope"], point["direction"], str(point["threads"]), spread_text(ratio, 3)]
        for point in results["points"]
        if point["purpose"] == "main"
        for family, ratio in point["op_to_plain"].items()
    ]
    if not rows:
        return []
    return [
        "## Op vs plain",
        "",
        "Per-token encodings through `camera_attention`, eager or compiled, whichever is faster, relative to their plain "
        "compiled implementation.",
        "",
        *table(["", "scope", "direction", "threads", "op / plain"], rows),
        "",
    ]


def _sweep_table(results: Mapping[str, Any], purpose: str, axis: str, place: Any) -> list[str]:
    points = [point for point in results["points"] if point["purpose"] == purpose]
    if not points:
        return []
    rows = []
    for point in points:
        reference = memory_of(results, point, point["reference"])
        for name, column in point["columns"].items():
            entry = memory_of(results, point, name)
            beyond = (
                "-"
                if None in (entry, reference)
                else f"{(total_bytes(entry) - total_bytes(reference)) / _MIB:.1f}"
            )
            rows.append(
                [
                    str(place(point["shape"])),
                    point["direction"],
                    f"`{name}`",
                    f"{column['ms']['median']:.2f}",
                    spread_text(column.get("to_ucpe"), 3),
                    *_memory_cells(results, point, name)[:1],
                    beyond,
                    *_memory_cells(results, point, name)[3:],
                ]
            )
    header = [
        axis,
        "",
        "",
        "latency (ms)",
        "/ UCPE",
        "peak memory (MiB)",
        "more than UCPE (MiB)",
        "memory / UCPE",
    ]
    return [
        f"## Growth with {axis}, core",
        "",
        f"![Growth with {axis}](growth-{purpose}.png)",
        "",
        *table(header, rows),
        "",
    ]


def growth_figure(results: Mapping[str, Any], purpose: str) -> Any:
    """Latency and memory relative to UCPE, along a sweep.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    axis, _ = _SWEEPS[purpose]
    figure = new_figure(9.6, 4.2)
    latency, memory = figure.subplots(1, 2)
    series = growth(results, purpose)
    families = list(dict.fromkeys(name.split()[0] for _, name in series))
    for (direction, name), rows in series.items():
        style = {
            "color": COLORS[families.index(name.split()[0]) % len(COLORS)],
            "ls": "-" if direction == "forward" else "--",
            "marker": "s" if "fused" in name else "o",
            "ms": 4,
            "label": f"{name}, {direction}",
        }
        latency.plot([row[0] for row in rows], [row[1] for row in rows], **style)
        weighed = [(row[0], row[2]) for row in rows if row[2] is not None]
        if weighed:
            memory.plot(*zip(*weighed, strict=True), **style)
    for axes, label in ((latency, "latency / UCPE"), (memory, "peak memory above the inputs / UCPE")):
        axes.axhline(1.0, color="#999999", lw=1)
        axes.set_xscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel(label)
        places = sorted({row[0] for rows in series.values() for row in rows})
        axes.set_xticks(places, [str(place) for place in places])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    latency.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def growth(
    results: Mapping[str, Any], purpose: str
) -> dict[tuple[str, str], list[tuple[int, float, float | None]]]:
    """Place on the axis, latency ratio and memory ratio, for every direction and column but UCPE, which is one."""
    _, place = _SWEEPS[purpose]
    series: dict[tuple[str, str], list[tuple[int, float, float | None]]] = {}
    for point in results["points"]:
        if point["purpose"] != purpose:
            continue
        for name, column in point["columns"].items():
            if name == point["reference"]:
                continue
            row = (place(point["shape"]), column["to_ucpe"]["median"], memory_ratio(results, point, name))
            series.setdefault((point["direction"], name), []).append(row)
    return series
