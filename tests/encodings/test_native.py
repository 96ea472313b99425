"""The encoding without cameras: what a camera encoding is compared with."""

import math

import pytest
import torch

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import GRID, SCENES, matrices, pinhole_dirs, random_drive, scene, turned
from merope.encodings import MeRoPE, Native, NoEncoding


@pytest.mark.parametrize("name", SCENES)
def test_no_pose_and_no_ray_is_seen(name):
    still = random_drive()
    assert torch.equal(Native().operator(scene(name)).dense(), Native().operator(still).dense())


def test_its_band_is_the_native_band_of_merope_and_the_rest_is_untouched():
    view = random_drive(3)
    ours = Native().operator(view, dtype=torch.float64).dense()
    theirs = MeRoPE().operator(view, dtype=torch.float64).dense()
    assert torch.equal(ours[..., 96:, 96:], theirs[..., 96:, 96:])
    assert torch.equal(ours[..., :96, :96], torch.eye(96, dtype=torch.float64).expand_as(ours[..., :96, :96]))


def test_turns_are_by_key_minus_query_position():
    dirs = pinhole_dirs().expand(2, 3, -1, -1)
    time = torch.tensor([0.0, 1.5, 7.0], dtype=torch.float64)
    view = ViewRays.from_poses(matrices(turned(), torch.zeros(2, 3, 3)), dirs, grid=GRID, time=time)
    dense = Native(head_dim=6, native_widths=(2, 2, 2)).operator(view, dtype=torch.float64).dense()
    # Query: view 0, row 0, column 0. Key: view 2, row 1, column 2.
    block = dense[0, 0, 2 * 6 + 5]
    for start, phase in ((0, 7.0), (2, 1.0), (4, 2.0)):
        expected = torch.tensor(
            [[math.cos(phase), -math.sin(phase)], [math.sin(phase), math.cos(phase)]], dtype=torch.float64
        )
        torch.testing.assert_close(block[start : start + 2, start : start + 2], expected)


@pytest.mark.parametrize("widths", [(0, 0, 0), (8, 0, 4), (6, 6, 4)])
def test_axes_may_be_absent(widths):
    encoding = Native(head_dim=16, native_widths=widths)
    operator = encoding.operator(random_drive())
    assert operator.head_dim == 16
    assert not operator.grouped
    dense = operator.dense()
    error = dense.mT @ dense - torch.eye(16)
    assert error.abs().max() < 1e-6
    assert encoding.claims.per_token and encoding.claims.norm_preserving and not encoding.claims.metric


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"native_widths": (3, 2, 2)}, r"must be even and >= 0; got \(3, 2, 2\)"),
        ({"native_widths": (-2, 2, 2)}, r"must be even and >= 0"),
        ({"head_dim": 16}, r"native_widths \(16, 8, 8\) sum to 32, over head_dim 16"),
        ({"native_base": math.nan}, r"native_base must be > 0"),
    ],
)
def test_widths_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Native(**options)


def test_no_encoding_has_a_head_too():
    with pytest.raises(ValueError, match="head_dim must be > 0"):
        NoEncoding(head_dim=0)


def test_keys_of_another_batch_are_refused():
    one = ViewRays.from_poses(torch.eye(4).expand(1, 1, 4, 4), pinhole_dirs()[None, None])
    with pytest.raises(ValueError, match="keys must have the queries' batch 2; got 1"):
        Native().operator(random_drive(), one)
