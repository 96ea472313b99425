"""The training loop: flow matching with a clean prefix, logged, checkpointed, resumable, stoppable."""

import json
import time
from pathlib import Path

import torch
from tqdm import tqdm

from merope.adapters.command import latent_rays
from merope.adapters.flow import add_noise, predict_velocity, velocity_loss
from merope.data.caches.latents import LinearCodec
from merope.errors import CheckpointMismatch, MeropeError
from merope.files import atomic_path, write_text_atomically
from merope.training.batches import Batch, BatchSource
from merope.training.config import TrainConfig, completed, differences
from merope.training.optimizers import AveragedWeights, learning_rate, make_optimizers
from merope.training.run_log import append_entry, binned_losses, cut_entries
from merope.training.stopping import StopRequest
from merope.training.street_clips import StreetClips
from merope.training.system import build_model, save_model
from merope.training.trainable import trainable_parameters


class Trainer:
    """One run in one folder: ``state.pt`` to resume, ``log.jsonl``, ``model/`` for use.

    A run that was interrupted at any moment, even by SIGKILL, goes on from its last checkpoint and sees the same
    batches, noise and losses as an unbroken one. SIGTERM and Ctrl-C save and stop; a second Ctrl-C does not wait.
    """

    def __init__(
        self,
        folder: str | Path,
        config: TrainConfig,
        *,
        clips: StreetClips,
        codec: LinearCodec,
        device: str = "cpu",
    ) -> None:
        self.folder = Path(folder)
        self.config = config
        self.codec = codec
        self.source = BatchSource(clips, codec, config)
        self.transformer, self.adapter = build_model(config)
        self.device = torch.device(device)
        self.transformer.to(self.device)
        self.parameters = trainable_parameters(self.transformer)
        self.optimizers = make_optimizers(self.parameters, config.optimizer)
        self.average = AveragedWeights(self.parameters, config.ema_decay)
        self.step = 0
        self.seconds = 0.0
        self._stop = StopRequest()
        # Noise level and loss of every clip since the last log entry; part of a checkpoint between two entries.
        self._since_log: list[tuple[float, float]] = []

    def run(self, *, progress: bool = True) -> dict[str, float]:
        """Train to the configured number of steps; returns the last log entry.

        Raises:
            CheckpointMismatch: if the folder holds a run of another configuration.
            MeropeError: if the loss is not finite; the last checkpoint stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = self._resume()
        clock = time.monotonic()
        with (
            self._stop.listening(),
            tqdm(total=self.config.steps, initial=self.step, unit="step", disable=not progress) as bar,
        ):
            while self.step < self.config.steps and not self._stop.asked:
                batch = self.source.training(self.step).to(self.device)
                losses, gradient_norm = self._update(batch)
                self._since_log.extend(zip(batch.sigma.tolist(), losses.tolist(), strict=True))
                self.step += 1
                self.seconds += time.monotonic() - clock
                clock = time.monotonic()
                bar.update()
                last = self.step == self.config.steps
                probed = self.step % self.config.probe_every == 0 or last
                if self.step % self.config.log_every == 0 or probed:
                    entry = self._entry(self._since_log, gradient_norm)
                    if probed:
                        entry |= self.probe()
                    self._log(entry)
                    bar.set_postfix(loss=f"{entry['loss']:.4f}")
                    self._since_log = []
                if self.step % self.config.checkpoint_every == 0 or last or self._stop.asked:
                    self._save(finished=last)
        return entry

    def _update(self, batch: Batch) -> tuple[torch.Tensor, float]:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self.step, self.config)
        losses = self.losses(batch)
        loss = losses.mean()
        if not torch.isfinite(loss):
            raise MeropeError(
                f"the loss is {loss.item()} at step {self.step}. Start again with a lower learning rate or a longer "
                f"warm-up; the last checkpoint in {self.folder} is kept."
            )
        self.transformer.zero_grad(set_to_none=True)
        loss.backward()
        if self.step == 0:
            without = [name for name, parameter in self.parameters.items() if parameter.grad is None]
            if without:
                raise RuntimeError(
                    f"{len(without)} trainable parameters got no gradient: {', '.join(without[:5])}."
                )
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.optimizer.gradient_clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.average.update(self.parameters, self.step)
        return losses.detach(), float(norm)

    def losses(self, batch: Batch, *, T_world_cam: torch.Tensor | None = None) -> torch.Tensor:
        """Velocity loss of each clip, with its own cameras or with others."""
        spec = self.config.spec
        poses = batch.T_world_cam if T_world_cam is None else T_world_cam
        cameras = self.adapter.signals(latent_rays(poses, spec), device=self.device)
        with torch.autocast(batch.latents.device.type, torch.bfloat16, enabled=self.config.autocast):
            velocity = predict_velocity(
                self.transformer,
                self.adapter,
                add_noise(batch.latents, batch.noise, batch.sigma),
                batch.latents,
                batch.sigma,
                cameras,
                spec,
            )
        return velocity_loss(velocity, batch.latents, batch.noise, batch.sigma, spec)

    @torch.no_grad()
    def probe(self) -> dict[str, float]:
        """Held-out loss of the averaged weights, and what the cameras are worth.

        ``control`` is the loss with each clip given another clip's cameras minus the loss with its own; zero
        means that the cameras are ignored. ``residual_ratio`` is the branch's share of what it is added to; it is
        left out where the encoding has no branch.
        """
        self.average.swap(self.parameters)
        own, other, ratios = [], [], []
        for index in range(self.source.num_probes):
            batch = self.source.probe(index).to(self.device)
            with self.adapter.recording_residuals() as norms:
                own.append(self.losses(batch))
            ratios.append([float(branch / base) for branch, base in norms.values()])
            other.append(self.losses(batch, T_world_cam=batch.T_world_cam.roll(1, 0)))
        self.average.swap(self.parameters)
        held_out = float(torch.cat(own).mean())
        entry = {"held_out": held_out, "control": float(torch.cat(other).mean()) - held_out}
        if any(ratios):
            entry["residual_ratio"] = sum(map(sum, ratios)) / sum(map(len, ratios))
        return entry

    def _entry(self, bins: list[tuple[float, float]], gradient_norm: float) -> dict[str, float]:
        entry: dict[str, float] = {
            "step": self.step,
            "loss": sum(loss for _, loss in bins) / len(bins),
            "gradient_norm": gradient_norm,
            "learning_rate": learning_rate(self.step - 1, self.config),
            "seconds": self.seconds,
        }
        return entry | binned_losses(bins, self.config.sigma_bins)

    def _log(self, entry: dict[str, float]) -> None:
        append_entry(self.folder / "log.jsonl", entry)

    def _save(self, *, finished: bool) -> None:
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "config": json.dumps(self.config.to_dict(), sort_keys=True),
            "parameters": {name: parameter.detach() for name, parameter in self.parameters.items()},
            "average": self.average.values,
            "since_log": self._since_log,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        # The model first: a run killed in between goes on from the older state and writes the model again.
        self.average.swap(self.parameters)
        summary = {"steps": self.step, "seconds": round(self.seconds, 1), "finished": finished}
        save_model(
            self.folder / "model", self.transformer, self.adapter, self.codec, self.config, summary=summary
        )
        self.average.swap(self.parameters)
        with atomic_path(self.folder / "state.pt") as temporary:
            torch.save(state, temporary)

    def _resume(self) -> dict[str, float]:
        """Load the folder's checkpoint if there is one; the last log entry up to it."""
        path, log = self.folder / "state.pt", self.folder / "log.jsonl"
        # What a killed run was writing when it died.
        for left in (*self.folder.glob(".*.tmp*"), *(self.folder / "model").glob(".*.tmp*")):
            left.unlink(missing_ok=True)
        config = json.dumps(self.config.to_dict(), indent=1)
        if not path.exists():
            write_text_atomically(self.folder / "config.json", config)
            log.write_text("")
            return {}
        state = torch.load(path, weights_only=True, map_location=self.device)
        different = differences(completed(json.loads(state["config"])), json.loads(config))
        if different:
            raise CheckpointMismatch(
                f"{self.folder} holds a run of another configuration: {different}. Choose another folder (--output), or "
                "delete that one."
            )
        write_text_atomically(self.folder / "config.json", config)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["parameters"][name])
        self.average.values = state["average"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]
        self._since_log = list(state["since_log"])
        return cut_entries(log, self.step)
