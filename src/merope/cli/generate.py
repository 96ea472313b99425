"""``merope generate``: videos along commanded trajectories, with a pretrained model and its camera adapter."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from merope.cli.pose_options import Format, Unit
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.generation.cases import PlannedClip
    from merope.generation.manifest import Case
    from merope.generation.runs import Failure, Sampling

Dtype = Literal["auto", "bf16", "fp16", "fp32"]
Offload = Literal["none", "model", "sequential", "group"]

# Clips that are listed before a run; the rest are counted.
_MOST_LISTED = 20


def generate(
    model: str,
    /,
    *,
    out: Path,
    adapter: str | None = None,
    manifest: Path | None = None,
    trajectory: Path | None = None,
    format: Format | None = None,
    start: int | None = None,
    trajectory_fps: float | None = None,
    times: Path | None = None,
    unit: Unit | None = None,
    scale: float | None = None,
    up: tuple[float, float, float] | None = None,
    prompt: str | None = None,
    negative_prompt: str | None = None,
    prefix: Path | None = None,
    lens: Path | None = None,
    fov: float | None = None,
    name: str | None = None,
    height: int | None = None,
    width: int | None = None,
    num_frames: int | None = None,
    prefix_frames: int | None = None,
    pose_extend: Literal["none", "hold", "constant-velocity"] = "none",
    fit_frames: Literal["exact", "trim"] = "exact",
    crop: bool = False,
    steps: int = 50,
    guidance: float = 5.0,
    flow_shift: float | None = None,
    seed: int = 0,
    dtype: Dtype = "auto",
    device: str | None = None,
    offload: Offload = "none",
    tiling: bool = False,
    batch: int = 1,
    share: Literal["clips", "clip"] = "clips",
    self_check: bool = False,
    allow_untrained: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
) -> int:
    """Generate videos along commanded trajectories: one from flags, or all of a manifest, with one model load.

    A manifest is JSON, a list of cases or one case a line, and paths in it are relative to it. A case:

    {"id": "street", "prompt": "a car drives along the street", "prefix": "street.mp4", "lens": "lens.json",

    "trajectories": {"left": {"poses": "left.txt", "format": "kitti", "fps": 10}}}

    More fields: negative_prompt, seed, and fov in place of lens; for a trajectory start, times, unit, scale, up_world.

    Every clip becomes a folder OUT/CASE/TRAJECTORY with frames (PNG), video.mp4, commanded.json, lens.json and
    result.json. Clips that are there are left as they are, so the same command goes on where it was stopped. Under
    `torchrun --nproc_per_node N -m merope generate ...` clips are shared out over N processes, each with a GPU of its own.
    `merope evaluate OUT` then recovers the cameras from the frames and scores them.

    Args:
        model: Folder or hub name of a Wan pipeline, such as Wan-AI/Wan2.2-TI2V-5B-Diffusers.
        out: Folder for the clips.
        adapter: Camera adapter: a file, a folder (RUN/model of a training run) or a hub name; by default the model's own.
        manifest: File of cases; the flags from --trajectory to --name are for one clip without a manifest.
        trajectory: Pose file to drive along, for one clip.
        format: Format of that file: kitti, tum, npy, npz or merope.
        start: First pose of the window (default 0).
        trajectory_fps: Poses per second where the file has no times (KITTI: 10); without it one pose is one frame.
        times: File with the time of each pose in seconds, one a line; in place of the rate.
        unit: What a length of 1 is in the file, where neither the file nor its format says so.
        scale: Metres per unit of the file (default 1).
        up: Direction against gravity in the file's world, such as 0 -1 0; adapters with a latitude and up map need it.
        prompt: What the video shows.
        negative_prompt: What it does not show.
        prefix: Video, folder of pictures or picture whose first frames are given; frame i goes with pose i.
        lens: Lens of the given frames, or of the video if none are given: a JSON file.
        fov: In place of a lens: horizontal field of view of a pinhole, degrees.
        name: Folder of the one clip below --out (default clip); below it stands one named as the trajectory's file.
        height: Rows of a frame; by default what the adapter was trained for, as with the next three.
        width: Columns of a frame.
        num_frames: Frames per clip, given ones included.
        prefix_frames: How many frames are given; 0 for none.
        pose_extend: Where a trajectory is too short: hold its last pose, or repeat its last step.
        fit_frames: trim makes fewer frames, 1 + 4k, where a trajectory is too short or --num-frames does not fit.
        crop: Cut given frames and lens about the middle where their shape is not the video's.
        steps: Denoising steps.
        guidance: Scale of text guidance; 1 is none, and half the work.
        flow_shift: Time shift of the scheduler; by default its own.
        seed: Of the noise, for cases that have no seed of their own; all trajectories of a case share it.
        dtype: Precision of the transformer; auto is bf16 on a GPU and fp32 on a CPU.
        device: Where to compute, such as cuda:1 or cpu; by default a GPU if there is one.
        offload: Keep weights in CPU memory: whole models, single layers (least memory, slowest) or groups of blocks.
        tiling: Encode and decode frames in tiles: less memory at large sizes.
        batch: Clips at once; frames may then differ in the last bit from those that are made alone.
        share: What several processes share out: whole clips, or every clip's frames, which makes one clip sooner.
        self_check: First make sure that two trajectories give two answers.
        allow_untrained: Run although the cameras would be ignored: no adapter, or all its branches zero.
        overwrite: Make clips anew that are there with other settings.
        dry_run: Check everything and list the clips; load no weights.
    """
    single = {
        "--trajectory": trajectory,
        "--format": format,
        "--prompt": prompt,
        "--start": start,
        "--trajectory-fps": trajectory_fps,
        "--times": times,
        "--unit": unit,
        "--scale": scale,
        "--up": up,
        "--negative-prompt": negative_prompt,
        "--prefix": prefix,
        "--lens": lens,
        "--fov": fov,
        "--name": name,
    }
    said = [flag for flag, value in single.items() if value is not None]
    if manifest is not None and said:
        raise UsageError(f"{', '.join(said)}: for one clip; with --manifest this stands in the manifest.")
    if lens is not None and fov is not None:
        raise UsageError("--lens and --fov both say what the lens is; keep one.")
    missing = [flag for flag in list(single)[:3] if single[flag] is None]
    if manifest is None and missing:
        raise UsageError(
            f"what to generate? {', '.join(missing)} is missing. Name a --manifest of cases, or for one clip all of "
            "--trajectory, --format and --prompt."
        )
    from merope.generation.processes import Processes, StoppedElsewhere
    from merope.generation.runs import make_clips

    processes = Processes.from_environment(backend=_backend(share, device))
    # A job that is told to end leaves finished clips and nothing else, as it does at Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        place = _place(device, processes.local_rank, offload)
        precision = _precision(dtype, place)
        plan = processes.from_first(
            lambda: _plan(
                model,
                adapter,
                _single_case(single) if manifest is None else manifest,
                out,
                size={
                    "height": height,
                    "width": width,
                    "num_frames": num_frames,
                    "prefix_frames": prefix_frames,
                },
                opening={"seed": seed, "extend": pose_extend, "trim": fit_frames == "trim", "crop": crop},
                sampling={
                    "steps": steps,
                    "guidance": guidance,
                    "flow_shift": flow_shift,
                    "tiling": tiling,
                    "dtype": precision,
                },
                batch=batch,
                allow_untrained=allow_untrained,
                overwrite=overwrite,
                dry_run=dry_run,
            )
        )
        if processes.is_first:
            plan.tell()
        if dry_run or not plan.work:
            return 0
        pipeline, about = _load(
            model,
            adapter,
            precision,
            place,
            offload=offload,
            tiling=tiling,
            progress=processes.is_first,
        )
        pipeline.set_progress_bar_config(
            disable=not processes.is_first, desc="denoising", unit="step", leave=False, position=1
        )
        # Here, not once for every clip.
        processes.from_first(lambda: pipeline.require_cameras(allow_untrained))
        if self_check:
            change = processes.from_first(pipeline.self_check)
            if processes.is_first:
                print(f"self-check: another trajectory changes the answer by {change:.2g} of its norm")
        together = share == "clip" and processes.world > 1
        made, failures = make_clips(
            pipeline,
            plan.work if together else plan.work[processes.rank :: processes.world],
            out,
            plan.sampling,
            about={**about, "processes_per_clip": processes.world if together else 1},
            together=together,
            writes=processes.is_first or not together,
            allow_untrained=allow_untrained,
            progress=processes.is_first,
        )
        outcomes = processes.gathered((made, failures))
        if not processes.is_first:
            return 0
        return _summary(outcomes, num_there=plan.num_there, out=out)
    except StoppedElsewhere:
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
        processes.leave()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be made; the first process makes it, all have it."""

    work: "list[list[PlannedClip]]"
    """Batches of clips that are not there yet."""
    num_there: int
    """Clips that are left as they are."""
    sampling: "Sampling"
    notes: tuple[str, ...]

    def tell(self) -> None:
        """Print what will happen."""
        clips = [clip for batch in self.work for clip in batch]
        there = f", {self.num_there} more are there" if self.num_there else ""
        print(f"{len(clips)} clips to make{there}")
        for note in self.notes:
            print(note)
        for clip in clips[:_MOST_LISTED]:
            spec = clip.spec
            print(
                f"  {clip.clip_id}: {spec.num_frames} frames of {spec.height} x {spec.width} at {spec.fps:g} Hz, "
                f"{spec.prefix_frames or 'none'} given, {clip.poses.path_length:.1f} {_unit(clip)}"
            )
            for note in clip.notes:
                print(f"    {note}")
        if len(clips) > _MOST_LISTED:
            print(f"  and {len(clips) - _MOST_LISTED} more")


