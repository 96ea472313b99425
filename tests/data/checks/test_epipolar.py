"""Epipolar agreement of matches and poses, on points whose pixels are known exactly."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import KannalaBrandt, Pinhole
from merope.data.checks.epipolar import (
    AS_READ,
    FrameMatches,
    agreement,
    consistent,
    frame_pairs,
    match_frames,
    readings,
)
from merope.data.clips.footage import open_footage
from merope.data.clips.video import write_video
from merope.errors import MeropeError, TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix

FISHEYE = KannalaBrandt.from_fov(fov_x_deg=200, height=400, width=400, pixel_origin="center")
PINHOLE = Pinhole.from_fov(fov_x_deg=80, height=300, width=400, pixel_origin="corner")


def winding(num: int = 8, *, forward: float = 0.5) -> Poses:
    """A path that turns and climbs, its steps of different lengths, so that no shift looks like another."""
    t = torch.arange(num, dtype=torch.float64)
    turns = torch.stack((0.05 * torch.sin(t), 0.12 * t + 0.05 * torch.cos(2 * t), 0.03 * t), -1)
    centers = torch.stack((torch.sin(0.9 * t), 0.3 * torch.cos(1.7 * t), forward * t + 0.1 * t**2), -1)
    return Poses(R_world_cam=rotvec_to_matrix(turns), center_world=centers)


def exact_matches(poses: Poses, lens, pairs, *, num: int = 60) -> list[FrameMatches]:
    """Pixels of points around the path, as each pair of cameras sees them."""
    generator = torch.Generator().manual_seed(0)
    points = 12 * torch.rand(num * 8, 3, generator=generator, dtype=torch.float64) - torch.tensor(
        [6.0, 6.0, -2.0]
    )
    centered = lens.with_pixel_origin("center")
    seen = {}
    for index in {number for pair in pairs for number in pair}:
        local = (points - poses.center_world[index]) @ poses.R_world_cam[index]
        pixels, valid = centered.project(local)
        seen[index] = pixels, valid & centered.in_image(pixels)
    matches = []
    for first, second in pairs:
        both = seen[first][1] & seen[second][1]
        matches.append(
            FrameMatches(
                first=first,
                second=second,
                pixels_first=seen[first][0][both][:num],
                pixels_second=seen[second][0][both][:num],
            )
        )
    assert all(len(match.pixels_first) > 15 for match in matches)
    return matches


@pytest.mark.parametrize("lens", [FISHEYE, PINHOLE], ids=["fisheye", "pinhole"])
def test_right_poses_fit_exactly_through_any_lens_and_shifted_ones_do_not(lens):
    poses = winding()
    found = agreement(exact_matches(poses, lens, frame_pairs(8, gap=1)), poses, lens)
    assert found.best == found.under() and found.under().median_px < 1e-9
    assert found.under().median_deg < 1e-9 and found.under().in_front == 1
    for residual in found.residuals:
        if (residual.shift, residual.reading) != (0, AS_READ):
            assert residual.median_px > 1
    # All shifts are judged by the pairs that have poses under each of them.
    assert {r.num_pairs for r in found.residuals} == {3} and len(found.pairs) == 7


@pytest.mark.parametrize("shift", [-2, -1, 1])
def test_an_offset_between_frames_and_poses_is_found(shift):
    poses = winding(10)
    matches = exact_matches(poses, PINHOLE, [(i, i + 1) for i in range(3, 6)])
    moved = [
        FrameMatches(
            first=m.first - shift,
            second=m.second - shift,
            pixels_first=m.pixels_first,
            pixels_second=m.pixels_second,
        )
        for m in matches
    ]
    assert agreement(moved, poses, PINHOLE).best.shift == shift
    assert agreement(moved, poses, PINHOLE, start=shift).best.shift == 0


@pytest.mark.parametrize("reading", ["inverted", "opengl", "inverted, opengl"])
def test_another_convention_is_found(reading):
    poses = winding()
    matches = exact_matches(poses, PINHOLE, frame_pairs(8, gap=1))
    # Every reading undoes itself, inversion and turn in the other order.
    wrong = readings(readings(poses)["opengl"])["inverted"] if "," in reading else readings(poses)[reading]
    assert agreement(matches, wrong, PINHOLE).best.reading == reading


def test_a_path_and_its_reverse_are_told_apart_by_what_lies_in_front():
    still = torch.eye(3, dtype=torch.float64).expand(6, 3, 3)
    centers = torch.zeros(6, 3, dtype=torch.float64)
    centers[:, 2] = torch.tensor([0.0, 0.3, 0.7, 1.2, 1.8, 2.5])
    poses = Poses(R_world_cam=still, center_world=centers)
    matches = exact_matches(poses, PINHOLE, frame_pairs(6, gap=1))
    for given, best in ((poses, AS_READ), (readings(poses)["inverted"], "inverted")):
        found = agreement(matches, given, PINHOLE, shifts=(0,))
        assert found.under(reading="inverted").median_px == pytest.approx(found.under().median_px, abs=1e-9)
        assert found.best.reading == best


def straight(num: int = 8, *, step=(0.0, 0.0, 0.0), turn: float = 0.0) -> Poses:
    """Equal steps and equal turns about y."""
    count = torch.arange(num, dtype=torch.float64)[:, None]
    turns = count * torch.tensor([0.0, turn, 0.0], dtype=torch.float64)
    return Poses(
        R_world_cam=rotvec_to_matrix(turns), center_world=count * torch.tensor(step, dtype=torch.float64)
    )


def noisy_matches(poses: Poses) -> list[FrameMatches]:
    """`exact_matches` of neighbours, off by a third of a pixel, as detected ones are."""
    generator = torch.Generator().manual_seed(1)

    def moved(pixels):
        return pixels + 0.3 * torch.randn(pixels.shape, generator=generator, dtype=torch.float64)

    found = exact_matches(poses, PINHOLE, frame_pairs(len(poses), gap=1))
    return [
        replace(m, pixels_first=moved(m.pixels_first), pixels_second=moved(m.pixels_second)) for m in found
    ]


STILL, AHEAD, ASIDE = straight(), straight(step=(0, 0, 1.0)), straight(step=(0.5, 0, 0))
TURNING = straight(turn=0.05)


@pytest.mark.parametrize(
    ("filmed", "given", "conclusion"),
    [
        (STILL, STILL, "unclear"),
        (STILL, AHEAD, "unclear"),
        (STILL, winding(), "unclear"),
        (AHEAD, AHEAD, "agree"),
        (AHEAD, readings(AHEAD)["inverted"], "other"),
        (AHEAD, STILL, "disagree"),
        (ASIDE, AHEAD, "disagree"),
        (ASIDE, winding(), "disagree"),
        (TURNING, TURNING, "agree"),
        (TURNING, STILL, "disagree"),
        (TURNING, winding(), "disagree"),
        (winding(), winding(), "agree"),
        (winding(), readings(winding())["opengl"], "other"),
    ],
)
def test_the_conclusion_says_when_nothing_fits_and_when_nothing_can_be_told(filmed, given, conclusion):
    found = agreement(noisy_matches(filmed), given, PINHOLE)
    assert found.conclusion == found.to_dict()["conclusion"] == conclusion


def test_what_cannot_be_told_apart_is_listed():
    found = agreement(noisy_matches(AHEAD), AHEAD, PINHOLE)
    shifts = [r.shift for r in found.equals if r.reading == AS_READ]
    assert sorted(shifts) == [-2, -1, 1, 2]
    assert not agreement(noisy_matches(winding()), winding(), PINHOLE).equals
    # Without parallax a translation is not tested.
    turned = agreement(noisy_matches(TURNING), TURNING, PINHOLE)
    assert turned.parallax_px < 1 < turned.moved_px
    assert found.parallax_px == pytest.approx(found.moved_px) and found.moved_px > 5


def test_few_matches_are_no_verdict():
    few = [
        replace(m, pixels_first=m.pixels_first[:3], pixels_second=m.pixels_second[:3])
        for m in noisy_matches(winding())
    ]
    assert agreement(few, winding(), PINHOLE).conclusion == "unclear"


def test_pictures_of_two_sizes_are_refused(tmp_path):
    for number, width in enumerate((64, 64, 80)):
        Image.fromarray(np.zeros((48, width, 3), np.uint8)).save(tmp_path / f"{number}.png")
    with pytest.raises(MeropeError, match="frame 2 has 80 x 48 pixels, the first one compared has 64 x 48"):
        match_frames(open_footage(tmp_path), [(0, 1), (1, 2)])


def test_without_a_baseline_the_residual_is_the_angle_between_rays():
    turns = torch.zeros(2, 3, dtype=torch.float64)
    turns[1, 1] = 0.1
    poses = Poses(R_world_cam=rotvec_to_matrix(turns), center_world=torch.ones(2, 3, dtype=torch.float64))
    matches = exact_matches(poses, PINHOLE, [(0, 1)])
    found = agreement(matches, poses, PINHOLE, shifts=(0,))
    assert found.under().median_px < 1e-9 and found.turned_deg < 1e-9
    assert found.unturned_deg == pytest.approx(math.degrees(0.1), rel=0.05)
    off = Poses(R_world_cam=poses.R_world_cam[:1].expand(2, 3, 3), center_world=poses.center_world)
    off_px = agreement(matches, off, PINHOLE, shifts=(0,)).under().median_px
    moved = (matches[0].pixels_first - matches[0].pixels_second).norm(dim=-1).median()
    assert off_px == pytest.approx(float(moved), rel=0.2)


def test_residuals_are_distances_from_epipolar_lines():
    # Cameras side by side: epipolar lines are rows, and a match that is off by 2 rows is 2 pixels from its line.
    centers = torch.tensor([[0.0, 0, 0], [1, 0, 0]], dtype=torch.float64)
    poses = Poses(R_world_cam=torch.eye(3, dtype=torch.float64).expand(2, 3, 3), center_world=centers)
    (match,) = exact_matches(poses, PINHOLE, [(0, 1)])
    off = FrameMatches(
        first=0,
        second=1,
        pixels_first=match.pixels_first,
        pixels_second=match.pixels_second + torch.tensor([5.0, 2.0], dtype=torch.float64),
    )
    assert agreement([off], poses, PINHOLE, shifts=(0,)).under().median_px == pytest.approx(2, abs=0.02)


def test_wrong_matches_are_left_out_whatever_the_poses():
    poses = winding()
    (match,) = exact_matches(poses, FISHEYE, [(2, 3)])
    wrong = match.pixels_second.clone()
    wrong[:10] = torch.rand(10, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 300 + 50
    mixed = FrameMatches(first=2, second=3, pixels_first=match.pixels_first, pixels_second=wrong)
    (kept,) = consistent([mixed], FISHEYE)
    right = {tuple(row) for row in match.pixels_first[10:].tolist()}
    found = {tuple(row) for row in kept.pixels_first.tolist()}
    # A wrong match may lie near its curve by chance.
    assert len(found & right) >= len(right) - 2 and len(found - right) <= 2


def test_pairs_are_spread_over_the_clip():
    assert frame_pairs(5, gap=2) == [(0, 2), (1, 3), (2, 4)]
    assert (
        frame_pairs(101, gap=1, at_most=3) == [(0, 1), (50, 51), (99, 100)]
        or len(frame_pairs(101, gap=1, at_most=3)) == 3
    )
    with pytest.raises(TrajectoryError, match="--gap"):
        frame_pairs(3, gap=3)
    with pytest.raises(ValueError, match="at least 1"):
        frame_pairs(3, gap=0)


def test_frames_come_from_videos_and_from_folders_of_pictures(tmp_path):
    frames = np.random.default_rng(0).integers(0, 255, (4, 16, 24, 3), dtype=np.uint8)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"{index * 5}a.png")
    footage = open_footage(tmp_path)
    # In the order of their numbers, which is not that of text.
    assert [path.name for path in footage.pictures] == ["0a.png", "5a.png", "10a.png", "15a.png"]
    assert footage.count == 4
    assert (np.stack(list(footage.frames([1, 3]))) == frames[[1, 3]]).all()
    write_video(tmp_path / "clip.mp4", frames, fps=10)
    video = open_footage(tmp_path / "clip.mp4")
    assert video.count == 4 and len(list(video.frames([0, 2]))) == 2
    with pytest.raises(MeropeError, match="ends before frame 4"):
        list(video.frames([4]))
    with pytest.raises(FileNotFoundError):
        open_footage(tmp_path / "none.mp4")
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(MeropeError, match="cannot be decoded"):
        open_footage(tmp_path / "bad.mp4")
    (tmp_path / "20a.png").write_bytes(b"no picture")
    with pytest.raises(MeropeError, match=r"20a\.png cannot be read"):
        list(open_footage(tmp_path).frames([4]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeropeError, match="holds no pictures"):
        open_footage(tmp_path / "empty")


def test_frames_without_texture_have_no_matches_and_say_so(tmp_path):
    for index in range(3):
        Image.new("RGB", (64, 48), (90, 90, 90)).save(tmp_path / f"{index}.png")
    matches = match_frames(open_footage(tmp_path), [(0, 1), (1, 2)])
    assert all(len(match.pixels_first) == 0 for match in consistent(matches, PINHOLE))
    with pytest.raises(MeropeError, match="no two frames with matches"):
        agreement(matches, winding(3), PINHOLE)
