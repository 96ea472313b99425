"""`VideoModel`: a trained model in memory, loaded from the folder that training writes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffusers import WanTransformer3DModel
from safetensors import SafetensorError, safe_open
from torch import nn

from merope.adapters import load_adapter, read_adapter_config
from merope.adapters.checkpoint import require_same_tensors
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter
from merope.data.caches.latents import LatentCodec, LinearCodec
from merope.errors import CheckpointMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoModel:
    """A video transformer with camera branches, its latent codec, and what it was made for."""

    transformer: nn.Module
    adapter: CameraAdapter
    codec: LatentCodec
    spec: VideoSpec


def load_video_model(folder: str | Path) -> VideoModel:
    """Load base, adapter and codec, strictly; half-precision files are read into float32.

    Raises:
        FileNotFoundError: if a file of the folder is missing.
        CheckpointMismatch: if a file is damaged, or files do not fit each other.
    """
    folder = Path(folder)
    described = folder / "config.json"
    if not described.exists():
        raise FileNotFoundError(
            2,
            "no model here (config.json is missing); `merope train` writes one into OUTPUT/model",
            str(folder),
        )
    try:
        config = json.loads(described.read_text())
        spec = VideoSpec.from_dict(config["spec"])
        base, steps = config["transformer"], config["summary"].get("steps")
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointMismatch(f"{described} does not describe a video model: {error}") from error
    # Any: diffusers' classes are untyped.
    transformer: Any = WanTransformer3DModel(**base)
    path = folder / "transformer.safetensors"
    wanted = transformer.state_dict()
    try:
        with safe_open(str(path), framework="pt") as file:
            found = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointMismatch(f"{path} is damaged or no safetensors file: {error}.") from error
    require_same_tensors(path, wanted, found)
    transformer.load_state_dict(found)
    adapter_path = folder / "adapter.safetensors"
    adapter_steps = read_adapter_config(adapter_path)["summary"].get("steps")
    if adapter_steps != steps:
        raise CheckpointMismatch(
            f"{folder}: config.json is of step {steps} and the adapter of step {adapter_steps}; the run was killed while it "
            "saved. Run the same `merope train` again: it goes on and writes the model anew."
        )
    adapter = load_adapter(adapter_path, transformer)
    if adapter.pose_policy != spec.pose_policy:
        raise CheckpointMismatch(
            f"{folder}: the adapter takes the {adapter.pose_policy!r} pose of a latent frame, the model "
            f"{spec.pose_policy!r}."
        )
    codec = LinearCodec.load(folder / "codec.safetensors")
    if codec.channels != spec.latent_channels:
        raise CheckpointMismatch(
            f"{folder}: the codec has {codec.channels} channels, the model takes {spec.latent_channels}."
        )
    transformer.eval().requires_grad_(False)
    return VideoModel(transformer=transformer, adapter=adapter, codec=codec, spec=spec)
