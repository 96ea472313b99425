"""What the ratio would be at another width and depth: computed from measured parts, by their operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..attention_cost.verdicts import best_merope
from .sizes import ModelSize
from .steps import PASSES

DENOISING_STEPS = 50
"""Steps of a clip in use; the operator is made once for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Seconds of one training step, or of one denoised clip, at the size that was measured."""

    backbone: float
    """One pass of everything but branches and operator, its backward pass included in training."""
    core: Mapping[str, float]
    """Attention of one branch under UCPE ("ucpe") and under MeRoPE ("merope")."""
    projections: Mapping[str, float]
    """What the whole branch takes beyond its core: four projections."""
    operator: Mapping[str, float]
    """From poses to operator, once."""
    passes: int
    """Passes for each operator."""

    def seconds(self, method: str, measured: ModelSize, wanted: ModelSize) -> float:
        """Each part in proportion to its operations, at the wanted size; the operator depends on tokens alone.

        The time of MeRoPE's maps is in its core, which grows with heads as they do. The update of the branches' weights,
        the same for both encodings, is left out.
        """
        backbone = self.backbone * wanted.backbone_flops / measured.backbone_flops
        branch = self.core[method] * wanted.attention_flops / measured.attention_flops
        branch += self.projections[method] * wanted.projection_flops / measured.projection_flops
        return self.operator[method] + self.passes * (backbone + wanted.num_branches * branch)

    def throughput_ratio(self, measured: ModelSize, wanted: ModelSize) -> float:
        """MeRoPE's throughput over UCPE's."""
        return self.seconds("ucpe", measured, wanted) / self.seconds("merope", measured, wanted)


def parts_of(results: Mapping[str, Any], point: Mapping[str, Any], size: ModelSize) -> Parts | None:
    """The parts of a mode; None where the branch alone was not measured."""
    core, projections = {}, {}
    for scope, seconds in (("core", core), ("full", projections)):
        for method in ("ucpe", "merope"):
            value = _branch_seconds(results, point, scope, method)
            if value is None:
                return None
            seconds[method] = value
    for method in core:
        # Two noisy measurements: where a core comes out slower than the branch around it, the branch counts.
        core[method] = min(core[method], projections[method])
        projections[method] -= core[method]
    operator = {name: point["methods"][name]["operator_seconds"]["median"] for name in ("ucpe", "merope")}
    passes = PASSES * point["steps"] if point["mode"] == "denoising" else 1
    with_branches = "base" not in point["methods"]
    name = "ucpe" if with_branches else "base"
    total = point["methods"][name]["seconds"]["median"]
    backbone = (total - (operator["ucpe"] if with_branches else 0.0)) / passes
    if with_branches:
        backbone -= size.num_branches * (core["ucpe"] + projections["ucpe"])
    return Parts(backbone=backbone, core=core, projections=projections, operator=operator, passes=passes)


def projected(
    results: Mapping[str, Any], point: Mapping[str, Any], wanted: ModelSize
) -> dict[str, Any] | None:
    """The ratio at the wanted size, and the same sum at the measured one to compare with its measurement."""
    measured = ModelSize(**results["size"]["values"])
    parts = parts_of(results, point, measured)
    if parts is None or parts.backbone <= 0:
        return None
    used = parts
    if point["mode"] == "denoising":
        used = Parts(
            backbone=parts.backbone,
            core=parts.core,
            projections=parts.projections,
            operator=parts.operator,
            passes=PASSES * DENOISING_STEPS,
        )
    return {
        "wanted": str(wanted),
        "passes": used.passes,
        "to_ucpe": used.throughput_ratio(measured, wanted),
        "to_ucpe_measured_size": parts.throughput_ratio(measured, measured),
        "parts": {
            "backbone": parts.backbone,
            "core": parts.core,
            "projections": parts.projections,
            "operator": parts.operator,
        },
    }


def _branch_seconds(
    results: Mapping[str, Any], point: Mapping[str, Any], scope: str, method: str
) -> float | None:
    """Seconds of a branch (its core or all of it) in one pass of this mode; recomputed blocks run forward twice."""
    directions = ["forward"] if point["mode"] == "denoising" else ["forward+backward"]
    if point["mode"] == "training" and results["checkpointing"]:
        directions.append("forward")
    total = 0.0
    for direction in directions:
        for found in results["branch"]["points"]:
            if (found["scope"], found["direction"]) == (scope, direction):
                name = found["reference"] if method == "ucpe" else best_merope(found)
                break
        else:
            return None
        if name is None:
            return None
        total += found["columns"][name]["ms"]["median"] / 1e3
    return total
