"""`TrainConfig`: one training run, complete; written as JSON beside every checkpoint."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from merope.adapters.spec import VideoSpec
from merope.encodings.registry import encoding_from_config, encoding_to_config


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with the paper's constants (B.1); presets that train from scratch choose other values."""

    kind: Literal["adamw", "muon"] = "adamw"
    """"muon" updates the blocks' weight matrices by torch's Muon at AdamW's step size, the rest by AdamW; for training
    from scratch."""

    learning_rate: float = 1e-5
    """Peak learning rate."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    warmup_steps: int = 0
    """Steps of linear warm-up; the paper has none."""
    decay: Literal["constant", "cosine"] = "constant"
    """Cosine falls to a fiftieth of the peak at the last step."""
    gradient_clip: float = 1.0
    """Largest gradient norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """All that decides a run's losses, but for the machine's rounding."""

    name: str
    """Name of the recipe."""
    spec: VideoSpec
    """What the model makes."""
    transformer: dict[str, Any]
    """Keyword arguments of ``WanTransformer3DModel`` for a base trained from scratch."""
    encoding: dict[str, Any]
    """Camera encoding, as `encoding_to_config` gives it."""
    input_map: dict[str, Any] | None = None
    """Absolute map on the branches' input, as `input_map_to_config` gives it; its world is a clip's first camera."""
    compression: int
    """Adapter compression C."""
    schedule: Literal["alternate", "every"] | tuple[int, ...]
    """Blocks with a camera branch."""
    trains: Literal["branch", "all"]
    """What is trained: the camera branches, or the backbone too."""
    steps: int
    batch_size: int
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    num_worlds: int = 1600
    """Training worlds; three clips each."""
    num_probe_clips: int = 48
    """Clips at the end of the data that are never trained on: the control probe and the held-out loss."""
    turn_start: int = 10
    """Last frame that a world's three clips share."""
    clip_frames: int = 29
    """Rendered frames per clip; windows of the model's length start anywhere in it."""
    mirror: bool = True
    """Whether half of the windows are seen in a mirror."""
    autocast: bool = True
    """Compute in bfloat16; weights, optimizer state and geometry stay float32 and float64."""
    ema_decay: float = 0.998
    """Decay of the averaged weights that are saved for use."""
    sigma_bins: int = 5
    """Bins of the noise level in which the loss is logged."""
    log_every: int = 20
    probe_every: int = 250
    checkpoint_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (
            "steps",
            "batch_size",
            "num_worlds",
            "sigma_bins",
            "log_every",
            "probe_every",
            "checkpoint_every",
        )
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}.")
        if self.num_probe_clips < 2:
            raise ValueError(
                f"num_probe_clips must be >= 2, as the probe swaps cameras between clips; got {self.num_probe_clips}."
            )
        if self.trains not in ("branch", "all"):
            raise ValueError(f"trains must be 'branch' or 'all'; got {self.trains!r}.")
        if not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must be in [0, 1); got {self.ema_decay}.")
        if self.clip_frames < self.spec.num_frames:
            raise ValueError(
                f"clip_frames {self.clip_frames} is shorter than the model's {self.spec.num_frames} frames."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def differences(have: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> str:
    """The fields in which two configurations differ, as text; empty where they are equal."""
    found = []
    for name in sorted(have.keys() | wanted.keys()):
        one, other = have.get(name), wanted.get(name)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            found.append(differences(one, other, f"{prefix}{name}."))
        else:
            found.append(f"{prefix}{name} is {one}, this run has {other}")
    return "; ".join(found)


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the defaults of options that its encoding got later."""
    return {**config, "encoding": encoding_to_config(encoding_from_config(config["encoding"]))}
