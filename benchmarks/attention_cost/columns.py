"""The implementations that stand side by side: an encoding, what computes it, and whether it is compiled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from merope.attention import camera_attention, reads_token_last, why_not
from merope.cameras import ViewRays
from merope.encodings import GTA, UCPE, CameraEncoding, MeRoPE
from merope.encodings.scale import TranslationScale
from merope.operators import CameraOperator

from .planar import factors_of, plain_attention, planar_order
from .shapes import Shape, view_rays

Family = Literal["sdpa", "ucpe", "gta", "merope", "identity"]
"""What is computed. "identity" is MeRoPE's bands with no maps in them."""

Route = Literal["sdpa", "plain", "op", "reference", "chunked", "rows", "fused"]
"""What computes it: torch alone, the plain planar implementation, `camera_attention` by its own choice, or one backend.

"rows" is the chunked backend on q, k and v in the memory order of a plain nn.Linear; "chunked" has them in the order that it
reads, which is what `CameraBranch` projects to.
"""

Attend = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
"""query, key, value and geometry to the output, all [B, H, N, D]."""

_BACKENDS: tuple[Route, ...] = ("chunked", "fused", "reference")


@dataclass(frozen=True, slots=True)
class Column:
    """One implementation; its name is the same in every table and file."""

    family: Family
    route: Route
    compiled: bool = False

    @property
    def name(self) -> str:
        words = [self.family] if self.route == self.family else [self.family, self.route]
        return " ".join([*words, "compiled"] if self.compiled else words)

    @classmethod
    def from_name(cls, name: str) -> Self:
        """The inverse of ``name``."""
        words = name.removesuffix(" compiled").split()
        return cls(words[0], words[-1], name.endswith(" compiled"))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """A column made for one shape."""

    attend: Attend
    geometry: Any
    """What the function takes beside q, k and v: an operator, its plain factors, or None."""
    order: Tensor | None
    """Channel order of what it takes and gives, as places in the paper's order; None is the paper's."""
    geometry_bytes: int
    """Bytes of the geometry's tensors, MeRoPE's stored anchors among them."""
    token_last: bool = False
    """Whether q, k and v stand [B, H, D, N] in memory."""


def encoding_of(family: Family, shape: Shape, rays: ViewRays) -> CameraEncoding:
    """The encoding with its defaults; its scale, where it has one, is the drive's."""
    if family in ("merope", "identity"):
        return MeRoPE(head_dim=shape.head_dim)
    scale = TranslationScale.from_motion(list(rays.center_world))
    kinds = {"ucpe": UCPE, "gta": GTA}
    return kinds[family](head_dim=shape.head_dim, scale=scale)


def operator_of(family: Family, shape: Shape, *, device: str) -> CameraOperator:
    """The family's operator for the drive, float32 factors."""
    rays = view_rays(shape)
    operator = encoding_of(family, shape, rays).operator(rays, device=device)
    if family != "identity":
        return operator
    bands = tuple(replace(band, left=None, right=None, grouped=False) for band in operator.bands)
    return replace(operator, bands=bands)


def implementation(column: Column, shape: Shape, *, device: str, dtype: torch.dtype) -> Implementation:
    """What a column computes, made for this shape and precision. Nothing is compiled here."""
    if column.family == "sdpa":
        return Implementation(_sdpa, None, None, 0)
    operator = operator_of(column.family, shape, device=device)
    if column.route == "plain":
        factors = factors_of(operator)
        order = planar_order(operator).to(device)
        return Implementation(plain_attention, factors, order, sum(x.nbytes for x in factors))
    backend = {"op": "auto", "rows": "chunked"}.get(column.route, column.route)

    def attend(query: Tensor, key: Tensor, value: Tensor, geometry: CameraOperator) -> Tensor:
        return camera_attention(query, key, value, geometry, backend=backend)  # type: ignore[arg-type]

    like = torch.empty(0, dtype=dtype, device=device)
    token_last = column.route == "chunked" and reads_token_last(operator, like)
    return Implementation(attend, operator, None, sum(x.nbytes for x in operator.tensors()), token_last)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, geometry: None) -> Tensor:
    return scaled_dot_product_attention(query, key, value)


def columns_for(
    families: Sequence[str], shape: Shape, *, device: str, dtype: torch.dtype, compile_reason: str | None
) -> tuple[list[Column], dict[str, str]]:
    """The columns that can be measured, and why the others cannot: plain SDPA and UCPE always, ``families`` beside them.

    ``compile_reason`` says why nothing can be compiled; None where it can.
    """
    wanted = [Column("sdpa", "sdpa"), Column("sdpa", "sdpa", True)]
    for family in ("ucpe", "gta"):
        if family == "ucpe" or family in families:
            wanted += [Column(family, "op"), Column(family, "op", True), Column(family, "plain", True)]
    absent: dict[str, str] = {}
    if "merope" in families:
        query = torch.empty(
            shape.batch, shape.heads, shape.tokens, shape.head_dim, dtype=dtype, device=device
        )
        operator = operator_of("merope", shape, device=device)
        for backend in _BACKENDS:
            reason = why_not(backend, query, operator)
            if reason is not None:
                absent[Column("merope", backend).name] = reason
                continue
            wanted.append(Column("merope", backend))
            if backend == "chunked":
                wanted.append(Column("merope", backend, True))
                if reads_token_last(operator, query):
                    wanted.append(Column("merope", "rows"))
            if backend == "fused":
                wanted += _identity_columns(query, shape, device, absent)
    if compile_reason is not None:
        absent |= {column.name: compile_reason for column in wanted if column.compiled}
    return [column for column in wanted if column.name not in absent], absent


def _identity_columns(query: Tensor, shape: Shape, device: str, absent: dict[str, str]) -> list[Column]:
    column = Column("identity", "fused")
    reason = why_not("fused", query, operator_of("identity", shape, device=device))
    if reason is not None:
        absent[column.name] = reason
        return []
    return [column]
