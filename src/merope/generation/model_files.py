"""What a Wan pipeline and its adapter say of themselves, read before any weight is."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from diffusers import AutoencoderKLWan, DiffusionPipeline, WanTransformer3DModel
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from merope.adapters import read_adapter_config
from merope.adapters.base_identity import base_differences
from merope.adapters.finding import ADAPTER_FILE, find_adapter
from merope.adapters.spec import PosePolicy, VideoSpec
from merope.errors import CheckpointMismatch
from merope.geometry.poses import Unit

ADAPTER_FOLDER = "adapter"
# Where a run that trains the base as well leaves it, beside its adapter.
TRANSFORMER_FOLDER = "transformer"
# What diffusers' from_pretrained takes to find a repository's files.
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")

# Frames per second of the published models, with and without a timestep per token.
_WAN_FPS = {True: 24.0, False: 16.0}


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
    adapter_file: Path | None = None
    """Where the adapter was found."""

    def __post_init__(self) -> None:
        require_one_transformer(self.pipeline)
        if self.adapter is None:
            return
        differences = base_differences(self.adapter["base"], self.transformer)
        if differences:
            raise CheckpointMismatch(
                f"the adapter was made for a transformer with {differences[0]}. Give the model that it was trained on, or "
                "another adapter."
            )

    @classmethod
    def read(
        cls, name_or_folder: str | Path, *, adapter: str | Path | None = None, **hub_options: Any
    ) -> Self:
        """From a folder in diffusers' layout, or a hub name; configuration files alone are read or fetched.

        ``adapter`` is a file, a folder or a hub name; None takes the one in the pipeline's own ``adapter/``, where there is
        one. ``hub_options`` are those of diffusers' ``from_pretrained`` (revision, cache_dir, local_files_only, ...).

        Raises:
            FileNotFoundError: if there is no pipeline, or no adapter, of that name.
        """
        name = str(name_or_folder)
        # First, so that a wrong name is said to be one before an adapter is looked for.
        pipeline = _config(DiffusionPipeline, name, **hub_options)
        found = adapter_file(name, adapter, **hub_options)
        trained = trained_transformer(found)
        return cls(
            pipeline=pipeline,
            transformer=_config(WanTransformer3DModel, name, subfolder=TRANSFORMER_FOLDER, **hub_options)
            if trained is None
            else _config(WanTransformer3DModel, str(trained)),
            vae=_config(AutoencoderKLWan, name, subfolder="vae", **hub_options),
            adapter=None if found is None else read_adapter_config(found),
            adapter_file=found,
        )

    @property
    def trained(self) -> VideoSpec | None:
        """What the adapter was trained to make; None where it does not say."""
        stored = None if self.adapter is None else self.adapter["spec"]
        return None if stored is None else VideoSpec.from_dict(stored)

    @property
    def fps(self) -> float:
        """Frames per second of what is made: the adapter's, or those of the published models."""
        return _WAN_FPS[self.timestep_per_token] if self.trained is None else self.trained.fps

    @property
    def pose_unit(self) -> Unit:
        """Unit of the cameras that the adapter was trained on; metres where it does not say."""
        return "m" if self.adapter is None else self.adapter["summary"].get("pose_unit", "m")

    @property
    def needs_up(self) -> bool:
        """Whether the adapter has an input map, which needs to know which way is up."""
        return self.adapter is not None and self.adapter.get("input_map") is not None

    @property
    def pose_policy(self) -> PosePolicy:
        """Which of a latent frame's poses the adapter takes."""
        return "last" if self.adapter is None else self.adapter["pose_policy"]

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


def _config(kind: Any, name: str, **options: Any) -> dict[str, Any]:
    """The configuration that ``kind``, an untyped class of diffusers, has in a pipeline.

    Raises:
        FileNotFoundError: if it cannot be had; diffusers' OSError names no file.
    """
    try:
        with warnings.catch_warnings():
            # diffusers passes it on to the hub's library, which says so at every hub name.
            warnings.filterwarnings("ignore", message="The `local_dir_use_symlinks` argument is deprecated")
            return kind.load_config(name, **options)
    except OSError as error:
        raise FileNotFoundError(
            f"{name} is no folder or hub name of a Wan pipeline in diffusers' layout: {error}"
        ) from error


def adapter_file(
    name_or_folder: str | Path, adapter: str | Path | None = None, **hub_options: Any
) -> Path | None:
    """The adapter that a pipeline is loaded with: the named one (`find_adapter`), else its own ``adapter/``, else None.

    Raises:
        FileNotFoundError: if there is none of that name.
    """
    if adapter is not None:
        return find_adapter(adapter, token=hub_options.get("token"))
    if Path(name_or_folder).is_dir():
        own = Path(name_or_folder) / ADAPTER_FOLDER / ADAPTER_FILE
        return own if own.exists() else None
    # Any: the function's overloads depend on an option that is not used here.
    download: Any = hf_hub_download
    try:
        return Path(download(str(name_or_folder), f"{ADAPTER_FOLDER}/{ADAPTER_FILE}", **hub_options))
    except LocalEntryNotFoundError:
        warnings.warn(
            f"no adapter of {name_or_folder} is in the cache, and the hub cannot be asked whether there is one: the "
            "pipeline comes without. Name one with adapter=, or go online once.",
            stacklevel=3,
        )
        return None
    except EntryNotFoundError:
        return None


def trained_transformer(adapter: Path | None) -> Path | None:
    """The folder of the transformer that was trained together with an adapter; None where the base stayed as it was.

    A pipeline's own ``adapter/`` holds none: its transformer is the pipeline's.
    """
    beside = None if adapter is None else adapter.parent / TRANSFORMER_FOLDER
    return beside if beside is not None and (beside / "config.json").exists() else None
