"""What a camera encoding is: rays in, a `CameraOperator` out, and claims that tests hold it to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.rays import ViewRays
from merope.operators import Band, Block, CameraOperator

ActsOn = Literal["qkvo", "qk"]
"""Which of queries, keys, values and output an encoding's U acts on."""

Placement = Literal["branch", "backbone", "none"]
"""Where an encoding works: in a parallel branch, in the backbone's own self-attention, or nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The three properties of Table 1; no continuous encoding that sees translation has all (Theorem 1)."""

    metric: bool
    """(A) depends on the full metric relative pose and on no other, whatever the scene's depth."""
    per_token: bool
    """(B) factors per token: the right map does not depend on the query camera."""
    norm_preserving: bool
    """(C) every U_ab is orthogonal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds for every instance of an encoding; `merope encodings` prints it."""

    title: str
    """The name that its paper gives it."""
    source: str
    """Whom to cite; "reconstruction" where no complete public text exists."""
    placement: Placement = "branch"
    """Where `merope.adapters.attach` puts it."""
    needs_lens: bool = False
    """Whether it projects points into views, and so needs `ViewRays.lens`."""
    needs_depth: bool = False
    """Whether it takes a depth per token that a network predicts."""
    needs_scale: bool = False
    """Whether translation enters linearly, so that it needs one global `TranslationScale`."""


class CameraEncoding(Protocol):
    """Turns the rays of queries and keys into the operator of Eq. 1."""

    facts: ClassVar[Facts]

    @property
    def head_dim(self) -> int:
        """Channels per head."""
        ...

    @property
    def acts_on(self) -> ActsOn:
        """Which of q, k, v and o the operator transforms."""
        ...

    @property
    def claims(self) -> Claims:
        """What the encoding promises."""
        ...

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays; ``keys`` None means the queries themselves."""
        ...


class Relations(Protocol):
    """What a `DepthEncoding` knows of all pairs before a depth is predicted; made once per clip."""

    def to(self, device: torch.device | str) -> Self:
        """The same on another device, without a cast."""
        ...

    def for_query_cameras(self, first: int, last: int) -> Self:
        """Those of the query cameras ``first`` to ``last`` - 1 to all keys."""
        ...


@runtime_checkable
class DepthEncoding(CameraEncoding, Protocol):
    """An encoding whose operator depends on a predicted depth of every token.

    The operator stays a pure function: ``relations`` is geometry alone, and ``operator_at`` takes what a
    network said of each token, two numbers, through which gradients flow. The network is not part of the
    encoding; `merope.adapters.CameraBranch` holds one small head per layer.
    """

    @property
    def depth_bias(self) -> tuple[float, float]:
        """The two numbers that an untrained head answers for every token."""
        ...

    def relations(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Any:
        """All that does not depend on depth, as a `Relations`."""
        ...

    def operator_at(
        self,
        relations: Any,
        query_depth: Float[Tensor, "batch query_token 2"],
        key_depth: Float[Tensor, "batch key_token 2"],
    ) -> CameraOperator:
        """The operator under predicted depths: logarithm of the depth and half-width of its interval."""
        ...


@runtime_checkable
class FeatureEncoding(CameraEncoding, Protocol):
    """An encoding that adds features of a token's ray or camera to what attention reads.

    Its ``operator`` is the backbone's own rotary embedding. The learned maps that inject the features are
    modules of `merope.adapters`.
    """

    @property
    def num_features(self) -> int:
        """Numbers per token."""
        ...

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token feature"]:
        """The numbers of every token; zero where a token has no ray."""
        ...


def key_rays(queries: ViewRays, keys: ViewRays | None) -> ViewRays:
    """The keys' rays, the queries' own where none are given.

    Raises:
        ValueError: if the batches differ.
    """
    if keys is None:
        return queries
    if keys.batch != queries.batch:
        raise ValueError(f"keys must have the queries' batch {queries.batch}; got {keys.batch}.")
    return keys


def valid_keys(keys: ViewRays, device: torch.device | str) -> Tensor | None:
    """Which keys have a ray, [batch, key_token]; None where all have, which spares the mask."""
    return None if bool(keys.valid.all()) else keys.valid.flatten(1).to(device)


def required_lens(rays: ViewRays, name: str) -> CameraModel:
    """The lens of the rays.

    Raises:
        ValueError: if the rays carry none; ``name`` is the encoding that asks.
    """
    if rays.lens is None:
        raise ValueError(
            f"{name} projects points into views and needs their lens. Pass it as ViewRays.from_poses(camera=...)."
        )
    return rays.lens


def kept(name: str, width: int) -> Band | None:
    """Channels that stay as they are, or nothing where there are none."""
    return Band(name=name, width=width) if width else None


def assemble(
    bands: Sequence[Band | None],
    queries: ViewRays,
    keys: ViewRays,
    *,
    acts_on: ActsOn,
    dtype: torch.dtype,
    device: torch.device | str,
) -> CameraOperator:
    """The operator of these bands, in the order given, cast and moved; None stands for no channels."""
    return CameraOperator(
        bands=tuple(_cast(band, dtype, device) for band in bands if band is not None),
        batch=queries.batch,
        num_query_cameras=queries.num_views,
        num_queries=queries.num_tokens,
        num_keys=keys.num_tokens,
        acts_on=frozenset(acts_on),
        key_valid=valid_keys(keys, device),
    )


def _cast(band: Band, dtype: torch.dtype, device: torch.device | str) -> Band:
    def cast(block: Block | None) -> Block | None:
        return None if block is None else block.map_tensors(lambda tensor: tensor.to(dtype).to(device))

    return replace(band, left=cast(band.left), right=cast(band.right))


def offsets_query(queries: ViewRays, keys: ViewRays) -> Float[Tensor, "batch query_view key_view 3"]:
    """Δo_{j|i} for all pairs of cameras, metres (Eq. 2)."""
    offsets_world = keys.center_world[:, None] - queries.center_world[:, :, None]
    return torch.einsum("bgyx,bgvy->bgvx", queries.R_world_cam, offsets_world)


def require_acts_on(acts_on: str) -> None:
    """Raise ValueError unless ``acts_on`` is one of the two words."""
    if acts_on not in ("qkvo", "qk"):
        raise ValueError(f"acts_on must be 'qkvo' or 'qk'; got {acts_on!r}.")


def require_positive(**values: float) -> None:
    """Raise ValueError, naming it, for a value that is not a positive finite number."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite; got {value}.")
