"""`share_clip`: one clip over several processes, shared out by latent frame through a whole Wan transformer.

Everything that works token by token (patches, norms, modulation, projections, cross-attention, feed-forward) is
computed by the process that has the token's frame. What tokens of other frames are needed for is attention: there a
process asks with its own queries, and keys and values come from all processes, raw, once per block.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from diffusers.models.transformers.transformer_wan import WanAttnProcessor
from torch import Tensor, nn

from merope.adapters.backbone import CameraAttnProcessor
from merope.adapters.calls import has_replaced_call, replace_call, restore_call
from merope.adapters.clip_part import ClipPart, meeting_device, remember_group
from merope.adapters.injections import Injection
from merope.adapters.signals import CameraSignals, tensors_in
from merope.adapters.wan import CameraAdapter, CameraRotary, adapter_of
from merope.attention.sharding import compare_calls, require_agreement, shard_cameras
from merope.errors import SharedClipError

_INPUTS = ("hidden_states", "timestep", "encoder_hidden_states", "encoder_hidden_states_image")
_NO_CAMERAS = CameraSignals()
_LEAVE = "leave share_clip"
# Numbers of each tensor that processes compare, beside its mean and its root mean square.
_SAMPLES = 16
# Of a tensor's largest number. An encoder's kernels may differ between processes by a few units of bfloat16; geometry
# is made in float64 on every CPU, then rounded to float32, and neighbouring steps of a sampler are this far apart.
_SAME_ENCODED, _SAME_MADE = 2e-2, 1e-4


@contextmanager
def share_clip(model: CameraAdapter | nn.Module, *, group: Any = None) -> Iterator[None]:
    """Within the block, the processes of ``group`` compute every forward pass of a Wan transformer together.

    ``model`` is the transformer, with or without cameras, or its adapter. All processes enter and leave the block and
    call the transformer with the same inputs and cameras; each gets the whole output, equal to that of one process up
    to rounding. A clip is shared out by latent frame, runs of frames in the order of ranks, lengths that
    differ by one at most. For inference: there is no backward pass.

    What cannot go on is an error on every process: before each exchange the processes tell one another that they are
    well, and one that fails, in the forward pass or anywhere else within the block, says so the next time. Only
    a process that dies is found by the backend alone: gloo sees it at once, others at the group's timeout. Where the
    backend carries CPU tensors these words cost a GPU no wait (``init_process_group("cpu:gloo,cuda:nccl")``).

    ``group`` None is the default group. The transformer may be compiled block by block, offloaded, or sharded.

    Raises:
        ValueError: if torch.distributed is not initialised; or the transformer is shared already, is no Wan transformer,
            or runs under another library's attention or parallelism; in the forward pass, if there are more
            processes than latent frames, gradients are on, or something records the blocks.
        SharedClipError: if another process failed, left, or has another model, clip or cameras.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "torch.distributed is not initialised, so there are no processes to share a clip. Start them with torchrun "
            "and call init_process_group first."
        )
    if dist.get_rank(group) < 0:
        raise ValueError("this process is not in the group; only its members may share a clip.")
    share = _Share(model, dist.group.WORLD if group is None else group)
    try:
        yield
    except Exception as error:
        share.take_off()
        share.leave(error)
    except BaseException:
        # The process is about to end; it waits for nobody.
        share.take_off()
        raise
    else:
        share.take_off()
        share.leave()


