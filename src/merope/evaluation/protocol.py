"""What each number means: unit, direction, equation and protocol, kept beside the code that computes it.

The paper has two scale treatments that are never mixed: tr% applies the least-squares scale s* of Eq. 37, whereas
CamMC and TransErr divide each trajectory by its own largest distance from the first frame (Eq. 38). Trajectory errors
add the alignments of visual odometry. `MetricSpec.scale_rule` names the one that a number rests on.
"""

from dataclasses import dataclass, replace
from typing import Literal

MetricGroup = Literal["driving", "panshot", "beside", "trajectory"]
ScaleRule = Literal["none", "least squares (Eq. 37)", "max norm (Eq. 38)", "as recovered", "SE(3)", "Sim(3)"]
GAUGE = (
    "every pose relative to the first frame (Eq. 35), rotations are never aligned; trajectory errors as evo has them, "
    "in the world frames that came or after the alignment in their name"
)
GENERATED = (
    "the same gauge; s*, max-norms and alignments are those of the whole clip; means and sums over frames from "
    "first_generated on, pairs whose later frame is generated"
)
AUC_THRESHOLDS_DEG = (3, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """Meaning of one number: ``unit`` and ``protocol`` travel with it into every table and file.

    ``groups`` are the tables it belongs to, ``scale_rule`` how the estimate's scale was treated.
    """

    label: str
    unit: str
    better: Literal["lower", "higher", "one", "none"]
    protocol: str
    groups: tuple[MetricGroup, ...]
    scale_rule: ScaleRule
    digits: int = 3

    def in_unit(self, unit: str) -> "MetricSpec":
        """The same figure with its unit by name, such as m for "commanded unit"."""
        return replace(self, unit=unit)

    @property
    def paper(self) -> bool:
        """Whether the number is in one of the paper's tables."""
        return "driving" in self.groups or "panshot" in self.groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One value with its unit and protocol; ``value`` is None where the metric is undefined, ``reason`` says why."""

    value: float | None
    unit: str
    protocol: str
    reason: str | None = None


def _auc_spec(threshold: int, *, oriented: bool) -> MetricSpec:
    direction = (
        "oriented translation direction" if oriented else "unoriented translation direction, |cos| (Eq. 41)"
    )
    return MetricSpec(
        label=f"AUC@{threshold}" + (" oriented" if oriented else ""),
        unit="%",
        better="higher",
        digits=2,
        groups=("beside",) if oriented else ("driving",),
        scale_rule="none",
        protocol=(
            f"share of frame pairs i < j with max(rotation error, direction error) < k deg, averaged over "
            f"k = 1..{threshold} (Eq. 42); {direction}; a pair with a vanishing translation fails; no scale; "
            "pooled over the pairs of all clips"
        ),
    )


def _ate_spec(alignment: str, scale_rule: ScaleRule, how: str) -> MetricSpec:
    return MetricSpec(
        label=f"ATE {alignment}",
        unit="commanded unit",
        better="lower",
        groups=("trajectory",),
        scale_rule=scale_rule,
        protocol=f"root mean square distance of the centres over frames 1..T, {how}, as in evo; mean over clips",
    )


_ALIGNED = "of the recovered on the commanded centres (Umeyama), all frames of the clip; undefined on a straight path"


SPECS: dict[str, MetricSpec] = {
    "rot_deg": MetricSpec(
        label="rot",
        unit="deg",
        better="lower",
        groups=("driving",),
        scale_rule="none",
        protocol="mean geodesic rotation error over frames 2..T (Eq. 39); mean over clips",
    ),
    "tr_percent": MetricSpec(
        label="tr",
        unit="%",
        better="lower",
        groups=("driving",),
        scale_rule="least squares (Eq. 37)",
        protocol=(
            "mean centre error over frames 2..T after the least-squares scale s* (Eq. 37), divided by the "
            "commanded end-to-end chord (Eq. 40); mean over clips that have a chord"
        ),
    ),
    "auc_3": _auc_spec(3, oriented=False),
    "auc_10": _auc_spec(10, oriented=False),
    "cammc": MetricSpec(
        label="CamMC",
        unit="1",
        better="lower",
        groups=("driving", "panshot"),
        scale_rule="max norm (Eq. 38)",
        protocol="sum over frames of the Frobenius error of [R|o], o max-normalised (Eqs. 38, 43); mean over clips",
    ),
    "rot_err_rad": MetricSpec(
        label="RotErr",
        unit="rad",
        better="lower",
        groups=("panshot",),
        scale_rule="none",
        protocol="sum over frames of the geodesic rotation error (Eq. 44); mean over clips",
    ),
    "trans_err": MetricSpec(
        label="TransErr",
        unit="1",
        better="lower",
        groups=("panshot",),
        scale_rule="max norm (Eq. 38)",
        protocol="sum over frames of the centre error, o max-normalised (Eqs. 38, 45); mean over clips",
    ),
    "auc_3_oriented": _auc_spec(3, oriented=True),
    "auc_10_oriented": _auc_spec(10, oriented=True),
    "scale": MetricSpec(
        label="s*",
        unit="commanded / recovered",
        better="one",
        groups=("beside",),
        scale_rule="least squares (Eq. 37)",
        protocol="least-squares scale of the recovered centres (Eq. 37, unconstrained sign); mean over clips",
    ),
    "metres_ratio": MetricSpec(
        label="metres out / in",
        unit="recovered / commanded",
        better="one",
        groups=("beside",),
        scale_rule="as recovered",
        protocol=(
            "least-squares slope of recovered on commanded centres, sum(o_hat . o) / sum(|o|^2); "
            "metric estimators only; mean over clips that move"
        ),
    ),
    "scale_error_percent": MetricSpec(
        label="metric scale error",
        unit="%",
        better="lower",
        groups=("beside",),
        scale_rule="as recovered",
        digits=2,
        protocol="|metres_ratio - 1| x 100; metric estimators only; mean over clips that move",
    ),
    "ate_none": _ate_spec(
        "unaligned", "as recovered", "both in the world frames they came in; metric and in one world only"
    ),
    "ate_se3": _ate_spec("SE(3)", "SE(3)", f"after the best rigid motion {_ALIGNED}; metric estimators only"),
    "ate_sim3": _ate_spec("Sim(3)", "Sim(3)", f"after the best rigid motion and scale {_ALIGNED}"),
    "sim3_scale": MetricSpec(
        label="Sim(3) scale",
        unit="commanded / recovered",
        better="one",
        groups=("trajectory",),
        scale_rule="Sim(3)",
        protocol=f"scale of the best rigid motion and scale {_ALIGNED}; mean over clips",
    ),
    "rpe_trans": MetricSpec(
        label="RPE trans",
        unit="commanded unit",
        better="lower",
        groups=("trajectory",),
        scale_rule="as recovered",
        protocol=(
            "root mean square translation of the difference of motions one frame apart, as in evo; metric "
            "estimators only; mean over clips"
        ),
    ),
    "rpe_rot_deg": MetricSpec(
        label="RPE rot",
        unit="deg",
        better="lower",
        groups=("trajectory",),
        scale_rule="none",
        protocol=(
            "root mean square angle of the difference of motions one frame apart, as in evo; mean over clips"
        ),
    ),
}

FLAGS: dict[str, str] = {
    "reversed": "s* <= 0, the recovered path runs against the command; rot, tr and AUC cannot see that",
    "axes_suspected": "another reading of the estimate (camera axes, world-to-camera, transposed) fits far better",
    "mirrored": "the estimate is the mirror image of the command: its world is left-handed",
    "scaled": "a metric estimate is too large or too small by one factor; tr, CamMC and TransErr remove it",
    "time_offset": "the estimate fits far better some frames earlier or later",
    "static_commanded": "the command has no end-to-end chord; tr is undefined, left out of its mean and counted",
    "static_estimate": "the recovered camera does not move; s* is set to 0, tr is mean commanded distance over chord",
    "partial_registration": "some frames had no recovered pose; filled by the stated rule, they count in every figure",
    "nan_rows": "rows of the estimate are not finite numbers; they count as frames without a pose",
    "unreliable": "recovered a second time, the clip has another path; a mark only, it counts like all others",
    "failed": "no trajectory was recovered for the clip",
}
