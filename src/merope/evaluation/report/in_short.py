"""The first thing on the page: what was measured, with what, how it came out, how sure that is, what it compares with."""

from collections.abc import Sequence
from html import escape

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.protocol import FLAGS
from merope.evaluation.report.markup import bullets, section
from merope.evaluation.report.protocol_words import estimator_identity, on_true_clips, span
from merope.evaluation.report.ranking import mean_cammc, worst_first
from merope.evaluation.result import Summary, format_value
from merope.evaluation.results_files.tables import problem_of
from merope.evaluation.runs.run import ScoredRun

_MOST = 4
# Percentile intervals of fewer clips are too narrow more often than they say.
_FEW_CLIPS = 20


def short_section(runs: Sequence[ScoredRun], comparisons: Sequence[PairedComparison]) -> str:
    """Six questions with an answer of a sentence or two each."""
    rivals = [run for run in runs if not run.reference]
    results, references = [run.result for run in runs], [run.label for run in runs if run.reference]
    problems = {run.label: problem_of(run.result, results, references) for run in rivals}
    ranked = [run for run in worst_first(runs)[::-1] if problems[run.label] is None and _scored(run)]
    answers = {
        "What was measured": escape(_measured(rivals or runs)),
        "With what": escape(_with_what(rivals or runs)),
        "What came out": _came_out(rivals, ranked),
        "Noise floor": escape(_floor(runs, ranked)),
        "How sure": escape(_how_sure(rivals or runs, ranked, comparisons)),
        "Comparable": _comparable(rivals, problems),
        "To look at": _to_look_at(runs),
    }
    words = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in answers.items() if text)
    return section("In short", f"<dl>{words}</dl>", anchor="short")


def _measured(runs: Sequence[ScoredRun]) -> str:
    clips = [clip for run in runs for clip in run.result.clips]
    count = span([len(run.result.clips) for run in runs])
    given = span([clip.first_generated or 0 for clip in clips])
    from_files = not any(estimator_identity(run.result.settings) for run in runs)
    what = "poses agree with those of the command" if from_files else "cameras follow the command"
    if on_true_clips(runs):
        what = "the estimator recovers the true cameras from true frames"
    text = (
        f"How closely {what}, in {count} clip{'s' if count != '1' else ''} of "
        f"{span([clip.num_frames for clip in clips])} frames"
    )
    if any(clip.first_generated for clip in clips):
        text += f", of which the first {given} were given"
    return f"{text}. {'Runs' if len(runs) > 1 else 'Run'}: {_listed([run.label for run in runs])}."


def _with_what(runs: Sequence[ScoredRun]) -> str:
    names = {str(estimator_identity(run.result.settings).get("name", "")) for run in runs}
    estimators = sorted(names - {""})
    parts = []
    if estimators:
        parts.append(f"Cameras recovered from the frames by {', '.join(estimators)}")
    if "" in names:
        parts.append(
            "some poses from files" if estimators else "Poses came from files; no estimator ran here"
        )
    text = ", ".join(parts) + "."
    scales = {clip.recovered.scale for run in runs for clip in run.clips if clip.recovered is not None}
    if "up_to_scale" in scales:
        some = "Some estimates have" if "metric" in scales else "The estimates have"
        text += f" {some} no metric scale: whether lengths in metres are right cannot be told from them."
    return text


def _came_out(rivals: Sequence[ScoredRun], ranked: Sequence[ScoredRun]) -> str:
    failed = [run.label for run in rivals if run.result.clips and not run.result.success_rate]
    if rivals and len(failed) == len(rivals):
        return "No camera was recovered in any clip: every number below is that of the worst possible answer."
    if not ranked:
        return "No run can be ranked: the reasons are below, at Comparable."
    lines = []
    for run in ranked[:_MOST]:
        summary = run.result.summary()
        line = (
            f"<b>{escape(run.label)}</b>: CamMC {_with_range(summary['cammc'])}, rotations off by "
            f"{format_value(summary['rot_deg'].metric.value, 2)}°"
        )
        tr = summary["tr_percent"].metric.value
        if tr is not None:
            line += f", positions by {format_value(tr, 2)} % of the way from start to end once its scale is taken out"
        ratio = summary["metres_ratio"].metric.value
        if ratio is not None and {clip.unit for clip in run.result.clips} == {"m"}:
            line += f"; {format_value(ratio, 2)} m moved for each metre commanded"
        lines.append(line)
    if len(ranked) > _MOST:
        lines.append(f"{len(ranked) - _MOST} more in the tables")
    order = "Best first. " if len(ranked) > 1 else ""
    return (
        f"{order}CamMC adds up errors of rotation and of the path's shape over a clip's frames; lower is better, 0 is exact."
        + bullets(lines)
    )


