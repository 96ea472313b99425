"""What each process of the fine-tuning tests does; imported anew by every one of them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from merope.adapters.branch import CameraBranch
from merope.adapters.checkpoint import adapter_tensors
from merope.data.caches.latent_cache import LatentCache
from merope.errors import MeropeError
from merope.training.finetune_config import ParallelConfig
from merope.training.parallel import Processes, joined_processes, whole
from merope.training.pretrained import load_base
from merope.training.run_log import read_entries
from tests.support.finetune_run import finetune_trainer
from tests.support.processes import run_together

MODES: dict[str, ParallelConfig] = {
    "fsdp": ParallelConfig(mode="fsdp"),
    "hsdp": ParallelConfig(mode="hsdp", shard_size=2),
    "replicate": ParallelConfig(mode="replicate"),
}


def trained(processes: Processes, folder: Path, name: str, **changes: Any) -> Any:
    """A trainer that has run in the folder of this name."""
    trainer = finetune_trainer(
        folder / name, folder / "base", LatentCache(folder / "cache"), processes, **changes
    )
    trainer.run(progress=False)
    return trainer


def losses(folder: Path, name: str) -> list[float]:
    """The curve of the run of this name."""
    return [entry["loss"] for entry in read_entries(folder / name / "log.jsonl")]


def modes(processes: Processes, folder: Path) -> dict[str, Any]:
    """Curves under every way of cutting weights, and what became of the weights that do not train."""
    found: dict[str, Any] = {}
    for mode, cut in MODES.items():
        if mode == "hsdp" and processes.size <= 2:
            # One group: the same as fsdp.
            continue
        name = f"{mode}-{processes.size}"
        trainer = trained(processes, folder, name, parallel=cut, steps=3, checkpoint_every=100)
        before = load_base(folder / "base", trainer.config).state_dict()
        after = trainer.transformer.state_dict()
        frozen = {n: p for n, p in trainer.transformer.named_parameters() if not p.requires_grad}
        found[mode] = {
            "losses": losses(folder, name),
            "unchanged": all(torch.equal(whole(after[n]), before[n]) for n in before),
            "frozen": len(frozen),
            "frozen gradients": [n for n, p in frozen.items() if p.grad is not None],
            "cut": sum(isinstance(p, DTensor) for p in trainer.transformer.parameters()),
            "adapter": {n: whole(v) for n, v in adapter_tensors(trainer.adapter).items()},
        }
    # More clips than processes: groups that hold the same exchange gradients after the last of them.
    name = f"accumulated-{processes.size}"
    trained(processes, folder, name, parallel=MODES["hsdp"], global_batch=8, steps=2)
    found["accumulated"] = {"losses": losses(folder, name)}
    return found


def bases(processes: Processes, folder: Path) -> dict[str, Any]:
    """Curves where the base trains, with averaged weights in sharded form, and what was written of it."""
    found: dict[str, Any] = {}
    for trains in ("branch+attention", "all"):
        name = f"{trains}-{processes.size}"
        trainer = trained(processes, folder, name, trains=trains, steps=2, ema_decay=0.5)
        assert trainer.average is not None
        found[trains] = {
            "losses": losses(folder, name),
            "average": {n: whole(value) for n, value in trainer.average.values.items()},
        }
    return found


def going_on(processes: Processes, folder: Path, name: str, mode: str, steps: int) -> list[float]:
    """The curve of a run that may have begun elsewhere, up to some step."""
    trained(processes, folder, name, parallel=MODES[mode], steps=steps, ema_decay=0.9)
    return losses(folder, name)


def killed(processes: Processes, folder: Path, name: str) -> None:
    """A run whose last process dies without a word while it computes step 3."""
    trainer = finetune_trainer(
        folder / name, folder / "base", LatentCache(folder / "cache"), processes, ema_decay=0.9
    )
    compute = trainer.losses

    def dying(batch: Any, signals: Any) -> Any:
        if trainer.step == 3 and processes.rank == processes.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(batch, signals)

    trainer.losses = dying  # type: ignore[method-assign]
    trainer.run(progress=False)


def stopped(processes: Processes, folder: Path, name: str) -> int:
    """The step at which a run stands when its last process alone was told to stop during step 1."""
    trainer = finetune_trainer(folder / name, folder / "base", LatentCache(folder / "cache"), processes)
    compute = trainer.losses

    def told(batch: Any, signals: Any) -> Any:
        if trainer.step == 1 and processes.rank == processes.size - 1 and not trainer._stop.asked:
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(batch, signals)

    trainer.losses = told  # type: ignore[method-assign]
    trainer.run(progress=False)
    assert trainer.checkpoints.latest() is not None
    return trainer.step


def diverging(processes: Processes, folder: Path) -> tuple[str, int]:
    """What every process is told when one has a loss that is not finite, and the step."""
    trainer = finetune_trainer(folder / "nan", folder / "base", LatentCache(folder / "cache"), processes)
    compute = trainer.losses
    wrong = processes.rank == processes.size - 1
    trainer.losses = lambda batch, signals: (  # type: ignore[method-assign]
        compute(batch, signals) * (float("nan") if wrong and trainer.step == 1 else 1)
    )
    try:
        trainer.run(progress=False)
    except MeropeError as error:
        return str(error), trainer.step
    return "no error", trainer.step


def half_precision(processes: Processes, folder: Path) -> dict[str, Any]:
    """A run in bfloat16: its curve, and the precisions that meet in a branch and in the optimizer."""
    seen: set[torch.dtype] = set()
    forward = CameraBranch.forward

    def watching(self: Any, hidden: Any, cameras: Any, record: Any = None) -> Any:
        operator = cameras.operator
        operator.map_tensors(lambda tensor: seen.add(tensor.dtype) or tensor)
        return forward(self, hidden, cameras, record)

    CameraBranch.forward = watching  # type: ignore[method-assign]
    try:
        name = f"bfloat16-{processes.size}"
        trainer = trained(
            processes, folder, name, compute_dtype="bfloat16", trains="branch+attention", steps=2
        )
    finally:
        CameraBranch.forward = forward  # type: ignore[method-assign]
    named = dict(trainer.transformer.named_parameters())
    return {
        "losses": losses(folder, name),
        "operator": seen,
        "trains": {p.dtype for p in trainer.parameters.values()},
        "moments": {s["exp_avg"].dtype for s in trainer.optimizer.state.values()},
        "frozen": {n: p.dtype for n, p in named.items() if not p.requires_grad},
    }


def cast_by_sharding(processes: Processes, folder: Path) -> str:
    """What a transformer says whose blocks let FSDP2 cast their arguments, as it does by default."""
    trainer = finetune_trainer(
        folder / "cast",
        folder / "base",
        LatentCache(folder / "cache"),
        processes,
        parallel=MODES["replicate"],
        gradient_checkpointing=False,
    )
    for block in trainer.transformer.blocks:
        fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    batch = trainer.batches.load(0, [(0, 0)])
    try:
        trainer.losses(batch, trainer.adapter.signals(batch.rays))
    except TypeError as error:
        return str(error)
    return "no error"


def pair(processes: Processes, folder: Path) -> dict[str, Any]:
    """Everything that two processes have to say in one go."""
    return {
        "modes": modes(processes, folder),
        "bases": bases(processes, folder),
        "half precision": half_precision(processes, folder),
        "stopped": stopped(processes, folder, "stopped"),
        "diverging": diverging(processes, folder),
    }


JOBS: dict[str, Callable[..., Any]] = {job.__name__: job for job in (modes, pair, going_on, killed)}


def work(rank: int, size: int, job: str, folder: Path, arguments: tuple) -> Any:
    """One process of a job."""
    with joined_processes() as processes:
        return JOBS[job](processes, folder, *arguments)


def run_job(size: int, job: str, folder: Path, *arguments: Any) -> list[Any]:
    """What every process found, by rank."""
    return run_together(work, size, job, folder, arguments)
