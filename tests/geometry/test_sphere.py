"""Minimum rotations and epipolar arcs: exact where the paper's formulas are, finite where they are not."""

import itertools
import math

import pytest
import roma
import torch

from merope.geometry.rotations import hat, rotation_angle, rotvec_to_matrix
from merope.geometry.sphere import epipolar_anchors, minrot, minrot_axis, transported_anchor_axes

FRACTIONS = (0.0, 0.05, 0.15, 0.4, 0.7, 1.0)
E_Z = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


def unit(vectors):
    return vectors / vectors.norm(dim=-1, keepdim=True)


def random_dirs(num, seed=0):
    return unit(torch.randn(num, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


def near_pole(lateral):
    """Directions a lateral distance from -e_z, in eight azimuths."""
    azimuth = torch.arange(8, dtype=torch.float64) * (math.pi / 4) + 0.1
    x, y = lateral * azimuth.cos(), lateral * azimuth.sin()
    z = -torch.sqrt(1 - torch.full_like(x, lateral) ** 2)
    return torch.stack([x, y, z], -1)


def naive_minrot(dirs):
    """Eq. 5 as typed; kept to show what it does at the backward pole."""
    e_z = torch.tensor([0.0, 0.0, 1.0], dtype=dirs.dtype).expand_as(dirs)
    skew = hat(torch.linalg.cross(e_z, dirs))
    cos = dirs[..., 2, None, None]
    return torch.eye(3, dtype=dirs.dtype) + skew + skew @ skew / (1 + cos)


def orthonormality_error(matrices):
    identity = torch.eye(3, dtype=matrices.dtype)
    return (matrices.mT @ matrices - identity).abs().amax((-1, -2))


def test_minimum_rotation_equals_equation_5_away_from_the_pole():
    dirs = random_dirs(500)
    dirs = dirs[dirs[:, 2] > -0.9]
    torch.testing.assert_close(minrot(dirs), naive_minrot(dirs), rtol=0, atol=2e-14)


def test_minimum_rotation_is_roma_s_rotation_by_the_angle_about_the_common_normal():
    dirs = random_dirs(200, seed=1)
    axis = torch.linalg.cross(E_Z.expand_as(dirs), dirs)
    angle = torch.atan2(axis.norm(dim=-1), dirs[:, 2])
    expected = roma.rotvec_to_rotmat(unit(axis) * angle[:, None])
    torch.testing.assert_close(minrot(dirs), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lateral", [0.0, 1e-20, 1e-16, 1e-12, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.3])
def test_minimum_rotation_is_a_rotation_onto_its_direction_near_the_pole(dtype, lateral):
    dirs = near_pole(lateral).to(dtype)
    matrices = minrot(dirs)
    tolerance = 2e-6 if dtype == torch.float32 else 4e-15
    assert orthonormality_error(matrices).max() <= tolerance
    torch.testing.assert_close(torch.det(matrices), torch.ones(8, dtype=dtype), rtol=0, atol=4 * tolerance)
    snapped = lateral if lateral <= 1e-12 else 0.0
    torch.testing.assert_close(matrices[..., 2], dirs, rtol=0, atol=2 * tolerance + snapped)


def test_minimum_rotation_is_orthogonal_in_float32_over_the_whole_sphere():
    assert orthonormality_error(minrot(random_dirs(20_000).float())).max() < 2e-6


def test_minimum_rotation_turns_by_the_angle_between_axis_and_direction():
    dirs = torch.cat([random_dirs(200, seed=2), near_pole(1e-7), near_pole(1e-3)])
    identity = torch.eye(3, dtype=torch.float64).expand(len(dirs), 3, 3)
    angle = torch.atan2(dirs[:, :2].norm(dim=-1), dirs[:, 2])
    torch.testing.assert_close(rotation_angle(identity, minrot(dirs)), angle, rtol=0, atol=1e-12)


def test_a_straight_drive_in_any_world_frame_has_one_frame_for_its_epipole():
    draw = torch.Generator().manual_seed(3)
    turns = rotvec_to_matrix(2 * torch.randn(500, 3, generator=draw, dtype=torch.float64))
    start = 50 * torch.randn(500, 3, generator=draw, dtype=torch.float64)
    end = start - 4 * turns[:, :, 2]
    backward = ((end - start)[:, None] @ turns).squeeze(1) / 4
    assert (backward + E_Z).norm(dim=-1).max() > 0
    assert torch.equal(minrot(backward), minrot(-E_Z).expand(500, 3, 3))


def test_exactly_backward_is_a_half_turn_about_x():
    half_turn = torch.diag(torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64))
    assert torch.equal(minrot(-E_Z), half_turn)
    assert torch.equal(minrot_axis(-E_Z), torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lateral", [0.0, 1e-20, 1e-15, 1.1e-15, 1e-10, 1e-3, 0.5])
@pytest.mark.parametrize("side", [-1, 1])
def test_gradients_of_the_minimum_rotation_are_finite_everywhere(dtype, lateral, side):
    dirs = near_pole(lateral)
    dirs[:, 2] *= -side
    dirs = dirs.to(dtype).requires_grad_()
    minrot(dirs).square().sin().sum().backward()
    assert torch.isfinite(dirs.grad).all()


def test_gradcheck_of_the_minimum_rotation_in_front_and_behind():
    dirs = random_dirs(12, seed=3)
    dirs = dirs[dirs[:, 2].abs() > 1e-3].requires_grad_()
    # Divided by the length: off the sphere the front and the back formula are different extensions.
    assert torch.autograd.gradcheck(lambda d: minrot(unit(d)), (dirs,))


def test_equation_5_as_typed_breaks_on_a_straight_drive_and_ours_does_not():
    # float32, 4 m between latent frames, past cameras at -e_z with gaussian lateral jitter in metres.
    draw = torch.Generator().manual_seed(0)
    not_finite = {}
    for jitter in (0.0, 1e-4, 1e-3, 1e-2):
        lateral = jitter * torch.randn(2000, 2, generator=draw)
        dirs = unit(torch.cat([lateral, torch.full((2000, 1), -4.0)], -1))
        naive = naive_minrot(dirs)
        finite = torch.isfinite(naive).flatten(1).all(-1)
        not_finite[jitter] = 1 - finite.float().mean().item()
        # What is left is finite and no rotation.
        assert (orthonormality_error(naive[finite]) > 1e-5).float().mean() > 0.99 or not finite.any()
        assert orthonormality_error(minrot(dirs)).max() < 2e-6
    assert not_finite[0.0] == not_finite[1e-4] == 1
    assert not_finite[1e-3] > 0.7
    assert not_finite[1e-2] > 0.005


def test_anchors_run_on_the_great_circle_from_the_far_direction_to_the_epipole():
    dirs = random_dirs(100, seed=4)
    offset = 10 * torch.randn(100, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    anchors = epipolar_anchors(dirs, offset, FRACTIONS)
    epipole = unit(offset)
    assert torch.equal(anchors[:, 0], dirs)
    torch.testing.assert_close(anchors[:, -1], epipole, rtol=0, atol=1e-14)
    torch.testing.assert_close(anchors.norm(dim=-1), torch.ones(100, 6, dtype=torch.float64))
    normal = unit(torch.linalg.cross(dirs, epipole))
    assert (anchors * normal[:, None]).sum(-1).abs().max() < 1e-14
    arc = torch.acos((dirs * epipole).sum(-1))
    reached = torch.acos((dirs[:, None] * anchors).sum(-1).clamp(-1, 1))
    torch.testing.assert_close(
        reached, arc[:, None] * torch.tensor(FRACTIONS, dtype=torch.float64), rtol=0, atol=3e-8
    )


def test_anchors_see_the_direction_of_a_baseline_and_not_its_length():
    dirs, offset = random_dirs(50, seed=6), random_dirs(50, seed=7)
    one = epipolar_anchors(dirs, offset, FRACTIONS)
    for length in (1e-12, 1e-6, 1e4, 1e200):
        torch.testing.assert_close(
            epipolar_anchors(dirs, offset * length, FRACTIONS), one, rtol=0, atol=1e-15 * 8
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_centres_collapse_every_anchor_onto_the_far_direction(dtype):
    dirs = random_dirs(20, seed=8).to(dtype)
    anchors = epipolar_anchors(dirs, torch.zeros(20, 3, dtype=dtype), FRACTIONS)
    assert torch.equal(anchors, dirs[:, None].expand(-1, 6, -1))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ray_along_the_baseline_collapses_every_anchor(sign, dtype):
    dirs = random_dirs(200, seed=9).to(dtype)
    anchors = epipolar_anchors(dirs, sign * 7.3 * dirs, FRACTIONS)
    assert torch.equal(anchors, dirs[:, None].expand(-1, 6, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("baseline", [0.0, 1e-300, 1e-35, 1e-12, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("lateral", [0.0, 1e-30, 1e-14, 1e-12, 1e-9, 1e-3])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("depth", [0.0, 2.0])
def test_anchors_and_their_gradients_are_finite_in_every_degenerate_case(
    dtype, baseline, lateral, sign, depth
):
    dirs = near_pole(lateral).to(dtype).requires_grad_()
    offset = torch.tensor([0.0, 0.0, sign * baseline], dtype=dtype).expand(8, 3).clone().requires_grad_()
    anchors = epipolar_anchors(dirs, offset, FRACTIONS, min_scene_depth=depth)
    frames = minrot(anchors)
    carried = transported_anchor_axes(dirs, anchors)
    assert orthonormality_error(frames).max() < 1e-5
    assert orthonormality_error(carried).max() < 1e-5
    (frames.sin().sum() + carried.cos().sum()).backward()
    assert torch.isfinite(dirs.grad).all()
    assert torch.isfinite(offset.grad).all()


@pytest.mark.parametrize("depth", [0.0, 3.0])
def test_gradcheck_of_anchors_and_of_transported_frames(depth):
    dirs = random_dirs(6, seed=10).requires_grad_()
    offset = (4 * random_dirs(6, seed=11)).requires_grad_()

    def both(d, o):
        anchors = epipolar_anchors(unit(d), o, FRACTIONS, min_scene_depth=depth)
        return anchors, transported_anchor_axes(unit(d), anchors)

    assert torch.autograd.gradcheck(both, (dirs, offset))


def test_the_nearest_depth_is_where_the_last_anchor_points():
    dirs = random_dirs(40, seed=12)
    offset = 5 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    anchors = epipolar_anchors(dirs, offset, (0.0, 1.0), min_scene_depth=2.5)
    torch.testing.assert_close(anchors[:, 1], unit(offset + 2.5 * dirs), rtol=0, atol=1e-13)


def test_a_nearest_depth_shrinks_the_arc_smoothly_as_the_baseline_vanishes():
    dirs = random_dirs(100, seed=13)
    direction = random_dirs(100, seed=14)
    widest = []
    for baseline in (1.0, 1e-1, 1e-2, 1e-3, 1e-6, 0.0):
        anchors = epipolar_anchors(dirs, baseline * direction, (1.0,), min_scene_depth=2.0)
        widest.append((anchors[:, 0] - dirs).norm(dim=-1).max().item())
    assert all(later < earlier for earlier, later in itertools.pairwise(widest))
    assert widest[3] < 6e-4
    assert widest[-1] == 0
    paper = epipolar_anchors(dirs, 1e-6 * direction, (1.0,))
    assert (paper[:, 0] - dirs).norm(dim=-1).max() > 1


def test_a_millimetre_of_jitter_spins_the_paper_s_last_frame_and_not_the_transported_one():
    # design: 4 m baseline straight back, 1 mm of lateral noise, the frame at the epipole.
    draw = torch.Generator().manual_seed(2)
    dirs = unit(torch.tensor([[0.4, -0.2, 1.0]], dtype=torch.float64).expand(4000, 3))
    noise = torch.zeros(2, 4000, 3, dtype=torch.float64)
    noise[..., :2] = 1e-3 * torch.randn(2, 4000, 2, generator=draw, dtype=torch.float64)
    anchors = [
        epipolar_anchors(dirs, torch.tensor([0.0, 0.0, -4.0]).double() + noise[i], (1.0,)) for i in (0, 1)
    ]
    paper = torch.rad2deg(rotation_angle(minrot(anchors[0]), minrot(anchors[1])))
    carried = torch.rad2deg(rotation_angle(*(transported_anchor_axes(dirs, anchor) for anchor in anchors)))
    assert paper.median() > 30
    assert paper.max() > 170
    assert carried.median() < 0.15
    assert carried.max() < 5


def test_transported_frames_carry_the_axis_to_the_anchor_by_the_smallest_turn():
    dirs, offset = random_dirs(60, seed=15), random_dirs(60, seed=16)
    anchors = epipolar_anchors(dirs, offset, FRACTIONS)
    frames = transported_anchor_axes(dirs, anchors)
    torch.testing.assert_close(frames[..., 2], anchors, rtol=0, atol=1e-14)
    start = minrot(dirs)[:, None].expand(-1, 6, -1, -1)
    torch.testing.assert_close(frames[:, 0], start[:, 0], rtol=0, atol=1e-15 * 4)
    turn = rotation_angle(start, frames)
    arc = torch.atan2(
        torch.linalg.cross(dirs[:, None].expand_as(anchors), anchors).norm(dim=-1),
        (dirs[:, None] * anchors).sum(-1),
    )
    torch.testing.assert_close(turn, arc, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-12, 1e-9, 1e-7, 1e-6, 1e-4])
def test_transported_frames_stay_orthogonal_when_the_anchor_is_opposite(gap):
    dirs = random_dirs(50, seed=17)
    side = unit(torch.linalg.cross(dirs, random_dirs(50, seed=18)))
    frames = transported_anchor_axes(dirs, (-dirs * math.cos(gap) + side * math.sin(gap))[:, None])
    assert orthonormality_error(frames).max() < 1e-14
    assert (frames[..., 0, :, 2] + dirs).norm(dim=-1).max() < 2 * gap + 1e-11


def test_bad_fractions_and_depths_are_refused_by_name():
    dirs = random_dirs(2)
    with pytest.raises(ValueError, match=r"fractions must lie in \[0, 1\]; got \(0.5, 1.2\)"):
        epipolar_anchors(dirs, dirs, (0.5, 1.2))
    for depth in (-1.0, math.nan):
        with pytest.raises(ValueError, match="min_scene_depth must be >= 0 m"):
            epipolar_anchors(dirs, dirs, (0.5,), min_scene_depth=depth)
