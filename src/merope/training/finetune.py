"""`FinetuneTrainer`: camera training on a pretrained Wan transformer, on one process or many (paper, B.1)."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from merope.adapters.base_identity import base_identity
from merope.adapters.flow import add_noise, predict_velocity, velocity_loss
from merope.adapters.signals import CameraSignals
from merope.adapters.wan import CameraAdapter
from merope.errors import CheckpointMismatch, MeropeError
from merope.files import only_process, write_text_atomically
from merope.training.checkpoints import Checkpoints, set_optimizer_steps, training_state
from merope.training.clip_batches import ClipBatches, Clips, MicroBatch
from merope.training.config import completed, differences
from merope.training.export import export_adapter, export_base, small_weights
from merope.training.finetune_config import FinetuneConfig
from merope.training.log_sinks import LogSinks
from merope.training.optimizers import AveragedWeights, learning_rate, make_optimizers
from merope.training.parallel import (
    Processes,
    average_gradients,
    distribute,
    expect_backward,
    whole,
)
from merope.training.pretrained import keep_times_exact
from merope.training.run_log import binned_losses
from merope.training.stopping import StopRequest
from merope.training.trainable import choose_trainable, trainable_parameters

# What a run may change when it goes on: none of it changes which losses it sees.
_FREE = (
    "parallel",
    "micro_batch",
    "gradient_checkpointing",
    "sigma_bins",
    "log_every",
    "probe_every",
    "checkpoint_every",
    "keep_checkpoints",
)

Prepared = tuple[MicroBatch, CameraSignals]
Seen = tuple[int, int, float, float]
"""Step, place in the global batch, noise level and loss of one clip."""


class FinetuneTrainer:
    """One run in one folder: ``checkpoints/`` to resume, ``log.jsonl``, ``model/`` for use.

    Takes a transformer with its adapter as they are loaded, on the CPU, and gives every process its part. Processes differ
    in rank alone: each makes the same trainer and calls `run`. A run that was interrupted at any moment, even by SIGKILL,
    goes on from its last whole checkpoint, on any number of processes, and sees the same batches, noise and, but for
    rounding, losses as an unbroken one. SIGTERM or Ctrl-C on any process saves and stops all.

    Raises:
        ValueError: if the processes do not divide the batch or the sharding groups, or nothing would train.
        CheckpointMismatch: if the clips do not fit the model.
    """

    def __init__(
        self,
        folder: str | Path,
        config: FinetuneConfig,
        *,
        transformer: Any,
        adapter: CameraAdapter,
        clips: Clips,
        processes: Processes,
        wandb: str | None = None,
    ) -> None:
        self.folder, self.config, self.processes = Path(folder), config, processes
        self.accumulation = config.accumulation(processes.size)
        self.batches = ClipBatches(clips, config)
        self.transformer, self.adapter = transformer, adapter
        self.compute = torch.bfloat16 if config.compute_dtype == "bfloat16" else torch.float32
        # Both before sharding, which changes classes and leaves parts of weights.
        self._base_config = json.loads(transformer.to_json_string())
        self._base = base_identity(transformer)
        self._data = _described(clips)
        choose_trainable(transformer, adapter, config.trains)
        if self.compute != torch.float32:
            keep_times_exact(transformer)
        if config.gradient_checkpointing:
            transformer.enable_gradient_checkpointing()
        transformer.train()
        distribute(transformer, config.parallel, processes, self.compute)
        self.parameters = trainable_parameters(transformer)
        (self.optimizer,) = make_optimizers(self.parameters, config.optimizer)
        self.average = (
            None if config.ema_decay is None else AveragedWeights(self.parameters, config.ema_decay)
        )
        self.checkpoints = Checkpoints(
            self.folder / "checkpoints", keep=config.keep_checkpoints, processes=processes
        )
        self.step = 0
        self.seconds = 0.0
        self._stop = StopRequest()
        self._sinks = (
            LogSinks(self.folder, name=config.name, config=config.to_dict(), wandb=wandb)
            if processes.is_first
            else None
        )
        self._checked_gradients = False
        # Clips since the last log entry: of all processes, and of this one since they were last put together.
        self._since_log: list[Seen] = []
        self._own: list[tuple[int, list[int], Tensor, Tensor]] = []

    def run(self, *, progress: bool = True) -> dict[str, float]:
        """Train to the configured number of steps, or until a signal; returns the last log entry.

        Raises:
            CheckpointMismatch: if the folder holds a run of another configuration.
            MeropeError: if another process is running in the folder, or the loss or the gradient is not finite; the last
                checkpoint stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_process(self.folder / ".lock") if self.processes.is_first else nullcontext(True) as free:
            if self.processes.any(not free)[0]:
                raise MeropeError(
                    f"another process is running in {self.folder}. Wait for it, or choose another folder (--output)."
                )
            return self._run(progress)

    def _run(self, progress: bool) -> dict[str, float]:
        config = self.config
        entry = self._resume()
        hidden = not (progress and self.processes.is_first)
        bar = tqdm(total=config.steps, initial=self.step, unit="step", disable=hidden)
        try:
            with self._stop.listening(), bar, warnings.catch_warnings():
                # Nothing of Wan's works in place on what a linear layer returns.
                warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
                entry = self._train(entry, bar)
        finally:
            if self._sinks is not None:
                self._sinks.close()
        return entry

    def _train(self, entry: dict[str, float], bar: Any) -> dict[str, float]:
        config = self.config
        if self.step == 0 and config.probe_every is not None:
            entry = {"step": 0, **self.probe()}
            self._write(entry)
        prepared = ahead(self._jobs())
        logged_at, clock = (self.step, self.seconds), time.monotonic()
        stopped = False
        while self.step < config.steps and not stopped:
            last = self.step + 1 == config.steps
            logs = last or (self.step + 1) % config.log_every == 0
            measured, stopped = self._update(prepared, measure=logs)
            self.step += 1
            now = time.monotonic()
            self.seconds, clock = self.seconds + now - clock, now
            bar.update()
            probes = config.probe_every is not None and (last or self.step % config.probe_every == 0)
            if logs or probes:
                entry = self._entry(measured, logged_at)
                if probes:
                    entry |= self.probe()
                self._write(entry)
                bar.set_postfix(loss=f"{entry['loss']:.4f}")
                logged_at, self._since_log = (self.step, self.seconds), []
            if last or stopped or self.step % config.checkpoint_every == 0:
                self._save(finished=last)
            clock = time.monotonic()
        prepared.close()
        return entry

    def losses(self, batch: MicroBatch, signals: CameraSignals) -> Tensor:
        """Velocity loss of each clip under these cameras, float32."""
        spec = self.config.spec
        # Without the cache of casts: sharded weights come and go, their copies would stay to the end of the pass.
        with torch.autocast(
            self.processes.device.type,
            torch.bfloat16,
            enabled=self.compute == torch.bfloat16,
            cache_enabled=False,
        ):
            velocity = predict_velocity(
                self.transformer,
                self.adapter,
                add_noise(batch.latents, batch.noise, batch.sigma),
                batch.latents,
                batch.sigma,
                signals,
                spec,
                text=batch.text.to(self.compute),
                dtype=self.compute,
            )
        return velocity_loss(velocity, batch.latents, batch.noise, batch.sigma, spec)

    @torch.no_grad()
    def probe(self) -> dict[str, float]:
        """What the cameras are worth on one fixed global batch of the training clips.

        ``control`` is the loss with each clip given the next clip's cameras minus the loss with its own; zero means that
        cameras are ignored, as they are before the first step of a new adapter.
        """
        own: list[float] = []
        other: list[float] = []
        for chosen in self.batches.probe_batches(rank=self.processes.rank, size=self.processes.size):
            batch = self.batches.load_probe(chosen)
            assert batch.other_rays is not None
            other_signals = self.adapter.signals(batch.other_rays, device="cpu")
            batch, signals = self._moved(batch)
            own += self.losses(batch, signals).tolist()
            other += self.losses(batch, other_signals.to(self.processes.device)).tolist()
        losses = self.processes.mean(torch.tensor([own, other], dtype=torch.float64).mean(1))
        return {"probe_loss": float(losses[0]), "control": float(losses[1] - losses[0])}

    def _jobs(self) -> Iterator[Callable[[], Prepared]]:
        """How to prepare each micro batch of the steps to come."""
        for step in range(self.step, self.config.steps):
            for chosen in self.batches.micro_batches(
                step, rank=self.processes.rank, size=self.processes.size
            ):
                yield partial(self._prepare, step, chosen)

    def _prepare(self, step: int, chosen: list[tuple[int, int]]) -> Prepared:
        return self._moved(self.batches.load(step, chosen))

    def _moved(self, batch: MicroBatch) -> Prepared:
        """A batch and its cameras on the device, where all that the CPU does for them comes first."""
        # A copy to a GPU waits for the work that is queued there: cameras made after one would hold the next step up.
        signals = self.adapter.signals(batch.rays, device="cpu")
        return batch.to(self.processes.device), signals.to(self.processes.device)

    def _update(self, prepared: Iterator[Prepared], *, measure: bool) -> tuple[dict[str, float], bool]:
        """One step; what was measured on the way, and whether any process was asked to stop."""
        config, processes = self.config, self.processes
        rate = learning_rate(self.step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        share = config.global_batch // processes.size
        place = processes.rank * share
        finite = True
        norms: dict[int, tuple[Tensor, Tensor]] = {}
        for number in range(self.accumulation):
            batch, signals = next(prepared)
            last = number + 1 == self.accumulation
            expect_backward(self.transformer, last=last)
            with self.adapter.recording_residuals() if measure and last else nullcontext(norms) as norms:
                losses = self.losses(batch, signals)
            (losses.sum() / share).backward()
            finite = finite and bool(torch.isfinite(losses).all())
            places = list(range(place, place + len(losses)))
            self._own.append((self.step, places, batch.sigma, losses.detach()))
            place += len(losses)
        broken, stopped = processes.any(not finite, self._stop.asked)
        if broken:
            raise self._diverged("loss")
        self._require_gradients()
        average_gradients(self.transformer, self.parameters.values(), processes)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), config.optimizer.gradient_clip)
        measured = {"gradient_norm": float(whole(norm)), "learning_rate": rate}
        if not torch.isfinite(whole(norm)):
            raise self._diverged("gradient")
        if measure:
            measured |= self._of_the_branches(norms)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.parameters, self.step)
        return measured, stopped

    def _require_gradients(self) -> None:
        """Raise RuntimeError, on the first step, unless all that trains was reached by the backward pass."""
        if self._checked_gradients:
            return
        without = [name for name, parameter in self.parameters.items() if parameter.grad is None]
        if without:
            raise RuntimeError(
                f"{len(without)} trainable parameters got no gradient: {', '.join(without[:5])}."
            )
        self._checked_gradients = True

    def _diverged(self, what: str) -> MeropeError:
        return MeropeError(
            f"the {what} is not finite at step {self.step}. Start again with a lower learning rate or a longer warm-up; the "
            f"last checkpoint in {self.folder} is kept."
        )

    def _of_the_branches(self, norms: dict[int, tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Each branch's share of the self-attention that it is added to, and the gradient of their output projections.

        The gradient is taken after clipping. Nothing where the encoding has no branch.
        """
        measured: dict[str, float] = {}
        if norms:
            ratios = torch.stack([(branch / base).float() for branch, base in norms.values()])
            shares = self.processes.mean(ratios).tolist()
            measured["residual_ratio"] = sum(shares) / len(shares)
            measured |= {
                f"residual_ratio_block_{block:02d}": share for block, share in zip(norms, shares, strict=True)
            }
        # Any: which modules a branch has depends on the encoding.
        branches: list[Any] = [
            branch for branch in self.adapter.branches.values() if hasattr(branch, "to_out")
        ]
        gradients = [whole(branch.to_out.weight.grad).float().norm() for branch in branches]
        if gradients:
            measured["output_gradient_norm"] = float(torch.stack(gradients).norm())
        return measured

    def _entry(self, measured: dict[str, float], since: tuple[int, float]) -> dict[str, float]:
        """A log entry of the steps since (step, seconds)."""
        self._put_together()
        losses = [(sigma, loss) for _, _, sigma, loss in self._since_log]
        steps, seconds = self.step - since[0], self.seconds - since[1]
        entry: dict[str, float] = {
            "step": self.step,
            "loss": sum(loss for _, loss in losses) / len(losses),
            **measured,
            "seconds": self.seconds,
            "clips_per_second": steps * self.config.global_batch / max(seconds, 1e-9),
        }
        if self.processes.device.type == "cuda":
            entry["peak_memory_gib"] = torch.cuda.max_memory_allocated(self.processes.device) / 2**30
        return entry | binned_losses(losses, self.config.sigma_bins)

    def _put_together(self) -> None:
        """Let every process know the losses of all, in the order of steps and places."""
        own = [
            (step, place, float(sigma), float(loss))
            for step, places, sigmas, losses in self._own
            for place, sigma, loss in zip(places, sigmas.tolist(), losses.tolist(), strict=True)
        ]
        everyone = [seen for part in self.processes.gather(own) for seen in part]
        self._since_log = [*self._since_log, *sorted(everyone)]
        self._own = []

    def _write(self, entry: dict[str, float]) -> None:
        if self._sinks is not None:
            self._sinks.write(entry)

    def _state(self) -> dict[str, Tensor]:
        averages = {} if self.average is None else self.average.values
        return training_state(self.parameters, self.optimizer, averages)

    def _save(self, *, finished: bool) -> None:
        self._put_together()
        # Once finished the model comes first: killed in between, the run goes on from the older state and writes it again.
        # Until then the state does: whoever asked to stop may not wait for both.
        if finished:
            self._export(finished=True)
        self.checkpoints.save(
            self.step,
            self._state(),
            {
                "seconds": self.seconds,
                "config": self.config.to_dict(),
                "data": self._data,
                "base": self._base,
                "since_log": self._since_log,
            },
        )
        if not finished:
            self._export(finished=False)

    def _export(self, *, finished: bool) -> None:
        config, model = self.config, self.folder / "model"
        values: dict[str, Tensor] = dict(self.parameters) if self.average is None else self.average.values
        summary = {
            "recipe": config.name,
            "trains": config.trains,
            "steps": self.step,
            "finished": finished,
            "global_batch": config.global_batch,
            "learning_rate": config.optimizer.learning_rate,
            "clips": self._data["clips"],
            "pose_unit": config.pose_unit,
            "seconds": round(self.seconds, 1),
        }
        base = self._base
        if config.trains != "branch":
            export_base(
                model / "transformer",
                self.transformer,
                values,
                config=self._base_config,
                dtype=self.compute,
                processes=self.processes,
            )
            base = base_identity(self.transformer, small_weights(self.transformer, values))
        export_adapter(
            model / "adapter.safetensors",
            self.adapter,
            values,
            base=base,
            spec=config.spec,
            summary=summary,
            processes=self.processes,
        )

    def _resume(self) -> dict[str, float]:
        """Load the newest checkpoint if there is one; the last log entry up to it."""
        path = self.checkpoints.latest()
        if path is not None:
            saved = self.checkpoints.read(path)
            self._require_same_run(saved)
            self.checkpoints.load(path, self._state())
            self.step, self.seconds = saved["step"], saved["seconds"]
            set_optimizer_steps(self.optimizer, self.step)
            self._since_log = [tuple(seen) for seen in saved["since_log"]]
        if self._sinks is None:
            return {}
        # What a killed run was writing when it died.
        for left in (*self.folder.glob(".*.tmp*"), *(self.folder / "model").glob(".*.tmp.*")):
            left.unlink(missing_ok=True)
        write_text_atomically(self.folder / "config.json", json.dumps(self.config.to_dict(), indent=1))
        # A run without a checkpoint begins anew, its probe before the first step too.
        return self._sinks.open(-1 if path is None else self.step)

    def _require_same_run(self, saved: dict[str, Any]) -> None:
        free = set(_FREE)
        if self.config.optimizer.decay == "constant":
            free.add("steps")
        config = json.loads(json.dumps(self.config.to_dict()))
        found = [
            differences(
                {name: value for name, value in completed(saved["config"]).items() if name not in free},
                {name: value for name, value in config.items() if name not in free},
            ),
            differences(saved["data"], self._data, "data."),
            differences(saved["base"], self._base, "base."),
        ]
        different = "; ".join(part for part in found if part)
        if different:
            raise CheckpointMismatch(
                f"{self.folder} holds a run of another configuration: {different}. Choose another folder (--output), or "
                "delete that one."
            )


def ahead(jobs: Iterator[Callable[[], Prepared]]) -> Generator[Prepared]:
    """The results of jobs in their order; while one is used the next is being made, in a thread."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for job in jobs:
            coming = pool.submit(job)
            if waiting is not None:
                yield waiting.result()
            waiting = coming
        if waiting is not None:
            yield waiting.result()


def count_parameters(transformer: nn.Module) -> tuple[int, int]:
    """Parameters that train, and all."""
    sizes = [(value.numel(), value.requires_grad) for value in transformer.parameters()]
    return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)


def _described(clips: Clips) -> dict[str, Any]:
    """What tells two sets of clips apart: how many, and a digest of their names and clusters in order."""
    names = zip(clips.sources, clips.clip_ids, clips.clusters, strict=True)
    digest = hashlib.sha256("\n".join("/".join(name) for name in names).encode()).hexdigest()
    return {"clips": len(clips), "digest": digest[:16]}
