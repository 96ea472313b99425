"""Attention under a `CameraOperator` (Eq. 1): one function, several backends that agree."""

from merope.attention.dispatch import available_backends, camera_attention, why_not

__all__ = ["available_backends", "camera_attention", "why_not"]
