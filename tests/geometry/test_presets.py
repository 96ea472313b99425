"""Camera moves by name are exactly the curves that their parameters describe."""

import math

import pytest
import torch

from merope.cameras import CameraModel, KannalaBrandt, Pinhole
from merope.geometry.pacing import ArcLength, shares
from merope.geometry.presets import (
    Arc,
    Crane,
    DollyZoom,
    LaneChange,
    Orbit,
    Pan,
    Pedestal,
    Preset,
    Straight,
    Tilt,
    Truck,
    UTurn,
)
from merope.geometry.rotations import rotation_angle

PRESETS = (Straight, Arc, LaneChange, UTurn, Orbit, DollyZoom, Pan, Tilt, Truck, Pedestal, Crane)
VEHICLES = (Straight, Arc, LaneChange, UTurn)


def made(preset, num_frames=97, easing="linear"):
    return preset.poses(num_frames=num_frames, fps=24.0, easing=easing)


def turned_deg(poses):
    return float(torch.rad2deg(rotation_angle(poses.R_world_cam[0], poses.R_world_cam[-1])))


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float64),
        torch.as_tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=tolerance,
    )


def seen_from(poses, point):
    """A point of the world in the coordinates of every camera."""
    return (
        poses.R_world_cam.mT @ (torch.tensor(point, dtype=torch.float64) - poses.center_world)[..., None]
    )[..., 0]


def test_no_preset_is_left_out():
    assert {kind.__name__ for kind in Preset.__subclasses__()} == {kind.__name__ for kind in PRESETS}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("easing", ["linear", "smooth"])
def test_the_first_camera_is_the_world_and_times_are_those_of_frames(preset, easing):
    poses = made(preset(), easing=easing)
    close(poses.T_world_cam[0], torch.eye(4), 0.0)
    close(poses.times, torch.arange(97, dtype=torch.float64) / 24.0)
    assert poses.unit == "m"
    # No move has roll: the x axis stays horizontal.
    close(poses.R_world_cam[:, 1, 0], torch.zeros(97))


@pytest.mark.parametrize("preset", PRESETS)
def test_easing_changes_when_and_not_where(preset):
    linear, smooth = made(preset()), made(preset(), easing="smooth")
    close(smooth.T_world_cam[-1], linear.T_world_cam[-1])
    close(smooth.T_world_cam[48], linear.T_world_cam[48])
    motion = smooth.step_lengths + rotation_angle(smooth.R_world_cam[:-1], smooth.R_world_cam[1:])
    assert motion[0] < 1e-3 * motion[48]
    assert motion[-1] < 1e-3 * motion[48]


@pytest.mark.parametrize(
    "preset", [Straight(), Arc(), LaneChange(), UTurn(), Orbit(), DollyZoom(), Truck(), Pedestal(), Crane()]
)
def test_linear_is_constant_speed(preset):
    steps = made(preset).step_lengths
    # Chords: where a path bends they are shorter than its arcs, by a 24th of the squared angle.
    assert float(steps.max() / steps.min() - 1) < 1e-3


