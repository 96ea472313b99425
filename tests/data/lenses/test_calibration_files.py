"""Calibration files of other programs: each format by its own numbers, and what wrong files are told."""

import json
from typing import get_args

import numpy as np
import pytest
import torch

from merope.cameras import (
    DoubleSphere,
    ExtendedUnified,
    Fisheye624,
    FTheta,
    KannalaBrandt,
    Mei,
    OCam,
    OpenCV,
    Pinhole,
    RadialPolynomial,
    UnifiedCamera,
)
from merope.cli.lens_options import Calibration as Name
from merope.data import ReadOptions, load_pose_file
from merope.data.lenses.calibration_files import (
    CALIBRATIONS,
    CalibrationError,
    load_calibration,
    read_calibration,
    recognise_calibration,
)
from tests.support.shared import shared_file

FISHEYE = "data/fisheye/"
CALIB = "data/fisheye/calib/"

# file, its one format, camera, what else has to be said, model, and a parameter or two as the file holds them
SHARED = [
    (CALIB + "tumvi_kb4.yaml", "kalibr", "cam1", {}, KannalaBrandt, {"fx": 190.44236969414825}),
    (CALIB + "tumvi_ds.json", "basalt", "cam0", {}, DoubleSphere, {"alpha": 0.5931177593944744}),
    (CALIB + "tumvi_eucm.json", "basalt", "cam1", {}, ExtendedUnified, {"beta": 1.041250259119081}),
    (CALIB + "vi_car_cam0_mei.yaml", "camodocal", None, {}, Mei, {"xi": 1.8162816904697401}),
    (CALIB + "vi_car_cam0_pinhole.yaml", "camodocal", None, {}, OpenCV, {"k2": 0.092224519780237782}),
    (CALIB + "mynteye_left_mei.yaml", "camodocal", None, {}, Mei, {"fy": 897.4158147903280}),
    (CALIB + "kitti_cam00-02.yaml", "camodocal", None, {}, OpenCV, {"cx": 607.1928, "k1": 0}),
    (CALIB + "kitti_cam04-12.yaml", "camodocal", None, {}, OpenCV, {"fx": 707.0912}),
    (FISHEYE + "woodscape_front.json", "woodscape", None, {}, RadialPolynomial, {"fx": 339.749, "cx": 643.442}),
    (FISHEYE + "pyocam_fisheye_1.json", "ocam", None, {"height": 778, "width": 1032}, OCam, {"cy": 377.64882547339226}),
    (FISHEYE + "aria_adt/calibration.json", "aria", "camera-rgb", {}, Fisheye624, {"k0": 0.4060356696288849}),
    ("data/rds_hq/ftheta_front_tele_30fov.npy", "rds-hq", None, {}, FTheta, {"polynomial_of": "angle"}),
    ("data/rds_hq/ftheta_cross_left_120fov.npy", "rds-hq", None, {}, FTheta, {"polynomial_of": "radius"}),
    ("data/rds_hq/pinhole_front_wide_120fov.npy", "rds-hq", None, {}, Pinhole, {"width": 1920, "height": 1080}),
    ("data/kitti_odom/video/06_calib.txt", "kitti", "P1", {"height": 370, "width": 1226}, Pinhole, {"fx": 707.0912}),
    ("data/nuscenes/scene-0061_one_sample/v1.0-test/calibrated_sensor.json", "nuscenes", "CAM_FRONT", {}, Pinhole,
     {"fx": 1266.417203046554, "width": 1600, "height": 900}),
    ("data/av2/7fab2350/calibration/intrinsics.feather", "argoverse2", "ring_front_center", {}, Pinhole,
     {"width": 1550, "height": 2048}),
    ("data/comma2k19/camera_intrinsics.txt", "comma2k19", None, {}, Pinhole, {"cx": 582.0, "width": 1164, "height": 874}),
    ("data/panshot/demo_lens.json", "ucpe", "2", {"height": 480, "width": 832}, UnifiedCamera,
     {"xi": 0.8, "pixel_origin": "corner"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "format", "camera", "more", "model", "values"), SHARED)
def test_real_files_are_recognised_as_one_format_and_read(name, format, camera, more, model, values):
    path = shared_file(name)
    assert list(recognise_calibration(path)) == [format]
    lens = read_calibration(path, camera=camera, **more)
    assert lens == read_calibration(path, format=format, camera=camera, **more)
    assert isinstance(lens, model)
    for key, value in values.items():
        assert getattr(lens, key) == (pytest.approx(value, rel=1e-14) if isinstance(value, float) else value)
    assert lens.pixel_origin == values.get("pixel_origin", "center")


def test_opencv_files_do_not_say_which_of_two_lenses_they_are_of():
    path = shared_file(FISHEYE + "surround_view_front.yaml")
    assert set(recognise_calibration(path)) == {"opencv", "opencv-fisheye"}
    with pytest.raises(CalibrationError, match="opencv or opencv-fisheye"):
        read_calibration(path)
    lens = read_calibration(path, format="opencv-fisheye")
    assert isinstance(lens, KannalaBrandt) and (lens.width, lens.height) == (960, 640)
    assert lens.k4 == 8.4123126605702321e-03
    standard = read_calibration(path, format="opencv")
    assert isinstance(standard, OpenCV) and standard.p2 == 8.4123126605702321e-03


@pytest.mark.parametrize(
    ("name", "body"),
    [(CALIB + "tumvi_kb4.yaml", "imu"), (CALIB + "tumvi_ds.json", "imu")],
)
def test_places_of_cameras_are_rigid_and_those_of_one_rig_agree(name, body):
    left, right = (load_calibration(shared_file(name), camera=camera) for camera in ("cam0", "cam1"))
    assert left.body == right.body == body
    R_left_right = left.T_body_cam[:3, :3].mT @ right.T_body_cam[:3, :3]
    assert torch.trace(R_left_right) > 2.99
    # TUM-VI's stereo pair is 0.101 m wide.
    assert (left.T_body_cam - right.T_body_cam)[:3, 3].norm() == pytest.approx(0.101, abs=1e-3)


def test_driving_cameras_look_where_their_names_say():
    table = shared_file("data/nuscenes/scene-0061_one_sample/v1.0-test/calibrated_sensor.json")
    # Optical axes in the vehicle's axes: x forward, y left.
    for camera, place, sign in (("CAM_FRONT", 0, 1), ("CAM_BACK", 0, -1), ("CAM_FRONT_LEFT", 1, 1)):
        axis = load_calibration(table, camera=camera).T_body_cam[:3, 2]
        assert sign * axis[place] > 0.7
    front = load_calibration(
        shared_file("data/av2/7fab2350/calibration/intrinsics.feather"), camera="ring_front_center"
    )
    assert front.T_body_cam[0, 2] > 0.99 and front.T_body_cam[:3, 3].norm() < 3
    # The same lens as with the poses, and k1 to k3 in a note: the images are published without distortion.
    posed = load_pose_file(
        shared_file("data/av2/7fab2350"), format="argoverse2", options=ReadOptions(camera="ring_front_center")
    )
    assert posed.camera == front.lens.to_dict()
    assert set(front.notes) <= set(posed.notes) and "k1 -0.2" in front.notes[0]
    assert load_calibration(shared_file(FISHEYE + "woodscape_front.json")).T_body_cam[0, 2] > 0.7


def test_kitti_cameras_sit_beside_the_first():
    second = load_calibration(
        shared_file("data/kitti_odom/video/06_calib.txt"), camera="P1", height=370, width=1226
    )
    assert second.T_body_cam[:3, 3].tolist() == pytest.approx([0.5372, 0, 0], abs=1e-4)


def test_several_cameras_are_listed_and_one_has_to_be_named():
    path = shared_file(CALIB + "tumvi_kb4.yaml")
    with pytest.raises(CalibrationError, match=r"2 cameras: cam0, cam1.*--camera cam0"):
        read_calibration(path)
    with pytest.raises(CalibrationError, match="none called 'cam7'"):
        read_calibration(path, camera="cam7")


def test_the_image_size_is_asked_for_where_a_file_lacks_it_and_not_contradicted_where_it_has_it(tmp_path):
    path = tmp_path / "K.txt"
    path.write_text("500 0 320\n0 500 240\n0 0 1\n")
    with pytest.raises(CalibrationError, match="--height, --width"):
        read_calibration(path)
    with pytest.raises(CalibrationError, match="--height, --width"):
        read_calibration(path, height=480)
    lens = read_calibration(path, height=480, width=640)
    assert isinstance(lens, Pinhole) and (lens.fx, lens.cy, lens.pixel_origin) == (500, 240, "center")
    (tmp_path / "lens.json").write_text(json.dumps(lens.to_dict()))
    assert read_calibration(tmp_path / "lens.json", height=480, width=640) == lens
    with pytest.raises(CalibrationError, match="got height 240, width 320"):
        read_calibration(tmp_path / "lens.json", height=240, width=320)
    with pytest.raises(CalibrationError, match="got height None, width 320"):
        read_calibration(tmp_path / "lens.json", width=320)


KALIBR = """
cam0:
  camera_model: {model}
  distortion_model: {distortion}
  distortion_coeffs: {coefficients}
  intrinsics: {intrinsics}
  resolution: [640, 480]
"""
PLANE = [400.0, 401.0, 320.0, 240.0]


@pytest.mark.parametrize(
    ("model", "distortion", "own", "coefficients", "expected"),
    [
        ("pinhole", "none", [], [], Pinhole),
        ("pinhole", "radtan", [], [0.1, 0.01, 0.001, 0.002], OpenCV),
        ("pinhole", "equidistant", [], [0.1, 0.01, 0.001, 0.002], KannalaBrandt),
        ("omni", "radtan", [1.5], [0.1, 0.01, 0.001, 0.002], Mei),
        ("omni", "none", [1.5], [], UnifiedCamera),
        ("ds", "none", [-0.2, 0.6], [], DoubleSphere),
        ("eucm", "none", [0.6, 1.1], [], ExtendedUnified),
    ],
)
def test_kalibr_models_in_kalibrs_order(tmp_path, model, distortion, own, coefficients, expected):
    path = tmp_path / "camchain.yaml"
    path.write_text(
        KALIBR.format(
            model=model, distortion=distortion, coefficients=coefficients, intrinsics=[*own, *PLANE]
        )
    )
    assert list(recognise_calibration(path)) == ["kalibr"]
    lens = read_calibration(path)
    assert type(lens) is expected
    assert [lens.fx, lens.fy, lens.cx, lens.cy] == PLANE and (lens.width, lens.height) == (640, 480)
    names = {"omni": ["xi"], "ds": ["xi", "alpha"], "eucm": ["alpha", "beta"]}.get(model, [])
    assert [getattr(lens, name) for name in names] == own
    if distortion == "radtan":
        assert [lens.k1, lens.k2, lens.p1, lens.p2] == coefficients


def test_kalibr_models_without_a_lens_here_are_named(tmp_path):
    path = tmp_path / "camchain.yaml"
    path.write_text(KALIBR.format(model="pinhole", distortion="fov", coefficients=[0.9], intrinsics=PLANE))
    with pytest.raises(CalibrationError, match="cam0 is pinhole-fov; of Kalibr's models"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("kind", "own", "expected"),
    [
        ("ucm", {"alpha": 0.6}, ExtendedUnified),
        ("kb4", {"k1": 0.1, "k2": 0.01, "k3": 0.0, "k4": 0.0}, KannalaBrandt),
        ("pinhole", {}, Pinhole),
        (
            "pinhole-radtan8",
            {f"k{i}": 0.01 for i in range(1, 7)} | {"p1": 0.1, "p2": 0.2, "rpmax": 2.0},
            OpenCV,
        ),
    ],
)
def test_each_lens_model_of_basalt_becomes_the_same_lens_here(tmp_path, kind, own, expected):
    plane = dict(zip(("fx", "fy", "cx", "cy"), PLANE, strict=True))
    camera = {"camera_type": kind, "intrinsics": {**plane, **own}}
    path = tmp_path / "calib.json"
    path.write_text(json.dumps({"value0": {"intrinsics": [camera], "resolution": [[640, 480]]}}))
    found = load_calibration(path)
    assert type(found.lens) is expected and found.name == "cam0" and found.T_body_cam is None
    assert (found.lens.width, found.lens.height, found.lens.fy) == (640, 480, 401.0)
    assert bool(found.notes) == ("rpmax" in own)
    if kind == "ucm":
        # basalt's alpha is xi / (1 + xi), its focal length that of a plane nearer by 1 - alpha.
        same = UnifiedCamera(
            fx=1000.0, fy=1002.5, cx=320.0, cy=240.0, xi=1.5, width=640, height=480, pixel_origin="center"
        )
        pixels = torch.tensor([[10.0, 20.0], [320.0, 100.0]], dtype=torch.float64)
        torch.testing.assert_close(
            found.lens.unproject(pixels)[0], same.unproject(pixels)[0], rtol=0, atol=1e-12
        )


def test_kannala_brandt_of_camodocal_counts_from_k2(tmp_path):
    path = tmp_path / "kb.yaml"
    path.write_text(
        "%YAML:1.0\n---\nmodel_type: KANNALA_BRANDT\ncamera_name: front\nimage_width: 640\nimage_height: 480\n"
        "projection_parameters:\n   k2: 0.1\n   k3: 0.2\n   k4: 0.3\n   k5: 0.4\n   mu: 300.\n   mv: 301.\n"
        "   u0: 320.\n   v0: 240.\n"
    )
    found = load_calibration(path)
    lens = found.lens
    assert isinstance(lens, KannalaBrandt) and found.name == "front"
    assert [lens.fx, lens.fy, lens.k1, lens.k2, lens.k3, lens.k4] == [300, 301, 0.1, 0.2, 0.3, 0.4]


def test_a_camera_info_that_states_its_model_needs_no_format(tmp_path):
    path = tmp_path / "camera.yaml"
    text = (
        "image_width: 640\nimage_height: 480\ncamera_name: narrow\ncamera_matrix:\n  rows: 3\n  cols: 3\n"
        "  data: [400, 0, 320, 0, 401, 240, 0, 0, 1]\ndistortion_model: {}\n"
        "distortion_coefficients:\n  rows: 1\n  cols: {}\n  data: {}\n"
    )
    path.write_text(text.format("plumb_bob", 5, [0.1, 0.2, 1e-5, 0.0, 0.3]))
    lens = read_calibration(path)
    assert isinstance(lens, OpenCV) and [lens.k1, lens.k2, lens.p1, lens.p2, lens.k3] == [
        0.1,
        0.2,
        1e-5,
        0.0,
        0.3,
    ]
    path.write_text(text.format("equidistant", 4, [0.1, 0.2, 0.3, 0.4]))
    assert isinstance(read_calibration(path), KannalaBrandt)
    with pytest.raises(CalibrationError, match="distortion_model is 'equidistant'"):
        read_calibration(path, format="opencv")
    path.write_text(text.format("plumb_bob", 14, [0.0] * 8 + [0.5] * 6))
    with pytest.raises(CalibrationError, match="thin prisms"):
        read_calibration(path)


def test_nuscenes_channels_of_several_logs_go_by_token(tmp_path):
    row = {"sensor_token": "s", "translation": [0, 0, 0], "rotation": [1, 0, 0, 0]}
    rows = [
        {**row, "token": token, "camera_intrinsic": [[fx, 0, 8], [0, fx, 4], [0, 0, 1]]}
        for token, fx in (("one", 10), ("two", 11))
    ]
    (tmp_path / "sensor.json").write_text(json.dumps([{"token": "s", "channel": "CAM_FRONT"}]))
    path = tmp_path / "calibrated_sensor.json"
    path.write_text(json.dumps([*rows, {**row, "token": "lidar", "camera_intrinsic": []}]))
    with pytest.raises(CalibrationError, match="2 cameras: one, two"):
        read_calibration(path, height=9, width=16)
    assert read_calibration(path, camera="two", height=9, width=16).fx == 11
    with pytest.raises(CalibrationError, match="how large the images are"):
        read_calibration(path, camera="two")


HOSTILE = {
    "bomb.yaml": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "code.yaml": "!!python/object/apply:os.system ['true']\n",
    "deep.json": "[" * 100_000,
    "deep.yaml": "a: " + "[" * 400,
    "cut.json": '{"value0": {"intrinsics": [',
    "tag.yaml": "camera_matrix: !!opencv-matrix 3\n",
    "tab.yaml": "cam0:\n\t- 1\n",
    "binary.yaml": "\x00\x01\x02",
    "empty.yaml": "\n",
    "scalar.yaml": "42\n",
    "basalt.json": '{"value0": {"intrinsics": ['
    '{"camera_type": "ds", "intrinsics": {"fx": "wide"}}], "resolution": [[1, 1]]}}',
    "huge.json": '{"value0": {"intrinsics": [{"camera_type": "pinhole", "intrinsics": '
    '{"fx": ' + "9" * 400 + ', "fy": 1, "cx": 1, "cy": 1}}], "resolution": [[2, 2]]}}',
    "nan.json": '{"value0": {"intrinsics": [{"camera_type": "pinhole", "intrinsics": '
    '{"fx": NaN, "fy": 1, "cx": 1, "cy": 1}}], "resolution": [[2, 2]]}}',
    "kalibr.yaml": KALIBR.format(model="ds", distortion="none", coefficients="[]", intrinsics="[1, 2]"),
    "resolution.yaml": KALIBR.format(model="pinhole", distortion="none", coefficients="[]", intrinsics=PLANE).replace(
        "640, 480", "640.5, -3"
    ),
    "camodocal.yaml": "model_type: [MEI]\nprojection_parameters: 3\nimage_width: 3\nimage_height: 3\n",
    "opencv.yaml": "camera_matrix: [[1, 2, 3], [4, 5, 6], [7, 8, 9]]\nD: {rows: -1}\n",
    "lens.json": '{"model": "pinhole", "pixel_origin": "center", "fx": [[1, [2]]]}',
    "list.json": '[{"x_fov": 400, "xi": -2}]',
    "woodscape.json": '{"intrinsic": {"model": "radial_poly"}}',
    "aria.json": '{"cameras": {"a": {"model": "FISHEYE624", "image_size_wh": [1, 1], "projection_params": "no"}}}',
    "ocam.json": '{"taylor_coefficient": [-3, 0, 1], "distortion_center": [1, 1], "stretch_matrix": [[1, 0], [0, 1]]}',
    "calibrated_sensor.json": '[{"camera_intrinsic": [[1, 0], [0, 1]], "token": {}}]',
    "K.txt": "1 0 nan\n0 1 2\n0 0 1\n",
    "calib.txt": "P0: " + "x " * 8 + "0 0 1 0\n",
    "intrinsics.feather": "ARROW1 and no more",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_broken_files_get_one_plain_error_in_every_format(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(HOSTILE[name].encode())
    # Recognisers never raise.
    fitting = recognise_calibration(path)
    for format in {
        *fitting,
        "kalibr",
        "basalt",
        "opencv",
        "nuscenes",
        "ucpe",
        "merope",
        "kitti",
        "rds-hq",
        None,
    }:
        with pytest.raises(CalibrationError) as caught:
            read_calibration(path, format=format, height=4, width=4)
        assert str(path) in str(caught.value) and len(str(caught.value)) < 1500


def test_arrays_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "pose.npy"
    np.save(path, np.eye(4))
    assert recognise_calibration(path) == {}
    with pytest.raises(CalibrationError, match="11 numbers"):
        read_calibration(path, format="rds-hq")
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CalibrationError, match="no NumPy array"):
        read_calibration(path, format="rds-hq")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda content: content[:-8], "cut short"),
        (lambda content: content.replace(b"(11,)", b"(99999999999,)"), "cut short"),
        (lambda content: content + bytes(8), "written behind the array"),
        (lambda content: content.replace(b"'<f8'", b"'<f?'"), "header is damaged"),
        (lambda content: content[:7], "header is damaged"),
    ],
)
def test_an_array_is_not_trusted_beyond_its_bytes(tmp_path, damage, match):
    path = tmp_path / "lens.npy"
    np.save(path, np.arange(11.0))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CalibrationError, match=match) as caught:
        read_calibration(path, format="rds-hq")
    assert str(path) in str(caught.value) and "poses" not in str(caught.value)


