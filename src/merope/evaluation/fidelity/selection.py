"""Which clips of each set are compared: equal numbers, equal lengths, equal rates, and nothing that was given."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from merope.errors import MeropeError
from merope.evaluation.fidelity.clips import ClipCollection
from merope.evaluation.fidelity.protocol import FidelityProtocol

_RATE_SLACK = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """The clips that are compared, and the names of those that are there and are not taken, by the label of their set."""

    protocol: FidelityProtocol
    real: ClipCollection
    generated: tuple[ClipCollection, ...]
    left_out: dict[str, tuple[str, ...]]


def choose_clips(
    real: ClipCollection,
    generated: Sequence[ClipCollection],
    protocol: FidelityProtocol,
    *,
    allow_fewer: bool = False,
) -> Chosen:
    """The first clips by name of every set, as many as the protocol says, else as the smallest set has.

    Raises:
        ValueError: if there is no generated set, or two have one label.
        MeropeError: if a set has fewer clips than the protocol says, clips are of unequal length, rate or size, or frames
            that were given would be measured; the message names the clip and the way out.
    """
    sets = [real, *generated]
    labels = [each.label for each in sets]
    if not generated or len(set(labels)) < len(labels):
        raise ValueError(
            f"there must be a generated set, and labels must differ, that of the real set included (--labels); got {labels}."
        )
    available = min(len(each.clips) for each in sets)
    if available < 2:
        raise MeropeError(
            "a distance of distributions needs at least 2 clips of each set; got "
            + ", ".join(f"{len(each.clips)} of {each.label}" for each in sets)
            + "."
        )
    if protocol.num_clips is not None and available < protocol.num_clips and not allow_fewer:
        short = [each for each in sets if len(each.clips) < protocol.num_clips]
        raise MeropeError(
            f"the protocol {protocol.name!r} takes {protocol.num_clips} clips of each set; there are "
            + "; ".join(f"{len(each.clips)} of {each.label}{_missing_words(each)}" for each in short)
            + ". Add them, or take what is there and have it marked (--allow-fewer)."
        )
    count = available if protocol.num_clips is None else min(available, protocol.num_clips)
    taken = [replace(each, clips=each.clips[:count]) for each in sets]
    for each in taken:
        _require_alike(each, taken[0], protocol)
    return Chosen(
        protocol=protocol,
        real=taken[0],
        generated=tuple(taken[1:]),
        left_out={each.label: tuple(clip.clip_id for clip in each.clips[count:]) for each in sets},
    )


def _require_alike(own: ClipCollection, real: ClipCollection, protocol: FidelityProtocol) -> None:
    first = real.clips[0]
    for clip in own.clips:
        name = f"{own.label}/{clip.clip_id}"
        try:
            numbers = protocol.frames_of(clip.num_frames)
        except ValueError as error:
            raise MeropeError(f"{name}: {error}.") from None
        if len(numbers) != len(protocol.frames_of(first.num_frames)):
            raise MeropeError(
                f"{name} has {len(numbers)} frames behind the prefix where {real.label}/{first.clip_id} has "
                f"{len(protocol.frames_of(first.num_frames))}; FVD depends on it. Take a number that all have (--frames N)."
            )
        if clip.prefix_frames > protocol.exclude_prefix:
            raise MeropeError(
                f"{name} was given its first {clip.prefix_frames} frames and the protocol leaves out "
                f"{protocol.exclude_prefix}: real frames would count as generated. Exclude all of them "
                f"(--exclude-prefix {clip.prefix_frames})."
            )
        if abs(clip.fps - first.fps) > _RATE_SLACK * first.fps:
            raise MeropeError(
                f"{name} has {clip.fps:g} frames a second, {real.label}/{first.clip_id} has {first.fps:g}: motion would "
                "differ by that. Thin the faster ones with `merope data convert --fps`."
            )
        size, wanted = (clip.height, clip.width), (own.clips[0].height, own.clips[0].width)
        if protocol.resize is None:
            wanted = (first.height, first.width)
        if size != wanted:
            raise MeropeError(
                f"{name} has frames of {size[0]} x {size[1]} where others have {wanted[0]} x {wanted[1]}: they would be "
                "blurred unequally. Bring them to one size with `merope data convert --height --width`, or say how both are "
                "resized (--resize bilinear)."
            )


def _missing_words(collection: ClipCollection) -> str:
    if not collection.missing:
        return ""
    more = ", ..." if len(collection.missing) > 5 else ""
    return f" (missing: {', '.join(collection.missing[:5])}{more})"
