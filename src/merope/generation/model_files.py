"""What a Wan pipeline and its adapter say of themselves, read before any weight is."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.configuration_utils import ConfigMixin
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from merope.adapters import read_adapter_config
from merope.adapters.spec import VideoSpec
from merope.errors import CheckpointMismatch
from merope.geometry.poses import Unit

ADAPTER_FILE = "adapter.safetensors"
ADAPTER_FOLDER = "adapter"
# Where a run that trains the base as well leaves it, beside its adapter.
TRANSFORMER_FOLDER = "transformer"
# What diffusers' from_pretrained takes to find a repository's files.
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")


class _PipelineIndex(ConfigMixin):
    config_name = "model_index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfigs:
    """The configurations of a Wan pipeline and of its adapter: all that a request is checked against.

    Raises:
        ValueError: if the pipeline has two transformers.
        CheckpointMismatch: if the adapter was made for another transformer.
    """

    pipeline: Mapping[str, Any]
    """The content of model_index.json."""
    transformer: Mapping[str, Any]
    """The configuration of ``WanTransformer3DModel``."""
    vae: Mapping[str, Any]
    """The configuration of ``AutoencoderKLWan``."""
    adapter: Mapping[str, Any] | None
    """What `read_adapter_config` gives; None where there is no adapter."""

    def __post_init__(self) -> None:
        require_one_transformer(self.pipeline)
        if self.adapter is None:
            return
        for name, wanted in self.adapter["base"].items():
            if (have := self.transformer.get(name)) != wanted:
                raise CheckpointMismatch(
                    f"the adapter was made for a transformer with {name} = {wanted}; this one has {have}. Give the model "
                    "that it was trained on, or another adapter."
                )

    @classmethod
    def read(
        cls, name_or_folder: str | Path, *, adapter: str | Path | None = None, **hub_options: Any
    ) -> Self:
        """From a folder in diffusers' layout, or a hub name; configuration files alone are read or fetched.

        ``adapter`` is a file, a folder or a hub name; None takes the one in the pipeline's own ``adapter/``, where there is
        one. ``hub_options`` are those of diffusers' ``from_pretrained`` (revision, cache_dir, local_files_only, ...).
        """
        name = str(name_or_folder)
        found = find_adapter(name, adapter, **hub_options)
        # Any: diffusers' classes are untyped.
        model, autoencoder, index = (
            cast(Any, kind) for kind in (WanTransformer3DModel, AutoencoderKLWan, _PipelineIndex)
        )
        trained = trained_transformer(found)
        return cls(
            pipeline=index.load_config(name, **hub_options),
            transformer=model.load_config(name, subfolder=TRANSFORMER_FOLDER, **hub_options)
            if trained is None
            else model.load_config(trained),
            vae=autoencoder.load_config(name, subfolder="vae", **hub_options),
            adapter=None if found is None else read_adapter_config(found),
        )

    @property
    def trained(self) -> VideoSpec | None:
        """What the adapter was trained to make; None where it does not say."""
        stored = None if self.adapter is None else self.adapter["spec"]
        return None if stored is None else VideoSpec.from_dict(stored)

    @property
    def pose_unit(self) -> Unit:
        """Unit of the cameras that the adapter was trained on; metres where it does not say."""
        return "m" if self.adapter is None else self.adapter["summary"].get("pose_unit", "m")

    @property
    def timestep_per_token(self) -> bool:
        """Whether every token is told its own timestep, also where nothing is given (Wan2.2 TI2V)."""
        return bool(self.pipeline.get("expand_timesteps", False))


def require_one_transformer(pipeline: Mapping[str, Any]) -> None:
    """Raise ValueError for a pipeline of two transformers, such as Wan2.2's A14B models."""
    second = pipeline.get("transformer_2")
    # model_index.json has a pair of library and class, [null, null] where there is none.
    if pipeline.get("boundary_ratio") is not None or (second is not None and any(second)):
        raise ValueError(
            "this pipeline has two transformers (transformer_2, boundary_ratio), as Wan2.2-T2V-A14B and Wan2.2-I2V-A14B "
            "have; MeropePipeline puts cameras on one. Use Wan2.2-TI2V-5B, Wan2.1-T2V-1.3B or Wan2.1-T2V-14B."
        )


def find_adapter(
    name_or_folder: str | Path, adapter: str | Path | None = None, **hub_options: Any
) -> str | Path | None:
    """The adapter that a pipeline is to be loaded with: the one that is named, or the pipeline's own, or None.

    Raises:
        FileNotFoundError: if a local folder that is named holds no adapter.
    """
    if adapter is not None:
        folder = Path(adapter)
        return folder / ADAPTER_FILE if folder.is_dir() else adapter
    if Path(name_or_folder).is_dir():
        own = Path(name_or_folder) / ADAPTER_FOLDER / ADAPTER_FILE
        return own if own.exists() else None
    try:
        return Path(hf_hub_download(str(name_or_folder), f"{ADAPTER_FOLDER}/{ADAPTER_FILE}", **hub_options))
    except LocalEntryNotFoundError:
        warnings.warn(
            f"no adapter of {name_or_folder} is in the cache, and the hub cannot be asked whether there is one: the "
            "pipeline comes without. Name one with adapter=, or go online once.",
            stacklevel=3,
        )
        return None
    except EntryNotFoundError:
        return None


def trained_transformer(adapter: str | Path | None) -> Path | None:
    """The folder of the transformer that was trained together with a local adapter; None where the base stayed as it was."""
    if adapter is None:
        return None
    beside = Path(adapter).parent / TRANSFORMER_FOLDER
    return beside if Path(adapter).is_file() and (beside / "config.json").exists() else None
