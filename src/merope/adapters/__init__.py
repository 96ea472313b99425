"""Adapters: camera branches on pretrained video transformers, and their files."""

from merope.adapters.branch import CameraBranch
from merope.adapters.checkpoint import load_adapter, read_adapter_config, save_adapter
from merope.adapters.wan import CameraAdapter, attach, scheduled_blocks

__all__ = [
    "CameraAdapter",
    "CameraBranch",
    "attach",
    "load_adapter",
    "read_adapter_config",
    "save_adapter",
    "scheduled_blocks",
]
