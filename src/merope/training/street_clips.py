"""Posed street clips on disk: rendered once, in any number of processes, resumable, equal bytes for equal seeds."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.errors import CheckpointMismatch
from merope.files import write_text_atomically
from merope.geometry.poses import Poses
from merope.worlds import build_world, render
from merope.worlds.clips import world_drives

CLIPS_PER_WORLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StreetClipsConfig:
    """What a folder of street clips holds.

    Each world gives three clips that share their first frames: a random drive, and its left and its right
    variant with a seeded curvature.
    """

    num_worlds: int
    """Worlds to render; clips are three times as many."""
    first_seed: int
    """Seed of the first world; the others follow."""
    num_frames: int
    """Frames per clip; more than the model's, so that windows can start at several frames."""
    turn_start: int
    """Last frame that a variant shares with its drive."""
    fps: float
    """Frames per second."""
    camera: dict[str, Any]
    """The lens, as `CameraModel.to_dict` gives it."""
    samples: int = 2
    """Rays per pixel and side."""


def world_paths(seed: int, config: StreetClipsConfig) -> list[Poses]:
    """The three paths of a world: the drive, then its left and its right variant."""
    drives = world_drives(seed, num_frames=config.num_frames, fps=config.fps, turn_start=config.turn_start)
    return [drive.poses for drive in drives]


def render_world(seed: int, config: StreetClipsConfig) -> tuple[np.ndarray, np.ndarray]:
    """Frames [3, T, H, W, 3] uint8 and camera-to-world matrices [3, T, 4, 4] of one world."""
    paths = world_paths(seed, config)
    world = build_world(seed, paths=paths)
    camera = CameraModel.from_dict(config.camera)
    frames = np.stack([render(world, camera, path, samples=config.samples).rgb for path in paths])
    return frames, torch.stack([path.T_world_cam for path in paths]).numpy()


def _render_into(index: int, folder: str, config: StreetClipsConfig) -> int:
    torch.set_num_threads(1)
    frames, poses = render_world(config.first_seed + index, config)
    rows = slice(index * CLIPS_PER_WORLD, (index + 1) * CLIPS_PER_WORLD)
    np.load(Path(folder) / "frames.npy", mmap_mode="r+")[rows] = frames
    np.load(Path(folder) / "poses.npy", mmap_mode="r+")[rows] = poses
    done = np.load(Path(folder) / "done.npy", mmap_mode="r+")
    done[index] = True
    done.flush()
    return index


def render_street_clips(
    folder: str | Path, config: StreetClipsConfig, *, workers: int = 1, progress: bool = True
) -> "StreetClips":
    """Render what is missing of a folder of street clips and open it.

    Worlds are independent and seeded, so the bytes do not depend on ``workers``, and an interrupted run
    goes on where it stopped.

    Raises:
        CheckpointMismatch: if the folder holds clips of another configuration.
    """
    folder = Path(folder)
    camera = CameraModel.from_dict(config.camera)
    described = folder / "config.json"
    if described.exists():
        found = json.loads(described.read_text())
        if found != json.loads(json.dumps(asdict(config))):
            raise CheckpointMismatch(
                f"{folder} holds clips of another configuration ({described}); choose another folder."
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        clips = config.num_worlds * CLIPS_PER_WORLD
        shape = (clips, config.num_frames, camera.height, camera.width, 3)
        for name, array_shape, dtype in (
            ("frames", shape, np.uint8),
            ("poses", (clips, config.num_frames, 4, 4), np.float64),
            ("done", (config.num_worlds,), np.bool_),
        ):
            np.lib.format.open_memmap(
                folder / f"{name}.npy", mode="w+", dtype=dtype, shape=array_shape
            ).flush()
        write_text_atomically(described, json.dumps(asdict(config), indent=1))
    missing = np.flatnonzero(~np.load(folder / "done.npy")).tolist()
    if missing:
        bar = tqdm(
            total=config.num_worlds,
            initial=config.num_worlds - len(missing),
            unit="world",
            disable=not progress,
        )
        with bar:
            if workers <= 1:
                for index in missing:
                    _render_into(index, str(folder), config)
                    bar.update()
            else:
                with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                    count = len(missing)
                    for _ in pool.map(
                        _render_into, missing, [str(folder)] * count, [config] * count, chunksize=4
                    ):
                        bar.update()
    return StreetClips(folder)


class StreetClips:
    """A rendered folder: clips by number, as frames and camera-to-world matrices.

    Raises:
        FileNotFoundError: if the folder holds no clips.
        CheckpointMismatch: if its rendering is not finished.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = StreetClipsConfig(**json.loads((self.folder / "config.json").read_text()))
        done = np.load(self.folder / "done.npy")
        if not done.all():
            raise CheckpointMismatch(
                f"{self.folder} holds {int(done.sum())} of {len(done)} worlds; render_street_clips goes on with the rest."
            )
        self._frames = np.load(self.folder / "frames.npy", mmap_mode="r")
        self._poses = np.load(self.folder / "poses.npy", mmap_mode="r")

    def __len__(self) -> int:
        return self._frames.shape[0]

    def sample_frames(self, count: int, num_frames: int) -> np.ndarray:
        """The first frames of about ``count`` clips spread evenly, [clip, T, H, W, 3] uint8."""
        chosen = np.linspace(0, len(self) - 1, min(count, len(self))).round().astype(int)
        return np.stack([self._frames[clip, :num_frames] for clip in chosen])

    def poses(self, clip: int) -> Poses:
        """The cameras of a whole clip, without reading its frames."""
        return Poses.from_matrices(torch.from_numpy(np.array(self._poses[clip])))

    def window(
        self, clip: int, *, start: int, num_frames: int, mirror: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Frames [T, H, W, 3] uint8 and T_world_cam [T, 4, 4] of part of a clip, first camera at the origin.

        ``mirror`` gives the world seen in a vertical mirror: columns reversed and the motion reflected. It
        needs a lens that is symmetric about its middle column.
        """
        stop = start + num_frames
        if not 0 <= clip < len(self) or start < 0 or num_frames < 1 or stop > self.config.num_frames:
            raise ValueError(
                f"clip must be below {len(self)} and the window lie in its {self.config.num_frames} frames; "
                f"got clip {clip}, frames {start} to {stop - 1}."
            )
        frames = torch.from_numpy(np.array(self._frames[clip, start:stop]))
        poses = Poses.from_matrices(
            torch.from_numpy(np.array(self._poses[clip, start:stop]))
        ).rebase_to_first()
        matrices = poses.T_world_cam
        if mirror:
            flip = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64))
            frames, matrices = frames.flip(2), flip @ matrices @ flip
        return frames, matrices