def test_straight_goes_its_distance():
    poses = made(Straight(distance=12.5))
    assert poses.path_length == pytest.approx(12.5, abs=1e-12)
    close(poses.center_world[-1], [0, 0, 12.5])
    assert made(Straight(distance=0.0)).path_length == 0
    close(made(Straight(distance=-3.0)).center_world[-1], [0, 0, -3])


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_arc_is_a_circle_with_the_camera_along_it(side):
    poses = made(Arc(radius=30.0, angle_deg=75.0, side=side))
    middle = torch.tensor([-30.0 if side == "left" else 30.0, 0, 0], dtype=torch.float64)
    from_middle = poses.center_world - middle
    close(from_middle.norm(dim=-1), torch.full((97,), 30.0))
    close((from_middle * poses.R_world_cam[:, :, 2]).sum(-1), torch.zeros(97))
    assert turned_deg(poses) == pytest.approx(75, abs=1e-9)
    chord = 2 * 30.0 * math.sin(math.radians(75) / 96 / 2)
    close(poses.step_lengths, torch.full((96,), chord, dtype=torch.float64))
    assert float(poses.R_world_cam[-1, 0, 2]) * (-1 if side == "left" else 1) > 0


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_lane_change_ends_beside_its_start_with_the_same_heading(side):
    poses = made(LaneChange(distance=40.0, offset=3.5, side=side), num_frames=1001)
    close(poses.center_world[-1], [-3.5 if side == "left" else 3.5, 0, 40])
    close(poses.R_world_cam[-1], torch.eye(3), 0.0)
    share = poses.center_world[:, 2] / 40.0
    lateral = 3.5 * (10 * share**3 - 15 * share**4 + 6 * share**5)
    close(poses.center_world[:, 0].abs(), lateral)
    # Half-way the slope of the curve is 1.875 offset / distance.
    assert float(
        torch.rad2deg(rotation_angle(poses.R_world_cam[0], poses.R_world_cam[500]))
    ) == pytest.approx(math.degrees(math.atan(1.875 * 3.5 / 40)), abs=1e-9)
    steps = poses.step_lengths
    assert float(steps.max() / steps.min() - 1) < 1e-7


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_u_turn_comes_back_a_diameter_away(side):
    poses = made(UTurn(radius=8.0, lead=5.0, side=side), num_frames=2001)
    close(poses.center_world[-1], [-16 if side == "left" else 16, 0, 0])
    assert turned_deg(poses) == pytest.approx(180, abs=1e-9)
    assert poses.path_length == pytest.approx(10 + 8 * math.pi, rel=1e-5)
    assert float(poses.center_world[:, 2].max()) == pytest.approx(13.0, abs=1e-4)
    left = 1 if side == "left" else -1
    quarter = poses.R_world_cam[1000, :, 2]
    close(quarter, [-left, 0, 0])


@pytest.mark.parametrize("preset", VEHICLES)
def test_a_vehicle_looks_along_its_path(preset):
    # The chord between two frames against the mean of their headings: exact on a circle, near to it elsewhere.
    poses = made(preset(), num_frames=2001)
    step = torch.nn.functional.normalize(poses.center_world.diff(dim=0), dim=-1)
    mean = torch.nn.functional.normalize(poses.R_world_cam[1:, :, 2] + poses.R_world_cam[:-1, :, 2], dim=-1)
    assert float(torch.linalg.cross(step, mean).norm(dim=-1).max()) < 1e-3
    assert bool(((step * mean).sum(-1) > 0).all())


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_orbit_keeps_its_subject_in_the_middle(side):
    poses = made(Orbit(radius=4.0, angle_deg=120.0, side=side))
    close(seen_from(poses, [0, 0, 4.0]), torch.tensor([0, 0, 4.0]).expand(97, 3))
    assert turned_deg(poses) == pytest.approx(120, abs=1e-9)
    assert float(poses.center_world[10, 0]) * (1 if side == "right" else -1) > 0
    round_ = made(Orbit(angle_deg=360.0))
    close(round_.T_world_cam[-1], torch.eye(4))


@pytest.mark.parametrize("travel", [6.0, -8.0])
@pytest.mark.parametrize("easing", ["linear", "smooth"])
def test_a_dolly_zoom_keeps_the_size_of_its_subject(travel, easing):
    preset = DollyZoom(subject_distance=10.0, travel=travel)
    poses = made(preset, easing=easing)
    lens = Pinhole.from_fov(fov_x_deg=60.0, height=288, width=512)
    zoomed = lens.zoomed(preset.focal_factors(num_frames=97, easing=easing))
    ends = torch.stack([seen_from(poses, [0.5, -1.0, 10.0]), seen_from(poses, [-0.5, 1.0, 10.0])], dim=1)
    pixels, valid = zoomed.project(ends)
    assert bool(valid.all())
    close(pixels, pixels[:1].expand_as(pixels), 1e-9)
    behind, _ = zoomed.project(seen_from(poses, [2.0, 0.0, 40.0])[:, None])
    assert float((behind[-1, 0, 0] - 256) / (behind[0, 0, 0] - 256)) == pytest.approx(
        (10 - travel) / 10 * 40 / (40 - travel)
    )
    # The lens of every frame survives its JSON form.
    assert CameraModel.from_dict(zoomed.to_dict()) == zoomed
    assert zoomed.view_shape == (97,)