def _unit(clip: "PlannedClip") -> str:
    return "m" if clip.poses.unit == "m" else f"({clip.poses.unit} units)"


def _single_case(flags: dict[str, Any]) -> "Case":
    """The one case that the command line describes."""
    from merope.generation.manifest import Case, Trajectory, require_name
    from merope.geometry.gravity import unit_up

    file: Path = flags["--trajectory"]
    name = flags["--name"] or "clip"
    require_name("--name", name)
    stem = "".join(
        letter if letter.isalnum() and letter.isascii() else "-" for letter in file.name.split(".")[0]
    )
    driven = Trajectory(
        poses=file,
        format=flags["--format"],
        start=flags["--start"] or 0,
        fps=flags["--trajectory-fps"],
        times=flags["--times"],
        unit=flags["--unit"],
        scale=1.0 if flags["--scale"] is None else flags["--scale"],
        up_world=flags["--up"] and unit_up(flags["--up"]),
    )
    return Case(
        id=name,
        prompt=flags["--prompt"],
        negative_prompt=flags["--negative-prompt"],
        prefix=flags["--prefix"],
        lens=flags["--lens"],
        fov=flags["--fov"],
        trajectories={stem.strip("-") or "trajectory": driven},
    )


def _plan(
    model: str,
    adapter: str | None,
    wanted: "Case | Path",
    out: Path,
    *,
    size: dict[str, int | None],
    opening: dict[str, Any],
    sampling: dict[str, Any],
    batch: int,
    allow_untrained: bool,
    overwrite: bool,
    dry_run: bool,
) -> _Plan:
    """Everything that can be wrong is found here, before weights are read."""
    from merope.data.clips.generated import note_asked
    from merope.errors import MeropeError
    from merope.files import require_folder
    from merope.generation.cases import PlannedClip, open_cases, run_spec
    from merope.generation.fingerprints import adapter_fingerprint, model_fingerprint
    from merope.generation.manifest import read_manifest
    from merope.generation.model_files import ModelConfigs
    from merope.generation.request import check_request
    from merope.generation.runs import Sampling, batches, pending

    configs = ModelConfigs.read(model, adapter=adapter)
    if configs.adapter is None and not allow_untrained:
        raise MeropeError(
            f"{model} has no camera adapter of its own, so the cameras would be ignored. Name one with --adapter, or say "
            "--allow-untrained to run the base model."
        )
    spec, notes = run_spec(configs, **size, trim=opening["trim"])
    cases = read_manifest(wanted) if isinstance(wanted, Path) else [wanted]

    def check(clip: PlannedClip, given: Any) -> None:
        check_request(
            configs,
            poses=clip.poses,
            lens=clip.lens,
            prefix=given,
            up_world=clip.up_world,
            height=clip.spec.height,
            width=clip.spec.width,
            num_frames=clip.spec.num_frames,
            allow_untrained=allow_untrained,
        )

    clips = open_cases(
        cases,
        spec,
        source=str(wanted) if isinstance(wanted, Path) else "the command line",
        unit=configs.pose_unit,
        check=check,
        progress=len(cases) > 10,
        **opening,
    )
    chosen = Sampling(
        model=model_fingerprint(model), adapter=adapter_fingerprint(configs.adapter_file), **sampling
    )
    missing = pending(clips, out, chosen, overwrite=overwrite)
    work = batches(missing, batch)
    if missing and not dry_run:
        require_folder(out)
        note_asked(out, [clip.clip_id for clip in clips])
    return _Plan(work=work, num_there=len(clips) - len(missing), sampling=chosen, notes=notes)