def test_missing_files_folders_and_unknown_formats_are_named(tmp_path):
    with pytest.raises(CalibrationError, match="does not exist"):
        read_calibration(tmp_path / "none.yaml")
    with pytest.raises(CalibrationError, match="is a folder"):
        read_calibration(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing of a lens\n")
    with pytest.raises(CalibrationError, match="no calibration file that is known"):
        read_calibration(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="format must be one of merope, ucpe"):
        read_calibration(tmp_path / "notes.txt", format="pinhole")


def test_commands_offer_every_format():
    assert list(get_args(Name)) == list(CALIBRATIONS)


@pytest.mark.parametrize(
    ("name", "text", "format", "message"),
    [
        (
            "a.json",
            '{"value0": {"intrinsics": 7}}',
            "basalt",
            r"value0\.intrinsics must be a list of cameras, got 7",
        ),
        ("a.yaml", "- a\n- b\n", "camodocal", "has no entry model_type"),
        ("a.json", "{}", "rds-hq", r"is no \.npy file.*--format"),
    ],
)
def test_another_file_under_the_name_of_a_format_is_told(tmp_path, name, text, format, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(CalibrationError, match=message):
        read_calibration(tmp_path / name, format=format)


@pytest.mark.parametrize("value", ['"12"', "null", "true", '["a"]', "[[1, 2], [3]]", "{}"])
def test_a_lens_parameter_that_is_no_number_is_named(tmp_path, value):
    path = tmp_path / "lens.json"
    path.write_text(
        f'{{"model": "pinhole", "pixel_origin": "center", "fx": {value}, "fy": 1, "cx": 1, "cy": 1, "width": 4, '
        '"height": 4}'
    )
    with pytest.raises(CalibrationError, match="fx must be a number, or lists of numbers of one shape; got"):
        read_calibration(path)


def test_a_camera_without_a_name_is_not_chosen_by_one(tmp_path):
    path = tmp_path / "lens.json"
    path.write_text(json.dumps(Pinhole.from_fov(fov_x_deg=70, height=48, width=64).to_dict()))
    with pytest.raises(
        CalibrationError, match=r"one camera, which has no name; got camera='cam0'. Leave it out"
    ):
        read_calibration(path, camera="cam0")
