"""The part of ``merope evaluate`` that recovers cameras from clips with frames, and measures the estimator's floor."""

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merope.cli.evaluate_flags import SCALES, ReadingFlags, RecoveryFlags, ScoredFlags, WrittenFlags
from merope.cli.evaluate_output import present, unique_labels
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.cli.evaluate_benchmark import Judge
    from merope.evaluation.runs.recovery import Build, Share
    from merope.evaluation.runs.run import RunClip, ScoredRun
    from merope.evaluation.runs.sources import ClipSource

NO_FLOOR = (
    "the noise floor of the estimator was not measured: what it finds on true frames bounds every number above. "
    "--floor CLIPS measures it, on true clips of the same kind (merope data convert, merope worlds render)"
)
TRUE_ALONE = (
    "frames and cameras are true: these errors are the estimator's own, the noise floor of any run on clips of this kind, "
    "lens and length"
)
_MAX_NAMED = 10


def evaluate_runs(
    runs: Sequence[Path],
    scored: ScoredFlags,
    reading: ReadingFlags,
    recovery: RecoveryFlags,
    written: WrittenFlags,
    judge: "Judge | None" = None,
) -> None:
    """Recover, score, print and write; see `merope.cli.evaluate.evaluate` for the flags, of which none is open here."""
    from merope.evaluation.runs.recovery import NOISE_FLOOR_FOLDER, Share, label_folder
    from merope.evaluation.runs.sources import generated_sources

    if recovery.estimator == "poses" and len(runs) > 1:
        raise UsageError("--estimates belong to one folder of clips; score several one after another.")
    share = None
    if recovery.share is not None:
        try:
            share = Share.parse(recovery.share)
        except ValueError as error:
            raise UsageError(f"--share: {error}") from None
    labels = (list(scored.labels) or unique_labels(runs)) if runs else []
    sources = {label: generated_sources(run) for label, run in zip(labels, runs, strict=True)}
    absent = {
        label: _require_made(run, sources[label], scored.on_failure)
        for label, run in zip(labels, runs, strict=True)
    }
    floor = None if scored.floor is None else _floor_sources(scored.floor, sources)
    build = None if recovery.estimator == "poses" else _build(recovery, judge)
    with ExitStack() as stack:
        root = written.out or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="merope-evaluate-"))
        )
        recover = partial(_recovered, root=root, recovery=recovery, build=build, share=share, reading=reading)
        rows: list[ScoredRun] = []
        notes: list[str] = []
        for label, run in zip(labels, runs, strict=True):
            clips, about, words = recover(label_folder(label), sources[label])
            notes.append(f"{label}: {words}")
            if share is None:
                rows.append(_scored(label, run, clips, about, absent[label], scored))
                notes += [f"{label}: {note}" for note in rows[-1].result.settings["estimator_notes"]]
                notes += [f"{label}: {note}" for note in _unreliable(about)]
        if floor is not None:
            clips, about, words = recover(NOISE_FLOOR_FOLDER, floor)
            name = "noise floor" if runs else "true clips"
            notes.append(f"{name}: {words}")
            if share is None:
                rows.append(_floor_row(clips, about, recovery, scored, alone=not runs))
                notes += [f"{name}: {note}" for note in _unreliable(about)]
        if share is not None:
            print("\n".join(notes))
            print(
                f"share {share.number} of {share.of} is in {root / 'recovered'}. When all {share.of} are, score with the "
                "same command without --share."
            )
            return
        for label, names in absent.items():
            if names:
                print(
                    f"left out, since they were not generated: {label}: {', '.join(names)}", file=sys.stderr
                )
        if runs:
            title = f"Cameras of {', '.join(labels)}, recovered and scored"
        else:
            title = f"How well {recovery.estimator} recovers the cameras of true clips"
        present(rows, written, title=title, notes=notes, after=_about_floor(rows, recovery), judge=judge)


def _require_made(run: Path, sources: "Sequence[ClipSource]", on_failure: str | None) -> list[str]:
    """Clips that were asked for and are not there, where they may be left out."""
    from merope.data.clips.generated import not_generated
    from merope.errors import MeropeError

    absent = not_generated(run)
    if absent and on_failure != "skip":
        raise MeropeError(
            f"{len(absent)} of {len(sources) + len(absent)} clips of {run} were not generated: {', '.join(absent[:5])}"
            f"{', ...' if len(absent) > 5 else ''}. Run the same `merope generate` again, or leave them out by "
            "--on-failure skip."
        )
    return absent


def _build(recovery: RecoveryFlags, judge: "Judge | None") -> "Build":
    """What makes the estimator, tried once: a wrong option is a wrong command line.

    Raises:
        UsageError: if the estimator has no such option, or its weights or device do not fit.
    """
    from merope.evaluation.estimators.registry import build_estimator

    assert recovery.estimator is not None
    build = partial(
        build_estimator,
        recovery.estimator,
        weights=recovery.weights,
        device=recovery.device,
        options=recovery.set,
    )
    try:
        build()
    except ValueError as error:
        whose = ""
        if judge is not None and recovery.estimator == judge.benchmark.estimator:
            name = judge.benchmark.name
            whose = f" {name} takes {recovery.estimator}; --estimator chooses another, with other figures."
        raise UsageError(f"{error}{whose}") from None
    return build


