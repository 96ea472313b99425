"""`merope data encode`: from folders of clips to a cache, also as one of several processes."""

import shutil

import numpy as np
import pytest

from merope.cameras import Pinhole
from merope.cli.main import run
from merope.data.caches.latent_cache import LatentCache
from merope.data.selection.motion_statistics import read_motion
from merope.data.selection.splits import Split, SplitClip, write_split
from merope.recipes.rendered_clips import RenderedClipsConfig, render_clips
from merope.recipes.tiny_wan import make_tiny_wan
from tests.data.datasets.test_realestate10k import write_poses
from tests.support.numbered_video import truncate, write_numbered_video

pytestmark = pytest.mark.filterwarnings("ignore::merope.data.caches.cached_clip.CacheWarning")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    lens = Pinhole.from_fov(fov_x_deg=80.0, height=32, width=64)
    config = RenderedClipsConfig(lens=lens.to_dict(), num_frames=9, fps=12.0, turn_start=2, samples=1)
    render_clips(root, config, count=1, progress=False)
    return root


@pytest.fixture(scope="module")
def command(clips, tmp_path_factory):
    model = make_tiny_wan(tmp_path_factory.mktemp("model") / "wan")
    sizes = ["--height", "32", "--width", "64", "--text-length", "16"]
    return ["data", "encode", str(clips), "--model", str(model), *sizes, "--device", "cpu"]


def test_a_folder_becomes_a_cache_and_is_encoded_once(command, tmp_path, capsys):
    rest = ["--frames", "5", "--stride-windows", "4", "--dtype", "bfloat16", "--source", "streets"]
    rest += ["--out", str(tmp_path)]
    assert run([*command, *rest]) == 0
    output = capsys.readouterr().out
    assert "6 windows encoded, 0 were there" in output
    assert "6 windows, 3 clusters" in output
    cache = LatentCache(tmp_path)
    assert set(cache.sources) == {"streets"}
    assert cache.description.dtype == "bfloat16"
    assert cache.description.windows == {"fps": None, "stride": 4, "crop": False}
    assert run([*command, *rest]) == 0
    assert "0 windows encoded, 6 were there" in capsys.readouterr().out


def test_two_ranks_make_one_cache(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, message in ((0, "process 0 of 2: 2 windows"), (1, "process 1 of 2: 1 windows")):
        monkeypatch.setenv("RANK", str(rank))
        assert run([*command, "--frames", "9", "--out", str(tmp_path)]) == 0
        assert message in capsys.readouterr().out
    assert len(LatentCache(tmp_path)) == 3


def test_a_split_says_which_windows_are_encoded_and_what_their_clusters_are(command, clips, tmp_path, capsys):
    left, right = (next(clips.glob(f"*-{side}")).name for side in ("left", "right"))
    chosen = (
        SplitClip("rendered", f"{left}@00004", "prototype-000003"),
        SplitClip("rendered", right, "static"),
    )
    write_split(tmp_path / "split.json", Split("train", chosen))
    measured = [str(clips), "--frames", "5", "--stride-windows", "4", "--split", str(tmp_path / "split.json")]
    assert run(["data", "scale", *measured]) == 0
    rest = ["--frames", "5", "--stride-windows", "4", "--split", str(tmp_path / "split.json")]
    assert run([*command, *rest, "--out", str(tmp_path / "cache")]) == 0
    output = capsys.readouterr().out
    assert "3 windows encoded, 0 were there" in output
    assert "3 are not in the split" in output
    cache = LatentCache(tmp_path / "cache")
    assert sorted(cache.clusters) == ["rendered/prototype-000003", "rendered/static", "rendered/static"]
    # The split's scale goes with its clips, to where training finds it.
    assert read_motion(tmp_path / "cache") == read_motion(tmp_path / "split.json")
    other = ["--source", "other", "--out", str(tmp_path / "nothing")]
    assert run([*command, *rest, *other]) == 1
    assert "None of 6 windows is in the split" in capsys.readouterr().err


def test_what_is_left_out_is_named(command, clips, tmp_path, capsys, monkeypatch):
    caption = next(clips.glob("*-right/caption.txt"))
    text = caption.read_text()
    caption.unlink()
    lens = next(clips.glob("*-left/lens.json"))
    whole = lens.read_text()
    lens.write_text("[]")
    try:
        assert run([*command, "--frames", "9", "--out", str(tmp_path)]) == 0
    finally:
        caption.write_text(text)
        lens.write_text(whole)
    output = capsys.readouterr().out
    assert "left out: " in output
    assert "world-0000000-left: " in output
    assert "is no lens" in output
    assert "1 of these without a caption" in output


def test_another_data_set_is_encoded_as_it_is(command, tmp_path, capsys):
    for name in ("a", "b", "c"):
        write_poses(tmp_path / "in" / f"{name}.txt", np.arange(10) / 10)
        write_numbered_video(tmp_path / "in" / f"{name}.mp4", np.arange(10) / 10)
    truncate(tmp_path / "in" / "b.mp4")
    options = [
        "--reader",
        "realestate10k",
        "--option",
        "unit=m",
        "--frames",
        "5",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*command[:2], str(tmp_path / "in"), *command[3:], *options]) == 0
    output = capsys.readouterr().out
    assert "4 windows encoded" in output
    assert "left out: realestate10k/b: " in output
    cache = LatentCache(tmp_path / "out")
    assert [cache[number].clip_id for number in range(4)] == ["a@00000", "a@00005", "c@00000", "c@00005"]
    assert (cache[1].unit, cache[1].source, cache[1].fps) == ("m", "realestate10k", pytest.approx(10.0))
    assert run([*command[:2], *[str(tmp_path / "in")] * 2, *command[3:], *options]) == 1
    assert "two roots hold a clip realestate10k/a" in capsys.readouterr().err


def test_wrong_requests_fail_plainly(command, tmp_path, capsys):
    assert run([*command, "--frames", "10", "--out", str(tmp_path / "a")]) == 1
    assert "num_frames must be 1 + 4k; got 10" in capsys.readouterr().err
    assert run([*command, "--frames", "17", "--out", str(tmp_path / "b")]) == 1
    assert "holds no encoded clips" in capsys.readouterr().err
    assert run(["data", "encode", str(tmp_path / "nowhere"), "--model", "m", "--out", str(tmp_path)]) == 1
    assert "nowhere: no such folder of clips" in capsys.readouterr().err


def test_clips_that_nothing_tells_apart_are_refused(command, clips, tmp_path, capsys):
    again = tmp_path / "again"
    shutil.copytree(clips, again)
    both = [*command[:3], str(again), *command[3:], "--frames", "9", "--out", str(tmp_path / "cache")]
    assert run(both) == 1
    assert "are both clip rendered/world-0000000-left" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    for path in again.glob("*/meta.json"):
        path.write_text(path.read_text().replace('"rendered"', '"again"'))
    assert run(both) == 0
    assert len(LatentCache(tmp_path / "cache")) == 6
