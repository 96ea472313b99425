"""Cameras inside the backbone's own self-attention: injected features (additive encodings) and carved channels."""

from collections.abc import Callable
from typing import Any

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.transformers.transformer_wan import WanAttnProcessor
from torch import Tensor

from merope.adapters.branch import Recorder
from merope.adapters.injections import Injection
from merope.adapters.signals import CameraSignals
from merope.attention import camera_attention


class Carving(Injection):
    """No parameters: the block's attention itself runs under the camera operator (ReRoPE, Table 5)."""

    @property
    def is_zero(self) -> bool:
        """Never: carved channels change what attention sees at once."""
        return False


class CameraAttnProcessor(WanAttnProcessor):
    """Wan's self-attention with cameras in it; the same operations in the same order where nothing is injected.

    It stands in for diffusers' own processor alone: of another library's it would keep nothing.

    Raises:
        ValueError: if it would replace another one.
    """

    def __init__(
        self,
        replaced: Any,
        injection: Injection,
        signals_of: Callable[[Any], CameraSignals],
        recorder: Callable[[], Recorder | None],
    ) -> None:
        super().__init__()
        if type(replaced).__call__ is not WanAttnProcessor.__call__:
            raise ValueError(
                f"this encoding works inside the block's self-attention, which runs under {type(replaced).__name__}; its "
                "work would be lost. Put diffusers' own back (attn1.set_processor(WanAttnProcessor())), or use an "
                "encoding with a branch."
            )
        self.replaced = replaced
        self.injection = injection
        self.signals_of = signals_of
        self.recorder = recorder
        self._attention_backend = getattr(replaced, "_attention_backend", None)
        self._parallel_config = getattr(replaced, "_parallel_config", None)

    def restored(self) -> Any:
        """The processor that was replaced, with what diffusers has set on this one since."""
        self.replaced._attention_backend = self._attention_backend
        self.replaced._parallel_config = self._parallel_config
        return self.replaced

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: Any = None,
    ) -> Tensor:
        """The block's attention output, before its gate."""
        signals = self.signals_of(rotary_emb)
        for_query, for_key, for_value = self.injection("inputs", hidden_states, signals.features)
        query = attn.norm_q(_project(attn, "to_q", 0, for_query)).unflatten(2, (attn.heads, -1))
        key = attn.norm_k(_project(attn, "to_k", 1, for_key)).unflatten(2, (attn.heads, -1))
        value = _project(attn, "to_v", 2, for_value).unflatten(2, (attn.heads, -1))  # [B, N, H, d]
        record, part = self.recorder(), signals.part
        if isinstance(self.injection, Carving):
            if signals.operator is None:
                raise ValueError("the cameras hold no operator; make them with CameraAdapter.signals.")
            if part is not None:
                key, value = part.gather_keys_and_values(key, value, axis=1)
            turned = [x.transpose(1, 2) for x in (query, key, value)]
            if record is not None:
                record(turned[0], turned[1], signals.operator)
            out = camera_attention(turned[0], turned[1], turned[2], signals.operator).transpose(1, 2)
        else:
            query, key = (_rotate(x, *rotary_emb) for x in (query, key))
            query, key = self.injection("turned", query, key, signals.features)
            if part is not None:
                key, value = part.gather_keys_and_values(key, value, axis=1)
            if record is not None:
                record(query.transpose(1, 2), key.transpose(1, 2), None)
            out = dispatch_attention_fn(
                query,
                key,
                value,
                attn_mask=attention_mask,
                dropout_p=0.0,
                is_causal=False,
                backend=self._attention_backend,
                parallel_config=self._parallel_config,
            )
        out = out.flatten(2, 3).type_as(query)
        for layer in attn.to_out:
            out = layer(out)
        return self.injection("output", out)


def _project(attn: Any, name: str, third: int, hidden: Tensor) -> Tensor:
    """One of the three projections, also where they are fused into one matrix."""
    if attn.fused_projections:
        return attn.to_qkv(hidden).chunk(3, dim=-1)[third]
    return getattr(attn, name)(hidden)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Wan's rotary embedding: interleaved pairs, cosines and sines repeated twice."""
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[..., 0::2], sin[..., 1::2]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2).type_as(x)
