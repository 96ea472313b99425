"""Results made by hand: scores of clips without any trajectory behind them."""

from merope.evaluation.metrics.pairs import PairCounts
from merope.evaluation.protocol import SPECS
from merope.evaluation.result import ClipResult, EvaluationResult, Scores

NASTY = r"50%_of {x} & \y $z$ #1 ^~ <a|b> [c] *d* 'Ω'°"
"""A label with what Markdown and LaTeX read as markup."""


def pairs(below=(), *, num=100, oriented=None, vanishing=0) -> PairCounts:
    """Counts below 1, 2, ... degrees; the last one given holds up to 10 degrees."""

    def ten(counts):
        counts = tuple(counts) or (0,)
        return counts + counts[-1:] * (10 - len(counts))

    return PairCounts(
        num_pairs=num,
        num_vanishing=vanishing,
        below=ten(below),
        below_oriented=ten(below if oriented is None else oriented),
    )


def scores(counts=None, *, reasons=None, **values) -> Scores:
    """Values by metric; those not named are undefined, AUC follows from the counts."""
    counts = pairs() if counts is None else counts
    auc = {
        f"auc_{threshold}{suffix}": counts.auc_percent(threshold, oriented=suffix != "")
        for threshold in (3, 10)
        for suffix in ("", "_oriented")
    }
    given = {**auc, **values}
    why = {key: "not asked for" for key in SPECS if given.get(key) is None}
    return Scores(
        values={key: given.get(key) for key in SPECS},
        reasons={**why, **(reasons or {})},
        pairs=counts,
    )


def clip(clip_id, counts=None, *, reasons=None, frames=49, given=None, flags=None, **values) -> ClipResult:
    fields = {
        name: values.pop(name) for name in ("angle_method", "unit", "commanded_digest") if name in values
    }
    made = scores(counts, reasons=reasons, **values)
    return ClipResult(
        clip_id=clip_id,
        num_frames=frames,
        num_registered=frames,
        first_generated=given,
        all=made,
        generated=None if given is None else made,
        flags=flags or {},
        **{"angle_method": "atan2", "unit": "m", "commanded_digest": f"command of {clip_id}", **fields},
    )


def run(label, clips, **kwargs) -> EvaluationResult:
    return EvaluationResult(label=label, clips=tuple(clips), **kwargs)


def with_cammc(label, by_clip, **kwargs) -> EvaluationResult:
    """A run whose clips have a CamMC each, by id."""
    return run(label, [clip(name, cammc=value) for name, value in by_clip.items()], **kwargs)
