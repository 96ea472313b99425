"""``merope train finetune``: cameras for a pretrained Wan, on one GPU or many; ``merope train recipes`` lists which."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from merope.cli.extras import require
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.caches.latent_cache import LatentCaches
    from merope.data.selection.split_caches import ClipsOfSplit
    from merope.training.finetune_config import FinetuneConfig


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a command line changes in a recipe; None leaves the recipe's own."""

    steps: int | None = None
    """Training steps."""
    global_batch: int | None = None
    """Clips per step over all processes."""
    micro_batch: int | None = None
    """Clips per forward pass of one process; the rest of its share is accumulated."""
    prefix_frames: int | None = None
    """Leading frames that are given and stay clean; 0 for none."""
    encoding: str | None = None
    """Another camera encoding by name, with its defaults (`merope encodings` lists them)."""
    trains: Literal["branch", "branch+attention", "all"] | None = None
    """What trains: the camera's modules, with them the self-attention beside them, or everything."""
    lr: float | None = None
    """Learning rate."""
    parallel: Literal["fsdp", "hsdp", "replicate"] | None = None
    """fsdp cuts all weights over all processes, hsdp over groups of --shard-size, replicate keeps all everywhere."""
    shard_size: int | None = None
    """Processes per sharding group of hsdp; fewer processes than that are one group."""
    dtype: Literal["bfloat16", "float32"] | None = None
    """Precision of matrix products and frozen weights; what trains is float32."""
    no_checkpointing: bool = False
    """Keep what the backward pass needs in place of computing blocks twice: faster, more memory."""
    log_every: int | None = None
    """Steps between two log entries."""
    probe_every: int | None = None
    """Steps between two probes of what the cameras are worth on a fixed batch."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints."""
    source_weights: tuple[str, ...] = ()
    """Shares of the draws by source, as NAME=SHARE of each, such as nuscenes=0.3 rendered=0.7; by default every cluster
    counts as one, whatever its source."""
    seed: int | None = None
    """Seed of everything that is drawn."""

    def apply(self, config: "FinetuneConfig", transformer: Any) -> "FinetuneConfig":
        """The changed configuration, for a transformer of this configuration."""
        from merope.encodings.registry import default_encoding, encoding_to_config
        from merope.training.finetune_config import ParallelConfig

        same = (
            "steps",
            "global_batch",
            "micro_batch",
            "trains",
            "log_every",
            "probe_every",
            "checkpoint_every",
            "seed",
        )
        values = {name: getattr(self, name) for name in same if getattr(self, name) is not None}
        if self.source_weights:
            values["source_weights"] = _weights(self.source_weights)
        if self.dtype is not None:
            values["compute_dtype"] = self.dtype
        if self.no_checkpointing:
            values["gradient_checkpointing"] = False
        if self.lr is not None:
            values["optimizer"] = replace(config.optimizer, learning_rate=self.lr)
        if self.prefix_frames is not None:
            values["spec"] = replace(config.spec, prefix_frames=self.prefix_frames)
        if self.parallel is not None or self.shard_size is not None:
            mode = self.parallel or config.parallel.mode
            own = config.parallel.shard_size if mode == "hsdp" else None
            values["parallel"] = ParallelConfig(
                mode=mode, shard_size=own if self.shard_size is None else self.shard_size
            )
        if self.encoding is not None:
            heads, head_dim = transformer["num_attention_heads"], transformer["attention_head_dim"]
            made = default_encoding(
                self.encoding, head_dim=head_dim, num_heads=max(1, heads // config.compression)
            )
            values |= {"encoding": encoding_to_config(made), "name": f"{config.name}-{self.encoding}"}
        return replace(config, **values)


def _weights(texts: tuple[str, ...]) -> dict[str, float]:
    """Shares by source out of NAME=SHARE."""
    weights: dict[str, float] = {}
    for text in texts:
        name, _, share = text.rpartition("=")
        try:
            weight = float(share)
        except ValueError:
            weight = 0.0
        if not name or name in weights or not 0 < weight < float("inf"):
            raise UsageError(
                f"--source-weights takes NAME=SHARE for each source, once, with a positive share; got {text!r}."
            )
        weights[name] = weight
    return weights


def recipes() -> None:
    """List the recipes of `merope train finetune`: the rows of the paper that each trains, and what it has of its own."""
    from merope.recipes.wan import describe_recipes

    print(describe_recipes())


def finetune(
    recipe: Annotated[str, tyro.conf.Positional],
    *,
    model: str,
    data: tuple[Path, ...] = (),
    output: Path | None = None,
    adapter: str | None = None,
    scale: Path | None = None,
    split: Path | None = None,
    changes: Annotated[Changes, tyro.conf.arg(name="")] = Changes(),
    device: str | None = None,
    wandb: str | None = None,
    plan: int | None = None,
) -> None:
    """Train a camera adapter, and the base where the recipe says so; run it again to go on where it stopped.

    Runs in one process, or in many under torchrun:
    `torchrun --nproc-per-node 8 -m merope train finetune RECIPE --model MODEL --data CACHE --output RUN`.
    All processes must see the same files. A run may go on with another number of processes. Ctrl-C or SIGTERM saves
    and stops, for which torchrun gives 30 seconds: a large base needs its --shutdown-timeout 600. After a kill the run
    goes on from its last checkpoint. The adapter is RUN/model/adapter.safetensors, and where
    the base trains it is beside it in RUN/model/transformer: `merope generate MODEL --adapter RUN/model`.

    Args:
        recipe: What to train, such as nuscenes-merope; `merope train recipes` lists all.
        model: Wan pipeline in diffusers' layout: a folder or a hub name. Its transformer alone is loaded.
        data: Caches of latents, as `merope data encode` writes them, made with the same model. Size, length and rate of
            the clips are theirs.
        output: Folder of the run; default runs/RECIPE.
        adapter: Adapter to go on from (a file, a folder or a hub name); by default a new one, which changes nothing at
            first.
        scale: Translation scale of encodings in which metres enter linearly: a split or a file that `merope data scale`
            wrote. By default that in --split, or beside the caches, else it is estimated from the clips in the same way.
        split: Train on the clips that this file names, as `merope data prototypes` or `merope data check` writes it, and
            with its clusters in place of those that were encoded.
        changes: What to change in the recipe.
        device: Such as cuda or cpu; by default a GPU where there is one.
        wandb: Weights & Biases project to log to as well.
        plan: Print what each of this many GPUs would need, from configurations alone, and stop.
    """
    if plan is not None and plan < 1:
        raise UsageError(f"--plan must be a number of GPUs, 1 or more; got {plan}.")
    if wandb is not None:
        require("wandb", purpose="--wandb")
    from merope.generation.model_files import ModelConfigs
    from merope.recipes.wan import find_recipe
    from merope.training.memory import plan_memory

    made = find_recipe(recipe)
    configs = ModelConfigs.read(model, adapter=adapter)
    config = changes.apply(
        made({"transformer": configs.transformer, "vae": configs.vae}), configs.transformer
    )
    if plan is not None:
        print(plan_memory(configs.transformer, config, num_processes=plan).table())
        return
    if not data:
        raise ValueError("--data must name at least one cache of latents; `merope data encode` makes them.")
    place = output or Path("runs") / config.name
    _train(config, configs, model, data, place, adapter, scale, split, device, wandb)


def _train(
    config: "FinetuneConfig",
    configs: Any,
    model: str,
    data: tuple[Path, ...],
    output: Path,
    adapter: str | None,
    scale: Path | None,
    split: Path | None,
    device: str | None,
    wandb: str | None,
) -> None:
    import torch

    from merope.cli.street import quiet_autocast
    from merope.data.caches.latent_cache import LatentCaches
    from merope.data.selection.split_caches import ClipsOfSplit
    from merope.data.selection.splits import read_split
    from merope.generation.model_files import trained_transformer
    from merope.training.clip_batches import sampler_of
    from merope.training.finetune import FinetuneTrainer, count_parameters
    from merope.training.log_sinks import has_tensorboard
    from merope.training.memory import GIB, plan_memory
    from merope.training.parallel import joined_processes
    from merope.training.pretrained import add_cameras, load_base

    quiet_autocast()
    everything = LatentCaches(data)
    clips = everything if split is None else ClipsOfSplit(everything, read_split(split))
    _require_same_latents(clips, configs.vae, model)
    # Whether the shares are of these sources is said before weights are loaded.
    sampler_of(clips, config)
    notes: list[str] = []
    if split is not None:
        notes.append(f"{len(clips)} of {len(everything)} clips are in {split}, with its clusters")
    config = _fitted(config, clips, notes)
    config = _scaled(config, clips, adapter, scale, split, notes)
    with joined_processes(device or ("cuda" if torch.cuda.is_available() else "cpu")) as processes:

        def say(text: str) -> None:
            if processes.is_first:
                print(text, flush=True)

        config.accumulation(processes.size)
        for note in notes:
            say(note)
        if processes.is_first:
            plan = plan_memory(
                configs.transformer,
                config,
                num_processes=processes.size,
                text_tokens=clips.description.text_length,
            )
            say(plan.table())
            if processes.device.type == "cuda":
                there = torch.cuda.get_device_properties(processes.device).total_memory
                if plan.device > there:
                    say(
                        f"this plan needs {plan.device / GIB:.1f} GiB and {processes.device} has {there / GIB:.1f}: expect "
                        "to run out. docs/wan.md says what makes it smaller."
                    )
        # An adapter that was trained together with its base brings it along.
        trained = None if adapter is None else trained_transformer(configs.adapter_file)
        transformer = load_base(model, config, trained=trained)
        trainer = FinetuneTrainer(
            output,
            config,
            transformer=transformer,
            adapter=add_cameras(transformer, config, start=adapter),
            clips=clips,
            processes=processes,
            wandb=wandb,
        )
        trains, parameters = count_parameters(trainer.transformer)
        say(
            f"{config.name}: {trains / 1e6:,.2f} M of {parameters / 1e6:,.2f} M parameters train ({config.trains}); "
            f"{config.steps} steps of {config.global_batch} clips = {processes.size} processes x {config.micro_batch} x "
            f"{trainer.accumulation}, {config.parallel.mode}, on {len(clips)} clips of "
            f"{trainer.batches.sampler.num_clusters} clusters, in {output}"
        )
        if not has_tensorboard():
            say("no TensorBoard files: pip install 'merope[tensorboard]'")
        trainer.run()
        state = "finished" if trainer.step == config.steps else "stopped; the same command goes on"
        say(f"{state} at step {trainer.step}; the model is in {output / 'model'}")


def _require_same_latents(clips: "LatentCaches | ClipsOfSplit", vae: Any, model: str) -> None:
    """Raise `CheckpointMismatch` unless the caches hold latents as this model's autoencoder normalises them."""
    from merope.errors import CheckpointMismatch

    for name in ("latents_mean", "latents_std"):
        stored, wanted = getattr(clips.description, name), vae[name]
        if [float(value) for value in stored] != [float(value) for value in wanted]:
            raise CheckpointMismatch(
                f"the caches were normalised with another {name} than the autoencoder of {model}: they were made with "
                "another model. Encode the clips with `merope data encode --model` of this one."
            )


def _fitted(
    config: "FinetuneConfig", clips: "LatentCaches | ClipsOfSplit", notes: list[str]
) -> "FinetuneConfig":
    """The configuration with size, length and rate of the clips.

    ``notes`` gets a line for each thing that is not the recipe's own.
    """
    from merope.errors import CheckpointMismatch
    from merope.recipes.wan import RECIPES
    from merope.training.clip_batches import require_up

    if config.input_map is not None:
        require_up(clips)
    described, spec = clips.description, config.spec
    # One reading of one clip: rate and unit are each clip's own and the same for all, which training holds them to.
    first = clips[0]
    if first.unit != config.pose_unit:
        other = f"{config.name}-metres" if first.unit == "m" else config.name.removesuffix("-metres")
        raise CheckpointMismatch(
            f"the clips are in unit {first.unit}; {config.name} takes {config.pose_unit}. Encode clips in that unit, or "
            f"take a recipe for this one{f' ({other})' if other in RECIPES else ''}."
        )
    sizes: dict[str, Any] = {
        "height": described.height,
        "width": described.width,
        "num_frames": described.num_frames,
        "fps": first.fps,
    }
    different = {name: value for name, value in sizes.items() if getattr(spec, name) != value}
    if different:
        notes.append(
            "the clips decide: "
            + ", ".join(
                f"{name} {value} (the recipe's: {getattr(spec, name)})" for name, value in different.items()
            )
        )
        config = replace(config, spec=replace(spec, **different))
    return config


def _scaled(
    config: "FinetuneConfig",
    clips: "LatentCaches | ClipsOfSplit",
    adapter: str | None,
    scale: Path | None,
    split: Path | None,
    notes: list[str],
) -> "FinetuneConfig":
    """The configuration with a translation scale, where its encoding has one.

    That of the adapter that is gone on from, else the file's, else the split's, else, without a split, the one beside the
    caches, else that of the clips.
    """
    from merope.adapters import read_adapter_config
    from merope.data.selection.motion_statistics import SCALE, motion_beside, read_motion
    from merope.data.selection.splits import read_split
    from merope.errors import CheckpointMismatch
    from merope.training.motion import needs_scale, with_scale_of

    if not needs_scale(config.encoding):
        if scale is not None:
            notes.append(f"{config.encoding['name']} has no translation scale; --scale is left aside")
        return config
    of, found = str(scale), None
    if scale is not None:
        found = read_motion(scale)
    stored = None if adapter is None else read_adapter_config(adapter)["encoding"]
    if stored is not None and stored["name"] == config.encoding["name"]:
        own = stored["scale"]
        if found is not None and own["per_metre"] != found.scale.per_metre:
            raise CheckpointMismatch(
                f"the adapter was trained with a translation scale of {own['per_metre']:.6g} per metre, and {scale} says "
                f"{found.scale.per_metre:.6g}. Leave --scale out to go on with the adapter's, or start without --adapter."
            )
        notes.append(f"translation scale: {own['per_metre']:.4g} per metre, the adapter's")
        return replace(config, encoding={**config.encoding, "scale": own})
    if found is None and split is not None:
        # What is beside the caches is of other clips.
        if SCALE in read_split(split).statistics:
            of, found = str(split), read_motion(split)
    elif found is None:
        folders = [cache.folder for cache in clips.caches]
        names = (f"{source}/{name}" for source, name in zip(clips.sources, clips.clip_ids, strict=True))
        of, found = ", ".join(map(str, folders)), motion_beside(folders, names)
    spec = config.spec
    if found is None:
        encoding = with_scale_of(config.encoding, [clips.poses(number) for number in range(len(clips))], spec)
        none = "" if split is None else f", since {split} has none"
        where = f"from the clips' motion{none} (`merope data scale` stores it)"
    else:
        found.require_fits(
            unit=config.pose_unit,
            num_frames=spec.num_frames,
            pose_policy=spec.pose_policy,
            temporal_stride=spec.temporal_stride,
            of=of,
        )
        encoding = {
            **config.encoding,
            "scale": {"per_metre": found.scale.per_metre, "reach": found.scale.reach},
        }
        where = f"of {of}, measured on {found.clips} clips of which {found.static} stand"
    values = encoding["scale"]
    notes.append(
        f"translation scale: {values['per_metre']:.4g} units per metre, {where}; longest baseline: {values['reach']:.4g} m"
    )
    return replace(config, encoding=encoding)
