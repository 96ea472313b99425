"""`CameraOperator`, the pairwise transform U_ab of attention (Eq. 1), and the blocks that its bands repeat."""

from merope.operators.blocks import (
    Block,
    Matrix4,
    MinRotate3,
    Recomputed,
    Rotate2,
    Rotate3,
    TensorMap,
    apply_block,
    apply_to_planes,
)
from merope.operators.operator import Band, CameraOperator

__all__ = [
    "Band",
    "Block",
    "CameraOperator",
    "Matrix4",
    "MinRotate3",
    "Recomputed",
    "Rotate2",
    "Rotate3",
    "TensorMap",
    "apply_block",
    "apply_to_planes",
]
