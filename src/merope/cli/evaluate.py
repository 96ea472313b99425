"""``merope evaluate``: score a file of estimated poses, or the cameras in generated clips, against the command."""

from pathlib import Path
from typing import Literal

from merope.cli.extras import require
from merope.cli.pose_options import Axes, Direction, Format, Unit
from merope.cli.usage import UsageError

Estimator = Literal["network", "colmap", "poses"]

SCALES: dict[str, Literal["metric", "up_to_scale"] | None] = {
    "auto": None,
    "metric": "metric",
    "up-to-scale": "up_to_scale",
}


def evaluate(
    *,
    commanded: Path | None = None,
    estimated: Path | None = None,
    format: Format | None = None,
    generated: Path | None = None,
    estimator: Estimator = "network",
    estimates: Path | None = None,
    weights: Path | None = None,
    on_failure: Literal["worst", "skip", "error"] = "worst",
    estimated_format: Format | None = None,
    window: int | None = None,
    first_generated: int | None = None,
    unit: Unit | None = None,
    estimated_unit: Unit | None = None,
    scale: Literal["auto", "metric", "up-to-scale"] = "auto",
    angle: Literal["atan2", "acos"] = "atan2",
    out: Path | None = None,
    json: bool = False,
    delimiter: Literal["space", "comma"] = "space",
    skip_lines: int = 0,
    index_column: bool = False,
    time_unit: Literal["s", "ms", "us", "ns"] = "s",
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw",
    direction: Direction | None = None,
    camera_axes: Axes | None = None,
    mirror: Literal["none", "x", "y", "z"] = "none",
    tolerance: float = 1e-3,
    seed: int = 0,
) -> None:
    """Score cameras against their command, with every metric of the paper's appendix B.2.

    Either a file of --estimated poses against a file of --commanded ones, both in --format; or a folder of --generated
    clips (`merope generate --out`), whose cameras an estimator recovers from the lossless frames.

    Poses are compared relative to the first frame. The number of poses may differ where frame numbers or
    times say which belong together. Reversed motion, wrong camera axes and standing cameras are flagged in words.

    Args:
        commanded: File of commanded (true) poses.
        estimated: File of estimated poses.
        format: Format of both files: kitti (12 numbers a row), tum (t x y z qx qy qz qw), npy, npz, merope (JSON).
        generated: Folder of generated clips, or of a single one, to recover cameras from and score.
        estimator: How: network (this project's own for street clips, in metres), colmap (any textured clip, up to
            scale), or poses (files in --estimates that another program recovered).
        estimates: Folder with CASE/TRAJECTORY.* for every clip, in --format (merope by default), for --estimator poses.
        weights: File of the network estimator; by default the one that comes with the package.
        on_failure: Whether a generated clip without a recovered camera counts as the worst possible answer, is left out
            and counted, or stops the command.
        estimated_format: Format of the estimated file where it differs.
        window: Cut both into consecutive clips of this many frames without overlap, and average over the clips.
            Without it the whole file is one clip, and all its T (T - 1) / 2 pairs count.
        first_generated: Number of given frames at the start of each clip; adds figures over the generated ones alone.
        unit: What a length of 1 is in both files: m, normalized or unknown. By default what a file says, or else its
            format: KITTI and TUM are metres, arrays are unknown.
        estimated_unit: Unit of the estimated file where it differs.
        scale: Whether estimated centres have a metric scale, which defines the metric scale error; auto where both
            files are in metres.
        angle: atan2 is exact; acos is the formula as the paper prints it.
        out: Folder for report.html, bev.png and metrics.json.
        json: Print one JSON object with values, units, protocols, flags and every clip.
        delimiter: What separates numbers, in both files.
        skip_lines: Lines to leave out at the top of both files.
        index_column: A frame number stands before each row, in both files.
        time_unit: Unit of the time stamps, in both files.
        quaternion_order: Order of quaternion components, in both files.
        direction: Which way the matrices of the estimated file map; by default as its format says.
        camera_axes: Axes of the estimated file; opengl has y up and z back; by default as its format says.
        mirror: World axis of the estimated file to negate, where its world is left-handed.
        tolerance: How far R^T R may be from the identity in either file.
        seed: Seed of the bootstrap intervals.
    """
    if generated is not None and (commanded is not None or estimated is not None):
        raise UsageError(
            "--generated brings its own commands; leave --commanded and --estimated out, or --generated."
        )
    if out is not None:
        require("matplotlib", purpose="--out")
    from merope.data.poses.files import load_pose_file
    from merope.data.poses.table import ReadOptions
    from merope.errors import TrajectoryError
    from merope.evaluation.matching import match_poses
    from merope.evaluation.scoring import ClipPair, evaluate_clips

    def options(unit: Unit | None, **estimate_only: str | None) -> ReadOptions:
        return ReadOptions(
            unit=unit,
            delimiter=delimiter,
            skip_lines=skip_lines,
            index_column=index_column,
            time_unit=time_unit,
            quaternion_order=quaternion_order,
            tolerance=tolerance,
            **estimate_only,  # type: ignore[arg-type]
        )

    estimate_options = options(
        estimated_unit or unit, direction=direction, camera_axes=camera_axes, mirror=mirror
    )
    if generated is not None:
        from merope.cli.evaluate_generated import evaluate_generated

        evaluate_generated(
            generated,
            estimator=estimator,
            estimates=estimates,
            format=estimated_format or format or "merope",
            options=estimate_options,
            weights=weights,
            on_failure=on_failure,
            method=angle,
            scale=SCALES[scale],
            seed=seed,
            out=out,
            json=json,
        )
        return
    if commanded is None or estimated is None or format is None:
        raise UsageError(
            "name --commanded, --estimated and the --format of both files, or a folder of clips with --generated."
        )
    command_file = load_pose_file(commanded, format=format, options=options(unit))
    estimate_file = load_pose_file(
        estimated,
        format=estimated_format or format,
        options=estimate_options,
    )
    sides = {"commanded": command_file, "estimated": estimate_file}
    matched = match_poses(
        command_file.poses,
        estimate_file.poses,
        commanded_ids=command_file.frame_ids,
        estimated_ids=estimate_file.frame_ids,
    )
    total = len(matched.commanded)
    if window is not None and window < 2:
        raise ValueError(f"--window must be 2 or more, got {window}.")
    if window is not None and window > total:
        raise TrajectoryError(
            f"--window {window} is longer than the {total} matched poses. Use --window {total} or less, or leave it out."
        )
    length = window or total
    starts = range(0, total - length + 1, length)
    clips = [
        ClipPair(
            clip_id=f"frames {start} to {start + length - 1}",
            commanded=matched.commanded[start : start + length],
            estimated=matched.estimated[start : start + length],
            first_generated=first_generated,
        )
        for start in starts
    ]
    remainder = total - length * len(clips)
    result = evaluate_clips(
        clips,
        label=estimated.name,
        method=angle,
        scale=SCALES[scale],
        seed=seed,
        settings={
            "commanded": commanded.name,
            "estimated": estimated.name,
            "format": format,
            "unit": {side: file.poses.unit for side, file in sides.items()},
            "projection_error": {side: file.poses.projection_error for side, file in sides.items()},
            "matching": matched.rule,
            "window": window,
            "num_frames_left_over": remainder,
        },
    )
    if out is not None:
        from merope.evaluation.report.page import write_report

        write_report(
            out,
            [result],
            title=f"{estimated.name} against {commanded.name}",
            commanded=matched.commanded,
            recovered={estimated.name: matched.estimated},
        )
    if json:
        print(result.to_json())
        return
    for file in sides.values():
        if file.projection_note:
            print(file.projection_note)
    print(matched.rule)
    if remainder:
        print(f"{remainder} poses at the end do not fill a clip of {length} and are left out")
    print(result.table())
    if out is not None:
        print(f"\nwritten to {out}: report.html, bev.png, metrics.json")
