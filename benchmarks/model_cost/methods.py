"""Transformers with a camera encoding each, all on the weights of one backbone, so that several fit side by side."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from merope.adapters import CameraAdapter, CameraSignals, attach
from merope.adapters.branch import CameraBranch, Recorder
from merope.adapters.command import latent_matrices, latent_rays
from merope.adapters.spec import VideoSpec
from merope.operators import CameraOperator
from merope.worlds.drives import drive

from ..attention_cost.columns import Column, encoding_of, implementation
from ..attention_cost.planar import factors_of
from ..attention_cost.scopes import scope_function
from ..attention_cost.shapes import view_rays
from ..measuring.compiling import compiled_alone
from .sizes import ModelSize

Method = Literal["base", "gta", "ucpe", "merope"]
METHODS: tuple[Method, ...] = ("base", "gta", "ucpe", "merope")

Trains = Literal["branch", "all"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FormSignals(CameraSignals):
    """Signals with what a `FormBranch` takes beside its input."""

    geometry: Any = None


class FormBranch(CameraBranch):
    """A branch that computes the same in another way: `camera_attention` compiled, or the plain planar implementation."""

    function: Callable[..., Tensor]

    def forward(
        self, hidden: Tensor, cameras: CameraSignals | CameraOperator, record: Recorder | None = None
    ) -> Tensor:
        if not isinstance(cameras, FormSignals) or record is not None:
            raise TypeError("a branch of this form takes FormSignals and records nothing.")
        if not torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(self.to_q.weight.dtype)
        layers = (self.to_q, self.to_k, self.to_v, self.to_out)
        weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
        return self.function(cameras.geometry, hidden, *weights)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One method, ready to run."""

    method: Method
    column: Column | None
    """How its attention is computed; None is the library's own way."""
    transformer: Any
    adapter: CameraAdapter | None
    """None for the base."""
    spec: VideoSpec
    device: str

    def branch_parameters(self) -> list[nn.Parameter]:
        """Parameters of the branches; none for the base."""
        return [] if self.adapter is None else list(self.adapter.parameters())

    def cameras(self) -> CameraSignals | None:
        """From poses to what the blocks take: all that a new clip costs before the first layer."""
        if self.adapter is None:
            return None
        poses = drive("curve", seed=0, num_frames=self.spec.num_frames, fps=self.spec.fps)
        rays = latent_rays(latent_matrices([poses], self.spec), self.spec)
        signals = self.adapter.signals(rays, device=self.device)
        if self.column is None:
            return signals
        operator = signals.operator
        return FormSignals(
            operator=operator, geometry=factors_of(operator) if self.column.route == "plain" else operator
        )


def backbone(size: ModelSize, *, device: str, seed: int = 0) -> Any:
    """A transformer with random weights in float32, made where it will run."""
    torch.manual_seed(seed)
    with torch.device(device):
        return WanTransformer3DModel(**size.transformer())


def prepare(
    size: ModelSize,
    methods: Mapping[Method, Column | None],
    *,
    purpose: Literal["training", "denoising"],
    trains: Trains = "all",
    checkpointing: bool = False,
    compiled: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> dict[Method, Prepared]:
    """The methods on one backbone. What trains is float32, and so are branches; everything else is ``dtype``.

    ``methods`` says how each one's attention is computed. Branches do not start at zero here: zeros are no numbers to
    measure with.
    """
    shared = backbone(size, device=device, seed=seed)
    frozen = purpose == "denoising" or trains == "branch"
    shared.requires_grad_(not frozen)
    if frozen:
        cast(shared, dtype)
    shared.train(purpose == "training")
    if checkpointing and purpose == "training":
        shared.enable_gradient_checkpointing()
    made: dict[Method, Prepared] = {}
    for method, column in methods.items():
        transformer = sharing(shared)
        adapter = None if method == "base" else _attached(transformer, method, size)
        if adapter is not None:
            if column is not None:
                _change_form(adapter, column, size, device=device, compiled=compiled)
            for parameter in adapter.parameters():
                parameter.requires_grad_(purpose == "training")
        if compiled:
            # Each method, with and without a branch: more versions of one block's code than are kept by default.
            torch._dynamo.config.recompile_limit = 64
            transformer.compile_repeated_blocks(fullgraph=True, dynamic=False)
        made[method] = Prepared(method, column, transformer, adapter, size.spec(), device)
    return made


def sharing(transformer: nn.Module) -> Any:
    """A copy with modules of its own on the same parameters and buffers."""
    kept = {id(tensor): tensor for tensor in (*transformer.parameters(), *transformer.buffers())}
    return copy.deepcopy(transformer, kept)


def cast(transformer: Any, dtype: torch.dtype) -> None:
    """Cast parameters in place, but for those that diffusers keeps in float32 when it loads this class."""
    kept = transformer._keep_in_fp32_modules
    for name, parameter in transformer.named_parameters():
        if not any(part in name.split(".") for part in kept):
            parameter.data = parameter.data.to(dtype)


def _attached(transformer: Any, method: Method, size: ModelSize) -> CameraAdapter:
    # Equal numbers for every method.
    torch.manual_seed(1)
    shape = size.branch
    encoding = encoding_of(method, shape, view_rays(shape))
    adapter = attach(transformer, encoding=encoding, compression=size.compression)
    for branch in adapter.branches.values():
        nn.init.normal_(branch.to_out.weight, std=0.02)
    return adapter


def _change_form(
    adapter: CameraAdapter, column: Column, size: ModelSize, *, device: str, compiled: bool
) -> None:
    """Make every branch a `FormBranch` that computes what it did."""
    made = implementation(column, size.branch, device=device, dtype=torch.float32)
    function = scope_function("full", made.attend, heads=size.branch.heads)
    if column.compiled and not compiled:
        function = compiled_alone(function, f"model {column.name}")
    for branch in adapter.branches.values():
        if made.order is not None:
            _reorder(branch, made.order)
        branch.__class__ = FormBranch
        branch.function = function


@torch.no_grad()
def _reorder(branch: Any, order: Tensor) -> None:
    """Put the channels of every head in this order."""
    starts = branch.head_dim * torch.arange(branch.num_heads, device=order.device)
    channels = (starts[:, None] + order).flatten()
    for layer in (branch.to_q, branch.to_k, branch.to_v):
        layer.weight.copy_(layer.weight[channels])
        layer.bias.copy_(layer.bias[channels])
    branch.to_out.weight.copy_(branch.to_out.weight[:, channels])
