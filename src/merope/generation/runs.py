"""A run over many clips: what is still to make, in which batches, and the making, one folder per finished clip."""

import platform
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import merope
from merope.adapters.clip_sharding import share_clip
from merope.data.clips.generated import read_result, write_generated
from merope.data.clips.video import Frames
from merope.errors import MeropeError
from merope.generation.cases import PlannedClip

# Clips of another setting that are named in the message; the others are counted.
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """All that decides a clip's frames beside the case itself: equal inputs under equal sampling are the same clip."""

    model: str
    """Fingerprint of the pipeline (`model_fingerprint`)."""
    adapter: str | None
    """Fingerprint of the adapter; None without one."""
    dtype: str
    """Precision of the transformer."""
    steps: int = 50
    """Denoising steps."""
    guidance: float = 5.0
    """Scale of text guidance; 1 is none."""
    flow_shift: float | None = None
    """Time shift of the scheduler; None for its own."""
    tiling: bool = False
    """Whether frames are encoded and decoded in tiles."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--steps must be 1 or more; got {self.steps}.")
        # Written so that NaN fails too.
        if not 0 <= self.guidance < inf or not (self.flow_shift is None or 0 < self.flow_shift < inf):
            raise ValueError(
                f"--guidance must be 0 or more and --flow-shift above 0, both finite; got {self.guidance} and "
                f"{self.flow_shift}."
            )

    def settings(self, clip: PlannedClip) -> dict[str, Any]:
        """What is stored beside a clip, and compared before it is left as it is."""
        return {**clip.inputs(), **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A clip that could not be made."""

    clip_id: str
    message: str
    trace: str
    """Where it came from."""


def pending(
    clips: Sequence[PlannedClip], out: Path, sampling: Sampling, *, overwrite: bool = False
) -> list[PlannedClip]:
    """The clips that are not there yet; those that are complete and of the same settings are left as they are.

    Raises:
        MeropeError: if a clip is there that was made with other settings, unless ``overwrite``, which makes it anew; the
            message names clips and settings. Also if something else has a clip's name.
    """
    missing, others = [], []
    for clip in clips:
        found = read_result(out / clip.clip_id)
        if found is None:
            missing.append(clip)
            continue
        differences = _differences(found.get("settings", {}), sampling.settings(clip))
        if differences:
            missing.append(clip)
            others.append(f"{clip.clip_id} was made with {'; '.join(differences)}")
    if others and not overwrite:
        lines = others[:_MOST_NAMED]
        if len(others) > len(lines):
            lines.append(f"and {len(others) - len(lines)} more clips")
        raise MeropeError(
            "\n  ".join(
                [
                    f"{out} holds clips of other settings; --overwrite makes them anew, another --out keeps both",
                    *lines,
                ]
            )
        )
    return missing


