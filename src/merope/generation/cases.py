"""Cases opened into clips: every file read and checked once, every mistake named by case and field, before weights load.

A case is a prompt, a lens, given frames where the model takes them, and any number of trajectories. Each pair of case
and trajectory is one clip.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from merope.adapters.spec import VideoSpec, wan_spec
from merope.cameras import CameraModel, Pinhole
from merope.data.clips.given_frames import fit_view, read_given_frames
from merope.data.clips.video import Frames
from merope.data.lenses.files import read_lens
from merope.data.poses.command_files import Command, Extend, read_command
from merope.errors import MeropeError
from merope.generation.manifest import Case, Problems
from merope.generation.model_files import ModelConfigs
from merope.geometry.gravity import Up
from merope.geometry.poses import Poses, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClip:
    """One video to make: a case along one of its trajectories, opened and checked."""

    case: str
    trajectory: str
    prompt: str
    negative_prompt: str | None
    poses: Poses
    """One pose per frame, metres."""
    lens: CameraModel
    """For frames of the spec's size."""
    spec: VideoSpec
    """Size, rate and frame counts of this clip."""
    seed: int
    prefix: Path | None
    crop: bool
    prefix_lens: CameraModel
    """The lens as the case gives it, before frames and lens were brought to the spec's size."""
    prefix_digest: str | None
    """SHA-256 of the given frames at the spec's size."""
    notes: tuple[str, ...] = ()
    """What was done to poses, lens and given frames, in sentences."""
    up_world: Up | None = None
    """Against gravity in the world of the poses; None where the case does not say."""

    @property
    def clip_id(self) -> str:
        """CASE/TRAJECTORY, the clip's place below the output folder."""
        return f"{self.case}/{self.trajectory}"

    def given_frames(self) -> Frames | None:
        """The given frames [n, H, W, 3] at the spec's size, read anew; None where nothing is given."""
        if self.prefix is None:
            return None
        given = read_given_frames(self.prefix, num_frames=self.spec.prefix_frames, fps=self.spec.fps)
        return fit_view(
            given.frames, self.prefix_lens, height=self.spec.height, width=self.spec.width, crop=self.crop
        )[0]

    def inputs(self) -> dict[str, Any]:
        """All that the case itself decides about the frames, as JSON values: equal inputs, equal clip."""
        # What the model sees of a path is relative to the first camera. Rounded, since another machine's last bit is
        # not another path; and 0 added, since -0 is not another number.
        seen = (self.poses.rebase_to_first().T_world_cam.round(decimals=6) + 0.0).numpy().tobytes()
        up = {}
        if self.up_world is not None:
            up_world = torch.tensor(self.up_world, dtype=torch.float64)
            up_camera = (self.poses.R_world_cam[0].mT @ up_world).round(decimals=6) + 0.0
            up = {"up_in_first_camera": up_camera.tolist()}
        return {
            **up,
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "seed": self.seed,
            "prefix_sha256": self.prefix_digest,
            "poses_sha256": hashlib.sha256(seen).hexdigest(),
            "lens": self.lens.to_dict(),
            "spec": self.spec.to_dict(),
        }


def run_spec(
    configs: ModelConfigs,
    *,
    height: int | None = None,
    width: int | None = None,
    num_frames: int | None = None,
    prefix_frames: int | None = None,
    trim: bool = False,
) -> tuple[VideoSpec, tuple[str, ...]]:
    """The videos that a run makes: what is asked for, else what the model's adapter was trained for.

    ``trim`` takes the next lower number of frames that the model can make; the second value says so.

    Raises:
        MeropeError: if neither says a size or a number of frames.
        ValueError: if they do not fit the model.
    """
    trained = configs.trained
    asked = {"height": height, "width": width, "num_frames": num_frames, "prefix_frames": prefix_frames}
    chosen: dict[str, int] = {"prefix_frames": 0}
    for name, value in asked.items():
        if value is not None or trained is not None:
            chosen[name] = getattr(trained, name) if value is None else value
    if missing := [f"--{name.replace('_', '-')}" for name in asked if name not in chosen]:
        raise MeropeError(
            f"the adapter does not say what videos it was trained on; say {', '.join(missing)}, such as --height 704 "
            "--width 1280 --num-frames 49."
        )
    stride = configs.vae.get("scale_factor_temporal", 4)
    over = (chosen["num_frames"] - 1) % stride
    notes: tuple[str, ...] = ()
    if trim and over and chosen["num_frames"] > over:
        chosen["num_frames"] -= over
        kept = chosen["num_frames"]
        notes = (
            f"trimmed from {kept + over} to {kept} frames, 1 + {stride} k: the poses of frames {kept} to {kept + over - 1} "
            "are left out",
        )
    camera = None
    if trained is not None and (trained.height, trained.width) == (chosen["height"], chosen["width"]):
        camera = trained.camera
    spec = wan_spec(
        configs.transformer,
        configs.vae,
        **chosen,
        fps=configs.fps,
        shift=1.0 if trained is None else trained.shift,
        camera=camera,
        pose_policy=configs.pose_policy,
    )
    return spec, notes


