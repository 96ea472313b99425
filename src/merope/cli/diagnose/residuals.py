"""``merope diagnose residuals``: Figure 7 for any model with a camera branch."""

import json as jsonlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from merope.cli.extras import require
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.evaluation.residuals import ResidualAmplitudes, ResidualPass
    from merope.geometry.poses import Poses

SHIPPED = "tiny-street"


def residuals(
    model: str = SHIPPED,
    /,
    *,
    adapter: str | None = None,
    manifest: Path | None = None,
    clips: int = 4,
    steps: int = 16,
    guidance: float = 5.0,
    height: int | None = None,
    width: int | None = None,
    num_frames: int | None = None,
    prefix_frames: int | None = None,
    dtype: Literal["auto", "bf16", "fp32"] = "auto",
    device: str | None = None,
    seed: int = 0,
    out: Path = Path("out/residuals"),
    json: bool = False,
) -> None:
    """How much each block's camera branch adds to its self-attention while videos are sampled (Figure 7).

    The norm of the branch's output relative to that of the self-attention it is added to, before the gate: the mean over
    sampling steps, clips and both passes of guidance, its share of the sum over blocks, and the same at every noise level.
    By default built-in drives through rendered streets; a manifest brings cases of its own. Writes residuals.json, and
    residuals and residuals-by-noise as PNG and SVG.

    Args:
        model: tiny-street (the shipped model), the folder of a trained small model, or a folder or hub name of a Wan
            pipeline, such as Wan-AI/Wan2.2-TI2V-5B-Diffusers.
        adapter: Camera adapter of a pipeline: a file, a folder or a hub name; by default the pipeline's own.
        manifest: File of cases for a pipeline, as `merope generate` takes it.
        clips: Built-in drives, one world each.
        steps: Denoising steps.
        guidance: Scale of a pipeline's text guidance; 1 is none.
        height: Rows of a pipeline's frames; by default what the adapter was trained for, as with the next three.
        width: Columns of a frame.
        num_frames: Frames per clip, given ones included.
        prefix_frames: How many frames are given; 0 for none.
        dtype: Precision of a pipeline's transformer; auto is bf16 on a GPU and fp32 on a CPU.
        device: Where a pipeline computes; by default a GPU if there is one.
        seed: Of worlds, drives and noise.
        out: Folder for the numbers and the plots.
        json: Print one JSON object instead of a table.
    """
    require("matplotlib", purpose="the plot of residuals")
    if clips < 1 or steps < 1:
        raise UsageError(f"--clips and --steps must be at least 1; got {clips} and {steps}.")
    if seed < 0:
        raise UsageError(f"--seed must be >= 0; got {seed}.")
    from merope.cli import street
    from merope.evaluation.residuals import plot_residuals, residual_amplitudes
    from merope.files import require_folder, write_text_atomically

    small = street.WEIGHTS / "merope" if model == SHIPPED else Path(model)
    is_small = model == SHIPPED or ((small / "config.json").exists() and not _is_pipeline(small))
    sizes: dict[str, Any] = {
        "height": height,
        "width": width,
        "num_frames": num_frames,
        "prefix_frames": prefix_frames,
    }
    if is_small:
        given = {"adapter": adapter, "manifest": manifest, "device": device, **sizes}
        if said := [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]:
            raise UsageError(
                f"{', '.join(said)}: for a Wan pipeline; {model} has its adapter, its size and its drives of its own."
            )
    require_folder(out)
    if is_small:
        encoding, num_blocks, passes = _of_small_model(small, clips=clips, steps=steps, seed=seed)
    else:
        encoding, num_blocks, passes = _of_pipeline(
            model,
            adapter=adapter,
            manifest=manifest,
            clips=clips,
            steps=steps,
            guidance=guidance,
            sizes=sizes,
            dtype=dtype,
            device=device,
            seed=seed,
        )
    result = residual_amplitudes(passes, num_blocks=num_blocks)
    content: dict[str, Any] = {
        "model": model,
        "adapter": adapter,
        "manifest": None if manifest is None else str(manifest),
        "encoding": encoding,
        "steps": steps,
        "seed": seed,
        **result.to_dict(),
    }
    written = jsonlib.dumps(content, indent=1)
    write_text_atomically(out / "residuals.json", written)
    drawn = plot_residuals(out, result, title=f"{encoding['name']}, {model}, {steps} sampling steps")
    if json:
        print(written)
        return
    print(table(result))
    print(f"\nwritten to {out}: residuals.json, {', '.join(path.name for path in drawn)}")


def table(result: "ResidualAmplitudes") -> str:
    """Relative norm by block, and its share of the sum over blocks."""
    lines = [f"{'block':>5}  {'|branch| / |self-attention|':>27}  {'share':>7}"]
    for block, relative, share in zip(result.blocks, result.relative, result.share, strict=True):
        lines.append(f"{block:>5}  {relative:>27.4f}  {100 * share:>5.1f} %")
    names = " and ".join(str(block) for block in sorted(result.largest))
    lines.append(
        f"\nmean over {result.num_passes} passes at {len(result.noise_levels)} noise levels; blocks {names} hold "
        f"{100 * result.largest_share:.0f} % of the sum"
    )
    return "\n".join(lines)


def _is_pipeline(folder: Path) -> bool:
    return (folder / "model_index.json").exists()


Measured = tuple[dict[str, Any], int, "list[ResidualPass]"]
"""The encoding's config, the number of blocks, and the passes."""


