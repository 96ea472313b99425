"""Sizes of the block that is measured, and the drive whose cameras it attends between."""

from dataclasses import dataclass, replace

from merope.cameras import Pinhole, TokenGrid, ViewRays
from merope.worlds.drives import drive

# Wan codes four frames as one; at 10 frames a second that leaves 2.5.
LATENT_FPS = 2.5
_PIXELS_PER_TOKEN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Tokens, heads and widths of one block."""

    name: str
    frames: int
    rows: int
    cols: int
    heads: int
    head_dim: int
    batch: int = 1
    compression: int = 4
    """How much wider the backbone is than the branch (C)."""

    @property
    def tokens_per_frame(self) -> int:
        return self.rows * self.cols

    @property
    def tokens(self) -> int:
        return self.frames * self.rows * self.cols

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def backbone_width(self) -> int:
        return self.compression * self.width

    def __str__(self) -> str:
        return (
            f"{self.frames} x {self.rows} x {self.cols} = {self.tokens} tokens, "
            f"{self.heads} x {self.head_dim} channels, backbone {self.backbone_width}"
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(name="paper", frames=13, rows=9, cols=16, heads=6, head_dim=128),
        Shape(name="large", frames=21, rows=30, cols=52, heads=6, head_dim=128),
        # PanShot's branch: Wan 2.1's 1536 channels, an eighth of them in one head.
        Shape(name="panshot", frames=13, rows=9, cols=16, heads=1, head_dim=192, compression=8),
        Shape(name="tiny", frames=2, rows=2, cols=3, heads=2, head_dim=64, batch=2),
    )
}

SWEEP_FRAMES = (5, 13, 21, 31, 61, 121)
SWEEP_GRIDS = ((5, 8), (9, 16), (13, 24), (18, 32), (30, 52))
# More tokens than these are swept forward only.
BACKWARD_TOKENS = 5000


def frame_sweep(shape: Shape) -> list[Shape]:
    """The shape with 5 to 121 latent frames; two and three for the tiny one."""
    frames = (2, 3) if shape.name == "tiny" else SWEEP_FRAMES
    return [replace(shape, name=f"{shape.name}, {count} frames", frames=count) for count in frames]


def token_sweep(shape: Shape) -> list[Shape]:
    """The shape with 40 to 1560 tokens a frame; four and six for the tiny one."""
    grids = ((2, 2), (2, 3)) if shape.name == "tiny" else SWEEP_GRIDS
    return [replace(shape, name=f"{shape.name}, {r} x {c}", rows=r, cols=c) for r, c in grids]


def view_rays(shape: Shape) -> ViewRays:
    """A car's camera on a curve, 90 degrees wide; each clip of a batch is another drive."""
    import torch

    grid = (shape.rows, shape.cols)
    camera = Pinhole.from_fov(
        fov_x_deg=90, height=_PIXELS_PER_TOKEN * shape.rows, width=_PIXELS_PER_TOKEN * shape.cols
    )
    dirs_cam, _ = TokenGrid(*grid).token_rays(camera)
    T_world_cam = torch.stack(
        [
            drive("curve", seed=seed, num_frames=shape.frames, fps=LATENT_FPS).T_world_cam
            for seed in range(shape.batch)
        ]
    )
    return ViewRays.from_poses(
        T_world_cam, dirs_cam.expand(shape.batch, shape.frames, -1, -1), grid=grid, camera=camera
    )
