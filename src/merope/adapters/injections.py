"""What additive encodings learn: maps from a token's camera features into the backbone's own self-attention."""

from torch import Tensor, nn

from merope.encodings.base import FeatureEncoding


class Injection(nn.Module):
    """Three places in a block's self-attention where camera features may enter; by default none does."""

    def inputs(self, hidden: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """What the q, k and v projections read; ``hidden`` is [batch, token, dim]."""
        return hidden, hidden, hidden

    def turned(self, query: Tensor, key: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys after QK-norm and rotary embedding, [batch, token, head, channel]."""
        return query, key

    def output(self, out: Tensor) -> Tensor:
        """The block's attention output, before its gate, [batch, token, dim]."""
        return out

    @property
    def is_zero(self) -> bool:
        """Whether it still changes nothing."""
        return True


_INJECTIONS: dict[type, type[Injection]] = {}


def make_injection(encoding: FeatureEncoding, *, dim: int, num_heads: int, head_dim: int) -> Injection:
    """The learned maps of an additive encoding, for one block.

    Raises:
        TypeError: if the encoding is no additive one.
    """
    kind = _INJECTIONS.get(type(encoding))
    if kind is None:
        raise TypeError(
            f"{type(encoding).__name__} has no injection; known are {sorted(k.__name__ for k in _INJECTIONS)}."
        )
    return kind()