def _place(device: str | None, local_rank: int, offload: Offload) -> str:
    """The device of this process: under torchrun each has a GPU of its own.

    Raises:
        ValueError: if there is no such device, or weights are to be offloaded and there is none.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        chosen = torch.device(device or ("cuda" if count else "cpu"))
    except RuntimeError:
        raise ValueError(
            f"--device {device} is no device; say cpu, cuda or, for one of several GPUs, cuda:1."
        ) from None
    place = f"cuda:{local_rank}" if str(chosen) == "cuda" else str(chosen)
    if chosen.type == "cuda" and int(place.partition(":")[2]) >= count:
        raise ValueError(
            f"--device {place}: this machine shows {count} GPUs. Use --device cpu, or as many processes as there are GPUs."
        )
    if offload != "none" and not place.startswith("cuda"):
        raise ValueError(
            f"--offload {offload} moves weights between a GPU and the CPU; the device is {place}."
        )
    return place


def _backend(share: str, device: str | None) -> str:
    """How processes talk: GPUs that share a clip exchange keys and values, all others words alone."""
    import torch

    on_gpus = torch.cuda.is_available() and not (device or "cuda").startswith("cpu")
    return "cpu:gloo,cuda:nccl" if share == "clip" and on_gpus else "gloo"


def _precision(dtype: Dtype, place: str) -> str:
    if dtype != "auto":
        return dtype
    return "bf16" if place.startswith("cuda") else "fp32"


def _load(
    model: str,
    adapter: str | None,
    precision: str,
    place: str,
    *,
    offload: Offload,
    tiling: bool,
    progress: bool,
) -> tuple[Any, dict[str, Any]]:
    """The pipeline on its device, and what every clip's result says of it."""
    import torch
    from diffusers.utils.logging import disable_progress_bar

    from merope.generation.pipeline import MeropePipeline

    if not progress:
        disable_progress_bar()
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
    pipeline: Any = MeropePipeline.from_pretrained(model, adapter=adapter, dtype=kind)
    if tiling:
        pipeline.vae.enable_tiling()
    device = torch.device(place)
    if offload == "none":
        pipeline.to(device)
    elif offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    else:
        # One block at a time, the next one on its way meanwhile.
        pipeline.enable_group_offload(
            device, offload_type="block_level", num_blocks_per_group=1, use_stream=True
        )
    scheduler = {
        name: value for name, value in dict(pipeline.scheduler.config).items() if not name.startswith("_")
    }
    about = {
        "model": model,
        "adapter": adapter,
        "adapter_summary": dict(pipeline.summary),
        "scheduler": {"class": type(pipeline.scheduler).__name__, **scheduler},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "offload": offload,
    }
    return pipeline, about


def _summary(outcomes: "Sequence[tuple[list[str], list[Failure]]]", *, num_there: int, out: Path) -> int:
    """Print what came of it; the exit code."""
    made = [clip for done, _ in outcomes for clip in done]
    failures = [failure for _, failed in outcomes for failure in failed]
    there = f", {num_there} were there" if num_there else ""
    print(f"{len(made)} clips made{there}, in {out}")
    if not failures:
        return 0
    print(f"{len(failures)} clips failed; the same command tries them again:", file=sys.stderr)
    for failure in failures:
        print(f"  {failure.clip_id}: {failure.message}", file=sys.stderr)
        if os.environ.get("MEROPE_TRACEBACK", "0") not in ("", "0"):
            print(failure.trace, file=sys.stderr)
    return 1
