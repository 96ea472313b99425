"""What moves the weights: optimizers, their learning rate, and averaged weights."""

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from merope.training.config import OptimizerConfig


class _Run(Protocol):
    @property
    def steps(self) -> int: ...

    @property
    def optimizer(self) -> OptimizerConfig: ...


def learning_rate(step: int, config: _Run) -> float:
    """Learning rate of a step, counted from 0."""
    options = config.optimizer
    rate = options.learning_rate
    if step < options.warmup_steps:
        return rate * (step + 1) / options.warmup_steps
    if options.decay == "constant":
        return rate
    done = (step - options.warmup_steps) / max(1, config.steps - options.warmup_steps)
    return rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(done, 1))))


def make_optimizers(
    parameters: dict[str, nn.Parameter], options: OptimizerConfig
) -> list[torch.optim.Optimizer]:
    """One AdamW, or Muon for the blocks' weight matrices and AdamW for everything else."""
    matrices = [
        parameter
        for name, parameter in parameters.items()
        if options.kind == "muon" and parameter.ndim == 2 and name.startswith("blocks.")
    ]
    chosen = {id(parameter) for parameter in matrices}
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [parameter for parameter in parameters.values() if id(parameter) not in chosen],
            lr=options.learning_rate,
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            foreach=True,
        )
    ]
    if matrices:
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=options.learning_rate,
                weight_decay=options.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers


class AveragedWeights:
    """Exponential moving average of the trainable parameters, float32."""

    def __init__(self, parameters: dict[str, nn.Parameter], decay: float) -> None:
        self.decay = decay
        self.values: dict[str, Tensor] = {name: p.detach().clone().float() for name, p in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: dict[str, nn.Parameter], step: int) -> None:
        """Move towards the current weights; young averages move faster."""
        decay = min(self.decay, (1 + step) / (10 + step))
        names = list(self.values)
        torch._foreach_lerp_(
            [self.values[n] for n in names], [parameters[n].detach().float() for n in names], 1 - decay
        )

    @torch.no_grad()
    def swap(self, parameters: dict[str, nn.Parameter]) -> None:
        """Exchange the averages with the current weights."""
        for name, parameter in parameters.items():
            current = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name].copy_(current)
