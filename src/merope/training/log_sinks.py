"""Where a run's log entries go beside the terminal: JSON lines always, TensorBoard and Weights & Biases where wanted."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from merope.errors import MissingDependency
from merope.training.run_log import append_entry, cut_entries


def has_tensorboard() -> bool:
    """Whether the ``tensorboard`` extra is installed."""
    return find_spec("tensorboard") is not None


class LogSinks:
    """Takes entries (numbers by name, "step" among them) for a folder.

    ``log.jsonl`` is cut back to the step that a run goes on from; TensorBoard's files, written where its package is
    installed, are told to forget later steps; ``wandb`` names a Weights & Biases project, whose run goes on too.

    Raises:
        MissingDependency: if ``wandb`` is asked for and not installed.
    """

    def __init__(self, folder: Path, *, name: str, config: dict[str, Any], wandb: str | None = None) -> None:
        self.path = folder / "log.jsonl"
        if wandb is not None and find_spec("wandb") is None:
            raise MissingDependency.for_extra("wandb", extra="wandb", purpose="logging to Weights & Biases")
        self._folder, self._name, self._config, self._wandb = folder, name, config, wandb
        # Any: both packages are optional.
        self._writer: Any = None
        self._run: Any = None

    def open(self, step: int) -> dict[str, float]:
        """Begin at ``step``; the last entry up to it, or an empty one."""
        last = cut_entries(self.path, step)
        if has_tensorboard():
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder / "tensorboard"), purge_step=step + 1)
        if self._wandb is not None:
            import wandb

            self._run = wandb.init(
                project=self._wandb,
                name=self._name,
                id=self._identity(),
                resume="allow",
                config=self._config,
                dir=str(self._folder),
            )
        return last

    def write(self, entry: dict[str, float]) -> None:
        """Add an entry everywhere."""
        append_entry(self.path, entry)
        step = int(entry["step"])
        values = {name: value for name, value in entry.items() if name != "step"}
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
        if self._run is not None:
            self._run.log(values, step=step)

    def close(self) -> None:
        """Let go of what is open."""
        if self._writer is not None:
            self._writer.close()
        if self._run is not None:
            self._run.finish()
        self._writer = self._run = None

    def _identity(self) -> str:
        """The id of this folder's Weights & Biases run, made once."""
        path = self._folder / "wandb-id"
        if not path.exists():
            import secrets

            path.write_text(secrets.token_hex(4), encoding="utf-8")
        return path.read_text(encoding="utf-8")
