"""Tiny real Wan transformers, and clips whose tokens are those of the standing scenes (3 views of 2 x 3)."""

from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

from merope.adapters import CameraAdapter, CameraSignals, attach
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.encodings.registry import default_encoding

CHANNELS, VIEWS, ROWS, COLS = 4, 3, 2, 3


def tiny_wan(seed: int = 0, **changes: Any) -> WanTransformer3DModel:
    """Four blocks, two heads of 64, patches of 2 x 2."""
    torch.manual_seed(seed)
    values = {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 2,
        "attention_head_dim": 64,
        "in_channels": CHANNELS,
        "out_channels": CHANNELS,
        "text_dim": 8,
        "freq_dim": 16,
        "ffn_dim": 64,
        "num_layers": 4,
        "cross_attn_norm": True,
        "rope_max_seq_len": 16,
        **changes,
    }
    return WanTransformer3DModel(**values).eval()


def inputs(*, per_token: bool = True, dtype: torch.dtype = torch.float32, seed: int = 1) -> dict[str, Any]:
    """Latents, times and text of two clips; the first view is clean where times are per token."""
    draw = torch.Generator().manual_seed(seed)
    tokens = VIEWS * ROWS * COLS
    times = torch.tensor([700.0, 30.0])
    if per_token:
        times = times[:, None].expand(2, tokens).clone()
        times[:, : ROWS * COLS] = 0
    return {
        "hidden_states": torch.randn(2, CHANNELS, VIEWS, 2 * ROWS, 2 * COLS, generator=draw).to(dtype),
        "timestep": times,
        "encoder_hidden_states": torch.randn(2, 5, 8, generator=draw).to(dtype),
        "return_dict": False,
    }


def with_branches(model: WanTransformer3DModel, **options: Any) -> CameraAdapter:
    """Zero branches of one MeRoPE head on the odd blocks."""
    return attach(model, **{"encoding": MeRoPE(head_dim=64), "compression": 2, **options})


def attached(model: WanTransformer3DModel, name: str, **options: Any) -> CameraAdapter:
    """An encoding by its name in every block: one head of 64, beside two of the backbone."""
    encoding = default_encoding(name, head_dim=64, num_heads=1)
    return attach(model, **{"encoding": encoding, "compression": 2, "schedule": "every", **options})


def stirred(adapter: CameraAdapter, seed: int = 2) -> CameraAdapter:
    """The same adapter with every parameter away from its start."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return adapter


def awake(adapter: CameraAdapter, seed: int = 2) -> CameraAdapter:
    """The same adapter with output projections that are not zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for branch in adapter.branches.values():
            branch.to_out.weight.copy_(0.2 * torch.randn(branch.to_out.weight.shape, generator=draw))
    return adapter


def run(adapter: CameraAdapter, view: ViewRays | CameraSignals | None = None, **options: Any) -> Tensor:
    """What the transformer says of a drive."""
    with adapter.cameras(random_drive() if view is None else view):
        return adapter.transformer(**inputs(**options))[0]
