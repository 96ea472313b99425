"""FID, KID, FVD and KVD of sets of clips: checked before anything is computed, with all that the numbers depend on."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from merope.errors import MeropeError
from merope.evaluation.fidelity.clips import ClipCollection, ComparedClip
from merope.evaluation.fidelity.extraction import extract
from merope.evaluation.fidelity.features import FeatureSet
from merope.evaluation.fidelity.frechet import frechet_distance
from merope.evaluation.fidelity.kernel import (
    DEGREE,
    KernelDistance,
    kernel_distance,
    kernel_distance_of_subsets,
)
from merope.evaluation.fidelity.networks import FeatureNetwork
from merope.evaluation.fidelity.protocol import FidelityProtocol
from merope.evaluation.fidelity.results import MEASURES, FidelityResult, FidelityScore
from merope.evaluation.fidelity.selection import Chosen, choose_clips

# Below this many videos the bias of FVD is of the size of the differences between methods (field reports on FVD).
STABLE_VIDEOS = 1000


def measure(
    real: ClipCollection,
    generated: Sequence[ClipCollection],
    *,
    protocol: FidelityProtocol,
    frames_network: FeatureNetwork | None = None,
    videos_network: FeatureNetwork | None = None,
    measures: Collection[str] = tuple(MEASURES),
    allow_small: bool = False,
    allow_fewer: bool = False,
    cache: Path | None = None,
    workers: int = 2,
    progress: bool = False,
) -> tuple[FidelityResult, ...]:
    """The distances of every generated set from the real one, all over equal numbers of clips.

    FID and KID need a network of frames, FVD and KVD one of videos; a measure without its network is left out.
    ``allow_small`` lets a Fréchet distance be computed from no more samples than there are features, marked as unstable;
    ``allow_fewer`` lets sets have fewer clips than the protocol says, marked as incomplete. ``cache`` is a folder for
    features (`extract`).

    Raises:
        ValueError: if no measure is left, or the protocol cannot be applied to these clips.
        MeropeError: if sets do not fit each other or the protocol, or are too small; the message says what to do.
    """
    networks = {"frames": frames_network, "videos": videos_network}
    for takes, network in networks.items():
        if network is not None and network.takes != takes:
            raise ValueError(f"{takes}_network must take {takes}; {network.name} takes {network.takes}.")
    wanted = [name for name in MEASURES if name in measures and networks[MEASURES[name].takes] is not None]
    if unknown := sorted(set(measures) - set(MEASURES)):
        raise ValueError(f"measures must be among {', '.join(MEASURES)}; got {', '.join(unknown)}.")
    if not wanted:
        raise ValueError(
            f"nothing to measure: of {', '.join(measures) or '(none)'} none has its network; FID and KID need "
            "frames_network, FVD and KVD videos_network."
        )
    used = [
        network
        for takes, network in networks.items()
        if network is not None and any(MEASURES[name].takes == takes for name in wanted)
    ]
    chosen = choose_clips(real, generated, protocol, allow_fewer=allow_fewer)
    for network in used:
        _require_enough(chosen, network, wanted, allow_small=allow_small, dimension=network.dimension)
        if network.dimension is None:
            # One clip tells the number of features before all others are computed in vain.
            one = replace(chosen.real, clips=chosen.real.clips[:1])
            found = extract(one, [network], protocol, cache=cache).features[network.name].dimension
            _require_enough(chosen, network, wanted, allow_small=allow_small, dimension=found)
    extracted = [
        extract(each, used, protocol, cache=cache, workers=workers, progress=progress)
        for each in (chosen.real, *chosen.generated)
    ]
    moments = {
        network.name: extracted[0].features[network.name].moments()
        for network in used
        if any(_is(name, "frechet", network) for name in wanted)
    }
    results = []
    for collection, features in zip(chosen.generated, extracted[1:], strict=True):
        scores = {}
        for name in wanted:
            network = next(each for each in used if each.takes == MEASURES[name].takes)
            real_set, own_set = extracted[0].features[network.name], features.features[network.name]
            uncertainty = None
            if MEASURES[name].kind == "frechet":
                value = frechet_distance(moments[network.name], own_set.moments(), divisor=network.covariance)
            else:
                distance = _kernel(real_set, own_set, protocol)
                value, uncertainty = distance.value, distance.uncertainty
            if not np.isfinite([value, uncertainty or 0.0]).all():
                raise MeropeError(
                    f"{name.upper()} of {collection.label} is {value} +- {uncertainty}: features of {network.name} are too "
                    "large for it. Scale them down in the network."
                )
            scores[name] = FidelityScore(
                measure=name,
                value=value,
                uncertainty=uncertainty,
                marks=_marks(name, len(own_set), own_set.dimension, chosen, protocol),
                protocol={
                    **_of_clips(chosen, collection, protocol),
                    **_of_measure(name, network, protocol),
                    "num_real": len(real_set),
                    "num_generated": len(own_set),
                    "num_features": own_set.dimension,
                    "real_sha256": extracted[0].frames_sha256,
                },
            )
        results.append(
            FidelityResult(
                label=collection.label,
                scores=scores,
                clips=tuple(clip.clip_id for clip in collection.clips),
                left_out=chosen.left_out[collection.label],
                missing=collection.missing,
                frames_sha256=features.frames_sha256,
            )
        )
    return tuple(results)


def _require_enough(
    chosen: Chosen,
    network: FeatureNetwork,
    wanted: Sequence[str],
    *,
    allow_small: bool,
    dimension: int | None,
) -> None:
    """Refuse too few clips, too short ones, and a covariance that cannot have full rank."""
    per_clip = len(chosen.protocol.frames_of(chosen.real.clips[0].num_frames))
    if network.takes == "videos" and per_clip < network.min_frames:
        raise MeropeError(
            f"{network.name} needs videos of at least {network.min_frames} frames; these have {per_clip} behind the "
            "prefix. Generate longer clips, or leave FVD and KVD out."
        )
    samples = len(chosen.real.clips) * (per_clip if network.takes == "frames" else 1)
    if samples < 2:
        raise MeropeError(
            f"a distance of distributions needs at least 2 {network.takes} of each set; got {samples}."
        )
    names = [name for name in wanted if _is(name, "frechet", network)]
    kernels = [name for name in wanted if _is(name, "kernel", network)]
    size = chosen.protocol.kernel_subset_size
    if kernels and chosen.protocol.kernel_subsets is not None and size > samples:
        raise MeropeError(
            f"{kernels[0].upper()} over subsets of {size} needs as many {network.takes} of each set; there are {samples}. "
            "Take smaller subsets (--kernel-subset-size), or all pairs without --kernel-subsets."
        )
    if names and dimension is not None and samples <= dimension and not allow_small:
        beside = "KID" if network.takes == "frames" else "KVD"
        raise MeropeError(
            f"{names[0].upper()} of {samples} {network.takes} is refused: a covariance of {dimension} features from "
            f"{samples} samples is singular, and the distance then says more about N than about the {network.takes}. "
            f"Take more than {dimension}, or {beside} alone, whose expectation does not depend on N "
            f"(--measures {beside.lower()}); or force it and have it marked (--allow-small)."
        )


def _kernel(real: FeatureSet, own: FeatureSet, protocol: FidelityProtocol) -> KernelDistance:
    # Its square overflows with features beyond 1e30; the caller says so of the result.
    with np.errstate(over="ignore", invalid="ignore"):
        if protocol.kernel_subsets is None:
            return kernel_distance(real, own)
        return kernel_distance_of_subsets(
            real,
            own,
            num_subsets=protocol.kernel_subsets,
            subset_size=protocol.kernel_subset_size,
            seed=protocol.seed,
        )


def _is(name: str, kind: str, network: FeatureNetwork) -> bool:
    return MEASURES[name].kind == kind and MEASURES[name].takes == network.takes


def _marks(
    name: str, samples: int, dimension: int, chosen: Chosen, protocol: FidelityProtocol
) -> tuple[str, ...]:
    marks = []
    if MEASURES[name].kind == "frechet":
        if samples <= dimension:
            marks.append(f"unstable: rank-deficient, {samples} samples for {dimension} features")
        if MEASURES[name].takes == "videos" and samples < STABLE_VIDEOS:
            marks.append(f"unstable: {samples} videos, fewer than {STABLE_VIDEOS}")
    if protocol.num_clips is not None and len(chosen.real.clips) < protocol.num_clips:
        marks.append(f"incomplete: {len(chosen.real.clips)} of {protocol.num_clips} clips")
    return tuple(marks)


def _of_clips(chosen: Chosen, collection: ClipCollection, protocol: FidelityProtocol) -> dict[str, Any]:
    first, own = chosen.real.clips[0], collection.clips[0]
    numbers = protocol.frames_of(own.num_frames)
    return {
        "name": protocol.name,
        "num_clips": len(collection.clips),
        "exclude_prefix": protocol.exclude_prefix,
        "frames_per_clip": len(numbers),
        "first_frame": numbers[0],
        "last_frame": numbers[-1],
        "frame_step": protocol.frame_step,
        "fps": first.fps,
        "frame_size_real": _size(first),
        "frame_size_generated": _size(own),
    }


def _of_measure(name: str, network: FeatureNetwork, protocol: FidelityProtocol) -> dict[str, Any]:
    resize = protocol.resize
    chosen: dict[str, Any] | None = None
    if resize is not None:
        size = (resize.height, resize.width) if resize.height is not None else network.input_size
        chosen = {**asdict(resize), "height": (size or (None, None))[0], "width": (size or (None, None))[1]}
    about: dict[str, Any] = {"resize": chosen, **network.describe()}
    if MEASURES[name].kind == "frechet":
        return {**about, "covariance": f"over {network.covariance}"}
    subsets = protocol.kernel_subsets
    return {
        **about,
        "kernel": f"(x.y / d + 1)^{DEGREE}, unbiased",
        "pairs": "all"
        if subsets is None
        else f"{subsets} subsets of {protocol.kernel_subset_size}, seed {protocol.seed}",
        "uncertainty": "standard error, leaving one clip out"
        if subsets is None
        else "standard deviation over subsets",
    }


def _size(clip: ComparedClip) -> list[int]:
    return [clip.height, clip.width]
