"""Camera encodings on pretrained video transformers: attach, detach, save, load; and how such models are made to move."""

from merope.adapters.branch import CameraBranch
from merope.adapters.cache import KeyValueCache
from merope.adapters.checkpoint import load_adapter, read_adapter_config, save_adapter
from merope.adapters.hub import push_adapter
from merope.adapters.schedules import scheduled_blocks
from merope.adapters.signals import CameraSignals, camera_signals
from merope.adapters.wan import CameraAdapter, attach

__all__ = [
    "CameraAdapter",
    "CameraBranch",
    "CameraSignals",
    "KeyValueCache",
    "attach",
    "camera_signals",
    "load_adapter",
    "push_adapter",
    "read_adapter_config",
    "save_adapter",
    "scheduled_blocks",
]
