"""Relations of encodings that wait for a depth: those of some query cameras are rows of the whole clip's."""

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.encodings import CRePE, RayRoPE
from tests.encodings.test_prope import zoom_drive

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


@pytest.mark.parametrize("rays", [random_drive(views=3), zoom_drive()], ids=["one lens", "zoom"])
@pytest.mark.parametrize("encoding", [RayRoPE(head_dim=64), CRePE(head_dim=64)], ids=["rayrope", "crepe"])
def test_some_query_cameras_have_their_part_of_the_relations(encoding, rays):
    draw = torch.Generator().manual_seed(0)
    depth = torch.rand(rays.batch, rays.num_tokens, 2, generator=draw, dtype=torch.float64)
    whole = encoding.relations(rays, dtype=torch.float64)
    first = rays.tokens_per_view
    some = encoding.operator_at(whole.for_query_cameras(1, 3), depth[:, first:], depth)
    expected = encoding.operator_at(whole, depth, depth).for_query_cameras(1, 3)
    torch.testing.assert_close(some.dense(), expected.dense(), rtol=0, atol=1e-12)
    asked_for = encoding.relations(rays.for_views(1, 3), rays, dtype=torch.float64)
    again = encoding.operator_at(asked_for, depth[:, first:], depth)
    torch.testing.assert_close(some.dense(), again.dense(), rtol=0, atol=1e-12)
