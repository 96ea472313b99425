"""Which base model an adapter was trained beside: its configuration, its name, and a fingerprint of its weights."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from diffusers import ModelMixin
from torch import Tensor, nn

SHAPES = ("num_layers", "num_attention_heads", "attention_head_dim")
"""What decides the shapes of an adapter's own weights: no base that differs here can take it."""

_FIELDS = (
    *SHAPES,
    "patch_size",
    "in_channels",
    "out_channels",
    "text_dim",
    "freq_dim",
    "ffn_dim",
    "cross_attn_norm",
    "qk_norm",
    "image_dim",
    "added_kv_proj_dim",
)

# A few small tensors from every block: training that reaches attention or the whole base moves some of them, a branch
# or low-rank additions move none.
_SAMPLED = re.compile(
    r"(blocks\.\d+\.)?"
    r"(scale_shift_table|patch_embedding\.bias|proj_out\.bias|attn1\.norm_[qk]\.weight|attn1\.to_out\.0\.bias|ffn\.net\.2\.bias)"
)

# What low-rank adapters, compiled and checkpointed modules put into the names of the weights within.
_PUT_IN = re.compile(r"\b(base_layer|_orig_mod|_checkpoint_wrapped_module)\.")


def base_identity(transformer: nn.Module, weights: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """Class, name, the configuration that matters and `weights_fingerprint`, as JSON values.

    ``weights`` is a state dict that stands in for the transformer's own where that is sharded or offloaded. The name is
    where it was loaded from, for people to read; nothing is compared with it.
    """
    # Compiled, or held by another library as a whole, the model is inside.
    model = next((part for part in transformer.modules() if isinstance(part, ModelMixin)), transformer)
    kinds = [kind for kind in type(model).__mro__ if kind.__module__.startswith("diffusers.")]
    # Any: torch types every attribute of a module as a tensor or a module.
    config: Any = model.config
    fields = {name: getattr(config, name, None) for name in _FIELDS}
    return json.loads(
        json.dumps(
            {
                "class": (kinds or [type(model)])[0].__name__,
                "name": _readable(str(getattr(config, "_name_or_path", None) or "")),
                **fields,
                "fingerprint": weights_fingerprint(model.state_dict() if weights is None else weights),
            }
        )
    )


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str | None:
    """A hash that is the same for the float32 and the bfloat16 copy of one checkpoint, with or without an adapter.

    Biases, norms and modulations are rounded to bfloat16, as the bfloat16 copy was once. None where they cannot be
    read as they are: without memory, offloaded, sharded, under other names, or in a format of fewer digits or another
    rounding.
    """
    digest = hashlib.sha256()
    found = False
    for name, value in sorted((_plain_name(name), value) for name, value in weights.items()):
        if not _SAMPLED.fullmatch(name):
            continue
        found = True
        # Sharded and quantised weights are of types of their own.
        plain = type(value) in (Tensor, nn.Parameter)
        if not plain or value.device.type == "meta" or value.dtype not in (torch.float32, torch.bfloat16):
            return None
        rounded = value.detach().to("cpu", torch.bfloat16).contiguous()
        digest.update(f"{name} {list(rounded.shape)} ".encode())
        digest.update(rounded.flatten().view(torch.uint8).numpy().tobytes())
    return f"sha256:{digest.hexdigest()}" if found else None


def base_differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The fields of a configuration in which two bases differ, as text; name and fingerprint aside.

    Fields that one of them does not have, as in files of older versions, are not compared.
    """
    compared = [name for name in wanted if name in found and name not in ("name", "fingerprint")]
    return [
        f"{name} = {wanted[name]}; this one has {found[name]}"
        for name in compared
        if wanted[name] != found[name]
    ]


def _plain_name(name: str) -> str:
    """A weight's name without what other libraries put in between."""
    return _PUT_IN.sub("", name)


def _readable(said: str) -> str | None:
    """A hub name, also of a file in the hub's cache; of a folder its own name, for paths are their owner's affair."""
    if not said:
        return None
    parts = Path(said).parts
    for part in parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    if len(parts) == 2 and not Path(said).is_absolute():
        return said
    named = [part for part in parts if part != "transformer"] or list(parts)
    return named[-1]
