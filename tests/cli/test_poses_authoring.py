"""`merope poses make | keyframes | turn | resample`: they write what the library makes, and other commands take it."""

import json
from dataclasses import fields
from inspect import signature

import numpy as np
import pytest
import torch

from merope.cameras import CameraModel, Pinhole
from merope.cli.main import COMMANDS, Group, run
from merope.cli.poses.turn import turn
from merope.data import read_poses, write_poses
from merope.data.clips.clip import Clip
from merope.data.poses.command_files import read_command
from merope.data.poses.files import load_pose_file
from merope.geometry import presets
from merope.geometry.keyframes import keyframe_path
from merope.geometry.poses import Poses
from merope.geometry.turns import turn_variant
from merope.worlds import place_on_ground
from tests.support.drives import drive

KINDS = {
    "straight": presets.Straight,
    "arc": presets.Arc,
    "lane-change": presets.LaneChange,
    "u-turn": presets.UTurn,
    "orbit": presets.Orbit,
    "dolly-zoom": presets.DollyZoom,
    "pan": presets.Pan,
    "tilt": presets.Tilt,
    "truck": presets.Truck,
    "pedestal": presets.Pedestal,
    "crane": presets.Crane,
}


def poses(*arguments):
    return run(["poses", *map(str, arguments)])


def same(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found.T_world_cam, expected.T_world_cam, rtol=0, atol=tolerance)


@pytest.fixture
def timed(tmp_path):
    """25 poses of a curve at 10 a second."""
    made = drive(25, turn_deg=60).with_times(torch.arange(25, dtype=torch.float64) / 10)
    write_poses(tmp_path / "drive.json", made, format="merope")
    return tmp_path / "drive.json"


def test_every_preset_has_a_command():
    group = COMMANDS["poses"].commands["make"]
    assert isinstance(group, Group)
    assert set(group.commands) == set(KINDS)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_preset_is_written_as_the_library_makes_it(name, kind, tmp_path, capsys):
    out = tmp_path / "path.json"
    assert poses("make", name, "--out", out) == 0
    found = load_pose_file(out, format="merope")
    expected = kind().poses(num_frames=49, fps=12.0)
    same(found.poses, expected, 0.0)
    assert torch.equal(found.poses.times, expected.times)
    assert found.poses.unit == "m"
    assert found.camera is None
    assert f"{out}: 49 poses, path {expected.path_length:.6g} m in 4 s" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_every_parameter_is_a_flag_with_its_text(name, kind, capsys):
    with pytest.raises(SystemExit) as stop:
        poses("make", name, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for field in fields(kind):
        assert f"--{field.name.replace('_', '-')} " in text
    assert "Metres" in text or "Degrees" in text


def test_flags_of_a_preset_reach_it(tmp_path):
    out = tmp_path / "path.txt"
    flags = ["--radius", "12", "--angle-deg", "30", "--side", "right", "--num-frames", "9", "--fps", "4"]
    assert poses("make", "arc", *flags, "--easing", "smooth", "--out", out, "--to", "tum") == 0
    expected = presets.Arc(radius=12, angle_deg=30, side="right").poses(num_frames=9, fps=4, easing="smooth")
    found = read_poses(out, format="tum")
    same(found, expected)
    torch.testing.assert_close(found.times, expected.times)
    assert poses("make", "straight", "--distance", "-3", "--out", out, "--to", "kitti", "--overwrite") == 0
    assert read_poses(out, format="kitti").center_world[-1].tolist() == [0, 0, -3]


def test_a_dolly_zoom_writes_the_lens_of_every_frame(tmp_path, capsys):
    lens = Pinhole.from_fov(fov_x_deg=60.0, height=288, width=512)
    (tmp_path / "lens.json").write_text(json.dumps(lens.to_dict()))
    preset = presets.DollyZoom(subject_distance=8.0, travel=4.0)
    expected = lens.zoomed(preset.focal_factors(num_frames=49))
    flags = ["--subject-distance", "8", "--travel", "4"]
    assert (
        poses("make", "dolly-zoom", *flags, "--lens", tmp_path / "lens.json", "--out", tmp_path / "a.json")
        == 0
    )
    assert "focal length 1 to 0.5 times that of the first frame" in capsys.readouterr().out
    pinhole = ["--fov-x-deg", "60", "--image-height", "288", "--image-width", "512"]
    assert poses("make", "dolly-zoom", *flags, *pinhole, "--out", tmp_path / "b.json") == 0
    for name in ("a.json", "b.json"):
        camera = load_pose_file(tmp_path / name, format="merope").camera
        assert CameraModel.from_dict(camera) == expected
    assert poses("make", "dolly-zoom", *pinhole, "--out", tmp_path / "c.txt", "--to", "kitti") == 0
    assert "the lens has no place in it" in capsys.readouterr().out
    assert poses("make", "dolly-zoom", "--out", tmp_path / "d.json") == 0
    assert "no lens is written; --lens" in capsys.readouterr().out
    # Windows and rates take the lens of their own frames.
    command = [tmp_path / "a.json", "--format", "merope", "--to", "merope"]
    out = tmp_path / "window.json"
    assert poses("convert", command[0], out, *command[1:], "--start", 6, "--count", 3, "--step", 2) == 0
    window = CameraModel.from_dict(load_pose_file(out, format="merope").camera)
    torch.testing.assert_close(window.fx, expected.fx[6:12:2])
    assert poses("resample", *command, "--fps", 24, "--out", tmp_path / "fast.json") == 0
    fast = CameraModel.from_dict(load_pose_file(tmp_path / "fast.json", format="merope").camera)
    torch.testing.assert_close(fast.fx, lens.zoomed(preset.focal_factors(num_frames=97)).fx)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["orbit", "--radius", "-1"], 1, "radius must be > 0; got -1"),
        (["straight", "--num-frames", "1"], 1, "num_frames must be a whole number of at least 2"),
        (["straight", "--fov-x-deg", "60"], 2, "give all three"),
        (["straight", "--fov-x-deg", "60", "--lens", "a.json"], 2, "--lens is a whole lens"),
    ],
)
def test_what_makes_no_move_is_one_line_and_writes_nothing(flags, code, message, tmp_path, capsys):
    assert poses("make", *flags, "--out", tmp_path / "path.json") == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(timed, tmp_path, capsys):
    before = timed.read_bytes()
    assert poses("make", "straight", "--out", timed) == 1
    assert "--overwrite" in capsys.readouterr().err
    (tmp_path / "t-right.json").write_text("mine")
    assert poses("turn", timed, "--format", "merope", "--out", tmp_path / "t.json") == 1
    assert not (tmp_path / "t-left.json").exists()
    assert timed.read_bytes() == before


