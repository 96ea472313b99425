"""Which figures a report has; each is also written as PNG and PDF into the folder ``figures``."""

from collections.abc import Sequence

import numpy as np

from merope.evaluation.plots.baseline import ALL_PAIRS_UP_TO, draw_errors_by_baseline
from merope.evaluation.plots.bev import draw_bevs
from merope.evaluation.plots.canvas import COLORS
from merope.evaluation.plots.clip_rows import ClipRow, by_scene, draw_clip_rows
from merope.evaluation.plots.lens_grid import clips_by_lens, draw_lens_grid
from merope.evaluation.plots.metres import draw_metres, metres_of
from merope.evaluation.plots.over_time import draw_errors_over_time
from merope.evaluation.plots.strips import draw_film_strips
from merope.evaluation.report.figure_book import FigureBook
from merope.evaluation.report.ranking import worst_first
from merope.evaluation.result import format_value
from merope.evaluation.runs.run import RunClip, ScoredRun

MAX_RUNS = len(COLORS)
"""Runs in one figure, each of its own colour: the best by CamMC. References come on top, at most two."""
MAX_RUNS_WITH_FRAMES = 3
"""Runs, the best by CamMC, that get pictures of their own."""
_BEVS = 6
_SCENES = 2
_EXTREMES = 3


def overview_figures(book: FigureBook, runs: Sequence[ScoredRun]) -> list[str]:
    """Of all runs together: paths from above, errors over time and against distance, metres, film strips."""
    shown = _shown(runs)
    colors = run_colors(runs)
    rivals = [run for run in runs if not run.reference]
    recovered = [run for run in shown if any(clip.recovered is not None for clip in run.clips)]
    parts = []
    ids = list(dict.fromkeys(clip.clip_id for run in shown for clip in run.clips))
    if ids:
        chosen = _spread(ids, _BEVS)
        parts.append(
            book.add(
                "birds-eye",
                draw_bevs(sorted(shown, key=lambda run: not run.reference), chosen, colors),
                f"From above, {len(chosen)} of {len(ids)} clips: commanded path solid, recovered dashed, equal metres on "
                "both axes; every path starts at the first camera (triangle), which looks up the page."
                + (
                    f" Here and below, the {MAX_RUNS} best of {len(rivals)} runs by CamMC."
                    if len(rivals) > MAX_RUNS
                    else ""
                ),
            )
        )
    if recovered:
        parts.append(
            book.add(
                "errors-over-time",
                draw_errors_over_time(recovered, colors),
                "Error of every frame: median over the clips of each run, quartiles as a band"
                + ("; given frames are shaded." if _all_given(recovered) else "."),
                wide=False,
            )
        )
        drawn = draw_errors_by_baseline(recovered, colors)
        if drawn is not None:
            parts.append(
                book.add(
                    "errors-by-baseline",
                    drawn,
                    "Error of pairs of frames against the commanded distance between their two cameras: median, quartiles "
                    "as a band. Directions keep their sign (180° runs backwards); lengths are after the clip's |s*|, "
                    f"below zero is too short. Clips of more than {ALL_PAIRS_UP_TO} frames give part of their pairs.",
                )
            )
    metres = {run.label: metres_of(run) for run in recovered}
    metres = {label: points for label, points in metres.items() if points[0]}
    if metres:
        parts.append(
            book.add(
                "metres",
                draw_metres(
                    {label: points[0] for label, points in metres.items()},
                    {label: points[1] for label, points in metres.items()},
                    colors,
                    quantity="path length",
                ),
                "Path length of every clip, recovered against commanded, metric estimates only; a dashed line is the "
                "least-squares fit, where commands differ by more than a tenth.",
                wide=False,
            )
        )
    with_frames = [run for run in shown if any(clip.frames is not None for clip in run.clips)]
    if len(with_frames) > 1:
        common = [
            clip_id
            for clip_id in ids
            if all(any(c.clip_id == clip_id and c.frames for c in run.clips) for run in with_frames)
        ]
        for clip_id in _spread(common, _SCENES):
            parts.append(
                book.add(
                    f"film-strip-{clip_id}",
                    draw_film_strips(with_frames, clip_id),
                    f"The same frames of {clip_id} from every run"
                    + (
                        ", true ones in the row of a noise floor."
                        if any(run.reference for run in with_frames)
                        else "."
                    ),
                    photos=True,
                )
            )
    return parts


