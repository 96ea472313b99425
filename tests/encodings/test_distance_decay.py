"""The worked example of docs/adding-an-encoding.md, by hand."""

import math

import pytest
import torch

from merope.cameras.scenes import pinhole_dirs, rays
from merope.encodings.distance_decay import DistanceDecay


def test_a_pair_is_shrunk_by_its_distance_and_its_head_s_slope():
    centers = torch.zeros(2, 3, 3, dtype=torch.float64)
    centers[:, 1, 0], centers[:, 2, 2] = 3.0, 4.0
    view = rays(torch.eye(3, dtype=torch.float64), centers, pinhole_dirs())
    dense = DistanceDecay(head_dim=4, num_heads=2).operator(view, dtype=torch.float64).dense()
    assert dense.shape == (2, 2, 18, 18, 4, 4)
    # Views 1 and 2 are 5 m apart; slopes are 2^-4 and 2^-8 per metre.
    for head, slope in enumerate((1 / 16, 1 / 256)):
        expected = math.exp(-slope * 5) * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(dense[0, head, 7, 14], expected)
        torch.testing.assert_close(dense[0, head, 0, 5], torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"head_dim": 3}, "head_dim must be even"), ({"num_heads": 0}, "num_heads must be at least 1")],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistanceDecay(**options)
