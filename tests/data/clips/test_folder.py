"""The plain folder of clips: what is written comes back, what is missing or damaged is named with its clip."""

import json
import shutil

import numpy as np
import pytest
import torch

from merope.cameras import KannalaBrandt, Pinhole
from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.folder import clip_ids, read_clip, read_clips, write_clip
from merope.data.clips.video import write_frames, write_video
from merope.data.poses.files import write_poses
from merope.errors import MeropeError
from merope.geometry.poses import Poses

HEIGHT, WIDTH, FRAMES = 32, 48, 5


def poses(num_frames=FRAMES):
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(num_frames, 1, 1)
    T_world_cam[:, 0, 3] = 4.65e6 + torch.arange(num_frames, dtype=torch.float64) / 3
    return Poses.from_matrices(T_world_cam, times=torch.arange(num_frames) / 12.0)


def frames(num_frames=FRAMES):
    rows, cols = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [
        np.sin(rows / (5 + c) + number) * np.cos(cols / 7) for number in range(num_frames) for c in range(3)
    ]
    return (
        (127 + 100 * np.stack(waves))
        .astype(np.uint8)
        .reshape(num_frames, 3, HEIGHT, WIDTH)
        .transpose(0, 2, 3, 1)
    )


def lens():
    return Pinhole.from_fov(fov_x_deg=70.0, height=HEIGHT, width=WIDTH)


def write(root, clip_id="a", **changes):
    values = {"poses": poses(), "lens": lens(), "fps": 12.0, "source": "rendered"}
    return write_clip(root, clip_id, frames(), **{**values, **changes})


def test_a_written_clip_comes_back(tmp_path):
    depth = np.full((FRAMES, HEIGHT, WIDTH), np.float32(12.345))
    depth[:, :4], depth[:, 4:6] = np.inf, 0
    fisheye = KannalaBrandt.from_fov(fov_x_deg=190.0, height=HEIGHT, width=WIDTH)
    folder = write(
        tmp_path,
        lens=fisheye,
        caption="a car drives",
        cluster="turn",
        provenance={"seed": 3},
        depth=depth,
    )
    clip = read_clip(folder)
    assert np.array_equal(clip.frames(), frames())
    assert np.array_equal(clip.frames([1, 4]), frames()[[1, 4]])
    assert torch.equal(clip.poses.T_world_cam, poses().T_world_cam)
    assert torch.equal(clip.poses.times, poses().times)
    assert clip.lens == fisheye
    assert (clip.clip_id, clip.source, clip.cluster, clip.fps) == ("a", "rendered", "turn", 12.0)
    assert (clip.caption, clip.unit, dict(clip.provenance)) == ("a car drives", "m", {"seed": 3})
    read = clip.depth()
    assert np.array_equal(np.isinf(read), np.isinf(depth))
    assert np.array_equal(read == 0, depth == 0)
    assert np.abs(read[:, 6:] / 12.345 - 1).max() < 1e-3
    assert clip.windows(2)[1].depth().shape == (2, HEIGHT, WIDTH)


def test_equal_clips_are_equal_bytes(tmp_path):
    depth = np.ones((FRAMES, HEIGHT, WIDTH), np.float32)
    for name in ("one", "two"):
        write(tmp_path / name, depth=depth, caption="x")
    files = [sorted((tmp_path / name).rglob("*.*")) for name in ("one", "two")]
    assert len(files[0]) == FRAMES + 5
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_a_video_with_poses_and_a_lens_is_a_clip(tmp_path):
    folder = tmp_path / "drives" / "first"
    write_video(folder / "video.mp4", frames(), fps=10)
    write_poses(folder / "poses.json", poses(), format="merope", camera=lens().to_dict())
    clip = read_clip(folder)
    assert (clip.source, clip.clip_id, clip.fps) == ("drives", "first", 10)
    assert (clip.caption, clip.cluster, clip.depth()) == ("", "all", None)
    assert clip.lens == lens()
    whole = clip.frames()
    assert whole.shape == (FRAMES, HEIGHT, WIDTH, 3)
    assert np.array_equal(clip.frames([2, 3]), whole[2:4])
    assert read_clip(folder, source="mine").source == "mine"