def open_cases(
    cases: Sequence[Case],
    spec: VideoSpec,
    *,
    source: str,
    seed: int = 0,
    extend: Extend = "none",
    trim: bool = False,
    crop: bool = False,
    unit: Unit = "m",
    check: Callable[[PlannedClip, Frames | None], None] | None = None,
    progress: bool = False,
) -> list[PlannedClip]:
    """Every clip of every case, in order, all their files opened once.

    ``extend`` and ``trim`` say what to do where a trajectory is shorter than the spec's frames (`read_command`), ``crop``
    whether given frames of another shape are cut (`fit_view`). ``unit`` is that of the cameras that the model was trained
    on. ``check`` looks at each clip and its given frames and raises what is wrong with it. ``source`` names the manifest
    in the message.

    Raises:
        ManifestError: naming case and field of every mistake.
    """
    problems = Problems()
    clips: list[PlannedClip] = []
    for case in tqdm(cases, desc="checking", unit="case", disable=not progress, leave=False):
        place = f"case {case.id!r}"
        given: Frames | None = None
        notes: tuple[str, ...] = ()
        before = len(problems.found)
        with problems.at(f"{place}, field 'prefix'"):
            given, notes = _given(case, spec)
        if len(problems.found) > before:
            continue
        for name, trajectory in case.trajectories.items():
            command: Command | None = None
            with problems.at(f"{place}, trajectory {name!r}"):
                command = read_command(
                    trajectory.poses,
                    format=trajectory.format,
                    num_frames=spec.num_frames,
                    fps=spec.fps,
                    start=trajectory.start,
                    trajectory_fps=trajectory.fps,
                    times=trajectory.times,
                    unit=trajectory.unit,
                    scale=trajectory.scale,
                    extend=extend,
                    trim=trim,
                    stride=spec.temporal_stride,
                    wanted_unit=unit,
                )
            if command is None:
                continue
            lens: CameraModel | None = None
            with problems.at(f"{place}, field 'lens'"):
                lens = _lens(case, spec, given, command)
            if lens is None:
                # The same lens would fail for every trajectory.
                break
            with problems.at(f"{place}, trajectory {name!r}"):
                frames, fitted, fitting = fit_view(
                    given, lens, height=spec.height, width=spec.width, crop=crop
                )
                digest = None if frames is None else hashlib.sha256(frames.tobytes()).hexdigest()
                projected = () if command.projection_note is None else (command.projection_note,)
                clip = PlannedClip(
                    case=case.id,
                    trajectory=name,
                    prompt=case.prompt,
                    negative_prompt=case.negative_prompt,
                    poses=command.poses,
                    lens=fitted,
                    spec=replace(spec, num_frames=len(command.poses)),
                    seed=case_seed(seed, case.id) if case.seed is None else case.seed,
                    prefix=case.prefix,
                    crop=crop,
                    prefix_lens=lens,
                    prefix_digest=digest,
                    notes=(*notes, *fitting, *projected, *command.notes),
                    up_world=trajectory.up_world,
                )
                if check is not None:
                    check(clip, frames)
                clips.append(clip)
    problems.raise_any(source)
    return clips


def _given(case: Case, spec: VideoSpec) -> tuple[Frames | None, tuple[str, ...]]:
    if case.prefix is None:
        if spec.prefix_frames:
            raise ValueError(
                f"is missing; the model takes {spec.prefix_frames} given frames. Name a video, a folder of pictures or a "
                "picture, or use --prefix-frames 0 to give none."
            )
        return None, ()
    if spec.prefix_frames == 0:
        raise ValueError(
            "frames are given and the model takes none. Leave it out, or say how many with --prefix-frames."
        )
    given = read_given_frames(case.prefix, num_frames=spec.prefix_frames, fps=spec.fps)
    return given.frames, given.notes


def _lens(case: Case, spec: VideoSpec, given: Frames | None, command: Command) -> CameraModel:
    """The lens that the case names, else the pose file's, else the model's own."""
    if case.fov is not None:
        height, width = (spec.height, spec.width) if given is None else given.shape[1:3]
        return Pinhole.from_fov(fov_x_deg=float(case.fov), height=int(height), width=int(width))
    if case.lens is not None:
        return read_lens(case.lens)
    for carried in (command.camera, spec.camera):
        if carried is not None:
            return CameraModel.from_dict(carried)
    raise ValueError(
        "is missing, and neither the pose file nor the model brings one. Name a lens file (--lens), or say the "
        "horizontal field of view in degrees in 'fov' (--fov)."
    )


def case_seed(seed: int, case_id: str) -> int:
    """Seed of a case's noise, from the run's seed and the case's id: it does not depend on what else is generated."""
    return int.from_bytes(hashlib.sha256(f"{seed} {case_id}".encode()).digest()[:6], "big")
