"""A metric estimate in another unit: one factor off, which tr, CamMC and TransErr divide out."""

from merope.evaluation.metrics.paper import Aligned

SCALE_RANGE = (0.8, 1.25)
# Cosine between the two paths below which one factor does not explain the estimate.
_MIN_COSINE = 0.9
_UNITS = {1e-3: "millimetres", 1e-2: "centimetres", 0.3048: "feet", 1e3: "kilometres"}


def wrong_scale(aligned: Aligned, scale: float) -> str | None:
    """What ``scaled`` says where s* leaves about [0.8, 1.25] and the paths agree in shape; None elsewhere."""
    low, high = SCALE_RANGE
    if scale <= 0 or low <= scale <= high:
        return None
    lengths = float(aligned.center_rel.norm() * aligned.center_hat_rel.norm())
    if float((aligned.center_rel * aligned.center_hat_rel).sum()) < _MIN_COSINE * lengths:
        return None
    unit = next((name for factor, name in _UNITS.items() if abs(scale / factor - 1) < 0.1), None)
    return (
        f"s* = {scale:.4g}: a metre of the estimate is {scale:.4g} m of the command, outside {low} to {high}. If its "
        "centres are right up to one factor only, say --scale up-to-scale"
        + (
            "; if they are in another unit, convert them"
            if unit is None
            else f"; they may be {unit}: convert them"
        )
        + "; else the video moves at another speed than commanded"
    )
