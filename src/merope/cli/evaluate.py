"""``merope evaluate``: score pose files, or the cameras in generated clips, against the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.evaluate_flags import ReadingFlags, RecoveryFlags, ScoredFlags, WrittenFlags
from merope.cli.extras import require
from merope.cli.usage import UsageError
from merope.files import only_process, require_folder

_BARE = tyro.conf.OmitArgPrefixes
_SCORED, _READING, _RECOVERY, _WRITTEN = ScoredFlags(), ReadingFlags(), RecoveryFlags(), WrittenFlags()


def evaluate(
    runs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[RUN ...]", help_behavior_hint="")] = (),
    /,
    *,
    scored: Annotated[ScoredFlags, _BARE] = _SCORED,
    reading: Annotated[ReadingFlags, _BARE] = _READING,
    recovery: Annotated[RecoveryFlags, _BARE] = _RECOVERY,
    written: Annotated[WrittenFlags, _BARE] = _WRITTEN,
) -> None:
    """Score cameras against their command, with every metric of the paper's appendix B.2 and what those cannot see.

    Either folders of generated clips (`merope generate --out RUN`), whose cameras an estimator recovers from the lossless
    frames; or --estimated poses against --commanded ones, files or folders of files, in --format; or --floor alone, which
    measures an estimator on true clips.

      merope evaluate RUN [RUN ...] --estimator colmap --floor TRUE_CLIPS --out DIR

      merope evaluate --commanded true.txt --estimated mine.txt other.txt --format kitti --window 49

      merope evaluate --floor TRUE_CLIPS --estimator xfeat

    Poses are compared relative to the first frame. Numbers, flags and files are explained in docs/evaluation.md.

    Args:
        runs: Folders of generated clips, or of a single one; each is a row.
        scored: What is scored, and by which rules.
        reading: How pose files are read.
        recovery: How cameras are recovered from frames.
        written: What is written and printed.
    """
    from_files = scored.commanded is not None or bool(scored.estimated)
    if runs and from_files:
        raise UsageError(
            f"{runs[0]} is a folder of clips, which bring their own commands: leave --commanded and --estimated out. For "
            "pose files leave the folder out; several estimates follow one --estimated. Cameras of clips that another "
            "program recovered come in by --estimator poses --estimates FOLDER."
        )
    true_alone = not runs and not from_files and scored.floor is not None
    if not runs and not true_alone and not (scored.commanded is not None and scored.estimated):
        raise UsageError(
            "name folders of generated clips (merope evaluate RUN ...), or --commanded, --estimated and the --format of "
            "both, or true clips alone (--floor CLIPS)."
        )
    if true_alone and scored.benchmark is not None:
        raise UsageError(
            "--benchmark is for generated clips and pose files; --floor alone measures an estimator. Leave it out."
        )
    rows = len(runs) or len(scored.estimated) or 1
    if scored.labels and len(scored.labels) != rows:
        raise UsageError(f"--labels must name each of the {rows} rows, got {len(scored.labels)}.")
    if len(set(scored.labels)) < len(scored.labels):
        raise UsageError("--labels must differ from each other.")
    if scored.split is not None and scored.benchmark is None:
        raise UsageError(
            "--split is the file of a --benchmark; name that, or leave it out (`merope benchmark list`)."
        )
    _require_fitting(scored, recovery, written, from_files=from_files)
    _require_no_row_twice(runs or scored.estimated)
    if written.out is not None and recovery.share is None:
        require("matplotlib", purpose="--out")
    if from_files:
        from merope.cli.evaluate_files import evaluate_files

        with _alone_in(written.out):
            evaluate_files(scored, reading, written)
        return
    from merope.cli.evaluate_benchmark import settled
    from merope.cli.evaluate_runs import evaluate_runs

    scored, recovery, judge = settled(scored, recovery, from_files=False)
    if recovery.estimator == "colmap":
        require("pycolmap", purpose="--estimator colmap")
    with _alone_in(written.out, shared=recovery.share is not None):
        evaluate_runs(runs, scored, reading, recovery, written, judge)


@contextmanager
def _alone_in(out: Path | None, *, shared: bool = False) -> Iterator[None]:
    """Make the folder, and be the only evaluation that writes a report there; shares write none.

    Raises:
        MeropeError: if another evaluation is at it.
        OSError: if nothing can be written there.
    """
    from merope.errors import MeropeError

    if out is None:
        yield
        return
    require_folder(out)
    if shared:
        yield
        return
    with only_process(out / ".evaluating") as alone:
        if not alone:
            raise MeropeError(
                f"another `merope evaluate` is writing to {out}. Wait until it is done, or choose another --out."
            )
        yield


def _require_no_row_twice(paths: tuple[Path, ...]) -> None:
    whole = [path.resolve() for path in paths]
    for place, path in enumerate(paths):
        if whole[place] in whole[:place]:
            first = paths[whole.index(whole[place])]
            same = "" if first == path else f", the same as {first},"
            raise UsageError(f"{path}{same} is given twice; each row needs clips of its own.")


def _require_fitting(
    scored: ScoredFlags, recovery: RecoveryFlags, written: WrittenFlags, *, from_files: bool
) -> None:
    """Refuse flags that would go unheeded, or fail after long work.

    Raises:
        UsageError: naming the first of them, and what it is for.
    """
    if scored.seed < 0:
        raise UsageError(f"--seed must be 0 or more, got {scored.seed}.")
    if from_files:
        if scored.floor is not None:
            raise UsageError(
                "--floor is for estimators that look at the frames of clips (merope evaluate RUN ...); leave it out."
            )
        for name in RecoveryFlags.__dataclass_fields__:
            if getattr(recovery, name) != getattr(_RECOVERY, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} is about recovering cameras from frames; pose files have them. "
                    "Leave it out."
                )
        return
    for name in ("window", "fill", "first_generated"):
        if getattr(scored, name) != getattr(_SCORED, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for pose files (--commanded, --estimated); generated clips say that "
                "themselves. Leave it out."
            )
    if (recovery.estimator == "poses") != (recovery.estimates is not None):
        raise UsageError("--estimator poses and --estimates FOLDER belong together.")
    if recovery.estimator == "poses":
        for name in ("weights", "set", "share", "again", "check_reliability"):
            if getattr(recovery, name) != getattr(_RECOVERY, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} is for estimators that look at frames; --estimator poses reads files."
                )
        if scored.floor is not None:
            raise UsageError(
                "--floor needs an estimator that looks at frames; --estimator poses reads files. Score what the other "
                "program recovered from true clips as a run of its own."
            )
    if recovery.share is not None and written.out is None:
        raise UsageError("--share needs --out: the folder in which the shares meet.")
    if recovery.share is not None and written.json:
        raise UsageError("--share scores nothing, so that there is no --json to print; leave it out.")