def run_figures(book: FigureBook, run: ScoredRun, color: str) -> list[str]:
    """Of one run: scenes with paths beside frames (Figure 5), a row for each lens (Figure 6), worst and best clips."""
    parts = []
    drawn: set[str] = set()
    scenes = by_scene(run.clips)
    frames = any(clip.frames is not None for clip in run.clips)
    if frames:
        several = {scene: clips for scene, clips in scenes.items() if len(clips) > 1}
        for scene in _spread(list(several), _SCENES):
            rows = [
                ClipRow(clip=clip, title=clip.clip_id, color=color, words=_words(run, clip))
                for clip in several[scene][:4]
            ]
            drawn |= {row.clip.clip_id for row in rows}
            parts.append(
                book.add(
                    f"scene-{run.label}-{scene}",
                    draw_clip_rows(rows, title=f"{run.label}: {scene}"),
                    f"{run.label}, scene {scene}: commanded path (solid), path recovered from the video (dashed), frames of "
                    "the video.",
                    photos=True,
                )
            )
        lenses = clips_by_lens(run.clips)
        if len(lenses) > 1:
            parts.append(
                book.add(
                    f"lenses-{run.label}",
                    draw_lens_grid(lenses, title=run.label),
                    f"{run.label}, a lens in each row, narrow to wide: horizontal and vertical field of view, lens model "
                    "and its distortion.",
                    photos=True,
                )
            )
    ordered = _by_cammc(run)
    count = min(_EXTREMES, len(ordered) // 2)
    found = [clip for clip in ordered[len(ordered) - count :][::-1] if clip.recovered is not None]
    for name, chosen in (("worst", ordered[:count]), ("best", found)):
        # In a small set the scenes above have shown them all.
        if {clip.clip_id for clip in chosen} - drawn:
            rows = [
                ClipRow(clip=clip, title=clip.clip_id, color=color, words=_words(run, clip))
                for clip in chosen
            ]
            parts.append(
                book.add(
                    f"{name}-{run.label}",
                    draw_clip_rows(rows, title=f"{run.label}: {name} clips by CamMC"),
                    f"{run.label}, the {name} clips by CamMC: "
                    + "; ".join(f"{clip.clip_id}, {_words(run, clip)}" for clip in chosen)
                    + ".",
                    photos=frames,
                )
            )
    return parts


def runs_with_figures(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """The runs that get figures of their own: the best by CamMC, best first."""
    ordered = worst_first([run for run in runs if run.clips])[::-1]
    return (ordered or [run for run in runs if run.clips])[:MAX_RUNS_WITH_FRAMES]


def run_colors(runs: Sequence[ScoredRun]) -> dict[str, str]:
    """A colour for each run, the same in every figure; runs that are drawn have different ones. References are black."""
    rivals = [run for run in runs if not run.reference]
    if len(rivals) > MAX_RUNS:
        rivals = worst_first(rivals)[::-1]
    colors = {run.label: COLORS[index % len(COLORS)] for index, run in enumerate(rivals)}
    return colors | {run.label: "#000000" for run in runs if run.reference}


def _shown(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    kept = {run.label for run in worst_first(runs)[-MAX_RUNS:]}
    kept |= {run.label for run in [run for run in runs if run.reference][:2]}
    return [run for run in runs if run.label in kept]


def _spread(items: Sequence[str], most: int) -> list[str]:
    """Items spread evenly over a list, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, most).round()]


def _all_given(runs: Sequence[ScoredRun]) -> bool:
    """Whether every clip begins with frames that were given."""
    return all(clip.first_generated for run in runs for clip in run.clips)


def _by_cammc(run: ScoredRun) -> list[RunClip]:
    """Clips from the worst to the best."""
    scores = {clip.clip_id: clip.all.values.get("cammc") for clip in run.result.clips}
    known = [clip for clip in run.clips if scores.get(clip.clip_id) is not None]
    return sorted(known, key=lambda clip: -(scores[clip.clip_id] or 0.0))


def _words(run: ScoredRun, clip: RunClip) -> str:
    """CamMC and flags of a clip."""
    result = next((found for found in run.result.clips if found.clip_id == clip.clip_id), None)
    if result is None:
        return "left out"
    flags = f", flags: {', '.join(result.flags)}" if result.flags else ""
    return f"CamMC {format_value(result.all.values.get('cammc'), 2)}{flags}"