@pytest.mark.parametrize("name", ["straight", "arc", "lane-change", "u-turn"])
def test_generate_and_demo_drive_a_made_path(name, tmp_path):
    out = tmp_path / "path.json"
    assert poses("make", name, "--out", out) == 0
    # Both read their --trajectory through this; the demo then puts it onto its street.
    command = read_command(out, format="merope", num_frames=33, fps=10.0)
    assert command.poses.unit == "m"
    assert len(command.poses) == 33
    expected = KINDS[name]().poses(num_frames=49, fps=12.0)
    times = torch.arange(33, dtype=torch.float64) / 10
    same(command.poses, expected.interpolate(times), 1e-9)
    same(place_on_ground(command.poses).rebase_to_first(), command.poses, 1e-9)


def test_keyframes_become_a_path(timed, tmp_path, capsys):
    few = read_poses(timed, format="merope")[[0, 4, 15, 24]]
    write_poses(tmp_path / "few.txt", few, format="tum")
    out = tmp_path / "path.json"
    command = ["keyframes", tmp_path / "few.txt", "--format", "tum", "--out", out]
    assert poses(*command, "--num-frames", 50, "--fps", 10) == 0
    same(read_poses(out, format="merope"), keyframe_path(few, num_frames=50, fps=10.0), 1e-9)
    assert poses(*command, "--fps", 20, "--pace", "times", "--shape", "straight", "--overwrite") == 0
    found = read_poses(out, format="merope")
    same(found, few.interpolate(found.times), 1e-9)
    assert poses(*command, "--num-frames", 50, "--overwrite") == 1
    assert "--num-frames, --fps" in capsys.readouterr().err


def test_the_sign_of_a_quaternion_in_a_file_changes_nothing(timed, tmp_path):
    few = read_poses(timed, format="merope")[[0, 12, 24]]
    write_poses(tmp_path / "few.txt", few, format="tum")
    rows = np.loadtxt(tmp_path / "few.txt")
    rows[1, 4:] *= -1
    np.savetxt(tmp_path / "flipped.txt", rows, fmt="%.17g")
    for name in ("few", "flipped"):
        flags = ["--format", "tum", "--num-frames", 20, "--fps", 5, "--out", tmp_path / f"{name}.json"]
        assert poses("keyframes", tmp_path / f"{name}.txt", *flags) == 0
    same(*(read_poses(tmp_path / f"{name}.json", format="merope") for name in ("few", "flipped")))


