"""`CameraBranch`: the zero-initialised parallel attention beside a backbone's own (CamSA)."""

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from merope.adapters.clip_part import ClipPart
from merope.adapters.signals import CameraSignals
from merope.attention import camera_attention, reads_token_last
from merope.encodings.base import CameraEncoding, DepthEncoding
from merope.operators import CameraOperator

Recorder = Callable[[Tensor, Tensor, CameraOperator | None], None]
"""Takes the queries, keys and operator that an attention is about to meet."""


class Projection(nn.Linear):
    """A linear layer whose output may stand token-last in memory, at no cost: attention's tiles then copy nothing."""

    def forward(self, x: Tensor, *, token_last: bool = False) -> Tensor:
        """``x`` [batch, token, in] to [batch, token, out], whichever of the two last axes is contiguous."""
        if not token_last:
            return super().forward(x)
        return torch.baddbmm(self.bias[:, None], self.weight.expand(len(x), -1, -1), x.mT).mT


class CameraBranch(nn.Module):
    """Attention under a camera operator, narrower than the backbone, whose output starts at zero.

    Width and number of heads are the backbone's divided by ``compression``; the head size is the
    encoding's (C.1). Queries, keys and values are plain projections of the block's normalised, modulated
    input, without further normalisation (as in UCPE's branch); the output projection starts at zero in
    weight and bias, so a new branch changes nothing.

    Where the encoding waits for a predicted depth, a head of two numbers per token (``to_depth``, zero
    weights, the encoding's own bias) reads the same input, shared by all heads of attention (RayRoPE).
    ``map_features`` is the number of absolute map features that are projected (``from_map``) and added to
    the input before the three projections (UCPE's latitude and up map); that projection starts at random,
    as published: the output's zeros keep a new branch silent.

    Raises:
        ValueError: if ``compression`` does not divide the number of heads.
    """

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        encoding: CameraEncoding,
        compression: int,
        map_features: int = 0,
    ) -> None:
        super().__init__()
        if compression < 1 or num_heads % compression:
            way_out = f"choose one of {[c for c in range(1, num_heads + 1) if num_heads % c == 0]}"
            if compression > 1 and dim % compression == 0:
                way_out += (
                    f", or an encoding with head_dim={dim // compression}: one head as wide as the branch"
                )
            raise ValueError(
                f"compression {compression} must divide the backbone's {num_heads} heads; {way_out}."
            )
        self.encoding = encoding
        self.num_heads = num_heads // compression
        self.head_dim = encoding.head_dim
        width = self.num_heads * self.head_dim
        self.to_q = Projection(dim, width)
        self.to_k = Projection(dim, width)
        self.to_v = Projection(dim, width)
        self.to_out = nn.Linear(width, dim)
        nn.init.zeros_(self.to_out.weight)
        nn.init.zeros_(self.to_out.bias)
        self.to_depth = _depth_head(dim, encoding) if isinstance(encoding, DepthEncoding) else None
        self.from_map = nn.Linear(map_features, dim) if map_features else None

    def forward(
        self,
        hidden: Float[Tensor, "batch token dim"],
        cameras: CameraSignals | CameraOperator,
        record: Recorder | None = None,
    ) -> Float[Tensor, "batch token dim"]:
        """What to add to the output of the backbone's self-attention, before its gate.

        A base in bfloat16 meets the branch's float32 weights here: without autocast the input is cast to
        their precision. The answer is in the precision of the branch.
        """
        signals = CameraSignals(operator=cameras) if isinstance(cameras, CameraOperator) else cameras
        if not torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(self.to_q.weight.dtype)
        operator = self._operator(hidden, signals)
        if self.from_map is not None:
            if signals.input_map is None:
                raise ValueError("this branch reads an input map; the cameras were made without one.")
            # Whoever cast the whole branch cast this projection too.
            hidden = hidden + self.from_map(signals.input_map.to(hidden.dtype)).to(hidden.dtype)
        # Queries, keys and values are gone before the output projection, where nothing wants their gradients.
        return self.to_out(self._attend(hidden, operator, signals.part, record))

    def _attend(
        self, hidden: Tensor, operator: CameraOperator, part: ClipPart | None, record: Recorder | None
    ) -> Tensor:
        """All heads' outputs side by side, [B, N, width]."""
        token_last = reads_token_last(operator, hidden)
        query, key, value = (
            # What another library put in a projection's place knows no layouts.
            (project(hidden, token_last=token_last) if type(project) is Projection else project(hidden))
            .unflatten(-1, (self.num_heads, self.head_dim))
            .transpose(1, 2)
            for project in (self.to_q, self.to_k, self.to_v)
        )  # [B, H, N, d]
        if part is not None:
            key, value = part.gather_keys_and_values(key, value, axis=2)
        if record is not None:
            record(query, key, operator)
        out = camera_attention(query, key, value, operator)
        # A view where heads stand side by side, and where tokens come last.
        return out.mT.flatten(1, 2).mT if token_last else out.transpose(1, 2).flatten(2)

    def _operator(self, hidden: Tensor, signals: CameraSignals) -> CameraOperator:
        if self.to_depth is None:
            if signals.operator is None:
                raise ValueError("the cameras hold no operator; make them with CameraAdapter.signals.")
            return signals.operator
        if signals.relations is None:
            raise ValueError(
                f"{type(self.encoding).__name__} predicts a depth per token, so its operator is made in each block. "
                "Pass rays, or CameraAdapter.signals(rays), in place of an operator."
            )
        # In float32 under autocast too: depths meet metric displacements.
        with torch.autocast(hidden.device.type, enabled=False):
            depth = self.to_depth(hidden.to(self.to_depth.weight.dtype))
            depth = depth.to(torch.promote_types(depth.dtype, torch.float32))
            of_keys = depth if signals.part is None else signals.part.gather(depth, axis=1)
            return cast(DepthEncoding, self.encoding).operator_at(signals.relations, depth, of_keys)

    @property
    def is_zero(self) -> bool:
        """Whether the output projection is still all zero, so that the branch does nothing."""
        with torch.no_grad():
            return not (self.to_out.weight.any() or self.to_out.bias.any())


def _depth_head(dim: int, encoding: DepthEncoding) -> nn.Linear:
    head = nn.Linear(dim, 2)
    nn.init.zeros_(head.weight)
    with torch.no_grad():
        head.bias.copy_(torch.tensor(encoding.depth_bias))
    return head
