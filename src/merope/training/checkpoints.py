"""Checkpoints of a run over many processes, which any other number of processes and any way of cutting can go on from.

``checkpoints/step-00000500`` holds what trains, its optimizer's moments and averages in torch.distributed.checkpoint's
format, each process's part in a file of its own, and ``run.json`` with everything else. A checkpoint is written under
another name and appears whole. All processes of a run must see the same folder.

There is no random state in it: whatever a run draws is a function of seed, step and place in the batch, and the
sampler's position is the step.
"""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException

from merope.errors import CheckpointMismatch, MeropeError
from merope.files import write_text_atomically
from merope.training.parallel import Processes

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STATE = "run.json"


def training_state(
    parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, averages: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name; they share memory with the run's, so loading into them loads the run.

    An AdamW that has not stepped yet gets its moments here, zeros.
    """
    state: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        held = optimizer.state[parameter]
        if not held:
            held["step"] = torch.zeros((), dtype=torch.float32)
            held.update({moment: torch.zeros_like(parameter) for moment in _MOMENTS})
        state[f"model.{name}"] = parameter.detach()
        state.update({f"optimizer.{moment}.{name}": held[moment] for moment in _MOMENTS})
    state.update({f"average.{name}": value for name, value in averages.items()})
    return state


def set_optimizer_steps(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Tell AdamW how many steps it has made, for its bias correction."""
    for held in optimizer.state.values():
        held["step"].fill_(step)


class Checkpoints:
    """The checkpoints in a folder, the last ``keep`` of them."""

    def __init__(self, folder: str | Path, *, keep: int, processes: Processes) -> None:
        self.folder, self.keep, self.processes = Path(folder), keep, processes

    def latest(self) -> Path | None:
        """The newest whole checkpoint, the same on all processes; None if there is none."""
        found = self._whole()
        # The first one's answer: another may look at a file system that is not up to date.
        return self.processes.gather(found[-1] if found else None)[0]

    def read(self, path: Path) -> dict[str, Any]:
        """What was saved beside the tensors.

        Raises:
            CheckpointMismatch: if it is not readable.
        """
        try:
            return json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error

    def load(self, path: Path, tensors: dict[str, Tensor]) -> None:
        """Fill the tensors, each process its own parts, however the parts were cut when they were saved.

        Raises:
            CheckpointMismatch: if names or shapes differ, or it is not readable.
        """
        reader = FileSystemReader(path)
        try:
            saved = reader.read_metadata().state_dict_metadata
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise _damaged(path, error) from error
        missing = sorted(tensors.keys() - saved.keys())
        unexpected = sorted(saved.keys() - tensors.keys())
        sizes: Any = saved
        reshaped = [
            f"{name} {list(sizes[name].size)} for {list(tensor.shape)}"
            for name, tensor in tensors.items()
            if name in saved and sizes[name].size != tensor.shape
        ]
        for what, names in (("lacks", missing), ("also holds", unexpected), ("has other shapes:", reshaped)):
            if names:
                raise CheckpointMismatch(
                    f"{path} {what} {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: it is of another model."
                )
        try:
            dcp.load(tensors, storage_reader=reader)
        except CheckpointException as error:
            raise _damaged(path, _reason(error)) from error

    def save(self, step: int, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
        """Write a checkpoint, every process its parts, and forget those that are too many.

        Raises:
            MeropeError: on all processes, if any of them cannot write its part; nothing of it stays.
        """
        target = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".{target.name}.tmp"
        if self.processes.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(".step-*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            temporary.mkdir()
        self.processes.wait()
        try:
            dcp.save(tensors, storage_writer=FileSystemWriter(temporary))
        except CheckpointException as error:
            if self.processes.is_first:
                shutil.rmtree(temporary, ignore_errors=True)
            raise MeropeError(
                f"the checkpoint of step {step} could not be written to {self.folder}: {_reason(error)}. Those before are "
                "untouched: the same command goes on from the newest."
            ) from error
        self.processes.wait()
        if self.processes.is_first:
            write_text_atomically(temporary / _STATE, json.dumps({"step": step, **described}))
            if target.exists():
                shutil.rmtree(target)
            os.replace(temporary, target)
            for old in self._whole()[: -self.keep]:
                shutil.rmtree(old)
        self.processes.wait()

    def _whole(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if (path / _STATE).exists())


def _damaged(path: Path, error: BaseException) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"{path} is damaged: {str(error) or type(error).__name__}. Delete it to go on from the checkpoint before."
    )


def _reason(error: CheckpointException) -> BaseException:
    """What went wrong on the first of the processes where something did."""
    return error.failures[min(error.failures)][0]
