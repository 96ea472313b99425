"""What sampling takes: text encoder, denoising, autoencoder, with everything on the device or moved there when needed.

Weights are counted on the meta device, what runs is run on shapes (`merope.training.shape_run`). Guidance costs time and no
memory: the pipeline runs prompt and negative prompt one after the other.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from merope.adapters.schedules import scheduled_blocks
from merope.adapters.spec import VideoSpec
from merope.training.finetune_config import FinetuneConfig
from merope.training.memory import MemoryItem, MemoryPlan, WeightCounts, count_weights, shape_run
from merope.training.shape_run import BlockKind, on_shapes

Offload = Literal["none", "model", "sequential", "group"]
SAMPLING_PHASES = ("prompt", "given", "denoising", "decoding")
"""Prompts are embedded, given frames encoded, latents denoised, and decoded."""
# Pixels of a tile's side, and latent frames after which decoding needs no more but for the frames themselves.
_TILE, _SETTLED = 256, 3


def plan_sampling(
    model: Mapping[str, Any],
    config: FinetuneConfig,
    *,
    offload: Offload = "none",
    tiled: bool = False,
    text_encoder: bool = True,
    vae_dtype: torch.dtype = torch.float32,
) -> MemoryPlan:
    """What making one clip of ``config`` takes, with transformer and text encoder in bfloat16.

    ``model`` has the configurations "transformer", "vae" and "text_encoder" and "text_tokens"
    (`merope.recipes.published`). ``offload`` "model" keeps on the device what its phase needs; "group" of the transformer
    and the text encoder one block and the next; "sequential" one layer's weights at a time. ``tiled`` decodes tile by tile;
    ``text_encoder`` False takes embedded prompts.

    Raises:
        ValueError: if ``offload`` is unknown.
    """
    if offload not in get_args(Offload):
        raise ValueError(f"offload must be one of {', '.join(get_args(Offload))}; got {offload!r}.")
    half = torch.bfloat16.itemsize
    base = model["transformer"]
    counts = count_weights(base, replace(config, trains="all"))
    text = model["text_encoder"]
    words = model["text_tokens"]
    run = shape_run(base, replace(config, trains="all"), sharded=True, text_tokens=words)
    cameras = (
        ()
        if run.encoding.facts.placement == "none"
        else scheduled_blocks(config.schedule, base["num_layers"])
    )
    kinds: list[BlockKind] = ["camera" if cameras else "plain"]
    vae = _parameters_of_vae(model["vae"]) * vae_dtype.itemsize
    items = []
    if text_encoder:
        items += [
            _weights(
                "text encoder",
                text_parameters(text) * half,
                offload,
                "prompt",
                _text_parts(text, offload) * half,
                f"{text_parameters(text) / 1e6:,.0f} M x 2 B",
            ),
            MemoryItem(
                name="text encoder's work",
                bytes=text_work(text, words),
                phases=("prompt",),
                derived=f"attention scores twice in float32 and three feed-forward layers, {words} words",
            ),
        ]
    items += [
        _weights(
            "transformer with cameras",
            counts.trained * half,
            offload,
            "denoising",
            _transformer_parts(counts, offload, base) * half,
            f"{counts.trained / 1e6:,.0f} M x 2 B",
        ),
        MemoryItem(
            name="transformer's work",
            bytes=run.forward(kinds),
            phases=("denoising",),
            derived="one forward pass of one block and the ends, on shapes",
        ),
        _weights(
            "autoencoder",
            vae,
            "model" if offload == "group" else offload,
            "given",
            _largest_layer(model["vae"]) * vae_dtype.itemsize,
            f"{vae / vae_dtype.itemsize / 1e6:,.0f} M x {vae_dtype.itemsize} B",
            also="decoding",
        ),
    ]
    if config.spec.prefix_frames:
        items.append(
            MemoryItem(
                name="encoding",
                bytes=vae_work(model["vae"], config.spec, "encode", dtype=vae_dtype),
                phases=("given",),
                derived=f"{config.spec.prefix_frames} frames, on shapes",
            )
        )
    items.append(
        MemoryItem(
            name="decoding",
            bytes=vae_work(model["vae"], config.spec, "tiles" if tiled else "decode", dtype=vae_dtype),
            phases=("decoding",),
            derived=f"{config.spec.num_frames} frames, on shapes"
            + (f", in tiles of {_TILE}" if tiled else ""),
        )
    )
    spec = config.spec
    return MemoryPlan(
        title=f"{config.name}: sampling one clip of {spec.num_frames} frames of {spec.height} x {spec.width}, "
        f"offload {offload}{', tiled' if tiled else ''}{'' if text_encoder else ', prompts embedded before'}",
        phases=SAMPLING_PHASES,
        items=tuple(items),
    )


def _weights(
    name: str, whole: int, offload: Offload, phase: str, part: int, derived: str, *, also: str = ""
) -> MemoryItem:
    """A component's weights: always there, in its phases alone, or a part of them in its phases."""
    phases = tuple(p for p in (phase, also) if p)
    if offload == "none":
        return MemoryItem(name=name, bytes=whole, phases=SAMPLING_PHASES, derived=derived)
    if offload == "model":
        return MemoryItem(name=name, bytes=whole, phases=phases, derived=f"{derived}, moved in for its phase")
    what = "the largest layer" if offload == "sequential" else "two blocks and all outside of blocks"
    return MemoryItem(name=name, bytes=part, phases=phases, derived=f"{what} of {derived}")