def test_a_half_turn_between_keyframes_is_said(tmp_path, capsys):
    half = presets.UTurn(lead=0.0).poses(num_frames=2, fps=1.0)
    write_poses(tmp_path / "half.json", half, format="merope")
    flags = ["--format", "merope", "--num-frames", 9, "--fps", 5, "--out", tmp_path / "out.json"]
    assert poses("keyframes", tmp_path / "half.json", *flags) == 0
    assert "keyframes 0 and 1 are half a turn apart" in capsys.readouterr().out


def test_turn_writes_both_sides(timed, tmp_path, capsys):
    base = read_poses(timed, format="merope")
    assert poses("turn", timed, "--format", "merope", "--up", "-y", "--out", tmp_path / "t.json") == 0
    text = capsys.readouterr().out
    for side in ("left", "right"):
        found = read_poses(tmp_path / f"t-{side}.json", format="merope")
        same(found, turn_variant(base, side=side, up_world=(0, -1, 0)))
        assert torch.equal(found.T_world_cam[:9], base.T_world_cam[:9])
        assert f"t-{side}.json: {side}, ends " in text
    assert (
        poses(
            "turn",
            timed,
            "--format",
            "merope",
            "--side",
            "left",
            "--out",
            tmp_path / "one.txt.gz",
            "--to",
            "tum",
        )
        == 0
    )
    assert "up is (0.000, -1.000, 0.000), from the path and the cameras" in capsys.readouterr().out
    same(
        read_poses(tmp_path / "one.txt.gz", format="tum"),
        turn_variant(base, side="left", up_world=(0, -1, 0)),
        1e-9,
    )


def test_what_is_to_be_known_of_a_file_is_said_once(timed, tmp_path, capsys):
    matrices = read_poses(timed, format="merope").T_world_cam[:, :3].numpy()
    np.savetxt(tmp_path / "rounded.txt", matrices.reshape(-1, 12), fmt="%.4f")
    flags = ["--format", "kitti", "--overwrite", "--out", tmp_path / "out.json"]
    for words in (
        ["turn", "--trajectory-fps", 10],
        ["keyframes", "--num-frames", 50, "--fps", 5],
        ["resample", "--num-frames", 9],
    ):
        assert poses(words[0], tmp_path / "rounded.txt", *words[1:], *flags) == 0
        assert capsys.readouterr().out.count("were projected to rotations") == 1


def test_the_flags_of_turn_have_the_defaults_of_the_library():
    flags, library = signature(turn).parameters, signature(turn_variant).parameters
    shared = {"curvature", "ramp_length", "axle_to_camera", "min_radius", "max_lateral_acceleration"}
    assert shared < flags.keys()
    assert all(flags[name].default == library[name].default for name in shared)
    assert flags["turn_start"].default == library["start"].default


def test_paths_that_are_no_cars_are_said(tmp_path, capsys):
    for name, words in (("truck", "--axle-to-camera 0"), ("pan", "does not move after pose 8")):
        assert poses("make", name, "--out", tmp_path / f"{name}.json") == 0
        flags = ["--format", "merope", "--up", "-y", "--out", tmp_path / f"{name}-turned.json"]
        assert poses("turn", tmp_path / f"{name}.json", *flags) == 0
        assert words in capsys.readouterr().out
    unknown = Poses(R_world_cam=drive(20).R_world_cam, center_world=drive(20).center_world, unit="unknown")
    write_poses(tmp_path / "unknown.npy", unknown, format="npy")
    command = ["turn", tmp_path / "unknown.npy", "--format", "npy", "--out", tmp_path / "u.json"]
    assert poses(*command) == 1
    assert "--unit m" in capsys.readouterr().err
    assert poses(*command, "--unit", "m") == 1
    assert "--trajectory-fps" in capsys.readouterr().err
    assert poses(*command, "--unit", "m", "--trajectory-fps", 10) == 0
    assert read_poses(tmp_path / "u-left.json", format="merope").times is not None