def test_a_lens_that_is_no_pinhole_zooms_about_its_principal_point():
    lens = KannalaBrandt.from_fov(fov_x_deg=120.0, height=100, width=200)
    point = torch.tensor([[0.7, -0.2, 1.0]], dtype=torch.float64)
    center = torch.tensor([100.0, 50.0], dtype=torch.float64)
    close(lens.zoomed(0.5).project(point)[0] - center, 0.5 * (lens.project(point)[0] - center))
    with pytest.raises(ValueError, match="fx must be positive"):
        lens.zoomed(0.0)


@pytest.mark.parametrize(("side", "sign"), [("left", -1), ("right", 1)])
def test_moves_on_the_spot_and_sideways(side, sign):
    pan = made(Pan(angle_deg=30.0, side=side))
    assert pan.path_length == 0
    close(pan.R_world_cam[-1, :, 2], [sign * 0.5, 0, math.cos(math.radians(30))])
    close(made(Truck(distance=2.0, side=side)).center_world[-1], [sign * 2.0, 0, 0])


def test_up_is_against_y():
    close(made(Tilt(angle_deg=30.0)).R_world_cam[-1, :, 2], [0, -0.5, math.cos(math.radians(30))])
    close(made(Pedestal(height=1.5)).center_world[-1], [0, -1.5, 0])


@pytest.mark.parametrize(("height", "forward"), [(4.0, 0.0), (-1.0, 3.0)])
def test_a_crane_rises_and_keeps_its_subject_in_the_middle(height, forward):
    poses = made(Crane(height=height, forward=forward, subject_distance=10.0))
    close(poses.center_world[-1], [0, -height, forward])
    assert poses.path_length == pytest.approx(math.hypot(height, forward))
    subject = seen_from(poses, [0, 0, 10.0])
    close(subject[:, :2], torch.zeros(97, 2))
    assert bool((subject[:, 2] > 0).all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Arc(radius=0.0), "radius must be > 0; got 0"),
        (lambda: Arc(angle_deg=-5.0), "angle_deg must be > 0"),
        (lambda: LaneChange(distance=math.inf), "distance must be > 0"),
        (lambda: UTurn(lead=-1.0), "lead must be >= 0"),
        (lambda: Straight(distance=math.nan), "distance must be finite"),
        (lambda: DollyZoom(subject_distance=5.0, travel=5.0), "travel must be less than subject_distance"),
        (lambda: Crane(forward=12.0), "forward must be less than subject_distance"),
        (lambda: made(Straight(), num_frames=1), "num_frames must be a whole number of at least 2"),
        (lambda: Straight().poses(num_frames=5, fps=0.0), "fps must be > 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_lengths_along_a_curve():
    # An ellipse in two pieces, and a piece of no length between them.
    def speed(places):
        angle = math.pi / 2 * torch.where(places < 1, places, (places - 1).clamp(min=1))
        moving = (places < 1) | (places > 2)
        return torch.where(moving, math.pi / 2 * torch.hypot(3 * angle.sin(), angle.cos()), 0.0)

    curve = ArcLength(speed, num_pieces=3)
    # The perimeter of an ellipse with axes 3 and 1.
    assert curve.total == pytest.approx(13.3648932205553 / 2, rel=1e-10)
    close(curve.pieces[1], 0.0)
    ends = curve.parameter(torch.tensor([0.0, curve.total], dtype=torch.float64))
    close(ends, [0.0, 3.0], 0.0)
    half = curve.parameter(torch.tensor([curve.total / 4], dtype=torch.float64))
    part = ArcLength(lambda places: speed(places * float(half)) * float(half))
    assert part.total == pytest.approx(curve.total / 4, rel=1e-12)
    assert float(shares(3, "smooth")[1]) == 0.5
