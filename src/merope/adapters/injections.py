"""What additive encodings learn: maps from a token's camera features into the backbone's own self-attention.

Maps of features run in the precision of their own weights, float32 as they are made, with autocast off: metres in
bfloat16 have three digits. What they add is cast to what it is added to. A new injection adds zeros, so a
block's output keeps every bit. Sharding with bfloat16 parameters would take that precision away: with FSDP2 give a
block's ``camera_branch`` a ``fully_shard`` of its own, without ``param_dtype``.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from merope.encodings.base import FeatureEncoding
from merope.encodings.cameractrl import CameraCtrl
from merope.encodings.recammaster import ReCamMaster
from merope.encodings.scope import SCoPE

Features = Float[Tensor, "batch token feature"] | None


class Injection(nn.Module):
    """Three places in a block's self-attention where camera features may enter; by default none does."""

    def forward(self, place: Literal["inputs", "turned", "output"], *args: Any) -> Any:
        """What happens at a place. Called like any module: offloading and sharding fetch its own weights then."""
        return getattr(self, place)(*args)

    def inputs(
        self, hidden: Float[Tensor, "batch token dim"], features: Features
    ) -> tuple[
        Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]
    ]:
        """What the q, k and v projections read."""
        return hidden, hidden, hidden

    def turned(
        self,
        query: Float[Tensor, "batch token head chan"],
        key: Float[Tensor, "batch token head chan"],
        features: Features,
    ) -> tuple[Float[Tensor, "batch token head chan"], Float[Tensor, "batch token head chan"]]:
        """Queries and keys after QK-norm and rotary embedding."""
        return query, key

    def output(self, out: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """The block's attention output, before its gate."""
        return out

    @property
    def is_zero(self) -> bool:
        """Whether it still changes nothing."""
        return True


class CameraCtrlInjection(Injection):
    """c = W f, without a bias: queries and keys are projected from h + c, values from h (Lyra 2.0).

    ``init`` "zero" changes nothing at first; "lyra" draws W with deviation ``dim ** -0.5``, cut at three of them.
    """

    def __init__(self, *, num_features: int, dim: int, init: Literal["zero", "lyra"] = "zero") -> None:
        super().__init__()
        self.camera_encoder = nn.Linear(num_features, dim, bias=False)
        if init == "zero":
            nn.init.zeros_(self.camera_encoder.weight)
        else:
            deviation = dim**-0.5
            nn.init.trunc_normal_(
                self.camera_encoder.weight, std=deviation, a=-3 * deviation, b=3 * deviation
            )

    def inputs(
        self, hidden: Float[Tensor, "batch token dim"], features: Features
    ) -> tuple[
        Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]
    ]:
        """h + c for q and k, h for v."""
        with_camera = hidden + _exact(self.camera_encoder, _given(features)).to(hidden.dtype)
        return with_camera, with_camera, hidden

    @property
    def is_zero(self) -> bool:
        """Whether W is still all zero."""
        return not _any(self.camera_encoder.weight)