def _floor_sources(floor: Path, sources: "dict[str, list[ClipSource]]") -> "list[ClipSource]":
    from merope.evaluation.runs.sources import true_sources

    given = {source.first_generated for found in sources.values() for source in found}
    return true_sources(floor, first_generated=given.pop() if len(given) == 1 else None)


def _recovered(
    folder: str,
    sources: "Sequence[ClipSource]",
    *,
    root: Path,
    recovery: RecoveryFlags,
    build: "Build | None",
    share: "Share | None",
    reading: ReadingFlags,
) -> "tuple[tuple[RunClip, ...], dict[str, Any], str]":
    """Clips with cameras, settings that say how, and words on how many were recovered."""
    if build is None:
        from merope.evaluation.runs.pose_files import clips_with_files

        assert recovery.estimates is not None
        clips = clips_with_files(
            sources,
            recovery.estimates,
            format=reading.estimated_format or reading.format or "merope",
            options=reading.estimated_options(),
        )
        about: dict[str, Any] = {"estimator": "poses", "estimates": recovery.estimates.name}
        return clips, about, f"cameras read from {recovery.estimates}"
    from merope.evaluation.runs.recovery import recover_clips

    done = recover_clips(
        sources,
        build,
        root / "recovered" / folder,
        workers=recovery.workers,
        again=recovery.again,
        share=share,
        reliability=root / "reliability" / folder if recovery.check_reliability else None,
    )
    about = {"estimator": recovery.estimator, "estimator_identity": done.estimator}
    if recovery.check_reliability:
        about["reliability"] = done.reliability
    return done.clips, about, f"cameras by {recovery.estimator}: {done.words}"


def _scored(
    label: str,
    run: Path,
    clips: "tuple[RunClip, ...]",
    about: dict[str, Any],
    absent: list[str],
    scored: ScoredFlags,
) -> "ScoredRun":
    from merope.evaluation.runs.scored import score_run
    from merope.evaluation.runs.sources import generated_with

    return score_run(
        clips,
        label=label,
        on_failure=scored.on_failure or "worst",
        method=scored.angle,
        scale=SCALES[scored.scale],
        seed=scored.seed,
        num_expected=len(clips) + len(absent),
        settings={
            "generated": Path(os.path.abspath(run)).name,
            "not_generated": absent,
            "generated_with": generated_with(run),
            **_about_frames(clips),
            **about,
        },
    )


def _floor_row(
    clips: "tuple[RunClip, ...]",
    about: dict[str, Any],
    recovery: RecoveryFlags,
    scored: ScoredFlags,
    *,
    alone: bool,
) -> "ScoredRun":
    """True clips: a reference beside runs, and without any the row that was asked for."""
    from merope.evaluation.runs.scored import score_run

    assert scored.floor is not None
    words = f"{recovery.estimator} on {len(clips)} true clip{'' if len(clips) == 1 else 's'}"
    own = scored.labels[0] if scored.labels else words
    return score_run(
        clips,
        label=own if alone else f"noise floor ({words})",
        on_failure=scored.on_failure or "worst",
        method=scored.angle,
        scale=SCALES[scored.scale],
        seed=scored.seed,
        settings={"true_clips": scored.floor.resolve().name, **_about_frames(clips), **about},
        reference=not alone,
    )


def _about_frames(clips: "Sequence[RunClip]") -> dict[str, Any]:
    sizes = sorted({(clip.lens.height, clip.lens.width) for clip in clips if clip.lens is not None})
    return {
        "frames": "lossless where they were kept so",
        "fps": sorted({clip.fps for clip in clips if clip.fps is not None}),
        "height_width": [list(size) for size in sizes],
    }


def _about_floor(rows: "Sequence[ScoredRun]", recovery: RecoveryFlags) -> list[str]:
    if recovery.estimator == "poses":
        return ["the noise floor of whatever recovered these poses was not measured here"]
    if all("true_clips" in row.result.settings for row in rows):
        return [TRUE_ALONE]
    floor = next((row for row in rows if row.reference), None)
    if floor is None:
        return [NO_FLOOR]
    lengths = {clip.num_frames for clip in floor.result.clips}
    ours = {clip.num_frames for row in rows if not row.reference for clip in row.result.clips}
    if lengths == ours:
        return []
    return [
        f"the floor's clips have {_span(lengths)} frames and the run's {_span(ours)}: CamMC, RotErr and TransErr are sums "
        "over frames and grow with their number"
    ]


def _unreliable(about: dict[str, Any]) -> list[str]:
    """How many clips a second look does not confirm, and which; they count like all others."""
    if "reliability" not in about:
        return []
    looked = about["reliability"]
    marked = {name: found["reason"] for name, found in looked.items() if found["unreliable"]}
    named = [f"unreliable: {name}: {reason}" for name, reason in marked.items()]
    more = len(named) - _MAX_NAMED
    return [
        f"a second pass disagrees on {len(marked)} of {len(looked)} clips, which count like the others",
        *named[:_MAX_NAMED],
        *([f"and {more} more, in the settings of results.json"] if more > 0 else []),
    ]


def _span(numbers: set[int]) -> str:
    if not numbers:
        return "no"
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