def _floor(runs: Sequence[ScoredRun], ranked: Sequence[ScoredRun]) -> str:
    if on_true_clips(runs):
        return "This is it: frames and cameras are true, so that these errors are the estimator's own."
    floors = [run for run in runs if run.reference and _scored(run)]
    if not floors:
        if any(estimator_identity(run.result.settings) for run in runs):
            return "Not measured: how much of these errors is the estimator's own is not known. How to measure it is below."
        return "Not measured: how much whatever made these poses errs by itself is not known."
    words = []
    for run in floors:
        text = f"{run.label} has CamMC {_with_range(run.result.summary()['cammc'])}."
        if ranked:
            best, own = ranked[0], mean_cammc(run.result)
            # CamMC is a sum over frames.
            if _lengths(best) != _lengths(run):
                text += " Its clips are of other lengths, so that CamMC does not compare; rot and tr do."
            elif mean_cammc(best.result) <= 1.1 * own:
                text += f" {best.label} is at that level: its remaining errors may all be the estimator's."
            else:
                text += (
                    f" {best.label} is at {mean_cammc(best.result) / own:.1f} times that." if own > 0 else ""
                )
        words.append(text)
    return " ".join(words)


def _how_sure(
    runs: Sequence[ScoredRun], ranked: Sequence[ScoredRun], comparisons: Sequence[PairedComparison]
) -> str:
    fewest = min((len(run.result.clips) for run in runs), default=0)
    if fewest < 2:
        text = "One clip alone: how much these numbers would change on another is not known."
    else:
        text = (
            "The range after a number is its 95 % interval: how far the mean moves when clips are drawn anew."
        )
        if fewest < _FEW_CLIPS:
            text += f" With {fewest} clips ranges are rough."
    if len(ranked) > 1:
        best, second = ranked[0].label, ranked[1].label
        pair = next((one for one in comparisons if {one.label_a, one.label_b} == {best, second}), None)
        metric = pair.metrics.get("cammc") if pair is not None else None
        if pair is not None and metric is not None and metric.interval is not None:
            ahead = metric.wins if pair.label_b == best else metric.losses
            clear = metric.interval.low > 0 or metric.interval.high < 0
            text += (
                f" {best} has the lower CamMC than {second} in {ahead} of {len(metric.clips)} clips; the difference is "
                + ("clear" if clear else "not clear")
                + f" (mean {abs(metric.difference or 0):.2f}, its range "
                + ("leaves 0 out)." if clear else "holds 0).")
            )
    return text


def _comparable(rivals: Sequence[ScoredRun], problems: dict[str, str | None]) -> str:
    items = []
    judged = [run for run in rivals if run.result.verdict is not None]
    for run in judged:
        verdict = run.result.verdict
        assert verdict is not None
        # The reasons stand in a banner at the top.
        words = "comparable" if verdict.comparable else "not comparable"
        items.append(
            f"<b>{escape(run.label)}</b> is {words} with other results on {escape(verdict.benchmark)}"
        )
    for run in rivals:
        problem = problems[run.label]
        if problem and (run.result.verdict is None or run.result.verdict.comparable):
            items.append(
                f"<b>{escape(run.label)}</b> is not comparable with the other runs: {escape(problem)}"
            )
    identities = {repr(sorted(estimator_identity(run.result.settings).items(), key=str)) for run in rivals}
    if len(identities) > 1:
        items.append("Runs were recovered by different estimators: differences may be theirs")
    elif len(rivals) > 1 and not any(problems.values()):
        items.append("With each other: the same clips, the same commands")
    if not judged:
        items.append("With published numbers: not known, no benchmark was named")
    return bullets(items)


def _to_look_at(runs: Sequence[ScoredRun]) -> str:
    items = []
    for run in runs:
        for flag, count in run.result.flag_counts.items():
            if count:
                items.append(
                    f"{count} of {len(run.result.clips)} clips of <b>{escape(run.label)}</b>: {escape(FLAGS[flag])}"
                )
        if run.result.num_skipped:
            items.append(
                f"{run.result.num_skipped} clips of <b>{escape(run.label)}</b> had no camera and are left out"
            )
    shown = items[: 2 * _MOST]
    if len(items) > len(shown):
        shown.append(f'{len(items) - len(shown)} more under <a href="#flags">Flags</a>')
    return bullets(shown)


def _scored(run: ScoredRun) -> bool:
    return any(clip.all.values.get("cammc") is not None for clip in run.result.clips)


def _lengths(run: ScoredRun) -> set[int]:
    return {clip.num_frames for clip in run.result.clips}


def _with_range(summary: Summary) -> str:
    text = format_value(summary.metric.value, 2)
    interval = summary.interval
    return text if interval is None else f"{text} ({interval.low:.2f} to {interval.high:.2f})"


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _MOST} more" if len(labels) > _MOST else ""
    return ", ".join(labels[:_MOST]) + more
