"""What a clip amounts to, in a few numbers that show a wrong unit, missing frames or a still camera at a glance."""

from dataclasses import asdict
from typing import Any

import torch

from merope.data.clips.clip import Clip
from merope.data.clips.frame_timing import GAP, stretches
from merope.data.poses.findings import STEP_METRES


def clip_report(clip: Clip) -> dict[str, Any]:
    """Frames, rate, size, unit, extent of the path and steps in time, as JSON values; nothing is decoded.

    ``notes`` are sentences about what is unlikely to be meant.
    """
    centers, steps, timing = clip.poses.center_world, clip.poses.step_lengths, clip.timing
    median_step = float(steps.median()) if len(steps) else 0.0
    notes = []
    if clip.unit == "m" and len(steps) and not STEP_METRES[0] <= median_step <= STEP_METRES[1]:
        notes.append(
            f"its camera moves {median_step:.3g} m from frame to frame (median): it stands still, or the unit is not metres"
        )
    if timing is not None and timing.dt_max > GAP / clip.fps:
        gaps = len(stretches(clip.times, fps=clip.fps)) - 1
        notes.append(
            f"frames are missing in {gaps} places: up to {timing.dt_max:.3f} s lie between two, at {clip.fps:g} a second"
        )
    return {
        "frames": len(clip),
        "fps": clip.fps,
        "height": clip.lens.height,
        "width": clip.lens.width,
        "lens": clip.lens.model,
        "unit": clip.unit,
        "path_length": clip.poses.path_length,
        "median_step": median_step,
        "largest_baseline": float(torch.linalg.vector_norm(centers - centers[0], dim=-1).max()),
        "dt_s": None if timing is None else asdict(timing),
        "has_caption": bool(clip.caption),
        "notes": notes,
    }
