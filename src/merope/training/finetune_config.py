"""`FinetuneConfig`: one training run on a pretrained Wan transformer, from one process to many."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from merope.adapters.spec import VideoSpec
from merope.geometry.poses import Unit
from merope.training.config import OptimizerConfig

Trains = Literal["branch", "branch+attention", "all"]
ParallelMode = Literal["fsdp", "hsdp", "replicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """How weights lie on the processes of a run; every process is a data-parallel one.

    "fsdp" cuts every weight over all processes. "hsdp" cuts it over groups of ``shard_size`` processes, and the groups
    hold the same (the paper: 64 GPUs in groups of four). "replicate" keeps everything everywhere and averages the
    gradients of what trains once per step, which is cheapest where a small adapter trains and the base fits.
    """

    mode: ParallelMode = "fsdp"
    shard_size: int | None = None
    """Processes per sharding group of "hsdp"; None otherwise."""

    def __post_init__(self) -> None:
        if self.mode not in get_args(ParallelMode):
            raise ValueError(
                f"parallel mode must be one of {', '.join(get_args(ParallelMode))}; got {self.mode!r}."
            )
        if (self.mode == "hsdp") != (self.shard_size is not None):
            raise ValueError(
                f"shard_size is the size of hsdp's sharding groups; mode {self.mode!r} with shard_size {self.shard_size} "
                "says nothing. Give both, or neither."
            )
        if self.shard_size is not None and self.shard_size < 1:
            raise ValueError(f"shard_size must be >= 1; got {self.shard_size}.")

    def shards(self, world_size: int) -> int:
        """Processes over which one copy of the weights is cut; fewer than a group of "hsdp" are one group.

        Raises:
            ValueError: if the processes are no whole number of groups.
        """
        if self.mode == "replicate":
            return 1
        if self.mode == "fsdp" or self.shard_size is None or world_size <= self.shard_size:
            return world_size
        if world_size % self.shard_size:
            raise ValueError(
                f"{world_size} processes are no whole number of sharding groups of {self.shard_size}; shard_size must "
                f"divide {world_size}."
            )
        return self.shard_size


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig:
    """All that decides a run's losses, but for the base's weights, the clips and the machine's rounding.

    The number of processes is no part of it: the same configuration runs on 1, 2 or 64, and `accumulation` says how many
    micro batches each then takes per step.
    """

    name: str
    """Name of the recipe."""
    spec: VideoSpec
    """What the model makes; lenses come with the clips."""
    pose_unit: Unit = "m"
    """Unit that the clips' cameras must be in; "normalized" is PanShot's, translations over each clip's near depth."""
    encoding: dict[str, Any]
    """Camera encoding, as `encoding_to_config` gives it."""
    input_map: dict[str, Any] | None = None
    """Absolute map on the branches' input, as `input_map_to_config` gives it; every clip must then say which way is up."""
    compression: int = 4
    """Adapter compression C."""
    schedule: Literal["alternate", "every"] | tuple[int, ...] = "alternate"
    """Blocks with a camera branch."""
    trains: Trains = "branch"
    """What trains: the camera's modules, with them the self-attention of the blocks that have one, or everything."""
    steps: int
    global_batch: int
    """Clips per step over all processes."""
    micro_batch: int = 1
    """Clips per forward pass of one process."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """AdamW alone; B.1's constants by default."""
    text_dropout: float = 0.1
    """Share of clips whose prompt is replaced by the empty one, for text guidance."""
    sample_posterior: bool = True
    """Whether latents are drawn from the autoencoder's posterior anew at each step, or its mean is taken."""
    source_weights: dict[str, float] | None = None
    """Share of the draws of each source of clips; None draws uniformly over clusters, whatever their source."""
    noise_levels: Literal["uniform", "logit-normal"] = "uniform"
    """Distribution of sigma before the spec's time shift: uniform in [0, 1], or the sigmoid of a standard normal."""
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    compute_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of matrix products and of frozen weights; what trains, and its optimizer state, is float32."""
    gradient_checkpointing: bool = True
    """Whether blocks are computed again in the backward pass (non-reentrant)."""
    ema_decay: float | None = None
    """Decay of averaged weights, which are then what is saved for use; None keeps no average."""
    sigma_bins: int = 5
    """Bins of the noise level in which the loss is logged."""
    log_every: int = 10
    probe_every: int | None = None
    """Steps between two probes (own cameras against another clip's on one fixed batch); None never probes."""
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    """Checkpoints that are kept, the newest ones."""
    seed: int = 0

    def __post_init__(self) -> None:
        counts = [
            "compression",
            "steps",
            "global_batch",
            "micro_batch",
            "sigma_bins",
            "log_every",
            "checkpoint_every",
            "keep_checkpoints",
        ]
        if self.probe_every is not None:
            counts.append("probe_every")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}.")
        for name, choices in (
            ("trains", get_args(Trains)),
            ("noise_levels", ("uniform", "logit-normal")),
            ("compute_dtype", ("bfloat16", "float32")),
            ("pose_unit", get_args(Unit)),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")
        if not 0 <= self.text_dropout <= 1:
            raise ValueError(f"text_dropout must be in [0, 1]; got {self.text_dropout}.")
        if self.ema_decay is not None and not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must be in [0, 1), or None for no average; got {self.ema_decay}.")
        if self.optimizer.kind != "adamw":
            raise ValueError(
                f"optimizer.kind must be 'adamw' here: {self.optimizer.kind!r} needs whole matrices, and sharding cuts them."
            )
        if self.probe_every is not None and self.global_batch < 2:
            raise ValueError(
                "a probe gives clips another clip's cameras and needs global_batch >= 2; use probe_every=None."
            )
        if self.spec.prediction != "velocity":
            raise ValueError(
                f"spec.prediction must be 'velocity', which Wan predicts; got {self.spec.prediction!r}."
            )

    def accumulation(self, world_size: int) -> int:
        """Micro batches that each of ``world_size`` processes takes per step.

        Raises:
            ValueError: if the global batch is no whole number of them.
        """
        at_once = world_size * self.micro_batch
        if self.global_batch % at_once:
            raise ValueError(
                f"global_batch {self.global_batch} must be processes x micro_batch x accumulation: {world_size} x "
                f"{self.micro_batch} = {at_once} does not divide it ({self.global_batch} / {at_once} = "
                f"{self.global_batch / at_once:.3g}). Use a multiple of {at_once}, or another number of processes."
            )
        return self.global_batch // at_once

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)
