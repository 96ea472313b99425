"""Operations of a Wan transformer, counted from its configuration: what time a run takes at a given share of a GPU's peak.

Matrix products alone, two operations per multiplication and addition. Of N tokens of width D, S words, F channels of the
feed-forward layer, per block: self-attention 8 N D^2 for its four projections and 4 N^2 D for logits and values;
cross-attention 4 N D^2 + 4 S D^2 and 4 N S D; feed-forward 4 N D F. A branch of width W adds 8 N D W and 4 N^2 W.
Once per pass: patches, head, text, and the modulation, which is per token where timesteps are (14 N D^2 of Wan2.2 TI2V).
What encodings do beside is no matrix product: the transforms of keys and values per query camera are not in here.
"""

import math
from collections.abc import Mapping
from typing import Any

from merope.adapters.schedules import scheduled_blocks
from merope.adapters.spec import VideoSpec
from merope.encodings.base import CameraEncoding
from merope.encodings.registry import encoding_from_config
from merope.training.finetune_config import FinetuneConfig


def forward_flops(
    transformer: Mapping[str, Any],
    spec: VideoSpec,
    *,
    encoding: CameraEncoding | None = None,
    compression: int = 4,
    num_branches: int = 0,
    text_tokens: int = 512,
) -> int:
    """Operations of one forward pass of one clip (the module says how they are counted).

    ``num_branches`` is the number of blocks with a camera branch; encodings that work in the backbone's own attention
    have none that is counted.
    """
    dim = transformer["num_attention_heads"] * transformer["attention_head_dim"]
    ffn, layers = transformer["ffn_dim"], transformer["num_layers"]
    freq, text_dim = transformer.get("freq_dim", 256), transformer.get("text_dim", 4096)
    rows, cols = spec.token_grid
    tokens = spec.latent_frames * rows * cols
    block = (
        8 * tokens * dim**2
        + 4 * tokens**2 * dim
        + 4 * (tokens + text_tokens) * dim**2
        + 4 * tokens * text_tokens * dim
        + 4 * tokens * dim * ffn
    )
    patch = math.prod(transformer.get("patch_size", (1, 2, 2)))
    moments = tokens if spec.prefix_latents else 1
    ends = (
        2 * tokens * dim * patch * (transformer["in_channels"] + transformer["out_channels"])
        + 2 * text_tokens * (text_dim * dim + dim**2)
        + 2 * moments * (freq * dim + dim**2 + 6 * dim**2)
    )
    branch = 0
    if encoding is not None and encoding.facts.placement == "branch":
        width = dim // compression
        branch = 8 * tokens * dim * width + 4 * tokens**2 * width
    return layers * block + num_branches * branch + ends


def training_flops(transformer: Mapping[str, Any], config: FinetuneConfig, *, text_tokens: int = 512) -> int:
    """Operations of one clip in a training step.

    A backward pass takes twice its forward pass where weights train, once where gradients only pass through (from the
    first branch on), and checkpointing adds a forward pass of what the backward pass goes through.
    """
    encoding = encoding_from_config(config.encoding)
    layers = transformer["num_layers"]
    blocks = () if encoding.facts.placement == "none" else scheduled_blocks(config.schedule, layers)

    def forward(num_layers: int, num_branches: int) -> int:
        return forward_flops(
            {**transformer, "num_layers": num_layers},
            config.spec,
            encoding=encoding,
            compression=config.compression,
            num_branches=num_branches,
            text_tokens=text_tokens,
        )

    whole = forward(layers, len(blocks))
    if config.trains == "all":
        return (4 if config.gradient_checkpointing else 3) * whole
    # Gradients pass the blocks from the first branch on; their weights, but for the branches', want none.
    passed = forward(layers - blocks[0], len(blocks)) - forward(0, 0)
    trained = forward(0, len(blocks)) - forward(0, 0)
    if config.trains == "branch+attention":
        dim = transformer["num_attention_heads"] * transformer["attention_head_dim"]
        rows, cols = config.spec.token_grid
        trained += len(blocks) * 8 * config.spec.latent_frames * rows * cols * dim**2
    return whole + passed + trained + (passed if config.gradient_checkpointing else 0)
