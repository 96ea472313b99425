"""The small network that reads a car camera's motion off rendered street clips, step by step, in metres.

Letters: B clips, T frames, S = T - 1 steps between neighbouring frames.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from merope.geometry.rotations import rotvec_to_matrix

# Scale of the outputs: a typical step's rotation (rad) and translation (m).
_STEP_SCALE = (0.02, 0.02, 0.02, 0.2, 0.2, 0.5)
# Shifts that neighbouring frames are compared at, in cells of the half and of the quarter size.
_HALF_RADIUS, _QUARTER_RADIUS = 2, 3


class MotionNetwork(nn.Module):
    """Frames to the motion of the camera between neighbouring frames.

    A shared encoder describes each frame at a half and a quarter of its size; local correlations of
    neighbouring frames at both sizes, the frames' own features, and convolutions over time give six
    numbers per step: the rotation vector and the translation of the next camera in the current one.
    Metres come from the height of the camera above the road and the frame rate, both fixed by the training
    data.
    """

    def __init__(self, *, height: int, width: int, channels: int = 32, hidden: int = 192) -> None:
        super().__init__()
        half_window, quarter_window = (2 * _HALF_RADIUS + 1) ** 2, (2 * _QUARTER_RADIUS + 1) ** 2
        self.height, self.width = height, width
        self.encode_half = nn.Sequential(
            nn.Conv2d(5, channels, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        self.encode_quarter = nn.Sequential(
            nn.GELU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1),
        )
        # Correlations of a few projected channels: the products over all shifts are most of the work.
        self.half_descriptor = nn.Conv2d(channels, 12, 1)
        self.quarter_descriptor = nn.Conv2d(2 * channels, 24, 1)
        self.half_match = nn.Sequential(
            nn.Conv2d(half_window + channels, 48, 3, stride=2, padding=1), nn.GELU()
        )
        self.quarter_match = nn.Sequential(
            nn.Conv2d(quarter_window + 2 * channels + 48, 96, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(96, 96, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(96, 32, 3, padding=1),
            nn.GELU(),
        )
        cells = -(-height // 8) * -(-width // 8)
        self.summary = nn.Linear(32 * cells, hidden)
        self.over_time = nn.ModuleList([nn.Conv1d(hidden, hidden, 3, padding=1) for _ in range(3)])
        self.head = nn.Linear(hidden, 6)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def forward(self, frames: Float[Tensor, "batch time 3 height width"]) -> Float[Tensor, "batch step 6"]:
        """Rotation vector (rad) and translation (m) of camera t + 1 in camera t; frames in [-1, 1]."""
        batch, time = frames.shape[:2]
        rows = torch.linspace(-1, 1, self.height, device=frames.device)
        cols = torch.linspace(-1, 1, self.width, device=frames.device)
        grid = torch.stack(torch.meshgrid(rows, cols, indexing="ij"))
        flat = torch.cat([frames.flatten(0, 1), grid.expand(batch * time, -1, -1, -1)], dim=1)
        half = self.encode_half(flat)
        quarter = self.encode_quarter(half)
        fine_shifts = _correlation(self.half_descriptor(half).unflatten(0, (batch, time)), _HALF_RADIUS)
        coarse_shifts = _correlation(
            self.quarter_descriptor(quarter).unflatten(0, (batch, time)), _QUARTER_RADIUS
        )
        half, quarter = (x.unflatten(0, (batch, time))[:, :-1].flatten(0, 1) for x in (half, quarter))
        fine = self.half_match(torch.cat([fine_shifts, half], dim=1))
        match = self.quarter_match(torch.cat([coarse_shifts, quarter, fine], dim=1))
        steps = self.summary(match.flatten(1)).unflatten(0, (batch, time - 1)).transpose(1, 2)  # [B, C, S]
        for layer in self.over_time:
            steps = steps + layer(gelu(steps))
        return self.head(gelu(steps).transpose(1, 2)).float() * steps.new_tensor(
            _STEP_SCALE, dtype=torch.float32
        )


def _correlation(features: Tensor, radius: int) -> Tensor:
    """Mean product of neighbouring frames' features at every shift, [B S, window, H, W]; [B, T, C, H, W] in."""
    first, second = features[:, :-1].flatten(0, 1), features[:, 1:].flatten(0, 1)
    height, width = first.shape[-2:]
    padded = pad(second, (radius,) * 4)
    side = range(2 * radius + 1)
    shifts = [(first * padded[..., r : r + height, c : c + width]).mean(1) for r in side for c in side]
    return torch.stack(shifts, dim=1)


def integrate_motion(
    steps: Float[Tensor, "batch step 6"],
) -> tuple[Float[Tensor, "batch time 3 3"], Float[Tensor, "batch time 3"]]:
    """Rotations and centres in the first camera's frame, from motion step by step."""
    turns = rotvec_to_matrix(steps[..., :3])
    rotation = torch.eye(3, dtype=steps.dtype, device=steps.device).expand(len(steps), 3, 3)
    center = steps.new_zeros(len(steps), 3)
    rotations, centers = [rotation], [center]
    for step in range(steps.shape[1]):
        center = center + (rotation @ steps[:, step, 3:, None]).squeeze(-1)
        rotation = rotation @ turns[:, step]
        rotations.append(rotation)
        centers.append(center)
    return torch.stack(rotations, dim=1), torch.stack(centers, dim=1)