def test_resampling_by_rate_and_by_number(timed, tmp_path, capsys):
    base = read_poses(timed, format="merope")
    command = ["resample", timed, "--format", "merope", "--overwrite", "--out", tmp_path / "out.json"]
    assert poses(*command, "--fps", 7) == 0
    found = read_poses(tmp_path / "out.json", format="merope")
    torch.testing.assert_close(found.times, torch.arange(17, dtype=torch.float64) / 7)
    same(found, base.interpolate(found.times))
    assert poses(*command, "--num-frames", 49) == 0
    same(read_poses(tmp_path / "out.json", format="merope")[::2], base, 1e-9)
    assert poses(*command) == 2
    assert poses(*command, "--fps", 7, "--trajectory-fps", 3) == 2
    assert "leave it out" in capsys.readouterr().err
    assert poses(*command, "--fps", 0) == 1
    write_poses(tmp_path / "bare.txt", base, format="kitti")
    bare = [
        "resample",
        tmp_path / "bare.txt",
        "--format",
        "kitti",
        "--overwrite",
        "--out",
        tmp_path / "out.json",
    ]
    assert poses(*bare, "--fps", 5) == 2
    assert "--trajectory-fps" in capsys.readouterr().err
    assert poses(*bare, "--fps", 5, "--trajectory-fps", 10) == 0
    same(read_poses(tmp_path / "out.json", format="merope"), base[::2])
    gap = base[[*range(10), *range(15, 25)]]
    write_poses(tmp_path / "gap.json", gap, format="merope")
    assert poses("resample", tmp_path / "gap.json", *command[2:], "--fps", 5) == 0
    assert "1 gaps of up to 0.6 s" in capsys.readouterr().out


@pytest.mark.parametrize("rate", [10.0, 5.0, 4.0, 3.0])
def test_a_pose_file_and_a_clip_agree_on_a_rate(rate, timed, tmp_path):
    base = read_poses(timed, format="merope")
    clip = Clip(
        clip_id="drive",
        poses=base,
        lens=Pinhole.from_fov(fov_x_deg=60.0, height=4, width=6),
        fps=10.0,
        decode=lambda indices: np.zeros((len(list(indices)), 4, 6, 3), dtype=np.uint8),
    )
    out = tmp_path / "out.json"
    assert poses("resample", timed, "--format", "merope", "--fps", rate, "--out", out) == 0
    alone = read_poses(out, format="merope")
    together = clip.at_rate(rate, interpolate_poses=True).poses
    # A clip's last frame also stands for the half period after it.
    assert 0 <= len(together) - len(alone) <= 1
    same(together[: len(alone)], alone, 1e-9)
    torch.testing.assert_close(together.times[: len(alone)], alone.times)
    if 10 % rate == 0:
        same(clip.at_rate(rate).poses, alone, 1e-9)


def test_poses_of_latent_frames_are_no_frames(timed, tmp_path, capsys):
    write_poses(
        tmp_path / "latent.json", read_poses(timed, format="merope"), format="merope", pose_policy="last"
    )
    for command in (["turn"], ["resample", "--fps", 5], ["keyframes", "--num-frames", 5, "--fps", 5]):
        flags = ["--format", "merope", "--out", tmp_path / "out.json"]
        assert poses(command[0], tmp_path / "latent.json", *command[1:], *flags) == 1
        assert "those of latent frames" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_measure_are_one_line(timed, tmp_path, capsys):
    base = read_poses(timed, format="merope")
    far = Poses(R_world_cam=base.R_world_cam, center_world=base.center_world * 1e200, times=base.times)
    write_poses(tmp_path / "far.json", far, format="merope")
    slow = base.with_times(base.times * 1e300)
    write_poses(tmp_path / "slow.json", slow, format="merope")
    write_poses(tmp_path / "fast.json", base.with_times(base.times * 1e-300), format="merope")
    flags = ["--format", "merope", "--out", tmp_path / "out.json"]
    for words in (["turn"], ["turn", "--up", "-y"], ["keyframes", "--num-frames", 5, "--fps", 5]):
        assert poses(words[0], tmp_path / "far.json", *words[1:], *flags) == 1
        assert "no finite length: coordinates reach" in capsys.readouterr().err
    for words in (["resample", "--fps", 24], ["keyframes", "--pace", "times", "--fps", 24]):
        assert poses(words[0], tmp_path / "slow.json", *words[1:], *flags) == 1
        assert "--time-unit" in capsys.readouterr().err
    for words in (["resample"], ["keyframes", "--fps", 3]):
        assert poses(words[0], timed, *words[1:], "--num-frames", 10**15, *flags) == 1
        assert "at most 10000000" in capsys.readouterr().err
    # At such a speed no car turns.
    assert poses("turn", tmp_path / "fast.json", "--side", "left", *flags) == 0
    same(read_poses(tmp_path / "out.json", format="merope"), base, 1e-9)
