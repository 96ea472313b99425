"""A training step on shapes alone: the real classes, operations and autograd, with tensors that have no memory.

What a step holds at once depends on what autograd keeps of every operation, on autocast's copies and on gradient
checkpointing. Counting that by hand goes wrong with the next release of diffusers; so a transformer of two or three
blocks runs here under torch's fake tensors, and every storage is followed from its making to its end. Layers are
alike, so a few stand for all of them (`merope.training.memory` adds up).
"""

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from merope.adapters.command import latent_rays, spec_lens
from merope.adapters.flow import add_noise, predict_velocity, velocity_loss
from merope.adapters.signals import CameraSignals, InputMap, camera_signals
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter, attach
from merope.cameras import Pinhole
from merope.encodings.base import CameraEncoding
from merope.training.pretrained import keep_times_exact

BlockKind = Literal["plain", "camera"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBytes:
    """Bytes alive at once beside weights, their gradients and the cameras."""

    after_forward: int
    """What waits for the backward pass, the loss included."""
    forward_peak: int
    backward_peak: int


class FollowedBytes(TorchDispatchMode):
    """Follows every storage that an operation makes until it is freed: ``now`` and ``peak`` are alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in given | self._known:
                    self._follow(storage)
        return out

    def _follow(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)

        def freed() -> None:
            self._known.discard(key)
            self.now -= size

        weakref.finalize(storage, freed)


@contextmanager
def on_shapes(
    model: nn.Module, dtype_of: Callable[[str, nn.Parameter], torch.dtype]
) -> Iterator[FollowedBytes]:
    """Within the block a model from the meta device computes on shapes, and every byte that it makes is followed."""
    with _shapes():
        _give_shapes(model, dtype_of)
        with FollowedBytes() as followed:
            yield followed


@contextmanager
def _shapes() -> Iterator[FakeTensorMode]:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, warnings.catch_warnings():
        # Told of every step with float32 norms; whoever trains hears it then.
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
        yield mode


def _give_shapes(model: nn.Module, dtype_of: Callable[[str, nn.Parameter], torch.dtype]) -> None:
    """Tensors of a model on the meta device as fake ones on the CPU, whose operations are the CPU's own."""
    for prefix, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                value = torch.empty(parameter.shape, dtype=dtype_of(f"{prefix}.{name}", parameter))
                module._parameters[name] = nn.Parameter(value, requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def standing_cameras(
    spec: VideoSpec, encoding: CameraEncoding, input_map: InputMap | None, clips: int
) -> CameraSignals:
    """Real cameras of ``clips`` straight drives, for their shapes: the spec's lens, or a pinhole of 90 degrees."""
    poses = torch.eye(4, dtype=torch.float64).repeat(clips, spec.latent_frames, 1, 1)
    # Millimetres: within the reach of any translation scale.
    poses[..., 2, 3] = 1e-3 * torch.arange(spec.latent_frames, dtype=torch.float64)
    if spec.camera is not None:
        lens = spec_lens(spec)
    else:
        lens = Pinhole.from_fov(fov_x_deg=90.0, height=spec.height, width=spec.width)
    return camera_signals(encoding, latent_rays(poses, spec, [lens] * clips), input_map=input_map)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRun:
    """What a run on shapes needs to know; `step` and `forward` run it for some blocks."""

    transformer: Mapping[str, Any]
    """Keyword arguments of ``WanTransformer3DModel``; the number of layers plays no part."""
    spec: VideoSpec
    encoding: CameraEncoding
    cameras: CameraSignals
    input_map: InputMap | None
    compression: int
    clips: int
    """Clips per forward pass."""
    text_tokens: int
    compute: torch.dtype
    choose: Callable[[nn.Module, CameraAdapter | None], None]
    """Says which parameters train, by ``requires_grad_``."""
    dtype_of: Callable[[nn.Module, str, nn.Parameter], torch.dtype]
    """Precision of a weight of a transformer, by its name, while its block runs."""

    def step(self, kinds: Sequence[BlockKind], *, checkpointing: bool) -> StepBytes:
        """Forward and backward pass of a transformer of these blocks; gradients of weights are there beforehand."""
        with _shapes() as mode:
            transformer, adapter = self._model(kinds, mode)
            if checkpointing:
                transformer.enable_gradient_checkpointing()
            for parameter in transformer.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.empty_like(parameter)
            with FollowedBytes() as followed:
                loss = self._loss(transformer, adapter)
                after, forward_peak = followed.now, followed.peak
                followed.peak = followed.now
                if loss.requires_grad:
                    loss.backward()
        return StepBytes(after_forward=after, forward_peak=forward_peak, backward_peak=followed.peak)

    def forward(self, kinds: Sequence[BlockKind]) -> int:
        """Peak bytes of one forward pass without gradients, as sampling makes it."""
        with _shapes() as mode, torch.no_grad():
            transformer, adapter = self._model(kinds, mode)
            with FollowedBytes() as followed:
                self._velocity(transformer, adapter, *self._batch())
        return followed.peak

    def _model(self, kinds: Sequence[BlockKind], mode: FakeTensorMode) -> tuple[Any, CameraAdapter | None]:
        from diffusers import WanTransformer3DModel

        adapter = None
        # The attachment moves weights, which fake tensors do not allow: it happens on the meta device.
        with _outside(mode), torch.device("meta"):
            transformer: Any = WanTransformer3DModel(**{**self.transformer, "num_layers": max(len(kinds), 1)})
            chosen = [index for index, kind in enumerate(kinds) if kind == "camera"]
            if chosen:
                adapter = attach(
                    transformer,
                    encoding=self.encoding,
                    compression=self.compression,
                    schedule=chosen,
                    input_map=self.input_map,
                )
            transformer.blocks = transformer.blocks[: len(kinds)]
        self.choose(transformer, adapter)
        if self.compute != torch.float32:
            keep_times_exact(transformer)
        _give_shapes(transformer, lambda name, parameter: self.dtype_of(transformer, name, parameter))
        return transformer, adapter

    def _batch(self) -> tuple[Tensor, Tensor, Tensor]:
        shape = (self.clips, *self.spec.latent_shape)
        text = (self.clips, self.text_tokens, self.transformer.get("text_dim", 4096))
        return torch.empty(shape), torch.empty(self.clips), torch.empty(text, dtype=self.compute)

    def _loss(self, transformer: Any, adapter: CameraAdapter | None) -> Tensor:
        clean, sigma, text = self._batch()
        noise = torch.empty_like(clean)
        noisy = add_noise(clean, noise, sigma)
        velocity = self._velocity(transformer, adapter, noisy, sigma, text, clean)
        return velocity_loss(velocity, clean, noise, sigma, self.spec).mean()

    def _velocity(
        self,
        transformer: Any,
        adapter: CameraAdapter | None,
        noisy: Tensor,
        sigma: Tensor,
        text: Tensor,
        clean: Tensor | None = None,
    ) -> Tensor:
        low = self.compute != torch.float32
        # As `FinetuneTrainer.losses`.
        with torch.autocast("cpu", self.compute, enabled=low, cache_enabled=False):
            return predict_velocity(
                transformer,
                adapter,
                noisy,
                noisy if clean is None else clean,
                sigma,
                self.cameras if adapter is not None else None,
                self.spec,
                text=text,
                dtype=self.compute,
            )


def _outside(mode: FakeTensorMode) -> Any:
    """Real (meta) tensors within a block of fake ones."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()
