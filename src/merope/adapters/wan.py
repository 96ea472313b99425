"""Attach a camera encoding to diffusers' Wan transformer, and take it off again."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from merope.adapters.backbone import CameraAttnProcessor, Carving
from merope.adapters.branch import CameraBranch, Recorder
from merope.adapters.calls import (
    call_state,
    has_replaced_call,
    replace_call,
    require_restorable,
    restore_call,
)
from merope.adapters.injections import Injection, make_injection
from merope.adapters.schedules import Schedule, scheduled_blocks
from merope.adapters.signals import CameraSignals, InputMap, camera_signals
from merope.adapters.spec import PosePolicy
from merope.adapters.wrapping import fetched, warn_of_wrapped
from merope.cameras.rays import ViewRays
from merope.encodings.base import CameraEncoding, FeatureEncoding
from merope.operators import CameraOperator

BRANCH_NAME = "camera_branch"
_ROPE = "CameraRope"
# Where diffusers' layer-wise casting to 8 bits reads which modules to leave as they are.
_UNCAST = "_skip_layerwise_casting_patterns"


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRecord:
    """What a block's camera attention met in one forward pass."""

    query: Tensor
    """[batch, head, token, channel]"""
    key: Tensor
    """[batch, head, token, channel]"""
    operator: CameraOperator | None
    """U_ab between them; None where plain attention meets queries and keys that hold the cameras already."""


class CameraRotary(tuple):
    """The backbone's (cos, sin) with the cameras riding along.

    A block argument is the one side channel that survives gradient checkpointing when the cameras are
    cleared before the backward pass: the recomputation gets the same object. As a tuple of two it passes
    through the backbone's own attention unchanged.
    """

    signals: CameraSignals

    def __new__(cls, pair: Iterable[Tensor], signals: CameraSignals | None = None) -> "CameraRotary":
        if signals is None:
            # Code that walks into tuples and builds them anew, to cast what is inside.
            raise TypeError(
                "the cameras of a block cannot be cast: bfloat16 cannot hold metric phases. With FSDP2 give the "
                "blocks MixedPrecisionPolicy(cast_forward_inputs=False)."
            )
        made = super().__new__(cls, pair)
        made.signals = signals
        return made

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "CameraRotary":
        """Both on another device; offloading calls this for every argument of a block."""
        pair = (part.to(device, non_blocking=non_blocking) for part in self)
        return CameraRotary(pair, self.signals.to(device))


