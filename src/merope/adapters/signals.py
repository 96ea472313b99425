"""`CameraSignals`: what one clip's cameras give to every block; made once and carried to them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters.clip_part import ClipPart
from merope.cameras.rays import ViewRays
from merope.encodings.base import CameraEncoding, DepthEncoding, FeatureEncoding
from merope.operators import CameraOperator


class InputMap(Protocol):
    """Absolute numbers per token that a branch reads beside its input, such as UCPE's latitude and up map."""

    @property
    def num_features(self) -> int:
        """Numbers per token."""
        ...

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token feature"]:
        """The numbers of every token."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CameraSignals:
    """The cameras of a clip as the blocks take them; which parts there are depends on the encoding.

    Made by `camera_signals` (or `CameraAdapter.signals`) once per clip: it serves every layer and denoising step.
    """

    operator: CameraOperator | None = None
    """U_ab, where it is known before any feature is."""
    relations: Any = None
    """Geometry of all pairs for an encoding that waits for a predicted depth (`Relations`)."""
    features: Float[Tensor, "batch token feature"] | None = None
    """Features of an additive encoding."""
    input_map: Float[Tensor, "batch token map_feature"] | None = None
    """Features that are added to a branch's input."""
    part: ClipPart | None = None
    """Set where several processes share the clip: whose query cameras these are (`share_clip`)."""

    @property
    def device(self) -> torch.device | None:
        """Where the cameras are; None where they hold no tensor."""
        return next((tensor.device for tensor in tensors_in(self)), None)

    def require_tokens(self, *, batch: int, tokens: int) -> None:
        """Raise ValueError unless features and maps are of this many clips and tokens; attention asks operators."""
        for made in (self.features, self.input_map):
            if made is not None and tuple(made.shape[:2]) != (batch, tokens):
                raise ValueError(
                    f"the cameras are {made.shape[0]} clips of {made.shape[1]} tokens; the transformer's input has {batch} "
                    f"of {tokens}. Make the rays with one view per latent frame and one token per patch."
                )

    def to(self, device: torch.device | str) -> Self:
        """The same on another device. Never casts: bfloat16 cannot hold metric phases."""
        return replace(
            self,
            operator=None if self.operator is None else self.operator.to(device),
            relations=None if self.relations is None else self.relations.to(device),
            features=None if self.features is None else self.features.to(device),
            input_map=None if self.input_map is None else self.input_map.to(device),
        )

    def of_part(self, part: ClipPart) -> Self:
        """What one of several processes takes: its own tokens and query cameras, against the keys of all."""
        first, last = part.frames
        operator = self.operator
        if operator is not None and operator.num_query_cameras != part.plan.num_cameras:
            raise ValueError(
                f"the cameras are {operator.num_query_cameras} views; the clip has {part.plan.num_cameras} latent frames. "
                "Make the rays with one view per latent frame."
            )
        return replace(
            self,
            part=part,
            operator=None if operator is None else operator.for_query_cameras(first, last, store=False),
            relations=None if self.relations is None else self.relations.for_query_cameras(first, last),
            features=None if self.features is None else part.own(self.features, axis=1),
            input_map=None if self.input_map is None else part.own(self.input_map, axis=1),
        )


def camera_signals(
    encoding: CameraEncoding,
    rays: ViewRays,
    *,
    input_map: InputMap | None = None,
    device: torch.device | str = "cpu",
) -> CameraSignals:
    """What an encoding, and the map beside it if there is one, make of a clip's rays."""
    features = relations = operator = None
    if isinstance(encoding, FeatureEncoding):
        features = encoding.features(rays, device=device)
    elif isinstance(encoding, DepthEncoding):
        relations = encoding.relations(rays, device=device)
    else:
        operator = encoding.operator(rays, device=device)
    return CameraSignals(
        operator=operator,
        relations=relations,
        features=features,
        input_map=None if input_map is None else input_map.features(rays, device=device),
    )


def tensors_in(part: Any) -> Iterator[Tensor]:
    """Every tensor in nested dataclasses and tuples; what relations hold is their encoding's own affair."""
    if isinstance(part, Tensor):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from tensors_in(getattr(part, field.name))
    elif isinstance(part, tuple):
        for inner in part:
            yield from tensors_in(inner)
