"""Attention under a `CameraOperator` (Eq. 1): one function, several backends that agree, or many processes."""

from merope.attention.chunked import reads_token_last
from merope.attention.dispatch import available_backends, camera_attention, why_not
from merope.attention.sharding import CameraShards, shard_cameras, sharded_camera_attention

__all__ = [
    "CameraShards",
    "available_backends",
    "camera_attention",
    "reads_token_last",
    "shard_cameras",
    "sharded_camera_attention",
    "why_not",
]
