"""Train the motion network on rendered clips: augmented as generated frames may look, never on generated frames."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, smooth_l1_loss
from tqdm import tqdm

from merope.data.caches.latents import LatentCodec, video_from_frames
from merope.errors import CheckpointMismatch
from merope.evaluation.estimators.motion_network.network import STEP_SCALE, MotionNetwork, integrate_motion
from merope.files import atomic_path, write_text_atomically
from merope.geometry.rotations import matrix_to_rotvec


class ClipWindows(Protocol):
    """Posed clips by number; `merope.training.street_clips.StreetClips` is one."""

    def __len__(self) -> int: ...

    def window(
        self, clip: int, *, start: int, num_frames: int, mirror: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Frames [T, H, W, 3] uint8 and camera-to-world matrices [T, 4, 4]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MotionTrainConfig:
    """All that decides a motion network's training."""

    steps: int = 1500
    batch_size: int = 8
    learning_rate: float = 2e-3
    num_frames: int = 25
    latest_start: int = 4
    """Windows start at frame 0 to this."""
    num_validation: int = 48
    """Clips at the end that are never trained on."""
    checkpoint_every: int = 250
    seed: int = 0


def train_motion_network(
    folder: str | Path,
    clips: ClipWindows,
    codec: LatentCodec,
    config: MotionTrainConfig,
    *,
    height: int,
    width: int,
    progress: bool = True,
) -> MotionNetwork:
    """Train, or go on training, in ``folder``; returns the network in evaluation mode.

    Raises:
        ValueError: if there are too few clips.
        CheckpointMismatch: if the folder holds a run of another configuration.
    """
    if len(clips) <= config.num_validation:
        raise ValueError(
            f"{len(clips)} clips leave none for training after {config.num_validation} for validation. Render more worlds."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    network = MotionNetwork(height=height, width=width)
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config.learning_rate, total_steps=config.steps + 1, pct_start=0.05
    )
    first, seconds = 0, 0.0
    state_path = folder / "state.pt"
    if state_path.exists():
        found = json.loads((folder / "config.json").read_text())
        if found != asdict(config):
            raise CheckpointMismatch(
                f"{folder} holds a run of another configuration: {found}. Choose another folder (--output), or delete it."
            )
        state = torch.load(state_path, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first, seconds = state["step"], state["seconds"]
    log_path = folder / "log.jsonl"
    lines = log_path.read_text().splitlines() if log_path.exists() else []
    # A run killed after its log entry and before its checkpoint writes the entry again.
    kept = [line for line in lines if json.loads(line)["step"] <= first]
    write_text_atomically(log_path, "".join(f"{line}\n" for line in kept))
    write_text_atomically(folder / "config.json", json.dumps(asdict(config), indent=1))
    clock = time.monotonic()
    for step in tqdm(
        range(first, config.steps), initial=first, total=config.steps, unit="step", disable=not progress
    ):
        frames, matrices = _batch(clips, codec, config, step)
        with torch.autocast("cpu", torch.bfloat16):
            steps = network(frames)
        loss = motion_loss(steps, matrices)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        done = step + 1
        if done % config.checkpoint_every == 0 or done == config.steps:
            seconds += time.monotonic() - clock
            clock = time.monotonic()
            entry = {
                "step": done,
                "loss": loss.item(),
                "seconds": seconds,
                **validate(network, clips, config),
            }
            with log_path.open("a") as log:
                log.write(json.dumps(entry) + "\n")
            state = {
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "step": done,
                "seconds": seconds,
            }
            with atomic_path(state_path) as temporary:
                torch.save(state, temporary)
    return network.eval()


@torch.no_grad()
def validate(network: MotionNetwork, clips: ClipWindows, config: MotionTrainConfig) -> dict[str, float]:
    """Errors at the last frame of clips that are never trained on: degrees, metres, and metres per metre."""
    network.eval()
    turns, gaps, lengths = [], [], []
    for first in range(len(clips) - config.num_validation, len(clips), config.batch_size):
        chosen = range(first, min(first + config.batch_size, len(clips)))
        pieces = [clips.window(clip, start=2, num_frames=config.num_frames) for clip in chosen]
        video = video_from_frames(torch.stack([frames for frames, _ in pieces])).transpose(1, 2)
        rotations, centers = integrate_motion(network(video).double())
        truth = torch.stack([matrices for _, matrices in pieces])
        turns.append(matrix_to_rotvec(rotations[:, -1].mT @ truth[:, -1, :3, :3]).norm(dim=-1).rad2deg())
        gaps.append((centers[:, -1] - truth[:, -1, :3, 3]).norm(dim=-1))
        lengths.append(truth[:, :, :3, 3].diff(dim=1).norm(dim=-1).sum(-1))
    network.train()
    turn, gap, length = torch.cat(turns), torch.cat(gaps), torch.cat(lengths)
    return {
        "end_rotation_deg": float(turn.mean()),
        "end_distance_m": float(gap.mean()),
        "end_distance_share": float(gap.sum() / length.sum()),
    }


def motion_loss(steps: Tensor, matrices: Tensor) -> Tensor:
    """Error of the steps in their own scale, and a little of the integrated path's.

    The path alone trains badly, since an early turn moves everything after it; it is there to punish bias.
    """
    relative = torch.linalg.solve(matrices[:, :-1], matrices[:, 1:])
    target = torch.cat([matrix_to_rotvec(relative[..., :3, :3]), relative[..., :3, 3]], dim=-1).float()
    errors = (steps - target) / torch.tensor(STEP_SCALE)
    step_error = smooth_l1_loss(errors, torch.zeros_like(errors), beta=0.1)
    rotations, centers = integrate_motion(steps)
    truth = matrices.float()
    turn_error = (rotations - truth[..., :3, :3]).abs().mean() / 0.05
    length = truth[:, :, :3, 3].diff(dim=1).norm(dim=-1).sum(-1)[:, None, None]
    path_error = ((centers - truth[..., :3, 3]).abs() / (0.05 * length + 0.2)).mean()
    return step_error + 0.02 * (turn_error + path_error)


def _batch(
    clips: ClipWindows, codec: LatentCodec, config: MotionTrainConfig, step: int
) -> tuple[Tensor, Tensor]:
    available = len(clips) - config.num_validation
    rng = np.random.default_rng([config.seed, step, 3])
    pieces = [
        clips.window(
            int(rng.integers(available)),
            start=int(rng.integers(config.latest_start + 1)),
            num_frames=config.num_frames,
            mirror=bool(rng.integers(2)),
        )
        for _ in range(config.batch_size)
    ]
    video = video_from_frames(torch.stack([frames for frames, _ in pieces]))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    return degrade(video, codec, generator).transpose(1, 2), torch.stack([matrices for _, matrices in pieces])


def degrade(video: Tensor, codec: LatentCodec, generator: torch.Generator) -> Tensor:
    """Clips as a codec and an imperfect generator would show them: coded, blurred, noisy, of another exposure.

    A fifth of the clips stay as they are. ``video`` is [batch, 3, time, height, width] in [-1, 1].
    """
    batch = len(video)

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(batch, 1, 1, 1, 1, generator=generator)

    latents = codec.encode(video)
    # Faint components go first, as they do where a generator is unsure.
    index = torch.arange(codec.channels)[None, :, None, None, None] / codec.channels
    kept = torch.sigmoid((draw(0.1, 1.6) - index) * 12)
    latents = latents * kept
    latents = latents + draw(0.0, 0.3).square() * 3 * torch.randn(latents.shape, generator=generator)
    coded = codec.decode(latents)
    small = avg_pool2d(coded.transpose(1, 2).flatten(0, 1), 2)
    soft = interpolate(small, scale_factor=2.0, mode="bilinear").unflatten(0, (batch, -1)).transpose(1, 2)
    mixed = torch.lerp(coded, soft, draw(-0.5, 1.0).clamp_min(0))
    mixed = mixed * draw(0.8, 1.2) + draw(-0.1, 0.1)
    mixed = mixed + draw(-0.02, 0.04).clamp_min(0) * torch.randn(mixed.shape, generator=generator)
    untouched = draw(0.0, 1.0) < 0.2
    return torch.where(untouched, video, mixed.clamp(-1, 1))
