"""COLMAP's models, text and binary, against pycolmap where it is installed."""

import json

import numpy as np
import pytest
import torch

from merope.cameras import (
    CameraModel,
    Equirectangular,
    ExtendedUnified,
    Fisheye624,
    KannalaBrandt,
    OpenCV,
    Pinhole,
    UnifiedCamera,
)
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.poses.formats import FORMATS
from merope.data.poses.formats.colmap_lenses import ColmapCamera, lens_of
from tests.data.poses.test_files import sample

RASTER = {"fx": 50.0, "fy": 51.0, "cx": 33.0, "cy": 17.0, "height": 36, "width": 64, "pixel_origin": "corner"}
LENSES = {
    "PINHOLE": Pinhole(**RASTER),
    "OPENCV": OpenCV(**RASTER, k1=0.02, k2=-0.01, p1=0.001, p2=0.002),
    "FULL_OPENCV": OpenCV(**RASTER, k1=0.02, k3=0.01, k4=0.03, k6=0.02),
    "OPENCV_FISHEYE": KannalaBrandt(**RASTER, k1=0.01, k2=-0.02, k4=0.001),
    "EUCM": ExtendedUnified(**RASTER, alpha=0.6, beta=1.1),
    "RAD_TAN_THIN_PRISM_FISHEYE": Fisheye624(**RASTER, k0=0.01, k5=-0.001, p1=0.002, s0=0.001, s3=0.002),
    "EQUIRECTANGULAR": Equirectangular.full_sphere(height=32, width=64),
}
HALF = 0.7071067811865476
# A quarter turn about y, at 1 2 3 in the camera's own coordinates, in both lines of an image.
IMAGE = f"7 {HALF} 0 {HALF} 0 1 2 3 1 b.png\n1.5 2.5 -1 3.5 4.5 8"
CAMERA = "1 SIMPLE_RADIAL 64 36 50 32 18 0.01"


def model(folder, *, images=IMAGE, cameras=CAMERA):
    folder.mkdir(exist_ok=True)
    (folder / "images.txt").write_text(f"# Image list\n#   two lines each\n{images}\n")
    if cameras is not None:
        (folder / "cameras.txt").write_text(f"# Camera list\n{cameras}\n")
    return folder


@pytest.mark.parametrize("format", ["colmap", "colmap-binary"])
@pytest.mark.parametrize("far", [0.0, 6.4e6])
@pytest.mark.parametrize("lens", LENSES)
def test_models_round_trip_to_a_nanometre(tmp_path, format, far, lens):
    poses = sample(40, far=far)
    write_poses(tmp_path / "model", poses, format=format, camera=LENSES[lens].to_dict())
    loaded = load_pose_file(tmp_path / "model", format=format)
    assert (loaded.poses.center_world - poses.center_world).abs().max() <= 1e-9
    assert (loaded.poses.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
    assert CameraModel.from_dict(loaded.camera) == LENSES[lens]
    assert loaded.names[:2] == ("frame_00000.png", "frame_00001.png")
    assert (loaded.poses.unit, loaded.notes) == ("unknown", ())
    kind = "txt" if format == "colmap" else "bin"
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        f"{name}.{kind}" for name in ("cameras", "images", "points3D")
    }
    assert FORMATS[format].recognise(tmp_path / "model") is not None
    other = {"colmap": "colmap-binary", "colmap-binary": "colmap"}[format]
    assert FORMATS[other].recognise(tmp_path / "model") is None


@pytest.mark.parametrize("format", ["colmap", "colmap-binary"])
@pytest.mark.parametrize("lens", LENSES)
def test_pycolmap_reads_what_is_written(tmp_path, format, lens):
    pycolmap = pytest.importorskip("pycolmap")
    poses = sample(5)
    write_poses(tmp_path / "model", poses, format=format, camera=LENSES[lens].to_dict())
    reconstruction = pycolmap.Reconstruction(tmp_path / "model")
    images = sorted(reconstruction.images.values(), key=lambda image: image.name)
    for image, R_world_cam, center in zip(images, poses.R_world_cam, poses.center_world, strict=True):
        assert np.abs(image.projection_center() - center.numpy()).max() < 1e-12
        assert np.abs(image.cam_from_world().rotation.matrix() - R_world_cam.mT.numpy()).max() < 1e-12
    camera = reconstruction.cameras[1]
    assert camera.model.name == lens
    points = torch.tensor([[0.1, -0.2, 1.0], [0.4, 0.1, 1.0], [0.0, 0.0, 2.0]], dtype=torch.float64)
    ours, valid = LENSES[lens].project(points)
    assert valid.all()
    assert np.abs(camera.img_from_cam(points.numpy()) - ours.numpy()).max() < 1e-9