def _differences(stored: Any, wanted: Any, name: str = "") -> list[str]:
    """Settings that differ, as text: "steps 4, not 8"."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in sorted(stored.keys() | wanted.keys())
            for difference in _differences(stored.get(key), wanted.get(key), f"{name}.{key}" if name else key)
        ]
    # As JSON keeps it.
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if stored == wanted:
        return []
    # Hashes say nothing to a reader.
    if any(isinstance(value, str) and len(value) >= 40 for value in (stored, wanted)):
        return [f"another {name.removesuffix('_sha256')}"]
    return [f"{name} {stored!r}, not {wanted!r}"]


def batches(clips: Sequence[PlannedClip], size: int) -> list[list[PlannedClip]]:
    """Clips in their order, ``size`` at a time; those in one batch agree in size, frames and what is given.

    Raises:
        ValueError: if ``size`` is below 1.
    """
    if size < 1:
        raise ValueError(f"--batch must be 1 or more; got {size}.")
    alike: dict[Any, list[PlannedClip]] = {}
    for clip in clips:
        spec = clip.spec
        key = (spec.num_frames, spec.height, spec.width, clip.prefix is None, clip.negative_prompt is None)
        alike.setdefault(key, []).append(clip)
    return [group[first : first + size] for group in alike.values() for first in range(0, len(group), size)]


def make_clips(
    pipeline: Any,
    work: Sequence[Sequence[PlannedClip]],
    out: Path,
    sampling: Sampling,
    *,
    about: dict[str, Any],
    allow_untrained: bool = False,
    together: bool = False,
    writes: bool = True,
    progress: bool = True,
) -> tuple[list[str], list[Failure]]:
    """Make every batch and write its clips; the ids of those that were made, and those that failed.

    ``pipeline`` is a `MeropePipeline`. A clip that fails does not stop the others; a batch that fails is tried again clip
    by clip, so that only those fail that have to, such as too many at once for a GPU's memory. Folders appear whole: a
    run that is interrupted leaves finished clips alone. ``about`` is stored in every ``result.json`` (names of model and
    adapter, scheduler, device).

    ``together``: all processes of the run make each clip together (`share_clip`), given the same ``work``; the one that
    ``writes`` writes it and answers for all, the others have nothing to tell.
    """
    made: list[str] = []
    failures: list[Failure] = []

    def attempt(batch: Sequence[PlannedClip]) -> None:
        began = time.monotonic()
        try:
            # An error in one of the processes is then one in all, and they stay in step.
            with share_clip(pipeline.transformer) if together else nullcontext():
                output = _call(pipeline, batch, sampling, allow_untrained)
        except Exception as error:
            if len(batch) > 1:
                for clip in batch:
                    attempt([clip])
                return
            if writes:
                failures.append(_failure(batch[0], error))
            bar.update()
            return
        if not writes:
            return
        timing = {
            "seconds_per_clip": round((time.monotonic() - began) / len(batch), 3),
            "clips_at_once": len(batch),
        }
        jumps = output.prefix_color_jump or [None] * len(batch)
        for clip, frames, jump in zip(batch, output.frames, jumps, strict=True):
            told = {"prefix_color_jump": jump, "noise_levels": output.sigmas, "timing": timing, **about}
            try:
                _write(out, clip, frames, sampling, told)
            except Exception as error:
                failures.append(_failure(clip, error))
            else:
                made.append(clip.clip_id)
            bar.update()

    total = sum(len(batch) for batch in work)
    with tqdm(total=total, desc="generating", unit="clip", disable=not progress) as bar:
        for batch in work:
            attempt(batch)
    return made, failures


def _failure(clip: PlannedClip, error: Exception) -> Failure:
    message = str(error) or type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        message = f"{message.splitlines()[0]} Try --offload model, --tiling, --dtype bf16 or fewer --batch."
    elif not isinstance(error, MeropeError | ValueError | OSError):
        message = f"{type(error).__name__}: {message}"
    return Failure(clip_id=clip.clip_id, message=message, trace="".join(traceback.format_exception(error)))


def _call(pipeline: Any, clips: Sequence[PlannedClip], sampling: Sampling, allow_untrained: bool) -> Any:
    """The pipeline's output for clips that agree in size, frames and what is given."""
    spec = clips[0].spec
    given = [clip.given_frames() for clip in clips]
    negative = [clip.negative_prompt for clip in clips]
    ups = [clip.up_world for clip in clips]
    return pipeline(
        [clip.prompt for clip in clips],
        negative_prompt=None if None in negative else negative,
        poses=[clip.poses for clip in clips],
        lens=[clip.lens for clip in clips],
        prefix=None if given[0] is None else given,
        # Where it is needed, no clip was planned without it.
        up_world=None if None in ups else ups,
        height=spec.height,
        width=spec.width,
        num_frames=spec.num_frames,
        num_inference_steps=sampling.steps,
        guidance_scale=sampling.guidance,
        flow_shift=sampling.flow_shift,
        seeds=[clip.seed for clip in clips],
        output_type="uint8",
        allow_untrained=allow_untrained,
    )


def _write(out: Path, clip: PlannedClip, frames: Frames, sampling: Sampling, told: dict[str, Any]) -> None:
    write_generated(
        out / clip.clip_id,
        frames,
        commanded=clip.poses,
        lens=clip.lens,
        fps=clip.spec.fps,
        prefix_frames=clip.spec.prefix_frames,
        result={
            "case": clip.case,
            "trajectory": clip.trajectory,
            "prompt": clip.prompt,
            "negative_prompt": clip.negative_prompt,
            "seed": clip.seed,
            "up_world": clip.up_world,
            "notes": list(clip.notes),
            **told,
            "versions": versions(),
            "settings": sampling.settings(clip),
        },
    )


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    return {
        "merope": merope.__version__,
        **{name: version(name) for name in ("torch", "diffusers", "transformers", "numpy")},
        "python": platform.python_version(),
    }