class _Share:
    """One transformer's part in a group."""

    def __init__(self, model: Any, group: Any) -> None:
        self.group = group
        self.group_name = remember_group(group)
        self.part: ClipPart | None = None
        self._own: tuple[CameraSignals, CameraSignals] | None = None
        self._compared: tuple[CameraSignals, list[Tensor]] | None = None
        self._calls: list[nn.Module] = []
        self._processors: list[tuple[Any, CameraAttnProcessor]] = []
        error = None
        call = ""
        try:
            self.transformer, self.adapter = _transformer_of(model)
            call = _model_in_words(self.transformer, self.adapter)
        except Exception as found:
            error = found
        self.meet(call, error)
        self._put_on()

    def meet(self, call: str, error: Exception | None = None) -> None:
        """Wait for the others to come here too; an error of this process is raised after they were told."""
        problem = None if error is None else _in_words(error)
        try:
            require_agreement(
                call, problem, group=self.group, device=meeting_device(self.group), error=SharedClipError
            )
        except (SharedClipError, RuntimeError):
            # Where the others are gone already, this process's own error is still what its caller should see.
            if error is None:
                raise
        if error is not None:
            raise error

    def leave(self, error: Exception | None = None) -> None:
        """Wait until all have left; one that wants something else is told each time that this process has left."""
        problem = None if error is None else _in_words(error)
        missed = None
        left = False
        while not left:
            try:
                told = (
                    compare_calls(_LEAVE, problem, group=self.group, device=meeting_device(self.group)) or []
                )
            except RuntimeError:
                # As in `meet`.
                if error is None:
                    raise
                break
            left = all(call == _LEAVE for call, _ in told)
            for other, (call, theirs) in enumerate(told):
                if missed is None and (theirs is not None or call != _LEAVE):
                    missed = f"process {other} did not leave share_clip in order: {theirs or call}"
        if error is not None:
            raise error
        if missed is not None:
            raise SharedClipError(missed)

    def begin(self, inputs: dict[str, Any]) -> None:
        """Share out the clip of a forward pass, once all processes are known to hold the same one."""
        call, error = "", None
        compared: list[tuple[str, Tensor]] = []
        try:
            self.part = self._part_of(inputs["hidden_states"])
            call, compared = self._described(inputs)
        except Exception as found:
            error = found
        self.meet(f"a forward pass with {call}", error)
        self._require_same([name for name, _ in compared], [numbers for _, numbers in compared])

    def own_cameras(self, signals: CameraSignals) -> CameraSignals:
        """This process's part of a clip's cameras; made once for all steps."""
        part = self.part
        assert part is not None
        if self._own is None or self._own[0] is not signals or self._own[1].part != part:
            self._own = signals, signals.of_part(part)
        return self._own[1]

    def take_off(self) -> None:
        """Leave calls and processors as they were."""
        for owner in self._calls:
            restore_call(owner)
        for attention, ours in self._processors:
            if attention.processor is ours:
                attention.processor = ours.restored()
        self._calls, self._processors = [], []

    def _put_on(self) -> None:
        model = self.transformer
        for block in model.blocks:
            attention = block.attn1
            if not isinstance(attention.processor, CameraAttnProcessor):
                attention.processor = CameraAttnProcessor(
                    attention.processor, Injection(), _signals_of, _no_recorder
                )
                self._processors.append((attention, attention.processor))
        # The model keeps its class's name, which diffusers writes into configurations.
        for owner, name, around in (
            (model, type(model).__name__, _call_transformer),
            (model.rope, "SharedRope", _call_rope),
            (model.patch_embedding, "SharedPatches", _call_patches),
            (model.condition_embedder, "SharedConditions", _call_conditions),
            (model.proj_out, "SharedOutput", _call_output),
        ):
            replace_call(owner, name, around, self)
            self._calls.append(owner)

    def _part_of(self, latents: Tensor) -> ClipPart:
        patch = self.transformer.config.patch_size
        frames, rows, cols = (size // side for size, side in zip(latents.shape[2:], patch, strict=True))
        world_size = dist.get_world_size(self.group)
        if world_size > frames:
            raise ValueError(
                f"the clip has {frames} latent frames, fewer than the {world_size} processes that share it; every process "
                "needs one. Use fewer processes, or give each a clip of its own."
            )
        plan = shard_cameras(frames, world_size)
        return ClipPart(plan, dist.get_rank(self.group), rows * cols, self.group_name)

    def _described(self, inputs: dict[str, Any]) -> tuple[str, list[tuple[str, Tensor]]]:
        """Shapes in words, and a few numbers of every tensor, of what all processes must hold alike."""
        if torch.is_grad_enabled():
            raise ValueError(
                "a shared clip has no backward pass, and gradients are on. Call the transformer under torch.no_grad()."
            )
        if getattr(self.transformer, "is_cache_enabled", False):
            raise ValueError(
                "a cache of diffusers is enabled: processes would skip different blocks. Call disable_cache first."
            )
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        numbers = [(name, _a_few(value)) for name, value in tensors.items()]
        words = [
            f"{name} {list(x.shape)} {str(x.dtype).removeprefix('torch.')}" for name, x in tensors.items()
        ]
        if self.adapter is not None:
            if self.adapter.residual_norms is not None or self.adapter.attention_records is not None:
                raise ValueError(
                    "what is recorded in a shared clip would be one process's part of it. Record without share_clip."
                )
            signals = self.adapter.current_signals
            if signals is not None:
                if self._compared is None or self._compared[0] is not signals:
                    self._compared = signals, [_a_few(tensor) for tensor in tensors_in(signals)]
                numbers += [("cameras", few) for few in self._compared[1]]
                words.append(f"cameras of {sum(tensor.numel() for tensor in tensors_in(signals))} numbers")
        return ", ".join(words), numbers

    def _require_same(self, names: list[str], numbers: list[Tensor]) -> None:
        """Raise everywhere unless all processes' numbers are alike."""
        own = torch.stack([few.to(meeting_device(self.group)) for few in numbers])
        everyone = own.new_empty(dist.get_world_size(self.group), *own.shape)
        dist.all_gather_single(everyone.flatten(0, 1), own, group=self.group)
        everyone = everyone.cpu()
        first = everyone[0]
        for name, row, others in zip(names, first, everyone.unbind(1), strict=True):
            tolerance = _SAME_MADE if name in ("cameras", "timestep") else _SAME_ENCODED
            limit = tolerance * row.nan_to_num().abs().max().item()
            alike = torch.isclose(others, row, rtol=0, atol=limit, equal_nan=True).all(-1)
            if not alike.all():
                other = int((~alike).nonzero()[0])
                raise SharedClipError(
                    f"all processes must hold the same clip; {name} of process {other} differ from process 0's. Give every "
                    "process the same prompt, seed, prefix and cameras."
                )


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _transformer_of(model: Any) -> tuple[Any, CameraAdapter | None]:
    """The Wan transformer and its adapter, if it can be shared.

    Raises:
        TypeError: if it is no Wan transformer.
        ValueError: if it cannot.
    """
    transformer: Any = model.transformer if isinstance(model, CameraAdapter) else model
    parts = ("blocks", "rope", "patch_embedding", "condition_embedder", "proj_out")
    if not all(hasattr(transformer, part) for part in parts):
        raise TypeError(
            f"model must be a Wan transformer or its CameraAdapter; got {type(model).__name__}. Of a pipeline, pass "
            "pipeline.transformer."
        )
    adapter = adapter_of(transformer)
    if isinstance(model, CameraAdapter) and adapter is not model:
        raise ValueError("this adapter is not on its transformer: it was detached or is taken off.")
    if has_replaced_call(transformer):
        raise ValueError("this transformer is shared already; one share_clip at a time.")
    if getattr(transformer, "_parallel_config", None) is not None:
        raise ValueError("this transformer runs under diffusers' own parallelism; load it without.")
    for number, block in enumerate(transformer.blocks):
        processor = block.attn1.processor
        if (
            not isinstance(processor, CameraAttnProcessor)
            and type(processor).__call__ is not WanAttnProcessor.__call__
        ):
            raise ValueError(
                f"the self-attention of block {number} runs under {type(processor).__name__}, which cannot take keys of "
                "other processes. Put diffusers' own back: attn1.set_processor(WanAttnProcessor())."
            )
    return transformer, adapter


def _model_in_words(transformer: Any, adapter: CameraAdapter | None) -> str:
    """What processes' models must agree in before they start; numbers are compared in every forward pass."""
    # Names with an underscore say where a model came from.
    config = {name: value for name, value in transformer.config.items() if not name.startswith("_")}
    written = json.dumps(config, sort_keys=True, default=str)
    cameras = "no cameras"
    if adapter is not None:
        cameras = f"{type(adapter.encoding).__name__} in blocks {list(adapter.blocks)}, compression {adapter.compression}"
    return f"share_clip of a transformer of configuration {zlib.crc32(written.encode()):08x} with {cameras}"


def _a_few(tensor: Tensor) -> Tensor:
    """Numbers that tell a tensor from another one: some of its own, their mean, their root mean square; float64."""
    flat = tensor.detach().flatten()
    # In float64: float32 rounds the last place of a large tensor beyond its end.
    places = torch.linspace(0, flat.numel() - 1, _SAMPLES, dtype=torch.float64, device=flat.device).long()
    flat = flat if flat.is_floating_point() else flat.float()
    norm = torch.linalg.vector_norm(flat) / flat.numel() ** 0.5
    return torch.cat([flat[places].double(), flat.mean().double()[None], norm.double()[None]])


def _signals_of(rotary: Any) -> CameraSignals:
    return rotary.signals


def _no_recorder() -> None:
    return None


def _call_transformer(share: _Share, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    share.begin({**dict(zip(_INPUTS, args, strict=False)), **kwargs})
    try:
        return call(*args, **kwargs)
    except SharedClipError:
        raise
    except Exception as error:
        share.meet("", error)
        raise
    finally:
        share.part = None


def _call_rope(share: _Share, call: Callable[..., Any], *args: Any, **kwargs: Any) -> CameraRotary:
    rotary, part = call(*args, **kwargs), _part(share)
    signals = rotary.signals if isinstance(rotary, CameraRotary) else _NO_CAMERAS
    return CameraRotary((part.own(angles, axis=1) for angles in rotary), share.own_cameras(signals))


def _call_patches(share: _Share, call: Callable[..., Any], latents: Tensor) -> Tensor:
    first, last = _part(share).frames
    patch = share.transformer.config.patch_size[0]
    return call(latents[:, :, first * patch : last * patch])


def _call_conditions(
    share: _Share,
    call: Callable[..., Any],
    timestep: Tensor,
    *args: Any,
    timestep_seq_len: int | None = None,
    **kwargs: Any,
) -> Any:
    # One timestep for all tokens serves every process's.
    if timestep_seq_len is not None and timestep_seq_len > 1:
        own = _part(share).own(timestep.unflatten(0, (-1, timestep_seq_len)), axis=1)
        timestep, timestep_seq_len = own.flatten(), own.shape[1]
    return call(timestep, *args, timestep_seq_len=timestep_seq_len, **kwargs)


def _call_output(share: _Share, call: Callable[..., Any], hidden: Tensor) -> Tensor:
    return _part(share).gather(call(hidden), axis=1)


def _part(share: _Share) -> ClipPart:
    if share.part is None:
        raise ValueError("a part of a shared transformer was called by itself; call the transformer.")
    return share.part
