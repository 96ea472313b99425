"""``merope demo``: a commanded drive in, a video that follows it out, scored."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.extras import require
from merope.cli.pose_options import Format, Unit

if TYPE_CHECKING:
    from merope.adapters.spec import VideoSpec
    from merope.data.clips.video import Frames
    from merope.geometry.poses import Poses


def demo(
    *,
    trajectory: Path | None = None,
    format: Format = "kitti",
    start: int = 0,
    trajectory_fps: float = 10.0,
    times: Path | None = None,
    unit: Unit | None = None,
    scale: float = 1.0,
    output: Path = Path("out/demo"),
    seed: int = 11,
    steps: int = 16,
    weights: Path | None = None,
) -> None:
    """Generate videos along a commanded drive with the shipped tiny model, recover their paths, score them.

    The command is a built-in left curve, or a window of a pose file; its left-turn and right-turn variants
    are driven too, as in the paper's evaluation. The model sees the first 9 frames and the commanded poses. The same
    model trained without camera encoding, and the pose estimator on the true frames, stand beside it.

    Args:
        trajectory: Pose file to drive along, in metres, such as KITTI's poses/00.txt.
        format: Format of that file: kitti, tum, npy, npz or merope.
        start: First pose of the window.
        trajectory_fps: Poses per second where the file has no times (KITTI: 10).
        times: File with the time of each pose in seconds, one a line, such as KITTI's times.txt; in place of the rate.
        unit: What a length of 1 is in the file, where neither the file nor its format says so; the demo takes m.
        scale: Metres per unit of the file.
        output: Folder for video.mp4, frames, bev.png, figures, results.json and report.html.
        seed: Which of the worlds that no model was trained on, and of the noise.
        steps: Denoising steps.
        weights: Folder with other weights (merope, native, estimator.safetensors).
    """
    require("matplotlib", purpose="the demo")
    if seed < 0:
        raise ValueError(f"--seed must be >= 0; got {seed}.")
    from merope.adapters.command import spec_lens
    from merope.cli import street
    from merope.data.clips.overlay import draw_path_inset, enlarge, side_by_side
    from merope.data.clips.video import write_frames, write_video
    from merope.data.poses.files import write_poses
    from merope.evaluation.comparison import compare
    from merope.evaluation.estimators.base import Recovered
    from merope.evaluation.plots.bev import plot_bev
    from merope.evaluation.report.figures import run_colors
    from merope.evaluation.report.page import write_report
    from merope.evaluation.runs.run import RunClip
    from merope.evaluation.runs.scored import score_run
    from merope.recipes.held_out import DEMO_SEED

    folder = weights or street.WEIGHTS
    models = street.load_models(folder=folder)
    estimator = street.load_estimator(folder)
    spec = models["merope"].spec
    command = _command(
        trajectory,
        format,
        start=start,
        trajectory_fps=trajectory_fps,
        times=times,
        unit=unit,
        scale=scale,
        seed=DEMO_SEED + seed,
        spec=spec,
    )
    print(
        f"commanded: {spec.num_frames} poses over {command.path_length:.1f} m, and its left and right variants"
    )
    clips = street.render_commands(
        "command", street.with_variants(command, spec), spec, seed=DEMO_SEED + seed
    )
    ours = street.LABELS["merope"]
    videos, recovered = {}, {}
    for name, model in models.items():
        label = street.LABELS[name]
        print(f"{label}: {len(clips)} videos")
        videos[label] = street.generate_clips(model, clips, steps=steps)
        recovered[label] = street.recover(estimator, videos[label], spec)
    recovered[street.FLOOR] = street.recover(estimator, [clip.truth for clip in clips], spec)
    camera, truth = spec_lens(spec), [clip.truth for clip in clips]
    runs = [
        score_run(
            [
                RunClip(
                    clip_id=clip.clip_id,
                    commanded=clip.poses,
                    recovered=Recovered.complete(found),
                    first_generated=spec.prefix_frames,
                    fps=spec.fps,
                    lens=camera,
                    frames=partial(_given, frames),
                )
                for clip, found, frames in zip(clips, poses, videos.get(label, truth), strict=True)
            ],
            label=label,
            reference=label == street.FLOOR,
            scale="metric",
            settings={"estimator": estimator.identity()},
        )
        for label, poses in recovered.items()
    ]

    factor = 6
    for index, clip in enumerate(clips):
        suffix = "" if index == 0 else "-" + clip.clip_id.rpartition("-")[2]
        generated = videos[ours][index]
        shown = side_by_side(
            draw_path_inset(enlarge(clip.truth, factor=factor), clip.poses),
            enlarge(generated, factor=factor),
            labels=("commanded (rendered)", "generated"),
        )
        write_video(output / f"video{suffix}.mp4", shown, fps=spec.fps)
        write_frames(output / f"frames{suffix}", generated)
        paths = {label: poses[index] for label, poses in recovered.items()}
        plot_bev(output / f"bev{suffix}.png", clip.poses, paths, title=clip.clip_id, colors=run_colors(runs))
        write_poses(output / f"commanded{suffix}.txt", clip.poses, format="kitti")
        write_poses(output / f"recovered{suffix}.txt", paths[ours], format="kitti")
    write_report(
        output,
        runs,
        title="A commanded drive, generated and recovered",
        notes=(
            f"World and noise seed {seed}, {steps} denoising steps, {spec.num_frames} frames at {spec.fps:g} Hz of which "
            f"{spec.prefix_frames} are given. Poses are recovered by a network trained on renders of other worlds; "
            "its own error on true frames is the noise floor.",
        ),
        comparisons=[compare(runs[1].result, runs[0].result)],
    )
    print()
    print(street.table({run.label: run.result for run in runs}))
    print(
        f"\nmean over {len(clips)} videos; written to {output}: video.mp4, frames, bev.png, figures, "
        "results.json, report.html"
    )


def _given(frames: "Frames") -> "Frames":
    """Frames that are at hand already, for who asks for them."""
    return frames


def _command(
    trajectory: Path | None,
    format: Format,
    *,
    start: int,
    trajectory_fps: float,
    times: Path | None,
    unit: Unit | None,
    scale: float,
    seed: int,
    spec: "VideoSpec",
) -> "Poses":
    """The commanded poses at the model's frame rate, standing on the ground."""
    from merope.data.poses.command_files import read_command
    from merope.generation import check_command
    from merope.worlds import place_on_ground
    from merope.worlds.drives import drive

    if trajectory is None:
        return drive("curve", seed=seed, num_frames=spec.num_frames, fps=spec.fps)
    command = read_command(
        trajectory,
        format=format,
        num_frames=spec.num_frames,
        fps=spec.fps,
        start=start,
        trajectory_fps=trajectory_fps,
        times=times,
        unit=unit,
        scale=scale,
    )
    if command.projection_note:
        print(command.projection_note)
    # Before it is placed: a path in centimetres would only be said to leave the ground.
    check_command(command.poses, spec)
    return place_on_ground(command.poses)
