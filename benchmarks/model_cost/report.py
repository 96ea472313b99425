"""results.json and results.md."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from merope.files import write_text_atomically

from ..measuring.verdicts import Verdict
from ..measuring.writing import banners, count, machine_lines, spread_text, table
from .projection import DENOISING_STEPS

TARGETS = {"training": 0.99, "denoising": 0.98}
"""MeRoPE's throughput over UCPE's, at least."""

PAPER = {"training": 4.70 / 4.86, "denoising": 0.177 / 0.188}
"""The same from Table 6."""

NAMES = {"base": "base, no camera", "gta": "GTA", "ucpe": "UCPE", "merope": "MeRoPE"}
_MIB = 2**20


def write_report(folder: Path, results: Mapping[str, Any]) -> list[Path]:
    """Write everything; the paths written, Markdown first."""
    written = [folder / "results.md", folder / "results.json"]
    write_text_atomically(written[1], json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_text_atomically(written[0], markdown(results))
    return written


def targets(results: Mapping[str, Any]) -> list[Verdict]:
    """MeRoPE's throughput relative to UCPE's by mode, at the size that was measured."""
    return [
        Verdict(
            f"throughput, {point['mode']}: MeRoPE / UCPE",
            point["methods"]["merope"]["to_ucpe"]["median"],
            TARGETS[point["mode"]],
            at_least=True,
        )
        for point in results["points"]
    ]


def target_lines(results: Mapping[str, Any]) -> list[str]:
    """PASS and MISS with the paper's ratio beside them, or why nothing is judged; then what was computed."""
    if results["quick"]:
        lines = ["No target is judged at tiny sizes."]
    else:
        lines = [
            f"{verdict}; the paper's is {PAPER[point['mode']]:.3f}"
            for verdict, point in zip(targets(results), results["points"], strict=True)
        ]
    return lines + list(projection_lines(results))


