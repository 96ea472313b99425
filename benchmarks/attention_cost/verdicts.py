"""The bars: what voids a comparison, and whether the targets are met."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..measuring.timing import paired_ratio
from ..measuring.verdicts import Verdict

PLAIN_BAR = 1.15
"""UCPE's core, at its best, costs at most this many times plain attention, or it is no UCPE to compare with."""

CPU_LATENCY = {
    ("core", "forward"): 1.30,
    ("core", "forward+backward"): 1.45,
    ("full", "forward"): 1.10,
    ("full", "forward+backward"): 1.20,
}
CPU_MEMORY = 1.15
GPU_LATENCY = 1.2
GPU_IDENTITY = 1.1
GPU_MEMORY = 1.1
GPU_SPEEDUP = 1.8


def void_reasons(results: Mapping[str, Any]) -> list[str]:
    """Why UCPE was not at its best, so that ratios to it mean nothing; empty for a comparison that stands."""
    reasons = [
        f"{name!r} is missing: {reason}"
        for name, reason in results["absent"].items()
        if name.startswith(("ucpe", "sdpa"))
    ]
    if results["quick"]:
        # At sizes where calls cost more than arithmetic the bar means nothing.
        return reasons
    cores = {
        point["direction"]: point
        for point in results["points"]
        if point["purpose"] == "main" and point["scope"] == "core"
    }
    for direction in results["directions"]:
        point = cores.get(direction)
        if point is None:
            reasons.append(
                f"the core was not measured ({direction}), so nothing shows that UCPE was at its best"
            )
            continue
        ratio = point["columns"][point["reference"]]["to_sdpa"]["median"]
        if not ratio <= PLAIN_BAR:
            reasons.append(
                f"the core of the best UCPE, {point['reference']!r}, costs {ratio:.3f} x plain attention "
                f"({direction}; at most {PLAIN_BAR})"
            )
    return reasons


def busy_stretches(results: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Every stretch of timing by name, and the cores that others used in it."""
    for point in results["points"]:
        name = (
            f"{point['purpose']}, {point['shape']['name']}, {point['scope']}, "
            f"{point['direction']}, {point['threads']} threads"
        )
        yield name, point["others_cores"]


def targets(results: Mapping[str, Any]) -> list[Verdict]:
    """The targets that are set for this shape, precision and device, in the order of their table; may be none."""
    device, dtype = results["machine"]["device"], results["machine"]["dtype"]
    if results["shape"]["name"] != "paper":
        return []
    if device == "cpu" and dtype == "float32":
        return list(_cpu_targets(results))
    if device == "cuda" and dtype == "bfloat16":
        return list(_gpu_targets(results))
    return []


def _cpu_targets(results: Mapping[str, Any]) -> Iterator[Verdict]:
    for point in _main(results):
        column = best_merope(point)
        limit = CPU_LATENCY.get((point["scope"], point["direction"]))
        if column is not None and limit is not None:
            yield _latency(point, column, limit)
    yield from _memory_targets(results, CPU_MEMORY)


def _gpu_targets(results: Mapping[str, Any]) -> Iterator[Verdict]:
    for point in _main(results):
        fused, chunked = best_merope(point, "fused"), best_merope(point, "chunked")
        if point["scope"] != "full" or fused is None:
            continue
        yield _latency(point, fused, GPU_LATENCY)
        where = f"full, {point['direction']}"
        wall = point["rounds"]["wall"]
        if "identity fused" in wall:
            ratio = paired_ratio(wall[fused], wall["identity fused"]).median
            yield Verdict(f"latency, {where}: {fused} / identity fused", ratio, GPU_IDENTITY)
        if chunked is not None:
            ratio = paired_ratio(wall[chunked], wall[fused]).median
            yield Verdict(f"latency, {where}: {chunked} / {fused}", ratio, GPU_SPEEDUP, at_least=True)
    yield from _memory_targets(results, GPU_MEMORY)


def _main(results: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (point for point in results["points"] if point["purpose"] == "main")


def _latency(point: Mapping[str, Any], column: str, limit: float) -> Verdict:
    what = f"latency, {point['scope']}, {point['direction']}: {column} / {point['reference']}"
    return Verdict(what, point["columns"][column]["to_ucpe"]["median"], limit)


def _memory_targets(results: Mapping[str, Any], limit: float) -> Iterator[Verdict]:
    for point in _main(results):
        column = best_merope(point, "fused") or best_merope(point)
        ratio = memory_ratio(results, point, column) if column else None
        if ratio is not None:
            what = f"peak memory, {point['scope']}, {point['direction']}: {column} / {point['reference']}"
            yield Verdict(what, ratio, limit)


def best_merope(point: Mapping[str, Any], route: str | None = None) -> str | None:
    """The fastest column of MeRoPE in this point, or of one of its backends; None where there is none."""
    names = [
        name
        for name in point["columns"]
        if name.split()[0] == "merope" and (route is None or name.split()[1] == route)
    ]
    return min(names, key=lambda name: point["columns"][name]["ms"]["median"], default=None)


def memory_of(results: Mapping[str, Any], point: Mapping[str, Any], column: str) -> Mapping[str, Any] | None:
    """The memory entry of a column at this point."""
    keys = ("purpose", "shape", "scope", "direction")
    for entry in results["memory"]:
        if entry["column"] == column and all(entry[key] == point[key] for key in keys):
            return entry
    return None


def total_bytes(entry: Mapping[str, Any]) -> int:
    """Peak above the inputs and what is stored of the geometry: stored anchors count."""
    return entry["peak"] + entry["geometry"]


def memory_ratio(results: Mapping[str, Any], point: Mapping[str, Any], column: str) -> float | None:
    """Total bytes of a column relative to those of the point's UCPE; None where one was not measured."""
    ours, theirs = (memory_of(results, point, name) for name in (column, point["reference"]))
    if ours is None or theirs is None or not total_bytes(theirs):
        return None
    return total_bytes(ours) / total_bytes(theirs)
