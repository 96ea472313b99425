"""Splits: what is written comes back, and what is wrong in a file is named."""

import json

import pytest

from merope.data.selection.splits import Split, SplitClip, SplitError, read_split, write_split

CLIPS = (
    SplitClip("nuscenes", "scene-0061@00000", "p00001"),
    SplitClip("rendered", "scene-0061@00000", "static"),
    SplitClip("rendered", "world-ü", "p00002"),
)
SPLIT = Split("train", CLIPS, statistics={"scale": 0.25}, made={"threshold": 1.0})


@pytest.mark.parametrize("split", [SPLIT, Split("nothing", ())])
def test_what_is_written_comes_back(split, tmp_path):
    write_split(tmp_path / "split.json", split)
    assert read_split(tmp_path / "split.json") == split
    assert json.loads((tmp_path / "split.json").read_text())["format"] == "merope-split-1"


def test_the_cluster_of_a_clip_is_that_of_its_source_and_name():
    assert SPLIT.cluster_of("nuscenes", "scene-0061@00000") == "p00001"
    assert SPLIT.cluster_of("rendered", "scene-0061@00000") == "static"
    assert SPLIT.cluster_of("nuscenes", "world-ü") is None
    assert SPLIT.sources == ("nuscenes", "rendered")


def test_a_split_of_whole_clips_holds_for_their_windows_but_not_the_other_way_round():
    assert SPLIT.cluster_of("rendered", "world-ü@00049") == "p00002"
    assert SPLIT.cluster_of("nuscenes", "scene-0061@00049") is None
    assert SPLIT.cluster_of("nuscenes", "scene-0061") is None


def test_a_clip_twice_is_refused_by_name():
    with pytest.raises(ValueError, match="a/one is in the split more than once"):
        Split("train", (SplitClip("a", "one"), SplitClip("a", "one", "other")))


def test_statistics_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path):
    for wrong in (float("nan"), object()):
        with pytest.raises(ValueError):
            write_split(tmp_path / "split.json", Split("train", (), statistics={"scale": wrong}))
    assert not list(tmp_path.iterdir())


GOOD = {"format": "merope-split-1", "name": "train", "clips": [{"source": "a", "clip_id": "one"}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", 'needs "format"'),
        (json.dumps({**GOOD, "format": "merope-clip-1"}), 'needs "format"'),
        (json.dumps({**GOOD, "seed": 1}), "unknown entries .'seed'."),
        (json.dumps({**GOOD, "clips": {}}), '"clips", a list'),
        (json.dumps({**GOOD, "name": ""}), "name of a split"),
        (json.dumps({**GOOD, "made": []}), "'made' is"),
        (json.dumps({**GOOD, "clips": [*GOOD["clips"], {"source": "a"}]}), "clip 1 is"),
        (json.dumps({**GOOD, "clips": [{"source": "a", "clip_id": 3}]}), "'clip_id' of clip 0 is 3"),
        (json.dumps({**GOOD, "clips": 2 * GOOD["clips"]}), "a/one is in the split more than once"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(content, words, tmp_path):
    (tmp_path / "split.json").write_text(content)
    with pytest.raises(SplitError, match=words) as caught:
        read_split(tmp_path / "split.json")
    assert "split.json" in str(caught.value)


def test_a_cluster_may_be_missing(tmp_path):
    (tmp_path / "split.json").write_text(json.dumps(GOOD))
    assert read_split(tmp_path / "split.json").clips == (SplitClip("a", "one", "all"),)
