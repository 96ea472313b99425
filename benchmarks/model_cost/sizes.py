"""Sizes of the transformer that is measured, and how many operations its parts are."""

from dataclasses import dataclass
from typing import Any

from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.training.flops import forward_flops

from ..attention_cost.shapes import Shape

# A clip's rate; the built-in drive is timed by it.
FPS = 10.0
_PATCH = 2
_TIME_FREQUENCIES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A Wan transformer and the clip that it sees, batch 1."""

    name: str
    heads: int
    layers: int
    ffn: int
    head_dim: int = 128
    text_dim: int = 4096
    text_tokens: int = 512
    latent_channels: int = 48
    spatial_stride: int = 16
    given_frames: int = 9
    """Frames given clean; with some, timesteps are per token (Wan2.2 TI2V), with none per clip (Wan2.1)."""
    frames: int = 13
    """Latent frames."""
    rows: int = 9
    cols: int = 16
    compression: int = 4
    """How much wider the backbone is than the branch (C)."""

    def __post_init__(self) -> None:
        for name in ("heads", "layers", "ffn", "frames", "rows", "cols"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}.")
        if self.heads % self.compression:
            raise ValueError(
                f"heads must be a multiple of {self.compression}, so that the branch has whole heads; got {self.heads}."
            )
        if self.layers < 2:
            raise ValueError(
                f"layers must be >= 2, so that every second block has a branch; got {self.layers}."
            )

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def tokens(self) -> int:
        return self.frames * self.rows * self.cols

    @property
    def num_branches(self) -> int:
        """Blocks 1, 3, 5, ..."""
        return self.layers // 2

    @property
    def branch(self) -> Shape:
        """The branch as the benchmark of one block takes it."""
        return Shape(
            name=f"branch of {self.name}",
            frames=self.frames,
            rows=self.rows,
            cols=self.cols,
            heads=self.heads // self.compression,
            head_dim=self.head_dim,
            compression=self.compression,
        )

    def spec(self) -> VideoSpec:
        """The clip: 1 + 4 (frames - 1) frames through a pinhole 90 degrees wide."""
        cell = self.spatial_stride * _PATCH
        height, width = self.rows * cell, self.cols * cell
        num_frames = 1 + 4 * (self.frames - 1)
        return VideoSpec(
            height=height,
            width=width,
            num_frames=num_frames,
            # A clip too short for all of them has the first one given.
            prefix_frames=self.given_frames if self.given_frames < num_frames else 1,
            fps=FPS,
            camera=Pinhole.from_fov(fov_x_deg=90, height=height, width=width).to_dict(),
            spatial_stride=self.spatial_stride,
            patch=_PATCH,
            latent_channels=self.latent_channels,
            shift=5.0,
        )

    def transformer(self) -> dict[str, Any]:
        """Keyword arguments of diffusers' WanTransformer3DModel."""
        return {
            "patch_size": (1, _PATCH, _PATCH),
            "num_attention_heads": self.heads,
            "attention_head_dim": self.head_dim,
            "in_channels": self.latent_channels,
            "out_channels": self.latent_channels,
            "text_dim": self.text_dim,
            "freq_dim": _TIME_FREQUENCIES,
            "ffn_dim": self.ffn,
            "num_layers": self.layers,
            "cross_attn_norm": True,
            "qk_norm": "rms_norm_across_heads",
        }

    @property
    def backbone_flops(self) -> int:
        """Operations of one forward pass without branches; a multiplication and its addition are two."""
        return forward_flops(self.transformer(), self.spec(), text_tokens=self.text_tokens)

    @property
    def projection_flops(self) -> int:
        """Operations of a branch's four projections."""
        return 2 * self.tokens * 4 * self.width * self.branch.width

    @property
    def attention_flops(self) -> int:
        """Operations of a branch's two products of attention, whatever encoding turns its keys."""
        return 4 * self.tokens * self.tokens * self.branch.width

    def __str__(self) -> str:
        return (
            f"width {self.width} ({self.heads} heads x {self.head_dim}), {self.layers} layers, ffn {self.ffn}, "
            f"{self.num_branches} branches of width {self.branch.width}; {self.frames} x {self.rows} x {self.cols} = "
            f"{self.tokens} tokens, {self.text_tokens} words"
        )


SIZES = {
    size.name: size
    for size in (
        # Wan2.2-TI2V-5B and Wan2.1-T2V-1.3B.
        ModelSize(name="5b", heads=24, layers=30, ffn=14336),
        ModelSize(
            name="1.3b", heads=12, layers=30, ffn=8960, latent_channels=16, spatial_stride=8, given_frames=0
        ),
        # A sixth of the 5B model's width, everything in its proportion: ffn 14 / 3 x width, text 4 / 3 x width. A head of
        # 128 for the branch, which is a quarter as wide, takes four of them.
        ModelSize(name="small", heads=4, layers=4, ffn=2389, text_dim=683),
        ModelSize(
            name="tiny",
            heads=4,
            layers=2,
            ffn=64,
            head_dim=64,
            text_dim=8,
            text_tokens=3,
            frames=2,
            rows=2,
            cols=3,
        ),
    )
}
