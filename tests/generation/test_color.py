"""Colours in L*a*b*, and the jump of colour where generation begins."""

import pytest
import torch

from merope.generation.color import lab_from_srgb, prefix_color_jump


@pytest.mark.parametrize(
    ("rgb", "lab"),
    [
        ((1, 1, 1), (100, 0, 0)),
        ((0, 0, 0), (0, 0, 0)),
        ((1, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 1, 0), (87.73, -86.18, 83.18)),
        ((0, 0, 1), (32.30, 79.19, -107.86)),
        # 0.02 is on the straight part of both curves.
        ((0.02, 0.02, 0.02), (1.398, 0, 0)),
        ((0.5, 0.5, 0.5), (53.39, 0, 0)),
        ((2, -1, 0), (53.24, 80.09, 67.20)),
    ],
)
def test_known_colours(rgb, lab):
    got = lab_from_srgb(torch.tensor(rgb, dtype=torch.float64))
    torch.testing.assert_close(got, torch.tensor(lab, dtype=torch.float64), rtol=0, atol=0.03)


def test_a_jump_is_of_mean_colours_between_the_two_frames_alone():
    video = torch.zeros(2, 3, 4, 6, 8)
    video[0, :, 2:] = 0.5
    # A picture that moves keeps its mean.
    picture = torch.rand(3, 6, 8) * 2 - 1
    video[1] = torch.stack([picture.roll(step, -1) for step in range(4)], dim=1)
    jump = prefix_color_jump(video, 2)
    greys = lab_from_srgb(torch.tensor([[0.5] * 3, [0.75] * 3]))
    torch.testing.assert_close(jump[0], (greys[1, 0] - greys[0, 0]).abs(), rtol=1e-4, atol=0)
    assert jump[1] < 1e-9
    assert float(prefix_color_jump(video, 1)[0]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("prefix_frames", [0, 4])
def test_a_jump_needs_both_sides(prefix_frames):
    with pytest.raises(ValueError, match=r"between 1 and 3, the video has 4 frames"):
        prefix_color_jump(torch.zeros(1, 3, 4, 2, 2), prefix_frames)
