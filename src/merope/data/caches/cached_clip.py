"""What a cache of latents holds: one encoded clip, and what made all of them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import CheckpointMismatch, MeropeError
from merope.geometry.gravity import Up
from merope.geometry.poses import Poses, Unit

LatentDtype = Literal["float16", "bfloat16", "float32"]


class CacheError(MeropeError):
    """A cache of latents is unfinished, damaged, or does not belong to another one."""


class CacheWarning(UserWarning):
    """What a cache holds is unlikely to be meant."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedClip:
    """One encoded clip, as it is read: float32 latents on the CPU, cameras of all its frames."""

    clip_id: str
    """Name of the clip, unique within its source."""
    mean: Float[Tensor, "chan time row col"]
    """Mean of the autoencoder's posterior after normalisation: (mean - m) / s with Wan's statistics m, s per channel."""
    logvar: Float[Tensor, "chan time row col"]
    """Log variance of the normalised latents: the posterior's own minus 2 log s."""
    text: Float[Tensor, "words dim"]
    """Prompt embedding without its padding; `padded_text` restores it."""
    T_world_cam: Float[Tensor, "frame 4 4"]
    """Camera-to-world matrices of all frames, float64; latent frames take theirs by the model's pose policy."""
    lens: CameraModel
    """The lens for frames of the encoded size."""
    fps: float
    """Frames per second."""
    unit: Unit = "m"
    """What a length of 1 is in ``T_world_cam``."""
    caption: str = ""
    """The words that ``text`` embeds."""
    source: str = "clips"
    """Data set or folder that the clip comes from."""
    cluster: str = "all"
    """Kind of motion, for `BalancedSampler`; kept apart by source."""
    up_world: Up | None = None
    """Unit vector against gravity in the world of ``T_world_cam``; None where nobody knows."""

    @property
    def poses(self) -> Poses:
        """The cameras of all frames."""
        return Poses.from_matrices(self.T_world_cam, unit=self.unit)

    def sample(self, noise: Float[Tensor, "chan time row col"]) -> Float[Tensor, "chan time row col"]:
        """A draw from the posterior of the normalised latents: mean + exp(logvar / 2) noise."""
        return self.mean + torch.exp(0.5 * self.logvar) * noise


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDescription:
    """What made a cache. Caches that differ in anything but ``dtype`` and ``windows`` do not mix.

    Raises:
        ValueError: if a size is no whole number of latents, or the dtype or the statistics are not as they must be.
    """

    vae: dict[str, str]
    """Identity of the autoencoder: its class, the hash of its configuration and the fingerprint of its weights."""
    latents_mean: tuple[float, ...]
    """Mean per channel that was subtracted."""
    latents_std: tuple[float, ...]
    """Deviation per channel that was divided by, after that."""
    text_encoder: dict[str, str]
    """Identity of tokenizer and text encoder, likewise."""
    text_length: int
    """Words that a prompt is padded with zeros to, and cut at."""
    height: int
    """Rows of the encoded frames, pixels."""
    width: int
    """Columns of the encoded frames, pixels."""
    num_frames: int
    """Frames per clip, 1 + temporal_stride * k."""
    temporal_stride: int
    """Frames per latent frame after the first."""
    spatial_stride: int
    """Pixels per latent cell."""
    dtype: LatentDtype = "float16"
    """In which latents are stored. Normalised latents are small numbers: float16 keeps 8 times finer steps of them
    than bfloat16."""
    windows: dict[str, Any] = field(default_factory=dict)
    """How windows were cut from clips, for whoever adds to the cache: rate, stride, cropping, as JSON values."""

    def __post_init__(self) -> None:
        if self.dtype not in get_args(LatentDtype):
            raise ValueError(f"dtype must be one of {', '.join(get_args(LatentDtype))}; got {self.dtype!r}.")
        if not self.latents_mean or len(self.latents_mean) != len(self.latents_std):
            raise ValueError(
                "latents_mean and latents_std must have one number per channel; got "
                f"{len(self.latents_mean)} and {len(self.latents_std)}."
            )
        frames, stride = self.num_frames, self.temporal_stride
        if frames < 1 or (frames - 1) % stride:
            raise ValueError(f"num_frames must be 1 + {stride}k; got {frames}.")
        if self.height % self.spatial_stride or self.width % self.spatial_stride:
            raise ValueError(
                f"height and width must be multiples of {self.spatial_stride} pixels; got {self.height} x {self.width}."
            )

    @property
    def latent_shape(self) -> tuple[int, int, int, int]:
        """Channels, frames, rows, columns of a clip's latents."""
        return (
            len(self.latents_mean),
            1 + (self.num_frames - 1) // self.temporal_stride,
            self.height // self.spatial_stride,
            self.width // self.spatial_stride,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the statement that latents are normalised."""
        plain = json.loads(json.dumps(asdict(self)))
        return {"normalised": True, **plain}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            ValueError: if the latents are not normalised, or a field is unknown or missing.
        """
        if values.get("normalised") is not True:
            raise ValueError("its latents are not normalised; encode the clips again")
        values = {name: value for name, value in values.items() if name != "normalised"}
        if set(values) != {each.name for each in fields(cls)}:
            raise ValueError(f"its description has the fields {sorted(values)}")
        for name in ("latents_mean", "latents_std"):
            values[name] = tuple(values[name])
        return cls(**values)

    def require_same(
        self, other: "CacheDescription", *, here: str, there: str, apart: Sequence[str] = ()
    ) -> None:
        """Raise unless both were made alike; every difference is named but in the fields ``apart``.

        Raises:
            CheckpointMismatch: if autoencoder, statistics, text encoder, size, frames or anything else differs.
        """
        pairs = [(each.name, getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        different = [
            f"{name} ({_brief(mine)} and {_brief(theirs)})"
            for name, mine, theirs in pairs
            if mine != theirs and name not in apart
        ]
        if different:
            raise CheckpointMismatch(
                f"{here} and {there} do not belong together; they differ in {', '.join(different)}. "
                "Encode both alike, or use them apart."
            )


def padded_text(texts: Sequence[Float[Tensor, "_ dim"]], length: int) -> Float[Tensor, "clip words dim"]:
    """Prompt embeddings at one length, zeros behind their words, as `WanPipeline.encode_prompt` gives them.

    Raises:
        ValueError: if a prompt is longer than ``length``.
    """
    longest = max(len(text) for text in texts)
    if longest > length:
        raise ValueError(
            f"length must be at least that of every prompt; got {length}, one has {longest} words."
        )
    return torch.stack(
        [torch.cat([text, text.new_zeros(length - len(text), text.shape[1])]) for text in texts]
    )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:97] + "..."