def drop(name):
    def damage(folder):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def put(name, text):
    return lambda folder: (folder / name).write_text(text)


def no_lens(folder):
    (folder / "lens.json").unlink()
    write_poses(folder / "poses.json", poses(), format="merope")


def changed(content, **changes):
    return json.dumps({**content, **changes})


def poses_with(**changes):
    def damage(folder):
        (folder / "lens.json").unlink()
        path = folder / "poses.json"
        path.write_text(changed(json.loads(path.read_text()), **changes))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop("frames"), "neither frames/ nor video.mp4"),
        (drop("frames/frame_00002.png"), "frame_00002.png is missing"),
        (drop("frames/frame_00004.png"), "4 frames and 5 poses"),
        (drop("meta.json"), 'does not say "fps"'),
        (no_lens, "no lens.json, and no lens in poses.json"),
        (put("poses.json", "{"), "is not JSON"),
        (put("lens.json", "[]"), "is no lens"),
        (put("meta.json", "{"), "Expecting"),
        (put("meta.json", '{"fps": 12}'), "not of this format"),
        (put("meta.json", '{"format": "merope-clip-1", "fps": true}'), "'fps' is True"),
        (put("meta.json", '{"format": "merope-clip-1", "fps": -1}'), "fps must be > 0"),
        (put("meta.json", '{"format": "merope-clip-1", "FPS": 1}'), "unknown entries"),
        (put("meta.json", '{"format": "merope-clip-1", "fps": 1' + "0" * 400 + "}"), "at most 10000"),
        (put("meta.json", "[" * 100_000), "nested too deeply"),
        (put("lens.json", '{"model": []}'), "is no lens"),
        (put("lens.json", changed(lens().to_dict(), fx=[None])), "is no lens"),
        (put("lens.json", changed(lens().to_dict(), cx=10**400)), "is no lens"),
        (put("lens.json", changed(lens().to_dict(), principal_point_outside=[])), "is no lens"),
        (poses_with(times=1.5), "times must be a list"),
        (poses_with(T_world_cam=[[10**400] * 12]), "not finite"),
        (poses_with(camera={"model": {}}), "no lens that can be read"),
        (
            lambda folder: write_video(folder / "video.mp4", frames(3), fps=10) or drop("frames")(folder),
            "3 frames",
        ),
    ],
)
def test_a_broken_clip_is_named_and_costs_itself_alone(tmp_path, damage, message):
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    damage(tmp_path / "b")
    with pytest.raises(ClipError, match=message) as caught:
        read_clip(tmp_path / "b")
    assert str(caught.value).split("/")[1].startswith("b: ")
    every = [tmp_path / name for name in clip_ids(tmp_path)]
    with pytest.raises(ClipError):
        list(read_clips(every))
    found = list(read_clips(every, skip_broken=True))
    assert [type(one) for one in found] == [Clip, ClipError, Clip]
    assert found[1].clip_id == "b"


def test_damage_inside_frames_and_depth_shows_when_they_are_read(tmp_path):
    folder = write(tmp_path, depth=np.ones((FRAMES, HEIGHT, WIDTH), np.float32))
    for name in ("frames/frame_00001.png", "depth.npz"):
        (folder / name).write_bytes((folder / name).read_bytes()[:60])
    clip = read_clip(folder)
    assert clip.frames([0]).shape[0] == 1
    with pytest.raises(ClipError, match=r"rendered/a: .*frame_00001\.png"):
        clip.frames()
    with pytest.raises(ClipError, match=r"rendered/a: .*depth\.npz"):
        clip.depth()


