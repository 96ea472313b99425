"""The part of ``merope evaluate`` that scores pose files, and folders of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from merope.cli.evaluate_flags import SCALES, ReadingFlags, RecoveryFlags, ScoredFlags, WrittenFlags
from merope.cli.evaluate_output import present, unique_labels
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.poses.files import PoseFile
    from merope.data.poses.table import ReadOptions

# Files have paths of their own world and length, of which these errors say more than the paper's.
_PATH_ERRORS = ("ate_se3", "ate_sim3", "rpe_trans", "rpe_rot_deg")
_SAME_FRAMES = " Where estimates lack different frames, --fill keeps all of them, and clips are the same."


def evaluate_files(scored: ScoredFlags, reading: ReadingFlags, written: WrittenFlags) -> None:
    """Match, score, print and write; see `merope.cli.evaluate.evaluate` for what the flags mean."""
    from merope.cli.evaluate_benchmark import settled
    from merope.evaluation.runs.pose_files import FOLDER_FORMATS, clips_of_folders, clips_of_pair
    from merope.evaluation.runs.scored import score_run

    assert scored.commanded is not None
    if reading.format is None:
        raise UsageError(
            "--format is missing. It is never guessed; `merope poses inspect FILE` says what a file may be."
        )
    formats = {"commanded": reading.format, "estimated": reading.estimated_format or reading.format}

    def are_many(path: Path, side: str) -> bool:
        return path.is_dir() and formats[side] not in FOLDER_FORMATS

    many = are_many(scored.commanded, "commanded")
    other = next((path for path in scored.estimated if are_many(path, "estimated") != many), None)
    if other is not None:
        raise UsageError(
            f"--commanded {scored.commanded} is a {'folder' if many else 'file'} and --estimated {other} a "
            f"{'file' if many else 'folder'}: give two files, or two folders whose files have the same names."
        )
    rows, notes = [], []
    missing: Literal["leave-out", "interpolate"] = "interpolate" if scored.fill else "leave-out"
    commanded = _files(scored.commanded, formats["commanded"], reading.commanded_options(), many=many)
    scored, _, judge = settled(
        scored, RecoveryFlags(), from_files=True, num_poses=0 if many else len(commanded[""].poses)
    )
    assert scored.on_failure is not None and scored.commanded is not None
    labels = list(scored.labels) or unique_labels(scored.estimated)
    for path, label in zip(scored.estimated, labels, strict=True):
        failures: dict[str, str] = {}
        estimated = _files(
            path, formats["estimated"], reading.estimated_options(), many=many, failures=failures
        )
        if many:
            found = clips_of_folders(
                commanded,
                estimated,
                window=scored.window,
                first_generated=scored.first_generated,
                missing=missing,
                max_time_difference=reading.max_time_difference,
                failures=failures,
            )
        else:
            found = clips_of_pair(
                commanded[""],
                estimated[""],
                window=scored.window,
                first_generated=scored.first_generated,
                missing=missing,
                max_time_difference=reading.max_time_difference,
            )
        files = {"commanded": commanded, "estimated": estimated}
        run = score_run(
            found.clips,
            label=label,
            on_failure=scored.on_failure,
            method=scored.angle,
            scale=SCALES[scored.scale],
            seed=scored.seed,
            num_expected=len(found.clips),
            settings={
                "commanded": scored.commanded.name,
                "estimated": path.name,
                "format": formats["commanded"],
                "estimated_format": formats["estimated"],
                "unit": {side: _shared_unit(group) for side, group in files.items()},
                "projection_error": {
                    side: max(file.poses.projection_error for file in group.values())
                    for side, group in files.items()
                },
                "window": scored.window,
                **found.settings,
            },
        )
        rows.append(run)
        notes += [
            file.projection_note
            for group in (commanded, estimated)
            for file in group.values()
            if file.projection_note and file.projection_note not in notes
        ]
        several = f"{label}: " if len(scored.estimated) > 1 else ""
        notes += [f"{several}{note}" for note in found.notes]
    names = ", ".join(path.name for path in scored.estimated)
    present(
        rows,
        written,
        title=f"{names} against {scored.commanded.name}",
        notes=_shortened(notes),
        hint=_SAME_FRAMES if len(rows) > 1 and not scored.fill else "",
        judge=judge,
        beside=_PATH_ERRORS,
    )


def _files(
    path: Path,
    format: str,
    options: "ReadOptions",
    *,
    many: bool,
    failures: dict[str, str] | None = None,
) -> dict[str, "PoseFile"]:
    """The files of one side by the names of their clips; a single file has the name "".

    Files of recovered cameras that say why there are none go into ``failures``.
    """
    from merope.data.poses.files import load_pose_file
    from merope.evaluation.runs.kept import kept_failure
    from merope.evaluation.runs.pose_files import pose_files_in

    paths = pose_files_in(path) if many else {"": path}
    if many and failures is not None:
        failures.update(
            {name: why for name, file in paths.items() if (why := kept_failure(file)) is not None}
        )
        paths = {name: file for name, file in paths.items() if name not in failures}
    found = {name: load_pose_file(file, format=format, options=options) for name, file in paths.items()}
    for file in found.values():
        file.require_frames()
    return found


def _shared_unit(files: dict[str, "PoseFile"]) -> str | list[str]:
    units = sorted({file.poses.unit for file in files.values()})
    return units[0] if len(units) == 1 else list(units)


def _shortened(notes: list[str], *, limit: int = 12) -> list[str]:
    if len(notes) <= limit:
        return notes
    return [*notes[:limit], f"and {len(notes) - limit} more remarks of this kind"]
