"""Which clips of two runs may stand side by side: what both versions of a clip must have in common."""

from collections.abc import Collection
from typing import Any

from merope.errors import MeropeError
from merope.evaluation.result import ClipResult

MUST_AGREE = {
    "commanded": "follow the same commanded trajectory",
    "angle_method": "measure angles by the same method",
    "unit": "be commanded in the same unit",
    "frames": "have as many frames, and as many given ones",
}
"""What the two versions of a clip must have in common for their scores to stand side by side."""


def require_agreement(
    label_a: str, label_b: str, pairs: list[tuple[ClipResult, ClipResult]], despite: Collection[str]
) -> tuple[str, ...]:
    """What does not agree and was accepted, of `MUST_AGREE`.

    A clip without a digest of its command cannot be held to the same one; `compare` notes that.

    Raises:
        MeropeError: if something else does not agree, naming a clip and both values.
    """
    broken = []
    for name, demand in MUST_AGREE.items():
        clashes = [(one, other) for one, other in pairs if _clashes(name, one, other)]
        if not clashes:
            continue
        if name not in despite:
            one, other = clashes[0]
            values = "" if name == "commanded" else f": {_value(name, one)} against {_value(name, other)}"
            raise MeropeError(
                f"{label_a} and {label_b} cannot be compared: the clips of both must {demand}, and {len(clashes)} of "
                f"{len(pairs)} do not, such as {one.clip_id}{values}. To compare them all the same, accept it by name: "
                f"despite {name}."
            )
        broken.append(name)
    return tuple(broken)


def _clashes(name: str, one: ClipResult, other: ClipResult) -> bool:
    left, right = _value(name, one), _value(name, other)
    if name == "commanded" and (left is None or right is None):
        return False
    return left != right


def _value(name: str, clip: ClipResult) -> Any:
    if name == "commanded":
        return clip.commanded_digest
    if name == "frames":
        return f"{clip.num_frames} frames, {clip.first_generated or 0} given"
    return clip.angle_method if name == "angle_method" else clip.unit
