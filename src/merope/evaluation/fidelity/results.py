"""What a comparison of sets hands back: every distance with its protocol, as a file and as a table."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from merope.errors import MeropeError
from merope.evaluation.protocol import Metric
from merope.files import write_text_atomically

FORMAT = "merope-fidelity-1"
FILE = "fidelity.json"
UNIT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One kind of distance."""

    label: str
    takes: Literal["frames", "videos"]
    kind: Literal["frechet", "kernel"]
    digits: int


MEASURES: dict[str, Measure] = {
    "fid": Measure(label="FID", takes="frames", kind="frechet", digits=3),
    "kid": Measure(label="KID", takes="frames", kind="kernel", digits=5),
    "fvd": Measure(label="FVD", takes="videos", kind="frechet", digits=2),
    "kvd": Measure(label="KVD", takes="videos", kind="kernel", digits=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityScore:
    """One distance: lower is better, 0 for equal distributions. ``marks`` say why it should not be trusted."""

    measure: str
    value: float
    uncertainty: float | None
    marks: tuple[str, ...]
    protocol: dict[str, Any]
    """All that the number depends on, as JSON types."""

    def words(self) -> str:
        """The protocol in one sentence."""
        return protocol_words(self.measure, self.protocol)

    def metric(self) -> Metric:
        """The number as evaluation's tables take it; the marks stand before the protocol."""
        marks = "; ".join(self.marks)
        return Metric(
            value=self.value,
            unit=UNIT,
            protocol=f"{marks}; {self.words()}" if marks else self.words(),
            reason=marks or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityResult:
    """The distances of one generated set from the real one."""

    label: str
    scores: dict[str, FidelityScore]
    clips: tuple[str, ...]
    """Clips that were compared."""
    left_out: tuple[str, ...]
    """Clips that are there and beyond the number that is compared."""
    missing: tuple[str, ...]
    """Clips that were asked for and are not there."""
    frames_sha256: str
    """Hash of the compared frames."""


def check_same_protocol(results: Iterable[FidelityResult]) -> None:
    """Raise unless numbers may stand in one table: one network, one resize, one N, T and rate, one real set.

    Raises:
        MeropeError: naming the measure, the fields that differ, and both values.
    """
    first: dict[str, tuple[str, FidelityScore]] = {}
    for result in results:
        for name, score in result.scores.items():
            label, other = first.setdefault(name, (result.label, score))
            keys = sorted({*score.protocol, *other.protocol})
            differing = [key for key in keys if score.protocol.get(key) != other.protocol.get(key)]
            if differing:
                raise MeropeError(
                    f"{MEASURES[name].label} of {label} and of {result.label} cannot stand in one table: "
                    + "; ".join(
                        f"{key} is {other.protocol.get(key)!r} and {score.protocol.get(key)!r}"
                        for key in differing
                    )
                    + ". Measure them in one call of `merope fidelity`."
                )


def protocol_words(measure: str, protocol: dict[str, Any]) -> str:
    """The protocol of one distance in one sentence."""
    step = protocol["frame_step"]
    resize = protocol["resize"]
    sizes = [
        f"{height} x {width}"
        for height, width in (protocol["frame_size_real"], protocol["frame_size_generated"])
    ]
    spec = MEASURES[measure]
    parts = [
        f"protocol {protocol['name']}",
        f"{protocol['num_generated']} generated and {protocol['num_real']} real {spec.takes} of {protocol['num_clips']} "
        f"clips each, T = {protocol['frames_per_clip']}: frames {protocol['first_frame']} to {protocol['last_frame']}"
        + (f" in steps of {step}" if step > 1 else "")
        + f", the first {protocol['exclude_prefix']} excluded",
        (sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]} real, {sizes[1]} generated")
        + f" px at {protocol['fps']:g} frames/s",
        "resized by the network alone"
        if resize is None
        else f"resized to {resize['height']} x {resize['width']}, {resize['mode']}, "
        f"{'' if resize['antialias'] else 'not '}antialiased, rounded to uint8",
        f"network's own resize: {protocol['own_resize']}",
        protocol["value_range"],
        f"{protocol['network']} ({protocol['num_features']} features, {protocol['weights']}, "
        f"sha256 {protocol['network_sha256']}) by {protocol['backend']}",
        f"covariance {protocol['covariance']}"
        if spec.kind == "frechet"
        else f"kernel {protocol['kernel']}, pairs: {protocol['pairs']}, +- is the {protocol['uncertainty']}",
    ]
    return "; ".join(parts)


def write_fidelity(path: str | Path, results: Sequence[FidelityResult], *, real: str) -> None:
    """Write results as JSON in one step; ``real`` is the label of the real set.

    Raises:
        MeropeError: if they were not made alike (`check_same_protocol`).
    """
    check_same_protocol(results)
    content = {
        "format": FORMAT,
        "real": real,
        "results": [
            {
                "label": result.label,
                "clips": list(result.clips),
                "left_out": list(result.left_out),
                "missing": list(result.missing),
                "frames_sha256": result.frames_sha256,
                "scores": {
                    name: {
                        "value": score.value,
                        "uncertainty": score.uncertainty,
                        "unit": UNIT,
                        "better": "lower",
                        "marks": list(score.marks),
                        "protocol": score.protocol,
                        "protocol_in_words": score.words(),
                    }
                    for name, score in result.scores.items()
                },
            }
            for result in results
        ],
    }
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_fidelity_results(path: str | Path) -> tuple[FidelityResult, ...]:
    """What `write_fidelity` wrote, which a folder has as ``fidelity.json``.

    Raises:
        FileNotFoundError: if there is no such file.
        MeropeError: if it is of another format, or holds numbers that were not made alike.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f'it needs "format": "{FORMAT}"')
        results = tuple(
            FidelityResult(
                label=str(each["label"]),
                clips=tuple(each["clips"]),
                left_out=tuple(each["left_out"]),
                missing=tuple(each["missing"]),
                frames_sha256=str(each["frames_sha256"]),
                scores={
                    name: FidelityScore(
                        measure=name,
                        value=float(score["value"]),
                        uncertainty=None if score["uncertainty"] is None else float(score["uncertainty"]),
                        marks=tuple(score["marks"]),
                        protocol=dict(score["protocol"]),
                    )
                    for name, score in each["scores"].items()
                },
            )
            for each in content["results"]
        )
        for result in results:
            for score in result.scores.values():
                score.words()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MeropeError(
            f"{path} holds no results of `merope fidelity`: {type(error).__name__}: {error}."
        ) from None
    check_same_protocol(results)
    return results


def read_fidelity(path: str | Path) -> dict[str, dict[str, Metric]]:
    """By label and measure ("fid", "kid", "fvd", "kvd") the numbers of a ``fidelity.json``, each with its protocol in words.

    Raises:
        FileNotFoundError: if there is no such file.
        MeropeError: if it is of another format, or holds numbers that were not made alike.
    """
    return {
        result.label: {name: score.metric() for name, score in result.scores.items()}
        for result in read_fidelity_results(path)
    }


def fidelity_table(results: Sequence[FidelityResult], *, real: str) -> str:
    """A plain-text table: a row for each set, then marks, clips that are missing or left out, and the protocol.

    Raises:
        MeropeError: if the numbers were not made alike.
    """
    check_same_protocol(results)
    names = [name for name in MEASURES if any(name in result.scores for result in results)]
    rows = [["", *(f"{MEASURES[name].label} (lower is better)" for name in names)]]
    rows += [[result.label, *(_cell(result.scores.get(name)) for name in names)] for result in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"distance from {real}", ""]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(3, "  ".join("-" * width for width in widths))
    lines.append("")
    for result in results:
        lines += [
            f"* {MEASURES[name].label} of {result.label}: {mark}"
            for name, score in result.scores.items()
            for mark in score.marks
        ]
        lines.append(
            f"{result.label}: {len(result.clips)} clips compared{_named('not taken', result.left_out)}"
            f"{_named('missing', result.missing)}"
        )
    for name in names:
        score = next(result.scores[name] for result in results if name in result.scores)
        lines += ["", f"{MEASURES[name].label}: {score.words()}"]
    return "\n".join(lines)


def _named(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"; {len(names)} {word}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _cell(score: FidelityScore | None) -> str:
    if score is None:
        return "-"
    digits = MEASURES[score.measure].digits
    spread = "" if score.uncertainty is None else f" +- {score.uncertainty:.{digits}f}"
    return f"{score.value:.{digits}f}{spread}{' *' if score.marks else ''}"