def _of_small_model(folder: Path, *, clips: int, steps: int, seed: int) -> Measured:
    from tqdm import tqdm

    from merope.cli import street
    from merope.encodings.registry import encoding_to_config
    from merope.evaluation.residuals import recording_passes, require_residual
    from merope.generation import load_video_model

    street.quiet_autocast()
    model = load_video_model(folder)
    require_residual(model.adapter)
    made = []
    for world, poses in tqdm(_drives(model.spec, clips=clips, seed=seed), "rendering", unit="clip"):
        made += street.render_commands("curve", {"original": poses}, model.spec, seed=world)
    with recording_passes(model.adapter) as passes:
        # One at a time: norms of a batch would be one norm.
        for clip in tqdm(made, "sampling", unit="clip"):
            street.generate_clips(model, [clip], steps=steps, progress=False)
    # Through the adapter, which has the transformer as what it is.
    num_blocks = len(model.adapter.transformer.blocks)
    return encoding_to_config(model.adapter.encoding), num_blocks, passes


def _drives(spec: Any, *, clips: int, seed: int) -> "list[tuple[int, Poses]]":
    """Seeds of worlds that nothing was trained on, and a curve through each."""
    from merope.worlds.drives import drive
    from merope.worlds.seeds import HELD_OUT_SEED

    worlds = range(HELD_OUT_SEED + seed, HELD_OUT_SEED + seed + clips)
    return [(world, drive("curve", seed=world, num_frames=spec.num_frames, fps=spec.fps)) for world in worlds]


def _of_pipeline(
    model: str,
    *,
    adapter: str | None,
    manifest: Path | None,
    clips: int,
    steps: int,
    guidance: float,
    sizes: dict[str, Any],
    dtype: str,
    device: str | None,
    seed: int,
) -> Measured:
    require("transformers", purpose="the prompts of a Wan pipeline")
    import torch
    from tqdm import tqdm

    from merope.encodings.registry import encoding_to_config
    from merope.errors import MeropeError
    from merope.evaluation.residuals import recording_passes, require_residual
    from merope.generation.cases import run_spec
    from merope.generation.model_files import ModelConfigs
    from merope.generation.pipeline import MeropePipeline
    from merope.generation.request import check_request

    configs = ModelConfigs.read(model, adapter=adapter)
    spec, _ = run_spec(configs, **sizes)
    asked: list[dict[str, Any]] = list(_calls(configs, spec, manifest=manifest, clips=clips, seed=seed))
    for call in asked:
        names = ("poses", "lens", "prefix", "up_world")
        check_request(configs, **{name: call[name] for name in names}, **_size_of(spec, call))
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = dtype == "bf16" or (dtype == "auto" and place.startswith("cuda"))
    pipe = MeropePipeline.from_pretrained(
        model, adapter=adapter, dtype=torch.bfloat16 if half else torch.float32
    ).to(place)
    if pipe.adapter is None:
        raise MeropeError(f"{model} has no camera adapter: name one with --adapter.")
    require_residual(pipe.adapter)
    pipe.set_progress_bar_config(desc="denoising", unit="step", leave=False, position=1)
    with recording_passes(pipe.adapter) as passes:
        for call in tqdm(asked, "sampling", unit="clip"):
            pipe(
                **call,
                **_size_of(spec, call),
                num_inference_steps=steps,
                guidance_scale=guidance,
                output_type="latent",
            )
    return encoding_to_config(pipe.adapter.encoding), len(pipe.transformer.blocks), passes


def _size_of(spec: Any, call: dict[str, Any]) -> dict[str, Any]:
    return {"height": spec.height, "width": spec.width, "num_frames": len(call["poses"])}


def _calls(
    configs: Any, spec: Any, *, manifest: Path | None, clips: int, seed: int
) -> Iterator[dict[str, Any]]:
    """What the pipeline is called with, clip by clip."""
    from tqdm import tqdm

    from merope.adapters.command import spec_lens
    from merope.cameras import CameraModel, Pinhole
    from merope.generation.cases import open_cases
    from merope.generation.manifest import read_manifest
    from merope.worlds import build_world, render

    if manifest is not None:
        opened = open_cases(
            read_manifest(manifest), spec, source=str(manifest), seed=seed, unit=configs.pose_unit
        )
        for clip in opened:
            yield {
                "prompt": clip.prompt,
                "negative_prompt": clip.negative_prompt,
                "poses": clip.poses,
                "lens": clip.lens,
                "prefix": clip.given_frames(),
                "up_world": clip.up_world,
                "seeds": clip.seed,
            }
        return
    if configs.pose_unit != "m":
        raise UsageError(
            f"the adapter was trained on poses in {configs.pose_unit!r} and the built-in drives are in metres: name a "
            "--manifest."
        )
    lens: CameraModel
    if spec.camera is None:
        lens = Pinhole.from_fov(fov_x_deg=90, height=spec.height, width=spec.width)
    else:
        lens = spec_lens(spec)
    for world, poses in tqdm(_drives(spec, clips=clips, seed=seed), "rendering", unit="clip"):
        given = None
        if spec.prefix_frames:
            given = render(build_world(world, paths=[poses]), lens, poses[: spec.prefix_frames]).rgb
        yield {
            "prompt": "",
            "poses": poses,
            "lens": lens,
            "prefix": given,
            # The streets' ground is z = 0.
            "up_world": (0.0, 0.0, 1.0),
            "seeds": world,
        }
