"""Posed clips of procedural worlds with depth and captions, in the plain folder format: World Engine's role (paper, 4.1)."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args

import torch
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.data.clips.folder import write_clip
from merope.errors import CheckpointMismatch
from merope.files import write_text_atomically
from merope.worlds import build_world, render
from merope.worlds.clips import Variant, caption, world_drives

SOURCE = "rendered"
"""What ``source`` says of these clips."""

_DESCRIBED = "render.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedClipsConfig:
    """How clips are rendered; a folder holds clips of one configuration.

    Raises:
        ValueError: if a count or the rate is not positive, or the variants would share all frames.
    """

    lens: dict[str, Any]
    """The lens, as `CameraModel.to_dict` gives it."""
    num_frames: int
    """Frames per clip."""
    fps: float
    """Frames per second."""
    turn_start: int = 8
    """Last frame that the left and the right variant share with their drive."""
    samples: int = 2
    """Rays per pixel and side."""
    depth: bool = False
    """Whether depth maps are written too."""

    def __post_init__(self) -> None:
        if self.num_frames < 2 or not self.fps > 0 or self.samples < 1:
            raise ValueError(
                f"num_frames must be >= 2, fps > 0 and samples >= 1; got {self.num_frames}, {self.fps}, {self.samples}."
            )
        if not 0 <= self.turn_start < self.num_frames - 1:
            raise ValueError(
                f"turn_start must be between 0 and {self.num_frames - 2}, so that frames remain in which the variants turn; "
                f"got {self.turn_start}."
            )


def world_clip_ids(seed: int) -> list[str]:
    """Ids of the three clips of a world."""
    return [f"world-{seed:07d}-{variant}" for variant in get_args(Variant)]


def render_clips(
    root: str | Path,
    config: RenderedClipsConfig,
    *,
    count: int,
    first_seed: int = 0,
    workers: int = 1,
    progress: bool = True,
) -> int:
    """Render what is missing of the clips of ``count`` worlds, three each, and return how many were rendered.

    Worlds are independent and seeded, so bytes depend neither on ``workers`` nor on what is there already: an interrupted
    run goes on, a larger count adds to a folder, and machines share a data set by ranges of seeds.

    Raises:
        CheckpointMismatch: if the folder holds clips of another configuration.
        ValueError: if a count is not positive or the seed negative.
    """
    if count < 1 or workers < 1 or first_seed < 0:
        raise ValueError(
            f"count and workers must be positive and first_seed >= 0; got {count}, {workers}, {first_seed}."
        )
    root = Path(root)
    _settle(root, config)
    seeds = range(first_seed, first_seed + count)
    missing = [
        seed for seed in seeds if not all((root / clip_id).is_dir() for clip_id in world_clip_ids(seed))
    ]
    rendered = 0
    with tqdm(
        total=count, initial=count - len(missing), desc="render", unit="world", disable=not progress
    ) as bar:
        if workers == 1:
            for seed in missing:
                rendered += _render_world(seed, str(root), config)
                bar.update()
        elif missing:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                number = len(missing)
                for made in pool.map(_render_world, missing, [str(root)] * number, [config] * number):
                    rendered += made
                    bar.update()
    return rendered


def _settle(root: Path, config: RenderedClipsConfig) -> None:
    described = root / _DESCRIBED
    plain = json.loads(json.dumps(asdict(config)))
    if not described.exists():
        write_text_atomically(described, json.dumps(plain, indent=1) + "\n")
        return
    found = json.loads(described.read_text(encoding="utf-8"))
    different = [name for name in plain if found.get(name) != plain[name]]
    if different:
        raise CheckpointMismatch(
            f"{root} holds clips rendered with other values of {', '.join(different)} ({described}). Choose another folder."
        )


def _render_world(seed: int, root: str, config: RenderedClipsConfig) -> int:
    """Render the missing clips of one world; how many they were."""
    # Workers are processes; threads inside each would fight for the cores.
    torch.set_num_threads(1)
    lens = CameraModel.from_dict(config.lens)
    drives = world_drives(seed, num_frames=config.num_frames, fps=config.fps, turn_start=config.turn_start)
    world = build_world(seed, paths=[drive.poses for drive in drives])
    made = 0
    for clip_id, drive in zip(world_clip_ids(seed), drives, strict=True):
        if (Path(root) / clip_id).is_dir():
            continue
        seen = render(world, lens, drive.poses, samples=config.samples)
        write_clip(
            root,
            clip_id,
            seen.rgb,
            poses=drive.poses,
            lens=lens,
            fps=config.fps,
            source=SOURCE,
            caption=caption(world, drive.poses),
            cluster=drive.motion,
            up_world=(0.0, 0.0, 1.0),
            provenance={
                "generator": "merope.worlds",
                "world_seed": seed,
                "variant": drive.variant,
                "world": f"merope.worlds/{seed}",
            },
            depth=seen.depth if config.depth else None,
        )
        made += 1
    return made
