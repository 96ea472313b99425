"""`VideoSpec`: what a video model was made for, stored beside its weights and checked before it runs."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

PosePolicy = Literal["last", "first", "mean"]
Prediction = Literal["velocity", "clean"]

# What diffusers' classes take where a configuration file leaves a field out, as older ones do.
_UNSAID = {
    "patch_size": (1, 2, 2),
    "in_channels": 16,
    "z_dim": 16,
    "scale_factor_temporal": 4,
    "scale_factor_spatial": 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoSpec:
    """Frames, size, rate, prefix and flow of a video model.

    Raises:
        ValueError: if the frame counts are not 1 + 4k, the size is no whole number of tokens or not the lens's,
            or a value is out of range.
    """

    height: int
    """Rows of a frame, pixels."""
    width: int
    """Columns of a frame, pixels."""
    num_frames: int
    """Frames per clip, 1 + temporal_stride * k."""
    prefix_frames: int
    """Leading frames that are given and stay clean, 1 + temporal_stride * k; 0 where nothing is given."""
    fps: float
    """Frames per second."""
    camera: dict[str, Any] | None = None
    """The lens of every clip, as `CameraModel.to_dict` gives it, for frames of this size; None where each clip brings
    its own."""
    temporal_stride: int = 4
    """Frames per latent frame after the first."""
    spatial_stride: int = 8
    """Pixels per latent cell."""
    patch: int = 1
    """Latent cells per token and side."""
    latent_channels: int = 96
    """Channels of a latent cell."""
    pose_policy: PosePolicy = "last"
    """Which of a latent frame's frames gives it its pose."""
    shift: float = 3.0
    """Wan's time shift of the flow schedule."""
    prediction: Prediction = "velocity"
    """What the network's output stands for; Wan predicts velocity."""
    text_tokens: int = 1
    """Length of the (empty) prompt embedding where the model has no text encoder."""

    def __post_init__(self) -> None:
        for name in ("temporal_stride", "spatial_stride", "patch", "latent_channels", "text_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}.")
        for name in ("num_frames", "prefix_frames"):
            count = getattr(self, name)
            if name == "prefix_frames" and count == 0:
                continue
            if count < 1 or (count - 1) % self.temporal_stride:
                below = 1 + (count - 1) // self.temporal_stride * self.temporal_stride
                raise ValueError(
                    f"{name} must be 1 + {self.temporal_stride}k; got {count}. "
                    f"Use {max(below, 1)} or {max(below, 1) + self.temporal_stride}."
                )
        if self.prefix_frames >= self.num_frames:
            raise ValueError(
                f"prefix_frames {self.prefix_frames} leaves nothing to generate of {self.num_frames} frames."
            )
        cell = self.spatial_stride * self.patch
        for name in ("height", "width"):
            size = getattr(self, name)
            if size < 1 or size % cell:
                below = max(size // cell, 1) * cell
                raise ValueError(
                    f"{name} must be a multiple of {cell} pixels, one token; got {size}. Use {below} or {below + cell}."
                )
        if self.camera is not None:
            self.require_size(self.camera.get("height"), self.camera.get("width"))
        # Written so that NaN fails too.
        if not (self.fps > 0 and self.shift > 0):
            raise ValueError(f"fps and shift must be > 0; got {self.fps} and {self.shift}.")
        for name, choices in (("pose_policy", get_args(PosePolicy)), ("prediction", get_args(Prediction))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")

    def require_size(self, height: int | None, width: int | None) -> None:
        """Raise ValueError unless a lens is for frames of this size."""
        if (height, width) != (self.height, self.width):
            raise ValueError(
                f"camera is a lens for {height} x {width} frames (height x width), the model makes "
                f"{self.height} x {self.width}. Use CameraModel.resize."
            )

    @property
    def latent_frames(self) -> int:
        """Latent frames per clip."""
        return 1 + (self.num_frames - 1) // self.temporal_stride

    @property
    def prefix_latents(self) -> int:
        """Leading latent frames that stay clean."""
        return 0 if self.prefix_frames == 0 else 1 + (self.prefix_frames - 1) // self.temporal_stride

    @property
    def latent_shape(self) -> tuple[int, int, int, int]:
        """Channels, frames, rows, columns of a clip's latents."""
        return (
            self.latent_channels,
            self.latent_frames,
            self.height // self.spatial_stride,
            self.width // self.spatial_stride,
        )

    @property
    def token_grid(self) -> tuple[int, int]:
        """Rows and columns of tokens per latent frame."""
        cell = self.spatial_stride * self.patch
        return self.height // cell, self.width // cell

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; unknown and missing names raise."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"a video spec has no fields {unknown}; it was written by another version.")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
        if missing:
            raise ValueError(f"this video spec lacks {missing}; the file is damaged or of another kind.")
        return cls(**values)


def wan_spec(
    transformer_config: Mapping[str, Any],
    vae_config: Mapping[str, Any],
    *,
    height: int,
    width: int,
    num_frames: int,
    prefix_frames: int,
    fps: float,
    shift: float,
    camera: Mapping[str, Any] | None = None,
    pose_policy: PosePolicy = "last",
) -> VideoSpec:
    """The spec of clips of this size on a Wan pipeline, from its configurations alone.

    The configurations are those of diffusers' ``WanTransformer3DModel`` and ``AutoencoderKLWan``: ``model.config``, or
    the content of ``config.json``. ``camera`` is `CameraModel.to_dict` of a lens that all clips share.

    Raises:
        ValueError: if the transformer does not take the autoencoder's latents alone, its patches are not square
            or span several frames, or a size or count does not fit (`VideoSpec`).
    """
    patch = tuple(_said(transformer_config, "patch_size"))
    takes, channels = _said(transformer_config, "in_channels"), _said(vae_config, "z_dim")
    if takes != channels:
        raise ValueError(
            f"the transformer takes {takes} channels and the autoencoder makes {channels}. Give both from one pipeline; "
            "models that read an image or a mask beside the latents (Wan2.1-I2V) are not supported."
        )
    if len(patch) != 3 or patch[0] != 1 or patch[1] != patch[2]:
        raise ValueError(f"patch_size must be (1, n, n): square patches of one latent frame; got {patch}.")
    return VideoSpec(
        height=height,
        width=width,
        num_frames=num_frames,
        prefix_frames=prefix_frames,
        fps=fps,
        camera=None if camera is None else dict(camera),
        temporal_stride=_said(vae_config, "scale_factor_temporal"),
        spatial_stride=_said(vae_config, "scale_factor_spatial"),
        patch=patch[1],
        latent_channels=channels,
        pose_policy=pose_policy,
        shift=shift,
    )


def _said(config: Mapping[str, Any], name: str) -> Any:
    """A field of a configuration, or the default of diffusers' class."""
    return config[name] if name in config else _UNSAID[name]