def text_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a UMT5 encoder: embeddings, and per layer attention, gated feed-forward, two norms, relative bias."""
    return (
        config["vocab_size"] * config["d_model"]
        + config["num_layers"] * _text_layer(config)
        + config["d_model"]
    )


def _text_layer(config: Mapping[str, Any]) -> int:
    width, inner = config["d_model"], config["num_heads"] * config["d_kv"]
    bias = config["relative_attention_num_buckets"] * config["num_heads"]
    return 4 * width * inner + 3 * width * config["d_ff"] + 2 * width + bias


def text_work(config: Mapping[str, Any], words: int) -> int:
    """Bytes while a layer of the text encoder runs on one prompt: scores and bias in float32, the gated feed-forward."""
    return 2 * 4 * config["num_heads"] * words**2 + 3 * 2 * words * config["d_ff"]


def _text_parts(config: Mapping[str, Any], offload: Offload) -> int:
    embeddings = config["vocab_size"] * config["d_model"]
    # The embeddings are one layer, and the largest.
    return embeddings if offload == "sequential" else embeddings + 2 * _text_layer(config)


def _transformer_parts(counts: WeightCounts, offload: Offload, base: Mapping[str, Any]) -> int:
    if offload == "sequential":
        dim = base["num_attention_heads"] * base["attention_head_dim"]
        return max(dim * base["ffn_dim"], 6 * dim**2)
    return 2 * (counts.block_products[0] + counts.block_rest[0]) + counts.ends


def _vae_on_meta(vae: Mapping[str, Any]) -> Any:
    from diffusers import AutoencoderKLWan

    with torch.device("meta"):
        # Any: diffusers' classes are untyped.
        model: Any = AutoencoderKLWan(**vae)
    return model


def _parameters_of_vae(vae: Mapping[str, Any]) -> int:
    return sum(parameter.numel() for parameter in _vae_on_meta(vae).parameters())


def _largest_layer(vae: Mapping[str, Any]) -> int:
    return max(parameter.numel() for parameter in _vae_on_meta(vae).parameters())


def vae_work(
    vae: Mapping[str, Any],
    spec: VideoSpec,
    what: Literal["encode", "decode", "tiles"],
    *,
    dtype: torch.dtype,
) -> int:
    """Peak bytes of encoding the given frames or decoding the clip, on shapes.

    The autoencoder goes through time latent frame by latent frame, so beyond the third only the frames themselves are
    added. In tiles: one tile's decoding, the frames of all tiles, and those put together, three times the clip.
    """
    channels, frames, rows, cols = spec.latent_shape
    clip = 3 * spec.num_frames * spec.height * spec.width * dtype.itemsize
    if what == "encode":
        shape = (1, 3, min(spec.prefix_frames, 1 + spec.temporal_stride), spec.height, spec.width)
    else:
        side = _TILE // spec.spatial_stride
        if what == "tiles":
            rows, cols = min(rows, side), min(cols, side)
        shape = (1, channels, min(frames, _SETTLED), rows, cols)
    model = _vae_on_meta(vae)
    with on_shapes(model, lambda name, parameter: dtype) as followed, torch.no_grad():
        made = torch.empty(shape, dtype=dtype)
        model.encode(made) if what == "encode" else model.decode(made)
    if what == "encode":
        return followed.peak + 3 * spec.prefix_frames * spec.height * spec.width * dtype.itemsize
    if what == "tiles":
        return followed.peak + 3 * clip
    further = max(0, frames - _SETTLED) * spec.temporal_stride
    return followed.peak + 3 * further * spec.height * spec.width * dtype.itemsize