class ReCamMasterInjection(Injection):
    """e = W f + b: q, k and v are projected from h + e, and the attention's output passes a square map.

    That map starts as the identity. It is held as its difference D from it: out + D(out) keeps every bit at first
    whatever the precision of a matrix product, and changes much smaller than one survive bfloat16.
    """

    def __init__(self, *, num_features: int, dim: int) -> None:
        super().__init__()
        self.camera_encoder = nn.Linear(num_features, dim)
        self.projector_change = nn.Linear(dim, dim)
        for layer in (self.camera_encoder, self.projector_change):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def inputs(
        self, hidden: Float[Tensor, "batch token dim"], features: Features
    ) -> tuple[
        Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]
    ]:
        """h + e for all three."""
        with_camera = hidden + _exact(self.camera_encoder, _given(features)).to(hidden.dtype)
        return with_camera, with_camera, with_camera

    def output(self, out: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """(I + D) out + b; under autocast in its precision, as the backbone's own projections."""
        if torch.is_autocast_enabled(out.device.type):
            change = self.projector_change(out)
        else:
            change = self.projector_change(out.to(self.projector_change.weight.dtype))
        return out + change.to(out.dtype)

    @property
    def is_zero(self) -> bool:
        """Whether both maps still do nothing."""
        return not _any(*self.parameters())


class ScopeInjection(Injection):
    """``a g(s) RMSNorm(E f)`` on queries and on keys, after their norm and rotary embedding.

    Queries read f = (d, m^, s), keys the flipped (m^, d, s). The gate g is one small network of s = log |m|
    for both, a half at s = 0. E starts at zero; RMSNorm's epsilon of 1e-6 makes the norm of zero zero, with a
    gradient a thousand times the plain one. The amounts a start at 1: with E zero as well they could not learn.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.query_encoder = nn.Linear(7, dim, bias=False)
        self.key_encoder = nn.Linear(7, dim, bias=False)
        self.query_norm = nn.RMSNorm(dim, eps=1e-6)
        self.key_norm = nn.RMSNorm(dim, eps=1e-6)
        hidden = max(dim // 4, 1)
        widen, spread = nn.Linear(1, hidden), nn.Linear(hidden, dim)
        self.gate = nn.Sequential(widen, nn.SiLU(), spread, nn.Sigmoid())
        # One entry rather than a scalar: sharding of parameters refuses tensors without axes.
        self.query_amount = nn.Parameter(torch.ones(1))
        self.key_amount = nn.Parameter(torch.ones(1))
        for zero in (self.query_encoder.weight, self.key_encoder.weight, widen.bias, spread.bias):
            nn.init.zeros_(zero)

    def turned(
        self,
        query: Float[Tensor, "batch token head chan"],
        key: Float[Tensor, "batch token head chan"],
        features: Features,
    ) -> tuple[Float[Tensor, "batch token head chan"], Float[Tensor, "batch token head chan"]]:
        """Queries and keys with what their lines add."""
        lines = _given(features)
        with torch.autocast(lines.device.type, enabled=False):
            lines = lines.to(self.query_encoder.weight.dtype)
            gate = self.gate(lines[..., 6:])
            for_query = self.query_amount * gate * self.query_norm(self.query_encoder(lines))
            for_key = self.key_amount * gate * self.key_norm(self.key_encoder(_flipped(lines)))
        return (
            query + for_query.unflatten(-1, query.shape[2:]).to(query.dtype),
            key + for_key.unflatten(-1, key.shape[2:]).to(key.dtype),
        )

    @property
    def is_zero(self) -> bool:
        """Whether both encoders are still all zero."""
        return not _any(self.query_encoder.weight, self.key_encoder.weight)


_INJECTIONS: dict[type, Callable[[Any, int], Injection]] = {
    CameraCtrl: lambda encoding, dim: CameraCtrlInjection(
        num_features=encoding.num_features, dim=dim, init=encoding.init
    ),
    ReCamMaster: lambda encoding, dim: ReCamMasterInjection(num_features=encoding.num_features, dim=dim),
    SCoPE: lambda encoding, dim: ScopeInjection(dim=dim),
}


def make_injection(encoding: FeatureEncoding, *, dim: int, num_heads: int, head_dim: int) -> Injection:
    """The learned maps of an additive encoding, for one block of ``num_heads`` heads.

    Raises:
        TypeError: if the encoding is no additive one.
        ValueError: if the heads do not make up ``dim``.
    """
    make = _INJECTIONS.get(type(encoding))
    if make is None:
        raise TypeError(
            f"{type(encoding).__name__} has no injection; known are {sorted(k.__name__ for k in _INJECTIONS)}."
        )
    if num_heads * head_dim != dim:
        raise ValueError(
            f"what is added to q and k is shared out over heads: dim must be {num_heads} x {head_dim} = "
            f"{num_heads * head_dim}; got {dim}."
        )
    return make(encoding, dim)


def _given(features: Features) -> Tensor:
    if features is None:
        raise ValueError("the cameras hold no features; make them with CameraAdapter.signals.")
    return features


def _exact(layer: nn.Linear, features: Tensor) -> Tensor:
    """The layer in the precision of its own weights, whatever autocast says."""
    with torch.autocast(features.device.type, enabled=False):
        return layer(features.to(layer.weight.dtype))


def _flipped(lines: Tensor) -> Tensor:
    """(d, m^, s) to (m^, d, s)."""
    return torch.cat([lines[..., 3:6], lines[..., :3], lines[..., 6:]], dim=-1)


def _any(*parameters: Tensor) -> bool:
    with torch.no_grad():
        return any(bool(parameter.any()) for parameter in parameters)