class CameraAdapter:
    """A camera encoding on a Wan transformer, with the modules that it needs in the scheduled blocks.

    Made by `attach`. The modules live inside the transformer's blocks as ``camera_branch``: branches beside the
    self-attention, or what an encoding injects into it. The base weights, keys and outputs stay as they were,
    and a new adapter changes no output bit unless its encoding carves channels out of the backbone's own
    attention. A deep copy or a pickle of an adapter brings its transformer along.
    """

    def __init__(
        self,
        transformer: nn.Module,
        *,
        encoding: CameraEncoding,
        compression: int,
        blocks: tuple[int, ...],
        pose_policy: str,
        input_map: InputMap | None = None,
    ) -> None:
        # Any: torch types every attribute of a module as a tensor or a module.
        self.transformer: Any = transformer
        self.encoding = encoding
        self.compression = compression
        self.blocks = blocks
        self.pose_policy = pose_policy
        self.input_map = input_map
        self.residual_norms: dict[int, tuple[Tensor, Tensor]] | None = None
        self.attention_records: dict[int, AttentionRecord] | None = None
        self._signals: CameraSignals | None = None
        self._signals_device: torch.device | None = None
        self._uncast_before: dict[str, Any] = {}
        self._warned_of_wrapped = False
        self._places: dict[int, _Beside] = {}
        self._state: Literal["on", "off", "detached"] = "off"

    @property
    def branches(self) -> dict[int, CameraBranch | Injection]:
        """The module of each block that has one."""
        return {block: place.branch for block, place in self._places.items()}

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the adapter alone; none for an encoding that learns nothing."""
        for branch in self.branches.values():
            yield from branch.parameters()

    @property
    def is_zero(self) -> bool:
        """Whether cameras would be ignored because nothing was learned yet; never for an encoding without cameras."""
        for branch in self.branches.values():
            with fetched(branch):
                if not branch.is_zero:
                    return False
        return bool(self.blocks)

    def signals(self, rays: ViewRays, *, device: torch.device | str | None = None) -> CameraSignals:
        """What the blocks take of a clip's rays; make it once per clip.

        ``device`` None is the transformer's. An offloaded one has its weights elsewhere: cameras that are not where
        it computes follow its input there in every forward pass.
        """
        if device is None:
            weights = next(self.transformer.parameters()).device
            # Offloading one module at a time leaves nothing but shapes between calls.
            device = "cpu" if weights.type == "meta" else weights
        return camera_signals(self.encoding, rays, input_map=self.input_map, device=device)

    @contextmanager
    def cameras(self, cameras: ViewRays | CameraSignals | CameraOperator) -> Iterator[None]:
        """Within the block, the transformer's forward pass sees these cameras.

        Signals or an operator that the caller keeps spare the work of making them anew from rays. The
        backward pass may come after the block, also under gradient checkpointing. One thread at a time: these are
        the cameras of the adapter, not of the thread.

        Raises:
            ValueError: if an operator is for another head size, the adapter was detached or is taken off, or another
                library has replaced the attention processor of a block that needs ours.
        """
        if self._state == "detached":
            raise ValueError("this adapter was detached; attach a new one.")
        if self._state == "off":
            raise ValueError("this adapter is taken off; give cameras after the `taken_off` block has ended.")
        for block, branch in self.branches.items():
            processor = self.transformer.blocks[block].attn1.processor
            if isinstance(branch, Injection) and not isinstance(processor, CameraAttnProcessor):
                raise ValueError(
                    f"the self-attention of block {block} runs under {type(processor).__name__} since the adapter was "
                    "attached; its cameras would be ignored. Detach the adapter before changing processors."
                )
        if not self._warned_of_wrapped:
            self._warned_of_wrapped = warn_of_wrapped(self.branches)
        if isinstance(cameras, ViewRays):
            cameras = self.signals(cameras)
        elif isinstance(cameras, CameraOperator):
            cameras = CameraSignals(operator=cameras)
        if cameras.operator is not None and cameras.operator.head_dim != self.encoding.head_dim:
            raise ValueError(
                f"the operator has {cameras.operator.head_dim} channels per head; the branches have "
                f"{self.encoding.head_dim}."
            )
        before = self._signals, self._signals_device
        self._signals, self._signals_device = cameras, cameras.device
        try:
            yield
        finally:
            self._signals, self._signals_device = before

    @property
    def current_signals(self) -> CameraSignals | None:
        """The cameras that a forward pass would see now."""
        return self._signals

    @contextmanager
    def recording_residuals(self) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
        """Collect, per block, the norms of a branch's output and of the self-attention it is added to.

        Nothing is collected where an encoding works inside the backbone's own attention.
        """
        self.residual_norms = {}
        try:
            yield self.residual_norms
        finally:
            self.residual_norms = None

    @contextmanager
    def recording_attention(self) -> Iterator[dict[int, AttentionRecord]]:
        """Collect, per block, the queries, keys and operator of the last forward pass."""
        self.attention_records = {}
        try:
            yield self.attention_records
        finally:
            self.attention_records = None

    @contextmanager
    def taken_off(self) -> Iterator[nn.Module]:
        """Within the block the transformer is exactly the base: to save it, or to run it without cameras.

        Calls, attention processors, modules and the keys of the state dict are the base's own. After the block, also
        after an error, the adapter is on again with the same modules and weights.

        Raises:
            ValueError: if the adapter was detached; at the end, if another adapter or another library's attention
                processor was left in its place.
        """
        if self._state == "detached":
            raise ValueError("this adapter was detached; attach a new one.")
        if self._state == "off":
            yield self.transformer
            return
        self._take_off()
        try:
            yield self.transformer
        finally:
            if self._state == "off":
                self._put_on()

    def detach(self) -> nn.Module:
        """Take everything off for good; the transformer is again exactly what it was."""
        if self._state == "on":
            self._take_off()
        self._state = "detached"
        self._places = {}
        self.blocks = ()
        return self.transformer

    def _install(self, branches: dict[int, CameraBranch | Injection]) -> None:
        self._places = {block: _Beside(self, branch, block) for block, branch in branches.items()}
        self._put_on()

    def _put_on(self) -> None:
        # First all that may be refused.
        require_bare(self.transformer)
        processors = {
            block: CameraAttnProcessor(
                self.transformer.blocks[block].attn1.processor, place.branch, place.signals_of, place.recorder
            )
            for block, place in self._places.items()
            if isinstance(place.branch, Injection)
        }
        replace_call(self.transformer.rope, _ROPE, _call_rope, self)
        own = self.transformer.__dict__
        self._uncast_before = {_UNCAST: own[_UNCAST]} if _UNCAST in own else {}
        own[_UNCAST] = (*(getattr(self.transformer, _UNCAST, None) or ()), BRANCH_NAME)
        for block, place in self._places.items():
            owner = self.transformer.blocks[block]
            # A compiled block passes this on to the block inside, as it does when the name is deleted.
            setattr(owner, BRANCH_NAME, place.branch)
            if block in processors:
                owner.attn1.processor = processors[block]
            else:
                replace_call(owner.attn1, "CameraSelfAttention", _call_attention, place)
        self._state = "on"

    def _take_off(self) -> None:
        require_not_shared(self.transformer)
        # First all that may be refused.
        for module in (
            self.transformer.rope,
            *(self.transformer.blocks[block].attn1 for block in self._places),
        ):
            if has_replaced_call(module):
                require_restorable(module)
        for block in self._places:
            owner = self.transformer.blocks[block]
            if has_replaced_call(owner.attn1):
                restore_call(owner.attn1)
            elif isinstance(owner.attn1.processor, CameraAttnProcessor):
                owner.attn1.processor = owner.attn1.processor.restored()
            delattr(owner, BRANCH_NAME)
        restore_call(self.transformer.rope)
        del self.transformer.__dict__[_UNCAST]
        self.transformer.__dict__.update(self._uncast_before)
        self._state = "off"


@dataclass(frozen=True, slots=True)
class _Beside:
    """What a block's self-attention needs to know of the cameras."""

    adapter: CameraAdapter
    branch: CameraBranch | Injection
    block: int

    def signals_of(self, rotary: Any) -> CameraSignals:
        """The cameras that ride in the block's rotary embedding."""
        if not isinstance(rotary, CameraRotary):
            raise TypeError(
                f"block {self.block} got its rotary embedding as {type(rotary).__name__}, without cameras: "
                "something between transformer.rope and the block rebuilds it."
            )
        return rotary.signals

    def recorder(self) -> Recorder | None:
        """What takes this block's queries and keys, while they are wanted."""
        records = self.adapter.attention_records
        if records is None:
            return None

        def record(query: Tensor, key: Tensor, operator: CameraOperator | None) -> None:
            records[self.block] = AttentionRecord(query.detach(), key.detach(), operator)

        return record


