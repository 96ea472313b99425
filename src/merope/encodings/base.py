"""What a camera encoding is: rays in, a `CameraOperator` out, and claims that tests hold it to."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The three properties of Table 1; no continuous encoding that sees translation has all (Theorem 1)."""

    metric: bool
    """(A) depends on the full metric relative pose, whatever the scene's depth."""
    per_token: bool
    """(B) factors per token: the right map does not depend on the query camera."""
    norm_preserving: bool
    """(C) every U_ab is orthogonal."""


class CameraEncoding(Protocol):
    """Turns the rays of queries and keys into the operator of Eq. 1."""

    @property
    def head_dim(self) -> int:
        """Channels per head."""
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
