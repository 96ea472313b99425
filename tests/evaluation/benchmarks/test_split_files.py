"""Splits of every kind name the same clips; those that cannot be one are refused with the way out."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from merope.data.poses.command_files import read_command
from merope.data.poses.files import read_poses
from merope.data.selection.splits import SplitError, read_split
from merope.evaluation.benchmarks.registry import PANSHOT_272
from merope.evaluation.benchmarks.split_files import base_clips, case_name, write_clip_list
from merope.generation.manifest import require_name
from tests.evaluation.benchmarks.selections import BENCHMARK, CASES, SMALL, select, write_clips

PANSHOT = replace(PANSHOT_272, num_clips=6, num_frames=49, fps=12.0, unit="m")
"""panshot-272 of the size of these clips."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("splits")
    write_clips(root / "clips", 6)
    select(root / "clips", root / "evaluation")
    return root


@pytest.fixture(scope="module")
def expected(root):
    return BENCHMARK.expected(root / "evaluation")


def test_a_selection_is_driven_along_its_three_trajectories(root, expected):
    split = read_split(root / "evaluation" / "split.json")
    cases = [case_name(clip.clip_id) for clip in split.clips]
    assert len(expected) == 3 * CASES
    variants = ("original", "left", "right")
    assert [clip.clip_id for clip in expected] == [f"{case}/{each}" for case in cases for each in variants]
    assert [clip.group for clip in expected[::3]] == [clip.cluster for clip in split.clips]
    assert all(clip.num_frames == 49 and len(clip.commanded) == 49 for clip in expected)
    assert BENCHMARK.expected(root / "evaluation" / "split.json")[0].digest == expected[0].digest
    for case in cases:
        require_name("id", case)


def test_commands_are_read_as_generation_reads_them(root, expected):
    clip = read_split(root / "evaluation" / "split.json").clips[2]
    path = root / "evaluation" / "poses" / "nuscenes" / clip.clip_id / "left.json"
    command = read_command(path, format="merope", num_frames=49, fps=12.0).poses
    assert torch.equal(command.T_world_cam, expected[7].commanded.T_world_cam)
    # These clips have even times, so nothing is interpolated.
    torch.testing.assert_close(
        command.T_world_cam, read_poses(path, format="merope").T_world_cam, rtol=0, atol=1e-9
    )


def test_a_list_with_digests_stands_for_the_selection(expected, tmp_path):
    for name in ("clips.json", "clips.csv"):
        write_clip_list(tmp_path / name, BENCHMARK, expected)
        listed = BENCHMARK.expected(tmp_path / name)
        for clip, wanted in zip(listed, expected, strict=True):
            assert (clip.clip_id, clip.num_frames, clip.digest, clip.group) == (
                wanted.clip_id,
                wanted.num_frames,
                wanted.digest,
                wanted.group,
            )
            assert clip.commanded is None


def test_names_alone_are_driven_along_every_trajectory(tmp_path):
    (tmp_path / "drives.txt").write_text("scene-1@00049\nscene-2\n")
    names = [clip.clip_id for clip in BENCHMARK.expected(tmp_path / "drives.txt")]
    assert names[:3] == ["scene-1-00049/original", "scene-1-00049/left", "scene-1-00049/right"]
    assert len(names) == 6
    (tmp_path / "drives.json").write_text(json.dumps(["scene-1@00049", "scene-2"]))
    assert [clip.clip_id for clip in BENCHMARK.expected(tmp_path / "drives.json")] == names