def _call_rope(adapter: CameraAdapter, call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple:
    if adapter._signals is None:
        raise ValueError(
            "the transformer has camera branches but no cameras. Run it inside `with adapter.cameras(rays):`, "
            "or call adapter.detach() to use the base model."
        )
    output = call(*args, **kwargs)
    hidden = args[0] if args else kwargs["hidden_states"]
    adapter._signals.require_tokens(batch=hidden.shape[0], tokens=output[0].shape[1])
    signals, device = adapter._signals, output[0].device
    return CameraRotary(output, signals if adapter._signals_device in (None, device) else signals.to(device))


def _call_attention(beside: _Beside, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    output = call(*args, **kwargs)
    hidden = args[0] if args else kwargs["hidden_states"]
    signals = beside.signals_of(args[3] if len(args) > 3 else kwargs.get("rotary_emb"))
    device = hidden.device.type
    if hidden.dtype in (torch.bfloat16, torch.float16) and not torch.is_autocast_enabled(device):
        # Float32 branches beside a base in half precision compute as under the autocast that they are trained with.
        with torch.autocast(device, hidden.dtype):
            extra = beside.branch(hidden, signals, beside.recorder())
    else:
        extra = beside.branch(hidden, signals, beside.recorder())
    norms = beside.adapter.residual_norms
    if norms is not None:
        with torch.no_grad():
            norms[beside.block] = (extra.float().norm(), output.float().norm())
    return output + extra.to(output.dtype)


def attach(
    transformer: nn.Module,
    *,
    encoding: CameraEncoding,
    compression: int = 4,
    schedule: Schedule = "alternate",
    pose_policy: str = "last",
    input_map: InputMap | None = None,
) -> CameraAdapter:
    """Put a camera encoding into the scheduled blocks, where its ``facts.placement`` says.

    "branch": a zero-initialised parallel attention, narrower by ``compression``, takes the block's normalised,
    modulated input and is added to the self-attention's output before the gate ("parallel" in UCPE's code).
    "backbone": the block's own self-attention takes injected features, or runs under the operator; ``compression``
    plays no part. "none": nothing. Parameters are created in float32, whatever the base's dtype: a learning rate of
    1e-5 moves nothing in bfloat16. ``input_map`` is added to what branches read (UCPE's latitude and up map).

    Raises:
        TypeError: if ``transformer`` is not a Wan transformer, or ``encoding`` no encoding.
        ValueError: if it carries cameras already, if head sizes, numbers of heads, compression, schedule or
            pose policy do not fit, if its weights are sharded or offloaded one module at a time, or if an encoding of
            the backbone's own attention meets another library's processor there.
    """
    blocks: Any = getattr(transformer, "blocks", None)
    rope: Any = getattr(transformer, "rope", None)
    if not blocks or rope is None or not hasattr(blocks[0], "attn1"):
        raise TypeError(
            f"transformer must be a Wan transformer (blocks with attn1, and rope); got {type(transformer).__name__}. "
            "Load one with diffusers.WanTransformer3DModel.from_pretrained."
        )
    require_bare(transformer)
    if not hasattr(encoding, "facts"):
        raise TypeError(
            f"encoding must be a camera encoding, such as merope.MeRoPE(head_dim=128); got {encoding!r}. By name: "
            "merope.encodings.registry.default_encoding."
        )
    if compression < 1:
        raise ValueError(f"compression must be at least 1; got {compression}.")
    if pose_policy not in get_args(PosePolicy):
        raise ValueError(
            f"pose_policy must be one of {', '.join(get_args(PosePolicy))}; got {pose_policy!r}."
        )
    placement = encoding.facts.placement
    if input_map is not None and placement != "branch":
        raise ValueError(
            f"input_map is read by branches; {type(encoding).__name__} has none (placement {placement!r})."
        )
    chosen = () if placement == "none" else scheduled_blocks(schedule, len(blocks))
    branches = {}
    for block in chosen:
        device = _device_of(blocks[block], block)
        # Drawn on the CPU, so that a seed means the same everywhere; a model without memory needs no draws.
        with torch.device("meta" if device.type == "meta" else "cpu"):
            module = camera_module(transformer.config, encoding, compression, input_map)
        branches[block] = module.to(device, torch.float32)
    adapter = CameraAdapter(
        transformer,
        encoding=encoding,
        compression=compression,
        blocks=chosen,
        pose_policy=pose_policy,
        input_map=input_map,
    )
    adapter._install(branches)
    return adapter


def adapter_of(transformer: Any) -> CameraAdapter | None:
    """The adapter that is on a Wan transformer, if one is."""
    return call_state(transformer.rope, _ROPE)


def require_not_shared(transformer: Any) -> None:
    """Raise ValueError where several processes share the transformer's clips (`share_clip`)."""
    if has_replaced_call(transformer):
        raise ValueError("this transformer is inside share_clip; put adapters on or off before or after it.")


def require_bare(transformer: Any) -> None:
    """Raise ValueError if a Wan transformer carries a camera adapter already."""
    require_not_shared(transformer)
    if has_replaced_call(transformer.rope):
        raise ValueError("this transformer carries a camera adapter already; detach it first.")


def _device_of(block: nn.Module, number: int) -> torch.device:
    """Where a block has its weights; blocks may be spread over devices."""
    weights = next(block.parameters())
    if isinstance(weights, DTensor):
        raise ValueError(
            f"the weights of block {number} are sharded; new ones would be whole on every process, with gradients that "
            "nothing averages. Attach first (or load the adapter), then fully_shard."
        )
    device = weights.device
    # accelerate's mark on a module whose weights it fetches for each call, and that of diffusers' group offloading.
    if any(
        (device.type == "meta" and hasattr(module, "_hf_hook")) or _is_group_offloaded(module)
        for module in block.modules()
    ):
        raise ValueError(
            f"the weights of block {number} are offloaded, which leaves no place for new ones. Attach first, then offload."
        )
    return device


def _is_group_offloaded(module: nn.Module) -> bool:
    hooks = getattr(module, "_diffusers_hook", None)
    return hooks is not None and hooks.get_hook("group_offloading") is not None


def camera_module(
    config: Any, encoding: CameraEncoding, compression: int, input_map: InputMap | None
) -> CameraBranch | Injection:
    """What `attach` puts into one block of a transformer with this ``config`` (heads and their size).

    Raises:
        ValueError: if head sizes, numbers of heads or compression do not fit.
    """
    heads, head_dim = config.num_attention_heads, config.attention_head_dim
    dim = heads * head_dim
    if encoding.facts.placement == "backbone":
        if encoding.head_dim != head_dim:
            raise ValueError(
                f"{type(encoding).__name__} works in the backbone's own attention, whose heads have {head_dim} "
                f"channels; it was made for {encoding.head_dim}."
            )
        if isinstance(encoding, FeatureEncoding):
            return make_injection(encoding, dim=dim, num_heads=heads, head_dim=head_dim)
        return Carving()
    if encoding.head_dim != head_dim and (
        # PanShot's branch on the 1.3B model: one head of 192 in place of 12 x 128 / 8.
        dim % compression or (dim // compression) % encoding.head_dim
    ):
        raise ValueError(
            f"the encoding's head_dim {encoding.head_dim} does not divide the branch width "
            f"{dim} / {compression} = {dim / compression:g}."
        )
    branch = CameraBranch(
        dim=dim,
        num_heads=dim // encoding.head_dim,
        encoding=encoding,
        compression=compression,
        map_features=0 if input_map is None else input_map.num_features,
    )
    told_apart = getattr(encoding, "num_heads", branch.num_heads)
    if told_apart != branch.num_heads:
        raise ValueError(
            f"{type(encoding).__name__} was made for {told_apart} heads; the branch has {heads} x {head_dim} / "
            f"{compression} / {encoding.head_dim} = {branch.num_heads}. Pass num_heads={branch.num_heads}."
        )
    return branch
