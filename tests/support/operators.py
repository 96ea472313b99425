"""Random operators of every kind of block: what attention must serve whatever an encoding makes."""

import torch
from torch import Tensor

from merope.geometry.rotations import rotvec_to_matrix
from merope.operators import Band, CameraOperator, Matrix4, MinRotate3, Rotate2, Rotate3

BATCH, CAMERAS, PER_CAMERA, KEYS = 2, 3, 4, 10


def random_operator(
    seed: int = 0,
    *,
    heads: int = 1,
    grouped: bool = True,
    acts_on: str = "qkvo",
    dtype: torch.dtype = torch.float64,
) -> CameraOperator:
    """Two clips, 3 query cameras of 4 tokens, 5 key cameras of 2 tokens; 46 channels in six bands."""
    draw = torch.Generator().manual_seed(seed)
    queries = CAMERAS * PER_CAMERA

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def keys(entries: int, *rest: int) -> tuple[int, ...]:
        return (BATCH, heads, CAMERAS, entries, *rest) if grouped else (BATCH, heads, entries, *rest)

    def unit(vectors: Tensor) -> Tensor:
        return vectors / vectors.norm(dim=-1, keepdim=True)

    def plane(*shape: int) -> Rotate2:
        phases = 3 * normal(*shape)
        return Rotate2(phases.cos(), phases.sin())

    bands = (
        Band(name="keep", width=5),
        # Two different blocks, each twice; one entry per key token.
        Band(
            name="anchors",
            width=12,
            size=3,
            num_blocks=2,
            left=MinRotate3(unit(normal(BATCH, heads, queries, 2, 3))),
            right=MinRotate3(unit(normal(*keys(KEYS, 2, 3)))),
            grouped=grouped,
        ),
        Band(
            name="rays",
            width=9,
            size=3,
            num_blocks=1,
            left=Rotate3(rotvec_to_matrix(normal(BATCH, 1, queries, 1, 3))),
            right=Rotate3(rotvec_to_matrix(normal(BATCH, 1, KEYS, 1, 3))),
        ),
        # No left map; one entry per key camera, which serves its two tokens.
        Band(
            name="metres",
            width=6,
            size=2,
            num_blocks=3,
            right=plane(*keys(KEYS // 2, 3)),
            grouped=grouped,
        ),
        # One entry per query camera on the left, nothing on the right.
        Band(name="left", width=4, size=2, num_blocks=1, left=plane(BATCH, heads, CAMERAS, 1)),
        Band(
            name="poses",
            width=8,
            size=4,
            num_blocks=1,
            left=Matrix4(normal(BATCH, heads, queries, 1, 4, 4)),
            right=Matrix4(normal(*keys(KEYS, 1, 4, 4))),
            grouped=grouped,
        ),
        Band(
            name="native", width=2, size=2, left=plane(BATCH, 1, queries, 1), right=plane(BATCH, 1, KEYS, 1)
        ),
    )
    operator = CameraOperator(
        bands=bands,
        batch=BATCH,
        num_query_cameras=CAMERAS,
        num_queries=queries,
        num_keys=KEYS,
        acts_on=frozenset(acts_on),
    )
    return operator.map_tensors(lambda tensor: tensor.to(dtype))