def test_a_damaged_chunk_of_a_picture_is_the_clips_own_error(tmp_path):
    # A picture of noise has several chunks; Pillow raises SyntaxError for the name of a later one.
    noise = np.random.default_rng(0).integers(0, 256, (1, 300, 300, 3), dtype=np.uint8)
    own_lens = Pinhole.from_fov(fov_x_deg=70.0, height=300, width=300)
    folder = write_clip(tmp_path, "a", noise, poses=poses(1), lens=own_lens, fps=12.0, source="rendered")
    path = folder / "frames" / "frame_00000.png"
    content = path.read_bytes()
    later = content.index(b"IDAT", content.index(b"IDAT") + 4)
    path.write_bytes(content[:later] + b"\x1b6\xac\xfb" + content[later + 4 :])
    with pytest.raises(ClipError, match=r"frame_00000\.png cannot be read as a picture"):
        read_clip(folder).frames()


def test_clips_that_do_not_fit_together_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="4 poses"):
        write(tmp_path, poses=poses(4))
    with pytest.raises(ValueError, match="lens for 32 x 40"):
        write(tmp_path, lens=lens().resize(height=32, width=40))
    with pytest.raises(ValueError, match="depth must have"):
        write(tmp_path, depth=np.ones((FRAMES, HEIGHT, 2), np.float32))
    for name in ("../out", "a/b", ".hidden", ""):
        with pytest.raises(ValueError, match="clip_id must be"):
            write(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
    write(tmp_path)
    with pytest.raises(FileExistsError):
        write(tmp_path)


def test_folders_without_clips_say_so(tmp_path):
    with pytest.raises(MeropeError, match="holds no clips"):
        clip_ids(tmp_path)
    with pytest.raises(FileNotFoundError):
        clip_ids(tmp_path / "nowhere")
    write_frames(tmp_path / "x" / "frames", frames())
    write(tmp_path, "y")
    # A clip that is being written is none yet.
    shutil.copytree(tmp_path / "y", tmp_path / ".z.1.tmp")
    assert clip_ids(tmp_path) == ["y"]


def test_meta_says_what_is_known(tmp_path):
    meta = json.loads((write(tmp_path, provenance={"seed": 1}) / "meta.json").read_text())
    assert meta == {
        "format": "merope-clip-1",
        "fps": 12.0,
        "source": "rendered",
        "cluster": "all",
        "provenance": {"seed": 1},
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A clip of pictures and a clip of a video."""
    root = tmp_path_factory.mktemp("whole")
    write(root, "pictures", depth=np.ones((FRAMES, HEIGHT, WIDTH), np.float32))
    shutil.rmtree(write(root, "video") / "frames")
    write_video(root / "video" / "video.mp4", frames(), fps=12)
    return root


@pytest.mark.parametrize(
    "name",
    [
        "pictures/frames/frame_00002.png",
        "pictures/depth.npz",
        "pictures/poses.json",
        "pictures/lens.json",
        "pictures/meta.json",
        "video/video.mp4",
    ],
)
def test_mutated_files_cost_their_clip_and_nothing_else(whole, tmp_path, name):
    root = tmp_path / "root"
    shutil.copytree(whole, root)
    content = (root / name).read_bytes()
    rng = np.random.default_rng(len(name))
    refused = 0
    for turn in range(40):
        mutated = bytearray(content)
        place, length = int(rng.integers(len(content))), int(rng.integers(1, 50))
        if turn % 4 == 0:
            del mutated[place:]
        elif turn % 4 == 1:
            del mutated[place : place + length]
        elif turn % 4 == 2:
            mutated[place:place] = rng.bytes(length)
        else:
            mutated[place : place + length] = rng.bytes(length)
        (root / name).write_bytes(bytes(mutated))
        try:
            clip = read_clip((root / name).parents[len(name.split("/")) - 2])
            assert clip.frames().shape == (FRAMES, HEIGHT, WIDTH, 3)
            clip.depth()
        except ClipError:
            refused += 1
    assert refused > 20
