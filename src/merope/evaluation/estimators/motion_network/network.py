"""The small network that reads a car camera's motion off rendered street clips, step by step, in metres.

Letters: B clips, T frames, S = T - 1 steps between neighbouring frames, P = B S pairs of neighbours.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, gelu, pad

from merope.geometry.rotations import rotvec_to_matrix

# Scale of the outputs: a typical step's rotation (rad) and translation (m).
STEP_SCALE = (0.02, 0.02, 0.02, 0.2, 0.2, 0.5)
# Shifts, in pixels, at which neighbouring frames are compared.
_REACH_ROWS, _REACH_COLS = 4, 8
# Mean brightness difference, of a range of 2, that makes a shift e times less likely than a perfect one.
_TEMPERATURE = 0.02


class MotionNetwork(nn.Module):
    """Frames to the motion of the camera between neighbouring frames.

    Block matching comes first: for every cell of 4 x 4 pixels, how well the neighbouring frame agrees at each
    shift of up to 8 columns and 4 rows. It has nothing to learn, which is why a few hundred clips are
    enough. Convolutions over the cells and over time turn it into six numbers per step: the rotation
    vector and the translation of the next camera in the current one. Metres come from the height of the
    camera above the road and the frame rate, both fixed by the training data.
    """

    def __init__(self, *, height: int, width: int, channels: int = 96, hidden: int = 192) -> None:
        super().__init__()
        if height % 8 or width % 8:
            raise ValueError(f"height and width must be multiples of 8 pixels; got {height} x {width}.")
        self.height, self.width = height, width
        shifts = (2 * _REACH_ROWS + 1) * (2 * _REACH_COLS + 1)
        self.read = nn.Sequential(
            # Likelihood of each shift, its mean in both directions, the best difference, colour, place.
            nn.Conv2d(shifts + 3 + 3 + 2, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
            nn.GELU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
            nn.GroupNorm(8, channels),
            nn.GELU(),
            nn.Conv2d(channels, 32, 1),
            nn.GELU(),
        )
        self.summary = nn.Linear(32 * (height // 8) * (width // 8), hidden)
        self.over_time = nn.ModuleList([nn.Conv1d(hidden, hidden, 3, padding=1) for _ in range(3)])
        self.head = nn.Linear(hidden, 6)
        nn.init.zeros_(self.head.bias)

    def forward(self, frames: Float[Tensor, "batch time 3 height width"]) -> Float[Tensor, "batch step 6"]:
        """Rotation vector (rad) and translation (m) of camera t + 1 in camera t; frames in [-1, 1]."""
        batch = frames.shape[0]
        cells = self.read(_match(frames))  # [P, 32, H / 8, W / 8]
        steps = self.summary(cells.flatten(1)).unflatten(0, (batch, -1)).transpose(1, 2)  # [B, C, S]
        for layer in self.over_time:
            steps = steps + layer(gelu(steps))
        out = self.head(gelu(steps).transpose(1, 2)).float()
        return out * torch.tensor(STEP_SCALE, device=out.device)


@torch.no_grad()
def _match(frames: Tensor) -> Tensor:
    """What block matching says of each pair, [P, channels, H / 4, W / 4]; frames [B, T, 3, H, W]."""
    batch, time, _, height, width = frames.shape
    luma = frames.mean(2).flatten(0, 1)[:, None]
    # Brightness changes and shading go with the local mean.
    padded = pad(luma, (4, 4, 4, 4), mode="replicate")
    detail = (luma - avg_pool2d(padded, 9, stride=1)).unflatten(0, (batch, time))
    first, second = detail[:, :-1].flatten(0, 1), detail[:, 1:].flatten(0, 1)
    reach = (_REACH_COLS, _REACH_COLS, _REACH_ROWS, _REACH_ROWS)
    second = pad(second, reach, mode="replicate")
    costs, places = [], []
    for row in range(2 * _REACH_ROWS + 1):
        for col in range(2 * _REACH_COLS + 1):
            gap = (first - second[..., row : row + height, col : col + width]).abs()
            costs.append(avg_pool2d(gap, 8, stride=4, padding=2, count_include_pad=False))
            places.append((row - _REACH_ROWS, col - _REACH_COLS))
    cost = torch.cat(costs, dim=1)  # [P, shifts, H / 4, W / 4]
    best = cost.amin(1, keepdim=True)
    likely = ((best - cost) / _TEMPERATURE).softmax(1)
    shifts = torch.tensor(places, dtype=likely.dtype, device=likely.device).T  # [2, shifts]
    mean_shift = torch.einsum("ks,pshw->pkhw", shifts, likely)
    color = avg_pool2d(frames[:, :-1].flatten(0, 1), 4)
    rows = torch.linspace(-1, 1, height // 4, device=frames.device)
    cols = torch.linspace(-1, 1, width // 4, device=frames.device)
    place = torch.stack(torch.meshgrid(rows, cols, indexing="ij")).expand(len(cost), -1, -1, -1)
    return torch.cat([likely, mean_shift / 4, best * 10, color, place], dim=1)


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