def projection_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """The ratio at the real width, marked as what it is."""
    for mode, found in results["projection"].items():
        if found is None:
            yield f"Not computed for the 5B model, {mode}: the parts were not all measured."
            continue
        yield (
            f"COMPUTED, NOT MEASURED: throughput, {mode}, MeRoPE / UCPE at width 3072 and 30 layers: "
            f"{found['to_ucpe']:.3f} (the same sum gives {found['to_ucpe_measured_size']:.3f} at the measured size)"
        )


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report as Markdown."""
    machine = results["machine"]
    lines = ["# Cost of a whole model", ""]
    for banner in banners(results):
        lines += [f"**{banner}**", ""]
    lines += [
        f"{results['size']['values']['name']}: {results['size']['text']}; batch 1, {machine['dtype']}, "
        f"{machine['device']}{', blocks compiled' if results['compiled'] else ''}.",
        "",
        "Median (quartiles) over interleaved rounds in one process. Ratios are of throughput, taken within a round: 0.99 is "
        "one percent fewer clips. From poses to operator counts: once a training step, once a denoised clip.",
        "",
        "## Targets",
        "",
        *[f"- {line}" for line in target_lines(results)],
        "",
    ]
    for point in results["points"]:
        lines += [*_point_table(results, point), ""]
    lines += [*_branch_table(results), ""]
    if any(results["projection"].values()):
        lines += [*_projection_table(results), ""]
    if results["branch"]["absent"]:
        lines += ["## Not measured", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in results["branch"]["absent"].items()] + [""]
    lines += ["## Machine", "", *machine_lines(results)]
    return "\n".join(lines) + "\n"


def _point_table(results: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    training = point["mode"] == "training"
    if training:
        title = "Training step"
        how = f"trains {results['trains']}; gradient checkpointing {'on' if results['checkpointing'] else 'off'}"
    else:
        title = "Denoising loop"
        how = f"{count(point['steps'], 'step')} of two passes"
    lines = [f"## {title}", "", f"{how[0].upper()}{how[1:]}; {count(point['num_rounds'], 'round')}.", ""]
    header = [
        "",
        "attention",
        "seconds",
        "clips/s",
        "throughput / UCPE",
        "/ base",
        "peak memory (MiB)",
        "of it held",
        "above held, by torch's allocator",
        "memory / UCPE",
    ]
    rows = []
    for name, found in point["methods"].items():
        rows.append(
            [
                NAMES[name],
                "-" if name == "base" else (point["forms"][name] or "as the library does"),
                spread_text(found["seconds"], 3),
                f"{found['clips_per_second']:.4g}",
                spread_text(found["to_ucpe"], 4),
                spread_text(found.get("to_base"), 4),
                *_memory_cells(results, point["mode"], name),
            ]
        )
    lines += [*table(header, rows), "", "From poses to operator, in the seconds above:", ""]
    more = [] if training else [f"throughput / UCPE, once for {DENOISING_STEPS} steps (computed)"]
    rows = [
        [
            NAMES[name],
            spread_text({key: 1e3 * value for key, value in found["operator_seconds"].items()}, 1),
            f"{100 * found['operator_seconds']['median'] / found['seconds']['median']:.2f} %",
            spread_text(found["without_operator"], 4),
            *([] if training else [spread_text(found["to_ucpe_in_use"], 4)]),
        ]
        for name, found in point["methods"].items()
        if name != "base"
    ]
    return lines + table(["", "operator (ms)", "of the whole", "throughput / UCPE without it", *more], rows)


def memory_of(results: Mapping[str, Any], mode: str, method: str) -> Mapping[str, Any] | None:
    """The memory entry of a method in a mode."""
    for entry in results["memory"]:
        if (entry["mode"], entry["method"]) == (mode, method):
            return entry
    return None


def total_bytes(entry: Mapping[str, Any]) -> int:
    """Weights and optimizer, and the peak of a step above them."""
    return entry["held"] + entry["peak"]


def _memory_cells(results: Mapping[str, Any], mode: str, method: str) -> list[str]:
    entry, reference = memory_of(results, mode, method), memory_of(results, mode, "ucpe")
    if entry is None:
        return ["-"] * 4
    return [
        f"{total_bytes(entry) / _MIB:.1f}",
        f"{entry['held'] / _MIB:.1f}",
        f"{entry['allocated'] / _MIB:.1f}",
        "-" if reference is None else f"{total_bytes(entry) / total_bytes(reference):.4f}",
    ]


def _branch_table(results: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            point["scope"],
            point["direction"],
            f"`{name}`",
            spread_text(column["ms"], 2),
            spread_text(column.get("to_ucpe"), 3),
            spread_text(column.get("to_sdpa"), 3),
        ]
        for point in results["branch"]["points"]
        for name, column in point["columns"].items()
    ]
    return [
        "## The branch alone",
        "",
        "Core: modulation and attention; full: with the projections. The fastest UCPE and GTA of the full branch run in the "
        "transformers above.",
        "",
        *table(["", "", "", "latency (ms)", "latency / UCPE", "/ plain attention"], rows),
    ]


def _projection_table(results: Mapping[str, Any]) -> list[str]:
    rows = []
    for mode, found in results["projection"].items():
        if found is None:
            continue
        parts = found["parts"]
        for method in ("ucpe", "merope"):
            rows.append(
                [
                    mode,
                    NAMES[method],
                    f"{1e3 * parts['backbone']:.1f}",
                    f"{1e3 * parts['core'][method]:.2f}",
                    f"{1e3 * parts['projections'][method]:.2f}",
                    f"{1e3 * parts['operator'][method]:.1f}",
                    f"{found['to_ucpe']:.4f}" if method == "merope" else "1",
                ]
            )
    wanted = next(found["wanted"] for found in results["projection"].values() if found is not None)
    return [
        "## Computed, not measured: at the 5B model's size",
        "",
        f"{wanted}. Each part's seconds as measured here, multiplied by the ratio of its operations there and here: the "
        "backbone by all of its own, a branch's core by those of attention, its projections by theirs. The operator depends "
        f"on tokens alone; denoising counts it once for {DENOISING_STEPS} steps. Where the base was not measured, the "
        "backbone is UCPE's transformer without its branches.",
        "",
        *table(
            [
                "",
                "",
                "backbone, a pass (ms)",
                "core of a branch (ms)",
                "projections of a branch (ms)",
                "operator (ms)",
                "computed throughput / UCPE",
            ],
            rows,
        ),
    ]
