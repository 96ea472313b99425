"""Attention under a `CameraOperator` (Eq. 1): one function, several backends that agree."""

from merope.attention.chunked import reads_token_last
from merope.attention.dispatch import available_backends, camera_attention, why_not

__all__ = ["available_backends", "camera_attention", "reads_token_last", "why_not"]
