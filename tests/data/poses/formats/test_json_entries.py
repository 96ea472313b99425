"""JSON pose files, whatever is wrong with them: one error, which names the file and the place."""

import copy
import json
import math

import pytest
import torch

from merope.cameras import Pinhole
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.poses.formats import FORMATS
from tests.data.poses.test_files import sample

JSON_FORMATS = ("merope", "tri-dgp", "nerfstudio", "recammaster", "motionctrl", "ac3d")
LENS = Pinhole(fx=500.0, fy=501.0, cx=320.5, cy=179.5, height=360, width=640, pixel_origin="corner").to_dict()


def written(folder, format, poses=None):
    """The JSON file of poses in a format; of a scene's folder, the scene."""
    path = folder / "poses.json"
    write_poses(path, sample(3) if poses is None else poses, format=format, camera=LENS)
    return next(path.glob("scene_*.json")) if path.is_dir() else path


def refusal(path, format):
    with pytest.raises(PoseFileError) as caught:
        read_poses(path, format=format)
    assert str(path) in str(caught.value)
    return str(caught.value)


def places(value, place=()):
    """Every place in a JSON value, as the keys and indices that lead there."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, element in inner:
        yield from places(element, (*place, key))


def replaced(content, place, new):
    """A copy with another value at a place; ``...`` takes the place out."""
    if not place:
        return new
    content = copy.deepcopy(content)
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    if new is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return content


@pytest.mark.parametrize("format", JSON_FORMATS)
@pytest.mark.parametrize(
    "new",
    [..., None, True, "x", [], {}, [[]], math.nan, pytest.param(10**400, id="huge"), -1e308],
)
def test_any_value_in_any_place_is_read_or_refused_by_name(tmp_path, format, new):
    path = written(tmp_path, format, sample(1))
    content = json.loads(path.read_text())
    refused = unnamed = 0
    for place in places(content):
        if place == () and new is ...:
            continue
        path.write_text(json.dumps(replaced(content, place, new)))
        try:
            poses = read_poses(path, format=format)
        except PoseFileError as error:
            refused += str(path) in str(error)
            unnamed += str(path) not in str(error)
        else:
            assert torch.isfinite(poses.T_world_cam).all()
    assert refused
    assert not unnamed


@pytest.mark.parametrize("format", JSON_FORMATS)
def test_what_is_no_json_is_refused(tmp_path, format):
    path = written(tmp_path, format)
    text = path.read_text()
    for broken, words in (
        (text[: len(text) // 2], "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 5000, "is not JSON"),
        ("\0\1\2", "binary file"),
        ("\ud800".encode("utf-8", "surrogatepass"), "not UTF-8"),
        ("  ", "is empty"),
        ("null", "must be"),
        ("[]", "must be"),
        ('"text"', "must be"),
    ):
        path.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
        message = refusal(path, format)
        assert words in message or format == "merope", message


@pytest.mark.parametrize("format", JSON_FORMATS)
def test_a_name_that_comes_twice_is_refused(tmp_path, format):
    path = written(tmp_path, format)
    if format == "motionctrl":
        path.write_text('[{"a": 1, "a": 2}]')
        name = "a"
    else:
        content = json.loads(path.read_text())
        name = next(iter(content))
        path.write_text(f"{{{json.dumps(name)}: 1, {path.read_text().lstrip()[1:]}")
    assert f"has the name {name!r} twice" in refusal(path, format)


@pytest.mark.parametrize("format", JSON_FORMATS)
def test_each_format_recognises_its_own_files_alone(tmp_path, format):
    path = written(tmp_path, format)
    for other in JSON_FORMATS:
        reason = FORMATS[other].recognise(path)
        assert (reason is not None) == (other == format), (other, reason)
    assert len(reason or "") < 80


@pytest.mark.parametrize("format", [*JSON_FORMATS, "argoverse2", "colmap", "colmap-binary", "npz", "npy"])
def test_nothing_else_is_recognised_and_recognition_never_raises(tmp_path, format):
    recognise = FORMATS[format].recognise
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("1 2 3\n")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "gzip").write_bytes(b"\x1f\x8b" + b"\0" * 30)
    (tmp_path / "images.txt").write_bytes(b"\xff\xfe\0")
    (tmp_path / "images.bin").write_bytes(b"\xff")
    (tmp_path / "folder").mkdir()
    for path in (*sorted(tmp_path.iterdir()), tmp_path, tmp_path / "missing"):
        assert recognise(path) is None


@pytest.mark.parametrize("format", ["ac3d", "colmap", "colmap-binary", "tri-dgp"])
def test_formats_with_a_lens_ask_for_one(tmp_path, format):
    with pytest.raises(ValueError, match="needs a lens and none was given"):
        write_poses(tmp_path / "a", sample(), format=format)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("format", ["argoverse2", "tri-dgp", "recammaster"])
def test_formats_in_metres_take_metres_alone(tmp_path, format):
    with pytest.raises(ValueError, match="metres and these poses have unit"):
        write_poses(tmp_path / "a", sample(unit="normalized"), format=format, camera=LENS)
    with pytest.raises(PoseFileError):
        read_poses(tmp_path / "a", format=format)


@pytest.mark.parametrize("format", ["ac3d", "nerfstudio", "tri-dgp", "colmap", "colmap-binary"])
def test_the_lens_comes_back_in_the_pixels_of_the_format(tmp_path, format):
    path = tmp_path / "a"
    write_poses(path, sample(), format=format, camera=LENS)
    options = ReadOptions()
    read = load_pose_file(path, format=format, options=options).camera
    origin = "center" if format == "tri-dgp" else "corner"
    assert read["pixel_origin"] == origin
    assert read["cx"] == (320.0 if origin == "center" else 320.5)
    assert {key: read[key] for key in ("model", "fx", "fy", "width", "height")} == {
        key: LENS[key] for key in ("model", "fx", "fy", "width", "height")
    }
