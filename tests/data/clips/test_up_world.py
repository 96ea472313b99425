"""Which way is up: kept by clips, their windows, their folders and caches of latents; unknown where nobody says."""

import json

import numpy as np
import pytest

from merope.data.caches.cached_clip import CacheError
from merope.data.caches.latent_cache import LatentCache, LatentCaches
from merope.data.clips.clip import ClipError
from merope.data.clips.folder import read_clip, write_clip
from tests.data.clips.test_clip import clip_of, drive
from tests.support.cached import write_cache

UP = (0.0, 0.6, 0.8)


def write(root, **changes):
    clip, _ = clip_of(5)
    frames = np.zeros((5, clip.lens.height, clip.lens.width, 3), np.uint8)
    return write_clip(root, "a", frames, poses=drive(5), lens=clip.lens, fps=12.0, source="s", **changes)


def test_windows_keep_it_and_any_length_is_a_direction():
    clip, _ = clip_of(10, up_world=(0, 1.2, 1.6))
    assert clip.up_world == pytest.approx(UP, abs=1e-15)
    assert {window.up_world for window in clip.windows(4, fps=6.0)} == {clip.up_world}
    with pytest.raises(ClipError, match=r"^clips/a: up_world must be the direction against gravity"):
        clip_of(10, up_world=(0, 0, 0))


def test_a_folder_keeps_it(tmp_path):
    assert read_clip(write(tmp_path, up_world=(0, 3.0, 4.0))).up_world == pytest.approx(UP, abs=1e-15)
    old = write(tmp_path / "old")
    assert "up_world" not in json.loads((old / "meta.json").read_text())
    assert read_clip(old).up_world is None


@pytest.mark.parametrize("up", [[0, 0], [0, 0, 0], "up", [0, True, 0], 3, [0, None, 1]])
def test_a_folder_that_says_no_direction_is_named(tmp_path, up):
    folder = write(tmp_path)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "up_world": up}))
    with pytest.raises(ClipError, match=r"/a: .*up_world"):
        read_clip(folder)


def test_a_cache_lists_it_and_older_ones_load(tmp_path):
    write_cache(tmp_path / "new", range(3), changes={"up_world": UP, "source": "new"})
    write_cache(tmp_path / "old", range(2))
    both = LatentCaches([tmp_path / "old", tmp_path / "new"])
    assert both.up_worlds[:2] == [None, None] and both[1].up_world is None
    assert both.up_worlds[2:] == [pytest.approx(UP, abs=1e-15)] * 3
    assert both[2].up_world == both.up_worlds[2]
    assert "up_world" not in (tmp_path / "old" / "manifest.json").read_text()


def test_a_damaged_list_is_named(tmp_path):
    write_cache(tmp_path, range(1), changes={"up_world": UP})
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace("[0.0, 0.6, 0.8]", "[0.0, 0.6]"))
    with pytest.raises(CacheError, match=r"manifest\.json describes no cache"):
        LatentCache(tmp_path)