def test_byte_order_marks_and_windows_newlines_change_nothing(tmp_path):
    texts = {
        "a.txt": "\ufeffscene 1@3\r\nfront/scene-2\r\n\r\n",
        "a.json": '\ufeff["scene 1@3",\r\n"front/scene-2"]',
        "a.csv": "\ufeffclip_id,group\r\nscene 1@3,all\r\nfront/scene-2,all\r\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
        cases = [clip.clip_id for clip in BENCHMARK.expected(tmp_path / name)][::3]
        assert cases == ["scene-1-3/original", "front-scene-2/original"], name


def test_a_list_is_written_as_what_is_read(expected, tmp_path):
    with pytest.raises(ValueError, match=r"\.json or \.csv"):
        write_clip_list(tmp_path / "list.txt", BENCHMARK, expected)


def test_a_folder_of_clips_is_a_split_of_a_benchmark_without_turns(root):
    found = PANSHOT.expected(root / "clips")
    assert [clip.clip_id for clip in found][:1] == ["scene-0000_CAM_FRONT-00000/original"]
    assert found[0].also == ("scene-0000_CAM_FRONT@00000", "scene-0000_CAM_FRONT@00000/original")
    assert len(found) == 6 and len({clip.digest for clip in found}) == 6
    assert found[0].lens == SMALL
    with pytest.raises(SplitError, match="merope data select"):
        BENCHMARK.expected(root / "clips")
    with pytest.raises(SplitError, match=r"need 6\.7 s"):
        replace(PANSHOT, num_frames=81).expected(root / "clips")
    with pytest.raises(SplitError, match="unit is 'm'"):
        replace(PANSHOT, unit="normalized").expected(root / "clips")


def test_a_selection_without_turns_is_refused(root, tmp_path):
    shutil.copytree(root / "evaluation", tmp_path / "evaluation")
    for path in tmp_path.glob("evaluation/poses/*/*/right.json"):
        path.unlink()
    with pytest.raises(SplitError, match=r"there is no .*right\.json"):
        BENCHMARK.expected(tmp_path / "evaluation")
    shutil.rmtree(tmp_path / "evaluation" / "poses")
    assert {clip.digest for clip in BENCHMARK.expected(tmp_path / "evaluation")} == {None}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "it is not JSON"),
        ("a.json", "null", "must hold a list"),
        ("a.JSON", "3", "must hold a list"),
        ("a.txt", b"caf\xe9", "not UTF-8"),
        ("a.csv", "a\n".encode("utf-16"), "not UTF-8"),
        ("a.csv", 'clip_id\n"abc\n', "line 1: unexpected end"),
        ("a.csv", "clip_id\n" + 140_000 * "a", "no table that can be read"),
        ("a.json", '[{"clip_id": "a", "num_frames": "' + 5000 * "9" + '"}]', "no count of frames"),
        ("a.json", '{"format": "other"}', "is no split"),
        (
            "a.json",
            '{"format": "merope-benchmark-clips-1", "benchmark": "panshot-272", "clips": []}',
            "panshot",
        ),
        ("a.json", '[{"clip": "a"}]', "entry 0 has no clip_id"),
        ("a.json", "[3]", "3 is neither"),
        ("a.json", '[{"clip_id": "a/left", "digest": "xyz"}]', "16 hexadecimal digits"),
        ("a.json", '[{"clip_id": "a", "digest": "0123456789abcdef"}]', "stands for 3 clips"),
        ("a.json", '[{"clip_id": "a/left", "num_frames": -1}]', "no count of frames"),
        ("a.csv", "name\na\n", "clip_id"),
        ("a.txt", "a\na\n", "more than once"),
        ("a.txt", "\n", "names no clips"),
    ],
)
def test_a_file_that_is_no_split_is_refused(name, text, words, tmp_path):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SplitError, match=words):
        BENCHMARK.expected(tmp_path / name)


def test_a_split_that_is_not_there_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        BENCHMARK.expected(tmp_path / "none")


def test_two_clips_never_become_one_case(root):
    split = read_split(root / "evaluation" / "split.json")
    first = split.clips[0]
    twin = replace(first, clip_id=first.clip_id.replace("@", "-"))
    with pytest.raises(SplitError, match="would both be case"):
        base_clips(replace(split, clips=(*split.clips, twin)))
    elsewhere = base_clips(replace(split, clips=(*split.clips, replace(first, source="other"))))
    assert len(set(elsewhere.values())) == CASES + 1
    assert all(case.startswith(("nuscenes-", "other-")) for case in elsewhere.values())