@pytest.mark.parametrize("binary", [False, True])
def test_what_pycolmap_writes_is_read(tmp_path, binary):
    pycolmap = pytest.importorskip("pycolmap")
    write_poses(tmp_path / "ours", sample(5), format="colmap", camera=LENSES["OPENCV"].to_dict())
    reconstruction = pycolmap.Reconstruction(tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    write = reconstruction.write_binary if binary else reconstruction.write_text
    write(tmp_path / "theirs")
    loaded = load_pose_file(tmp_path / "theirs", format="colmap")
    assert torch.allclose(loaded.poses.T_world_cam, sample(5).T_world_cam, atol=1e-12)
    assert CameraModel.from_dict(loaded.camera) == LENSES["OPENCV"]


def test_pycolmap_numbers_and_names_its_models_as_we_do():
    pycolmap = pytest.importorskip("pycolmap")
    from merope.data.poses.formats.colmap_lenses import NUMBERS, num_params

    known = pycolmap.CameraModelId.__members__
    for number, name in NUMBERS.items():
        assert int(known[name]) == number
        camera = pycolmap.Camera.create_from_model_name(1, name, 50.0, 64, 36)
        assert len(camera.params) == num_params(name)


def test_quaternions_are_w_x_y_z_world_to_camera(tmp_path):
    loaded = load_pose_file(model(tmp_path / "m"), format="colmap")
    turn = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    assert torch.allclose(loaded.poses.R_world_cam[0], turn.T)
    assert torch.allclose(loaded.poses.center_world[0], torch.tensor([3.0, -2.0, -1.0], dtype=torch.float64))
    assert (loaded.camera["model"], loaded.camera["k1"], loaded.camera["pixel_origin"]) == (
        "opencv",
        0.01,
        "corner",
    )


def test_images_come_in_the_order_of_their_names_and_may_have_no_points(tmp_path):
    images = "1 1 0 0 0 0 0 0 1 c d.png\n\n" + IMAGE + "\n3 1 0 0 0 0 0 0 1 a.png"
    loaded = load_pose_file(model(tmp_path / "m", images=images) / "images.txt", format="colmap")
    assert loaded.names == ("a.png", "b.png", "c d.png")


def test_several_cameras_are_one_lens_or_none_and_one_can_be_chosen(tmp_path):
    images = "1 1 0 0 0 0 0 0 1 a.png\n\n2 1 0 0 0 0 0 0 5 b.png\n"
    same = CAMERA + "\n5" + CAMERA[1:]
    assert (
        load_pose_file(model(tmp_path / "same", images=images, cameras=same), format="colmap").camera
        is not None
    )
    path = model(tmp_path / "m", images=images, cameras=CAMERA + "\n5 PINHOLE 64 36 50 51 32 18")
    both = load_pose_file(path, format="colmap")
    assert both.camera is None
    assert "b.png (camera 5) has another than a.png (camera 1)" in both.notes[0]
    assert "--camera ID" in both.notes[0]
    one = load_pose_file(path, format="colmap", options=ReadOptions(camera="5"))
    assert (one.names, one.camera["model"], one.notes) == (("b.png",), "pinhole", ())
    with pytest.raises(PoseFileError, match=r"no camera '2'.*one of 1, 5"):
        read_poses(path, format="colmap", options=ReadOptions(camera="2"))


def test_a_model_without_a_lens_here_keeps_its_poses(tmp_path):
    loaded = load_pose_file(model(tmp_path / "m", cameras="1 FOV 64 36 50 50 32 18 0.5"), format="colmap")
    assert loaded.camera is None
    assert "no lens here for COLMAP's model FOV" in loaded.notes[0]
    loaded = load_pose_file(model(tmp_path / "n", cameras="1 NEW_MODEL 64 36 1"), format="colmap")
    assert "NEW_MODEL" in loaded.notes[0]
    loaded = load_pose_file(model(tmp_path / "o", cameras=None), format="colmap")
    assert "cameras.txt does not exist" in loaded.notes[0]
    loaded = load_pose_file(model(tmp_path / "p", cameras="1 PINHOLE 64 36 50 51 99 18"), format="colmap")
    assert "cx must lie within the width" in loaded.notes[0]


@pytest.mark.parametrize(
    "name", ["SIMPLE_RADIAL", "RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "SIMPLE_FISHEYE"]
)
def test_models_of_one_focal_length_equal_pycolmaps(name):
    pycolmap = pytest.importorskip("pycolmap")
    params = [50.0, 33.0, 17.0, 0.02, -0.01][: 4 if name.startswith("SIMPLE_RADIAL") else 5]
    params = params[:3] if name == "SIMPLE_FISHEYE" else params
    points = torch.tensor([[0.1, -0.2, 1.0], [0.4, 0.1, 1.0]], dtype=torch.float64)
    theirs = pycolmap.Camera(model=name, width=64, height=36, params=params).img_from_cam(points.numpy())
    ours, _ = lens_of(ColmapCamera(name, 64, 36, tuple(params))).project(points)
    assert np.abs(theirs - ours.numpy()).max() < 1e-10


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"images": "1 1 0 0 0 0 0 0 1"}, "images.txt, line 3 should be IMAGE_ID QW QX"),
        (
            {"images": "1 1 0 0 0 0 0 0 1 a.png\n2 1 0 0 0 0 0 0 1 b.png\n"},
            "line 4 should hold the points of a.png",
        ),
        (
            {"images": "1 2 0 0 0 0 0 0 1 a.png\n"},
            "line 3: the quaternion should have unit length, but has length 2",
        ),
        ({"images": "1 1 0 0 0 nan 0 0 1 a.png\n"}, "line 3 holds a value that is not finite"),
        ({"images": "1 1 0 0 0 x 0 0 1 a.png\n"}, "line 3: 'x' is no number"),
        ({"images": "1.5 1 0 0 0 0 0 0 1 a.png\n"}, "line 3: '1.5' is no whole number"),
        ({"images": ""}, "holds no images"),
        ({"images": IMAGE + "\n" + IMAGE}, "line 5 has the name 'b.png' of line 3"),
        ({"cameras": "1 PINHOLE 64 36 50 51 32"}, "cameras.txt, line 2: PINHOLE has 4 parameters, got 3"),
        ({"cameras": "1 PINHOLE"}, "cameras.txt, line 2 should be CAMERA_ID MODEL"),
        ({"cameras": "1 PINHOLE 64 x 50 51 32 18"}, "line 2: 'x' is no whole number"),
        ({"cameras": CAMERA + "\n" + CAMERA}, "line 3: there is a camera 1 already"),
        ({"cameras": "2" + CAMERA[1:]}, "has no camera 1, which b.png was taken with"),
    ],
)
def test_wrong_text_is_named_by_its_line(tmp_path, files, words):
    with pytest.raises(PoseFileError, match=words):
        read_poses(model(tmp_path / "m", **files), format="colmap")


