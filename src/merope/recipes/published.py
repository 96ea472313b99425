"""Configurations of the published Wan models, for everything that needs their sizes and not their weights.

What their ``config.json`` files say, as diffusers' classes take it, but for the statistics of their latents, which
come with the files. A test builds them on the meta device and holds their counts.
"""

from types import MappingProxyType
from typing import Any

_BLOCKS: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "attention_head_dim": 128,
    "text_dim": 4096,
    "freq_dim": 256,
    "num_layers": 30,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "eps": 1e-6,
    "rope_max_seq_len": 1024,
}

UMT5_XXL: MappingProxyType[str, Any] = MappingProxyType(
    {
        "vocab_size": 256_384,
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10_240,
        "num_layers": 24,
        "num_heads": 64,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "gated-gelu",
    }
)
"""The text encoder of both, 5.7 billion parameters; prompts are padded to 512 tokens."""

WAN22_TI2V_5B: MappingProxyType[str, Any] = MappingProxyType(
    {
        "name": "Wan-AI/Wan2.2-TI2V-5B-Diffusers",
        "transformer": {
            **_BLOCKS,
            "num_attention_heads": 24,
            "ffn_dim": 14_336,
            "in_channels": 48,
            "out_channels": 48,
        },
        "vae": {
            "base_dim": 160,
            "decoder_base_dim": 256,
            "z_dim": 48,
            "dim_mult": [1, 2, 4, 4],
            "num_res_blocks": 2,
            "temperal_downsample": [False, True, True],
            "is_residual": True,
            "in_channels": 12,
            "out_channels": 12,
            "patch_size": 2,
            "scale_factor_temporal": 4,
            "scale_factor_spatial": 16,
        },
        "text_encoder": UMT5_XXL,
        "text_tokens": 512,
        "flow_shift": 5.0,
    }
)
"""Text and image to video, one timestep per token; the backbone of the driving models (B.1)."""

WAN21_T2V_1_3B: MappingProxyType[str, Any] = MappingProxyType(
    {
        "name": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
        "transformer": {
            **_BLOCKS,
            "num_attention_heads": 12,
            "ffn_dim": 8960,
            "in_channels": 16,
            "out_channels": 16,
        },
        "vae": {
            "base_dim": 96,
            "z_dim": 16,
            "dim_mult": [1, 2, 4, 4],
            "num_res_blocks": 2,
            "temperal_downsample": [False, True, True],
            "scale_factor_temporal": 4,
            "scale_factor_spatial": 8,
        },
        "text_encoder": UMT5_XXL,
        "text_tokens": 512,
        "flow_shift": 3.0,
    }
)
"""Text to video, one timestep per clip; the backbone of the PanShot models (Section 4.3)."""

PAPER_DRIVING_SIZES: MappingProxyType[str, int] = MappingProxyType(
    {"height": 288, "width": 512, "num_frames": 49, "prefix_frames": 9}
)
"""The driving models' clips (Section 4.1): 13 latent frames of 9 x 16 tokens, three of them given."""
