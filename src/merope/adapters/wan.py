"""Attach camera branches to diffusers' Wan transformer, and take them off again."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from merope.adapters.branch import CameraBranch
from merope.adapters.calls import replace_call, restore_call
from merope.encodings.base import CameraEncoding
from merope.operators import CameraOperator

Schedule = Literal["alternate", "every"] | Sequence[int]

_BRANCH_NAME = "camera_branch"


class _CameraRotary(tuple):
    """The backbone's (cos, sin) with the camera operator riding along.

    A block argument is the one side channel that survives gradient checkpointing when the cameras are
    cleared before the backward pass: the recomputation gets the same object. As a tuple of two it passes
    through the backbone's own attention unchanged.
    """

    operator: CameraOperator

    def __new__(cls, pair: Iterable[Tensor], operator: CameraOperator | None = None) -> "_CameraRotary":
        if operator is None:
            # Code that walks into tuples and builds them anew, to cast what is inside.
            raise TypeError(
                "the cameras of a block cannot be cast: bfloat16 cannot hold metric phases. With FSDP2 give the "
                "blocks MixedPrecisionPolicy(cast_forward_inputs=False)."
            )
        made = super().__new__(cls, pair)
        made.operator = operator
        return made

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "_CameraRotary":
        """Both on another device; offloading calls this for every argument of a block."""
        pair = (part.to(device, non_blocking=non_blocking) for part in self)
        return _CameraRotary(pair, self.operator.to(device))


def scheduled_blocks(schedule: Schedule, num_blocks: int) -> tuple[int, ...]:
    """Block numbers, counted from 0, that a schedule names.

    "alternate" is 1, 3, 5, ... (the paper's 15 of 30), "every" all of them; a list names its own.
    """
    if schedule == "alternate":
        if num_blocks < 2:
            raise ValueError(f"schedule 'alternate' names no block of {num_blocks}; use 'every'.")
        return tuple(range(1, num_blocks, 2))
    if schedule == "every":
        return tuple(range(num_blocks))
    if isinstance(schedule, str):
        raise ValueError(
            f"schedule must be 'alternate', 'every' or a list of block numbers; got {schedule!r}."
        )
    blocks = tuple(int(block) for block in schedule)
    if not blocks or len(set(blocks)) != len(blocks) or any(not 0 <= block < num_blocks for block in blocks):
        raise ValueError(
            f"schedule must list different blocks between 0 and {num_blocks - 1}; got {list(blocks)}."
        )
    return tuple(sorted(blocks))


class CameraAdapter:
    """Camera branches on a Wan transformer, with the encoding that drives them.

    Made by `attach`. The branches live inside the transformer's blocks as ``camera_branch``; the base
    weights, keys and outputs stay as they were, and a new adapter changes no output bit.
    """

    def __init__(
        self,
        transformer: nn.Module,
        *,
        encoding: CameraEncoding,
        compression: int,
        blocks: tuple[int, ...],
        pose_policy: str,
    ) -> None:
        # Any: torch types every attribute of a module as a tensor or a module.
        self.transformer: Any = transformer
        self.encoding = encoding
        self.compression = compression
        self.blocks = blocks
        self.pose_policy = pose_policy
        self.residual_norms: dict[int, tuple[Tensor, Tensor]] | None = None
        self._operator: CameraOperator | None = None

    @property
    def branches(self) -> dict[int, CameraBranch]:
        """The branch of each block that has one."""
        return {block: getattr(self.transformer.blocks[block], _BRANCH_NAME) for block in self.blocks}

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the branches alone."""
        for branch in self.branches.values():
            yield from branch.parameters()

    @property
    def is_zero(self) -> bool:
        """Whether no branch does anything yet."""
        return all(branch.is_zero for branch in self.branches.values())

    @contextmanager
    def cameras(self, operator: CameraOperator) -> Iterator[None]:
        """Within the block, the transformer's forward pass sees these cameras.

        The backward pass may come after the block, also under gradient checkpointing.

        Raises:
            ValueError: if the operator is for another head size, or the adapter was detached.
        """
        if not self.blocks:
            raise ValueError("this adapter was detached; attach a new one.")
        if operator.head_dim != self.encoding.head_dim:
            raise ValueError(
                f"the operator has {operator.head_dim} channels per head; the branches have {self.encoding.head_dim}."
            )
        before, self._operator = self._operator, operator
        try:
            yield
        finally:
            self._operator = before

    @contextmanager
    def recording_residuals(self) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
        """Collect, per block, the norms of the branch's output and of the self-attention it is added to."""
        self.residual_norms = {}
        try:
            yield self.residual_norms
        finally:
            self.residual_norms = None

    def detach(self) -> nn.Module:
        """Take every branch off; the transformer is again exactly what it was."""
        for block in self.blocks:
            owner = self.transformer.blocks[block]
            restore_call(owner.attn1)
            delattr(owner, _BRANCH_NAME)
        if self.blocks:
            restore_call(self.transformer.rope)
        self.blocks = ()
        return self.transformer

    def _install(self, branches: dict[int, CameraBranch]) -> None:
        replace_call(self.transformer.rope, "CameraRope", _call_rope, self)
        for block, branch in branches.items():
            owner = self.transformer.blocks[block]
            owner.add_module(_BRANCH_NAME, branch)
            replace_call(owner.attn1, "CameraSelfAttention", _call_attention, _Beside(self, branch, block))


@dataclass(frozen=True, slots=True)
class _Beside:
    """What a block's self-attention needs to know of the branch beside it."""

    adapter: CameraAdapter
    branch: CameraBranch
    block: int


def _call_rope(adapter: CameraAdapter, output: tuple[Tensor, Tensor], *args: Any, **kwargs: Any) -> tuple:
    if adapter._operator is None:
        raise ValueError(
            "the transformer has camera branches but no cameras. Run it inside `with adapter.cameras(operator):`, "
            "or call adapter.detach() to use the base model."
        )
    return _CameraRotary(output, adapter._operator)


def _call_attention(beside: _Beside, output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    hidden = args[0] if args else kwargs["hidden_states"]
    rotary = args[3] if len(args) > 3 else kwargs.get("rotary_emb")
    if not isinstance(rotary, _CameraRotary):
        raise TypeError(
            f"block {beside.block} got its rotary embedding as {type(rotary).__name__}, without cameras: "
            "something between transformer.rope and the block rebuilds it."
        )
    extra = beside.branch(hidden, rotary.operator)
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
) -> CameraAdapter:
    """Put a zero-initialised camera branch beside the self-attention of the scheduled blocks.

    The branch takes the block's normalised, modulated input and is added to the self-attention's output
    before the gate ("parallel" in UCPE's code). Parameters are created in float32, whatever the base's
    dtype: a learning rate of 1e-5 moves nothing in bfloat16.

    Raises:
        TypeError: if ``transformer`` is not a Wan transformer.
        ValueError: if it carries branches already, or head sizes, compression or schedule do not fit.
    """
    blocks: Any = getattr(transformer, "blocks", None)
    if not blocks or not hasattr(transformer, "rope") or not hasattr(blocks[0], "attn1"):
        raise TypeError(
            f"transformer must be a Wan transformer (blocks with attn1, and rope); got {type(transformer).__name__}. "
            "Load one with diffusers.WanTransformer3DModel.from_pretrained."
        )
    if any(hasattr(block, _BRANCH_NAME) for block in blocks):
        raise ValueError("this transformer carries camera branches already; detach them first.")
    config: Any = transformer.config
    if compression < 1:
        raise ValueError(f"compression must be at least 1; got {compression}.")
    if encoding.head_dim != config.attention_head_dim:
        # PanShot's branch on the 1.3B model: one head of 192 in place of 12 x 128 / 8.
        width = config.num_attention_heads * config.attention_head_dim
        if width % compression or (width // compression) % encoding.head_dim:
            raise ValueError(
                f"the encoding's head_dim {encoding.head_dim} does not divide the branch width "
                f"{width} / {compression} = {width / compression:g}."
            )
    chosen = scheduled_blocks(schedule, len(blocks))
    device = next(transformer.parameters()).device
    branches = {block: _make_branch(config, encoding.head_dim, compression).to(device) for block in chosen}
    adapter = CameraAdapter(
        transformer, encoding=encoding, compression=compression, blocks=chosen, pose_policy=pose_policy
    )
    adapter._install(branches)
    return adapter


def _make_branch(config: Any, head_dim: int, compression: int) -> CameraBranch:
    dim = config.num_attention_heads * config.attention_head_dim
    return CameraBranch(dim=dim, num_heads=dim // head_dim, head_dim=head_dim, compression=compression)
