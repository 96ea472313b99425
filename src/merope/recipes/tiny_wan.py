"""`make_tiny_wan`: a Wan pipeline of the real classes, small enough for a laptop, in diffusers' own folder layout."""

from pathlib import Path
from typing import Any, Literal

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel

from merope.errors import MissingDependency
from merope.files import atomic_folder

_WORDS = (
    "a car drives along street straight ahead and turns left right at the crossing in rain sun fog night day city "
    "road house tree lane camera moves forward slowly fast view of blurry dark"
)


def make_tiny_wan(
    folder: str | Path, *, version: Literal["2.1", "2.2"] = "2.2", seed: int = 0, **transformer: Any
) -> Path:
    """Write a pipeline with random weights: what Wan2.2-TI2V-5B or Wan2.1-T2V-1.3B are, a few hundred kilobytes small.

    Classes, folder layout, strides, timesteps (one per token for 2.2) and the scheduler are those of the published
    checkpoints; widths are not. It makes noise for videos. It is for tests and for trying commands out before they run
    on the real model, whose name then stands in the place of this folder. ``transformer`` changes the transformer's
    configuration. Needs the ``text`` extra.

    Raises:
        ValueError: if ``version`` is unknown.
        FileExistsError: if the folder is there already and not empty.
        MissingDependency: if transformers is not installed.
    """
    if version not in ("2.1", "2.2"):
        raise ValueError(f"version must be '2.1' or '2.2'; got {version!r}.")
    try:
        from transformers import UMT5Config, UMT5EncoderModel
    except ModuleNotFoundError as error:
        raise MissingDependency.for_extra(
            "transformers", extra="text", purpose="the text encoder of a tiny Wan pipeline"
        ) from error

    folder = Path(folder)
    tokenizer = _tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae: Any = AutoencoderKLWan(**_autoencoder(version))
        with torch.no_grad():
            # A trained posterior is narrow; that of random weights would drown the latents.
            vae.quant_conv.bias[vae.config.z_dim :] -= 10
        text_encoder: Any = UMT5EncoderModel(
            UMT5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        ).eval()
        model: Any = WanTransformer3DModel(**{**_transformer(version), **transformer})
    # Any: diffusers' classes are untyped.
    pipeline: Any = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=text_encoder,
        vae=vae,
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction",
            use_flow_sigmas=True,
            flow_shift=5.0 if version == "2.2" else 3.0,
        ),
        transformer=model,
        expand_timesteps=version == "2.2",
    )
    with atomic_folder(folder) as temporary:
        pipeline.save_pretrained(temporary)
    return folder


def _transformer(version: str) -> dict[str, Any]:
    channels = 48 if version == "2.2" else 16
    return {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 4,
        "attention_head_dim": 64,
        "in_channels": channels,
        "out_channels": channels,
        "text_dim": 32,
        "freq_dim": 32,
        "ffn_dim": 256,
        "num_layers": 4,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 64,
    }


def _autoencoder(version: str) -> dict[str, Any]:
    channels = 48 if version == "2.2" else 16
    small: dict[str, Any] = {
        "base_dim": 3,
        "z_dim": channels,
        "dim_mult": [1, 1, 1, 1],
        "num_res_blocks": 1,
        "temperal_downsample": [False, True, True],
        # Near those of its latents, so that normalised ones have a deviation near 1 as Wan's have; and not 0 and 1, so
        # that a normalisation that is left out or undone twice shows.
        "latents_mean": [0.004 * (channel - channels / 2) for channel in range(channels)],
        "latents_std": [0.12 + 0.001 * channel for channel in range(channels)],
    }
    if version == "2.1":
        return small
    return {
        **small,
        "decoder_base_dim": 3,
        "is_residual": True,
        "in_channels": 12,
        "out_channels": 12,
        "patch_size": 2,
        "scale_factor_spatial": 16,
    }


def _tokenizer() -> Any:
    """A real T5 tokenizer over a vocabulary of a few words and all letters."""
    from transformers import T5Tokenizer

    letters = [chr(code) for code in range(33, 127)]
    words = ["\u2581" + word for word in dict.fromkeys(_WORDS.split())]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(word, -2.0) for word in words] + [("\u2581", -3.0)] + [(letter, -6.0) for letter in letters]
    return T5Tokenizer(vocab=pieces, extra_ids=0)
