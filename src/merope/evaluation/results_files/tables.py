"""The tables of several runs, in the paper's layout: which columns, who competes, and the protocol in a caption."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from merope.evaluation.protocol import SPECS, Metric, MetricGroup
from merope.evaluation.result import EvaluationResult, FrameSet, Summary
from merope.evaluation.result_table import GROUPS, metrics_of
from merope.evaluation.results_files.layout import FEWEST_FOR_SECOND, Column, Entry, ResultsTable, lay_out

# As the paper prints them: degrees and percent are part of the name.
_HEADINGS = {"rot_deg": "rot°", "tr_percent": "tr%"}
_PAPER_DIGITS = 2
_FIDELITY = {"fid": ("FID", 2), "kid": ("KID", 4), "fvd": ("FVD", 2), "kvd": ("KVD", 2)}
_FIDELITY_GROUP = "pictures"
_FRAME_SETS: tuple[FrameSet, ...] = ("all", "generated")
_TITLES: dict[MetricGroup, str] = {
    "driving": "Camera pose control, driving metrics",
    "panshot": "Camera pose control, PanShot metrics",
    "beside": "What the paper's metrics cannot see: direction and metric scale",
    "trajectory": "Trajectory errors of visual odometry (RMSE; relative errors one frame apart)",
}


def tables_of(
    results: Sequence[EvaluationResult],
    *,
    references: Collection[str] = (),
    fidelity: Mapping[str, Mapping[str, Metric]] | None = None,
) -> list[ResultsTable]:
    """A table for each group of metrics that a run has, over all frames and then over generated ones.

    FID, KID, FVD and KVD of ``fidelity`` stand in the first; figures of different protocols stand in different columns.
    """
    problems = {result.label: problem_of(result, results, references) for result in results}
    tables: list[ResultsTable] = []
    for frames in _FRAME_SETS:
        summaries = {result.label: result.summary(frames) for result in results}
        rows = [result for result in results if summaries[result.label]]
        for group in GROUPS:
            keys = [key for key in metrics_of(group) if any(_has(summaries[row.label][key]) for row in rows)]
            if not keys:
                continue
            columns = [_column(key, group, {row.unit_of(key) for row in rows}) for key in keys]
            values: dict[str, dict[str, float | None]] = {
                row.label: {key: summaries[row.label][key].metric.value for key in SPECS} for row in rows
            }
            notes = _exclusions(rows, summaries, keys)
            if fidelity and not tables:
                extra, figures, said = _fidelity(fidelity, [row.label for row in rows])
                columns += extra
                notes += said
                for label, found in figures.items():
                    values[label] |= found
            entries = [
                Entry(
                    label=row.label,
                    values=values[row.label],
                    reference=row.label in references,
                    problem=problems[row.label],
                )
                for row in rows
            ]
            name = group if frames == "all" else f"{group}-generated"
            caption = _caption(group, frames, columns, rows, entries)
            notes = [*(f"† {entry.label}: {entry.problem}" for entry in entries if entry.problem), *notes]
            tables.append(lay_out(name, columns, entries, caption=caption, notes=notes))
    return tables


def problem_of(
    result: EvaluationResult, results: Sequence[EvaluationResult], references: Collection[str] = ()
) -> str | None:
    """Why a run's numbers are not comparable with the others'; None where nothing speaks against it.

    That is what a benchmark says, clips that are missing or that other rows have, and commands that are not the others'.
    References are on clips of their own.
    """
    if result.label in references:
        return None
    found = []
    if result.verdict is not None and not result.verdict.comparable:
        found.append(f"{result.verdict.benchmark}: {' '.join(result.verdict.reasons)}")
    elif len(result.clips) < result.expected:
        found.append(f"{len(result.clips)} of {result.expected} clips are scored")
    rivals = [other for other in results if other.label not in references]
    ids, usual = {clip.clip_id for clip in result.clips}, _usual_clips(rivals)
    if usual is None:
        found.append("no two rows are on the same clips")
    elif ids != usual:
        found.append(
            f"its clips are not those of the other rows: {len(usual - ids)} of their {len(usual)} are missing, "
            f"{len(ids - usual)} are others"
        )
    odd = _odd_commands(result, rivals)
    if odd:
        found.append(f"{odd} clip(s) followed another command than in the other rows")
    return "; ".join(found) or None


def _usual_clips(rivals: Sequence[EvaluationResult]) -> frozenset[str] | None:
    """The clips of most rows; those of the larger set where two are as usual, and None where nothing tells them apart."""
    sets = Counter(frozenset(clip.clip_id for clip in rival.clips) for rival in rivals)
    ranked = sorted(sets, key=lambda ids: (sets[ids], len(ids)), reverse=True)
    first, *others = ranked
    alike = [ids for ids in others if (sets[ids], len(ids)) == (sets[first], len(first))]
    return None if alike else first


def _odd_commands(result: EvaluationResult, rivals: Sequence[EvaluationResult]) -> int:
    """Clips whose command most rows do not share."""
    digests: dict[str, Counter[str]] = {}
    for rival in rivals:
        for clip in rival.clips:
            if clip.commanded_digest is not None:
                digests.setdefault(clip.clip_id, Counter())[clip.commanded_digest] += 1
    odd = 0
    for clip in result.clips:
        counts = digests.get(clip.clip_id)
        if counts and clip.commanded_digest is not None:
            odd += 2 * counts[clip.commanded_digest] <= counts.total() and len(counts) > 1
    return odd


def _has(summary: Summary) -> bool:
    return bool(summary.num_clips)


def _column(key: str, group: MetricGroup, units: Collection[str]) -> Column:
    spec = SPECS[key]
    unit = next(iter(units)) if len(units) == 1 else spec.unit
    shown = "" if unit in ("1", "%") or key in _HEADINGS else f" ({unit})"
    return Column(
        key=key,
        heading=_HEADINGS.get(key, spec.label + shown),
        better=spec.better,
        digits=_PAPER_DIGITS if group in ("driving", "panshot") else spec.digits,
        group="no scale" if spec.scale_rule == "none" else spec.scale_rule,
        unit=unit,
    )


def _fidelity(
    fidelity: Mapping[str, Mapping[str, Metric]], labels: Sequence[str]
) -> tuple[list[Column], dict[str, dict[str, float | None]], list[str]]:
    """Columns, values by label, and notes. A column holds figures of one protocol: two detectors never share one."""
    columns: list[Column] = []
    values: dict[str, dict[str, float | None]] = {label: {} for label in labels}
    notes: list[str] = []
    for measure, (name, digits) in _FIDELITY.items():
        given = {label: fidelity[label][measure] for label in labels if measure in fidelity.get(label, {})}
        protocols = list(dict.fromkeys(metric.protocol for metric in given.values()))
        for number, protocol in enumerate(protocols, start=1):
            heading = name if len(protocols) == 1 else f"{name} ({number})"
            key = f"{measure}-{number}"
            columns.append(
                Column(key=key, heading=heading, better="lower", digits=digits, group=_FIDELITY_GROUP)
            )
            notes.append(f"{heading}: {protocol}")
            for label, metric in given.items():
                if metric.protocol == protocol:
                    values[label][key] = metric.value
                    if metric.value is None and metric.reason:
                        notes.append(f"{heading} of {label}: {metric.reason}")
    strangers = [label for label in fidelity if label not in labels]
    if strangers:
        notes.append(f"pictures of {', '.join(strangers)} were measured too, and no run here has that label")
    return columns, values, notes


def _exclusions(
    rows: Sequence[EvaluationResult], summaries: Mapping[str, Mapping[str, Summary]], keys: Sequence[str]
) -> list[str]:
    shared: dict[str, list[str]] = {}
    for row in rows:
        for key in keys:
            for reason, count in summaries[row.label][key].excluded.items():
                text = f"{count} of {row.expected} clips of {row.label} excluded: {reason}"
                shared.setdefault(text, []).append(SPECS[key].label)
    return [f"{', '.join(names)}: {text}" for text, names in shared.items()]


def _caption(
    group: MetricGroup,
    frames: FrameSet,
    columns: Sequence[Column],
    rows: Sequence[EvaluationResult],
    entries: Sequence[Entry],
) -> str:
    counts = {row.label: f"{len(row.clips)} of {row.expected} clips" for row in rows}
    lengths = sorted({clip.num_frames for row in rows for clip in row.clips})
    span = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    over = _by_label(counts)
    given = any(clip.first_generated for row in rows for clip in row.clips)
    counted = (
        "all T frames of a clip count" + (", given ones included" if given else "")
        if frames == "all"
        else "generated frames alone, with gauge and scale of the whole clip"
    )
    parts = [f"{_TITLES[group]}, T = {span} frames, {over}; {counted}."]
    if group != "trajectory":
        parts.append("Poses are relative to the first frame and rotations are not aligned.")
    treated: dict[str, list[str]] = {}
    for column in columns:
        if column.group != _FIDELITY_GROUP:
            treated.setdefault(column.group, []).append(column.heading)
    scales = "; ".join(f"{', '.join(names)}: {rule}" for rule, names in treated.items())
    parts.append(f"Scale of the estimate by metric: {scales}.")
    parts.append(f"Cameras: {_by_label({row.label: estimator_of(row) for row in rows})}.")
    if any(column.key.startswith("auc") for column in columns):
        parts.append("AUC is pooled over the pairs of all clips, other figures are means over clips.")
    else:
        parts.append("Means over clips.")
    if sum(not entry.reference for entry in entries) > 1:
        parts.append("Rows from the highest CamMC to the lowest.")
    rivals = sum(not entry.reference and entry.problem is None for entry in entries)
    if rivals > 1:
        second = ", second best underlined" if rivals >= FEWEST_FOR_SECOND else ""
        parts.append(f"Best in bold{second}.")
    if any(entry.reference for entry in entries):
        parts.append("Rows below the line are references and do not compete.")
    if any(entry.problem for entry in entries):
        parts.append("† not comparable.")
    return " ".join(parts)


def estimator_of(result: EvaluationResult) -> str:
    """What recovered the cameras, in words."""
    stated: Any = result.settings.get("estimator")
    if isinstance(stated, dict):
        stated = stated.get("name")
    return str(stated) if stated else "poses as given"


def _by_label(texts: Mapping[str, str]) -> str:
    """One text that all share, or each with the labels it is of."""
    shared: dict[str, list[str]] = {}
    for label, text in texts.items():
        shared.setdefault(text, []).append(label)
    if len(shared) == 1:
        return next(iter(shared))
    return "; ".join(f"{text} ({', '.join(labels)})" for text, labels in shared.items())
