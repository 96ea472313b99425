"""The kinds of small linear maps that bands repeat: rotations, planes, matrices, and maps that are made when needed.

Dimension letters: B batch, H heads (1 where all heads share), G query cameras, N tokens, M blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

TensorMap = Callable[[Tensor], Tensor]
Tensors = Sequence[Tensor]


class Block(Protocol):
    """One kind of small linear map, repeated along a band."""

    @property
    def size(self) -> int:
        """Side of the map: 2, 3 or 4."""
        ...

    def numbers(self) -> tuple[Tensor, ...]:
        """What describes one map, number by number, ``[..., M]`` each; `combine` takes them in this order."""
        ...

    def combine(self, numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        """The map on ``size`` planes of channels, in any layout in which the numbers broadcast against them."""
        ...

    def matrix(self) -> Tensor:
        """The maps themselves, ``[..., M, size, size]``."""
        ...

    def entries(self, axis: int) -> int:
        """Length of a leading axis of the factors."""
        ...

    def map_tensors(self, function: TensorMap) -> Self:
        """The same block with every tensor replaced by ``function(tensor)``."""
        ...


def apply_block(block: Block, x: Tensor, *, transpose: bool = False) -> Tensor:
    """A block on planar channels ``[..., size, M, copies]``; factors broadcast over the leading axes."""
    return torch.stack(list(apply_to_planes(block, x.unbind(-3), transpose=transpose)), dim=-3)


def apply_to_planes(block: Block, planes: Tensors, *, transpose: bool = False) -> Tensors:
    """`apply_block` on the ``size`` planes ``[..., M, copies]``, each by itself."""
    return block.combine([number[..., None] for number in block.numbers()], planes, transpose=transpose)


def _tensors_mapped(block: Any, function: TensorMap) -> Any:
    return replace(block, **{name: function(getattr(block, name)) for name in block.__slots__})


@dataclass(frozen=True, slots=True, eq=False)
class Rotate3:
    """Rotations given as matrices, ``[..., M, 3, 3]``."""

    rotation: Tensor

    @property
    def size(self) -> int:
        return 3

    def numbers(self) -> tuple[Tensor, ...]:
        return self.rotation.flatten(-2).unbind(-1)

    @staticmethod
    def combine(numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        return _matrix_on_planes(numbers, planes, transpose=transpose)

    def matrix(self) -> Tensor:
        return self.rotation

    def entries(self, axis: int) -> int:
        return self.rotation.shape[axis]

    def map_tensors(self, function: TensorMap) -> Self:
        return _tensors_mapped(self, function)


@dataclass(frozen=True, slots=True, eq=False)
class MinRotate3:
    """Minimum rotations ``(2 h h^T - I) diag(-1, -1, 1)`` given by their half-way axes h, ``[..., M, 3]``.

    Three numbers instead of nine, and a third fewer multiplications than the matrix.
    """

    axis: Tensor

    @property
    def size(self) -> int:
        return 3

    def numbers(self) -> tuple[Tensor, ...]:
        return self.axis.unbind(-1)

    @staticmethod
    def combine(numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        # The map is the reflection I - 2 h h^T after (its transpose: before) z -> -z.
        hx, hy, hz = numbers
        x, y, z = planes
        sign = 1 if transpose else -1
        along = 2 * (hx * x + hy * y + sign * hz * z)
        return x - hx * along, y - hy * along, sign * hz * along - z

    def matrix(self) -> Tensor:
        outer = 2 * self.axis[..., :, None] * self.axis[..., None, :]
        identity = torch.eye(3, dtype=outer.dtype, device=outer.device)
        flip = torch.tensor([-1.0, -1.0, 1.0], dtype=outer.dtype, device=outer.device)
        return (outer - identity) * flip

    def entries(self, axis: int) -> int:
        return self.axis.shape[axis]

    def map_tensors(self, function: TensorMap) -> Self:
        return _tensors_mapped(self, function)


@dataclass(frozen=True, slots=True, eq=False)
class Rotate2:
    """Plane rotations given by cosine and sine, ``[..., M]`` each."""

    cos: Tensor
    sin: Tensor

    @property
    def size(self) -> int:
        return 2

    def numbers(self) -> tuple[Tensor, ...]:
        return self.cos, self.sin

    @staticmethod
    def combine(numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        cos, sin = numbers
        first, second = planes
        if transpose:
            return cos * first + sin * second, cos * second - sin * first
        return cos * first - sin * second, cos * second + sin * first

    def matrix(self) -> Tensor:
        return torch.stack([self.cos, -self.sin, self.sin, self.cos], dim=-1).unflatten(-1, (2, 2))

    def entries(self, axis: int) -> int:
        return self.cos.shape[axis]

    def map_tensors(self, function: TensorMap) -> Self:
        return _tensors_mapped(self, function)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix4:
    """Any 4 x 4 maps, ``[..., M, 4, 4]``; homogeneous and projective encodings."""

    values: Tensor

    @property
    def size(self) -> int:
        return 4

    def numbers(self) -> tuple[Tensor, ...]:
        return self.values.flatten(-2).unbind(-1)

    @staticmethod
    def combine(numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        return _matrix_on_planes(numbers, planes, transpose=transpose)

    def matrix(self) -> Tensor:
        return self.values

    def entries(self, axis: int) -> int:
        return self.values.shape[axis]

    def map_tensors(self, function: TensorMap) -> Self:
        return _tensors_mapped(self, function)


def _matrix_on_planes(
    entries: Sequence[Tensor],
    planes: Sequence[Tensor],
    *,
    transpose: bool,
) -> Sequence[Tensor]:
    """A matrix given entry by entry, row after row, on one plane per column."""
    size = len(planes)
    turned = []
    for row in range(size):
        line = entries[row::size] if transpose else entries[row * size : (row + 1) * size]
        total = line[0] * planes[0]
        for entry, plane in zip(line[1:], planes[1:], strict=True):
            total = total + entry * plane
        turned.append(total)
    return turned


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recomputed:
    """A grouped band's right maps, made for some query cameras at a time and never all kept.

    What they would take grows with query cameras x key tokens, that is with the square of a clip's length. Whoever
    asks for ``numbers`` or a ``matrix`` gets all of them, made on the spot. An operator that holds such maps holds a
    function and cannot be pickled; `CameraOperator.stored` can.
    """

    make: Callable[[int, int], Block]
    """The block ``[B, H, last - first, N, M, ...]`` of the query cameras ``first`` to ``last`` - 1."""
    kind: type
    """The class of blocks that ``make`` gives."""
    size: int
    """Side of the maps."""
    shape: tuple[int, int, int, int]
    """The leading axes of all of them, B, H, G, N."""
    bytes_per_camera: int
    """Memory of one query camera's factors."""

    def for_cameras(self, first: int, last: int) -> Block:
        """The block of some query cameras."""
        return self.make(first, last)

    def of_cameras(self, first: int, last: int) -> Self:
        """The maps of some query cameras, still made when needed."""
        batch, heads, _, tokens = self.shape
        return replace(
            self,
            make=lambda start, stop: self.make(first + start, first + stop),
            shape=(batch, heads, last - first, tokens),
        )

    def whole(self) -> Block:
        """The block of all query cameras."""
        return self.make(0, self.shape[2])

    def numbers(self) -> tuple[Tensor, ...]:
        return self.whole().numbers()

    def combine(self, numbers: Tensors, planes: Tensors, *, transpose: bool = False) -> Tensors:
        combine: Callable[..., Tensors] = self.kind.combine  # type: ignore[attr-defined]
        return combine(numbers, planes, transpose=transpose)

    def matrix(self) -> Tensor:
        return self.whole().matrix()

    def entries(self, axis: int) -> int:
        return self.shape[axis]

    def map_tensors(self, function: TensorMap) -> Self:
        """The same with ``function`` applied to whatever is made; its shape must stay."""
        return replace(self, make=lambda first, last: self.make(first, last).map_tensors(function))
