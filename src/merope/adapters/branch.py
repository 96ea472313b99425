"""`CameraBranch`: the zero-initialised parallel attention beside a backbone's own (CamSA)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from merope.attention import camera_attention
from merope.operators import CameraOperator


class CameraBranch(nn.Module):
    """Attention under a camera operator, narrower than the backbone, whose output starts at zero.

    Width and number of heads are the backbone's divided by ``compression``; the head size stays (C.1).
    Queries, keys and values are plain projections of the block's normalised, modulated input, without
    further normalisation (as in UCPE's branch); the output projection starts at zero in weight and
    bias, so a new branch changes nothing.

    Raises:
        ValueError: if ``compression`` does not divide the number of heads.
    """

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, compression: int) -> None:
        super().__init__()
        if compression < 1 or num_heads % compression:
            raise ValueError(
                f"compression {compression} must divide the backbone's {num_heads} heads; "
                f"choose one of {[c for c in range(1, num_heads + 1) if num_heads % c == 0]}."
            )
        self.num_heads = num_heads // compression
        self.head_dim = head_dim
        width = self.num_heads * head_dim
        self.to_q = nn.Linear(dim, width)
        self.to_k = nn.Linear(dim, width)
        self.to_v = nn.Linear(dim, width)
        self.to_out = nn.Linear(width, dim)
        nn.init.zeros_(self.to_out.weight)
        nn.init.zeros_(self.to_out.bias)

    def forward(
        self, hidden: Float[Tensor, "batch token dim"], operator: CameraOperator
    ) -> Float[Tensor, "batch token dim"]:
        """What to add to the output of the backbone's self-attention, before its gate.

        A base in bfloat16 meets the branch's float32 weights here: without autocast the input is cast to
        their precision. The answer is in the precision of the branch.
        """
        if not torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(self.to_q.weight.dtype)
        query, key, value = (
            project(hidden).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for project in (self.to_q, self.to_k, self.to_v)
        )  # [B, H, N, d]
        out = camera_attention(query, key, value, operator)
        return self.to_out(out.transpose(1, 2).flatten(2))

    @property
    def is_zero(self) -> bool:
        """Whether the output projection is still all zero, so that the branch does nothing."""
        with torch.no_grad():
            return not (self.to_out.weight.any() or self.to_out.bias.any())