def test_every_cut_of_a_binary_model_is_refused(tmp_path):
    path = tmp_path / "m"
    write_poses(path, sample(2), format="colmap-binary", camera=LENSES["PINHOLE"].to_dict())
    for name in ("images.bin", "cameras.bin"):
        whole = (path / name).read_bytes()
        for length in range(len(whole)):
            (path / name).write_bytes(whole[:length])
            with pytest.raises(PoseFileError, match=rf"{name} ends within|{name} holds no images"):
                read_poses(path, format="colmap")
        (path / name).write_bytes(whole + b"\0")
        with pytest.raises(PoseFileError, match="1 bytes after its last entry"):
            read_poses(path, format="colmap")
        (path / name).write_bytes(b"\xff" * 8 + whole[8:])
        with pytest.raises(PoseFileError, match="ends within"):
            read_poses(path, format="colmap")
        (path / name).write_bytes(whole)
    cameras = bytearray((path / "cameras.bin").read_bytes())
    cameras[12] = 99
    (path / "cameras.bin").write_bytes(cameras)
    with pytest.raises(PoseFileError, match="camera 0 has the unknown model 99"):
        read_poses(path, format="colmap")


def test_a_count_that_looks_like_gzip_is_a_count(tmp_path):
    path = tmp_path / "m"
    write_poses(path, sample(1), format="colmap-binary", camera=LENSES["PINHOLE"].to_dict())
    whole = (path / "images.bin").read_bytes()
    (path / "images.bin").write_bytes((0x8B1F).to_bytes(8, "little") + whole[8:])
    with pytest.raises(PoseFileError, match="ends within image 1"):
        read_poses(path, format="colmap")


def test_where_there_is_no_model_or_there_are_two_the_files_are_named(tmp_path):
    with pytest.raises(PoseFileError, match=r"no images.txt and no images.bin"):
        read_poses(tmp_path, format="colmap")
    (tmp_path / "sparse").mkdir()
    write_poses(tmp_path / "sparse" / "0", sample(2), format="colmap", camera=LENSES["PINHOLE"].to_dict())
    with pytest.raises(PoseFileError, match=r"There are models in .*sparse/0"):
        read_poses(tmp_path, format="colmap")
    (tmp_path / "sparse" / "0" / "images.bin").write_bytes(b"\0" * 8)
    with pytest.raises(PoseFileError, match="as text and as binary; name"):
        read_poses(tmp_path / "sparse" / "0", format="colmap")
    with pytest.raises(PoseFileError, match="is no model of COLMAP"):
        read_poses(tmp_path / "x.json", format="colmap")


def test_lenses_that_colmap_has_not_are_refused_and_nothing_is_written(tmp_path):
    lens = UnifiedCamera.from_fov(fov_x_deg=120.0, xi=0.8, height=20, width=30)
    with pytest.raises(ValueError, match="has no camera model like 'unified'"):
        write_poses(tmp_path / "m", sample(), format="colmap", camera=lens.to_dict())
    many = Pinhole(**{**RASTER, "fx": torch.tensor([50.0, 51.0], dtype=torch.float64)})
    with pytest.raises(ValueError, match="one lens for all frames"):
        write_poses(tmp_path / "m", sample(), format="colmap", camera=json.loads(json.dumps(many.to_dict())))
    assert not (tmp_path / "m").exists()
