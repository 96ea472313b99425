"""What each number means: unit, direction, equation and protocol, kept beside the code that computes it.

Two scale treatments exist and are never mixed: tr% applies the least-squares scale s* of Eq. 37, whereas
CamMC and TransErr divide each trajectory by its own largest distance from the first frame (Eq. 38).
"""

from dataclasses import dataclass
from typing import Literal

GAUGE = "every pose relative to the first frame (Eq. 35); rotations are never aligned"
GENERATED = (
    "the same gauge, scale s* and max-norms over all frames of the clip; means and sums over frames from "
    "first_generated on, pairs whose later frame is generated"
)
AUC_THRESHOLDS_DEG = (3, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """Meaning of one number: ``unit`` and ``protocol`` travel with it into every table and file."""

    label: str
    unit: str
    better: Literal["lower", "higher", "one", "none"]
    protocol: str
    digits: int = 3
    paper: bool = True


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
        paper=not oriented,
        protocol=(
            f"share of frame pairs i < j with max(rotation error, direction error) < k deg, averaged over "
            f"k = 1..{threshold} (Eq. 42); {direction}; a pair with a vanishing translation fails; no scale; "
            "pooled over the pairs of all clips"
        ),
    )


SPECS: dict[str, MetricSpec] = {
    "rot_deg": MetricSpec(
        label="rot",
        unit="deg",
        better="lower",
        protocol="mean geodesic rotation error over frames 2..T (Eq. 39); mean over clips",
    ),
    "tr_percent": MetricSpec(
        label="tr",
        unit="%",
        better="lower",
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
        protocol="sum over frames of the Frobenius error of [R|o], o max-normalised (Eqs. 38, 43); mean over clips",
    ),
    "rot_err_rad": MetricSpec(
        label="RotErr",
        unit="rad",
        better="lower",
        protocol="sum over frames of the geodesic rotation error (Eq. 44); mean over clips",
    ),
    "trans_err": MetricSpec(
        label="TransErr",
        unit="1",
        better="lower",
        protocol="sum over frames of the centre error, o max-normalised (Eqs. 38, 45); mean over clips",
    ),
    "auc_3_oriented": _auc_spec(3, oriented=True),
    "auc_10_oriented": _auc_spec(10, oriented=True),
    "scale": MetricSpec(
        label="s*",
        unit="commanded / recovered",
        better="one",
        paper=False,
        protocol="least-squares scale of the recovered centres (Eq. 37, unconstrained sign); mean over clips",
    ),
    "metres_ratio": MetricSpec(
        label="metres out / in",
        unit="recovered / commanded",
        better="one",
        paper=False,
        protocol=(
            "least-squares slope of recovered on commanded centres, sum(o_hat . o) / sum(|o|^2); "
            "metric estimators only; mean over clips that move"
        ),
    ),
    "scale_error_percent": MetricSpec(
        label="metric scale error",
        unit="%",
        better="lower",
        digits=2,
        paper=False,
        protocol="|metres_ratio - 1| x 100; metric estimators only; mean over clips that move",
    ),
}

FLAGS: dict[str, str] = {
    "reversed": "s* <= 0, the recovered path runs against the command; rot, tr and AUC cannot see that",
    "static_estimate": "the recovered camera does not move; s* is set to 0, tr is mean commanded distance over chord",
    "static_commanded": "the command has no end-to-end chord; tr is undefined, left out of its mean and counted",
    "axes_suspected": "another reading of the estimate (camera axes, world-to-camera, transposed) fits far better",
    "partial_registration": "some frames had no recovered pose; filled by the stated rule, they count in every figure",
    "failed": "no trajectory was recovered for the clip",
}
