"""Manifests and what is opened from them: every mistake by case and field, and clips that say how they came about."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import KannalaBrandt, Pinhole
from merope.data import PoseFileError, read_poses, write_poses
from merope.data.clips.video import write_frames
from merope.errors import MeropeError, TrajectoryError
from merope.generation.cases import case_seed, open_cases, run_spec
from merope.generation.manifest import Case, ManifestError, Trajectory, read_manifest
from merope.generation.model_files import ModelConfigs
from merope.generation.runs import Sampling, batches, pending
from tests.support.wan_run import HEIGHT, LENS, WIDTH, adapter_file, bend, spec, wan_folder, write_cases

SAMPLING = Sampling(model="sha256:1", adapter="sha256:2", dtype="fp32", steps=2)


def entry(**changes):
    values = {
        "id": "a",
        "prompt": "rain",
        "fov": 90,
        "trajectories": {"t": {"poses": "bend.txt", "format": "kitti"}},
    }
    return {name: value for name, value in {**values, **changes}.items() if value is not ...}


def manifest(folder, *entries, lines=False):
    path = folder / "cases.json"
    path.write_text(
        "\n".join(json.dumps(each) for each in entries) if lines else json.dumps(list(entries)),
        encoding="utf-8",
    )
    return path


def opened(path, wanted=None, **options):
    return open_cases(read_manifest(path), wanted or spec(), source="cases.json", **options)


def test_a_manifest_is_read_with_paths_relative_to_it(tmp_path):
    street, rain = read_manifest(write_cases(tmp_path))
    assert (street.id, rain.id) == ("street", "rain")
    assert street.prefix == tmp_path / "given"
    assert street.trajectories["slow"] == Trajectory(
        poses=tmp_path / "bend.txt", format="kitti", fps=5, start=2
    )
    assert (rain.seed, rain.fov, rain.lens, rain.negative_prompt) == (7, 90, None, "sun")


def test_lists_objects_and_lines_are_the_same(tmp_path):
    cases = [entry(id="a"), entry(id="b")]
    wanted = read_manifest(manifest(tmp_path, *cases))
    assert read_manifest(manifest(tmp_path, *cases, lines=True)) == wanted
    # JSON lets text hold Unicode's other line ends as they are.
    lines = [json.dumps(entry(id=name, prompt="one\u2028two"), ensure_ascii=False) for name in "ab"]
    (tmp_path / "cases.json").write_text("\r\n".join(lines), encoding="utf-8", newline="")
    assert [case.prompt for case in read_manifest(tmp_path / "cases.json")] == ["one\u2028two"] * 2
    (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
    assert read_manifest(tmp_path / "cases.json") == wanted
    (tmp_path / "cases.json").write_text(json.dumps(cases[0]))
    assert read_manifest(tmp_path / "cases.json") == wanted[:1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"promt": "x"}, "case 'a': unknown field 'promt'; did you mean 'prompt'?"),
        ({"prompt": ...}, "case 'a': field 'prompt' is missing"),
        ({"prompt": 3}, "case 'a': field 'prompt' must be text; got 3"),
        ({"seed": "7"}, "case 'a': field 'seed' must be a whole number"),
        ({"seed": -1}, "case 'a': field 'seed' must be 0 or more"),
        ({"seed": True}, "case 'a': field 'seed' must be a whole number; got true"),
        ({"lens": "lens.json"}, "fields 'lens' and 'fov' both say"),
        ({"id": "../a"}, "case '../a': id becomes the name of a folder"),
        ({"id": ".a"}, "becomes the name of a folder"),
        ({"trajectories": {}}, "case 'a': field 'trajectories' is empty"),
        ({"trajectories": {"a/b": {"poses": "p", "format": "kitti"}}}, "trajectory 'a/b': the name becomes"),
        ({"trajectories": {"t": {"poses": "p"}}}, "case 'a', trajectory 't': field 'format' is missing"),
        (
            {"trajectories": {"t": {"poses": "p", "format": "kiti"}}},
            "case 'a', trajectory 't': field 'format' must be one of kitti, tum",
        ),
        (
            {"trajectories": {"t": {"poses": "p", "format": "npy", "unit": "km"}}},
            "case 'a', trajectory 't': field 'unit' must be one of m, normalized",
        ),
        ({"trajectories": {"t": "p"}}, "trajectory 't': must be an object"),
    ],
)
def test_a_mistake_is_named_by_case_and_field(tmp_path, changes, words):
    with pytest.raises(ManifestError) as caught:
        read_manifest(manifest(tmp_path, entry(**changes)))
    assert words in str(caught.value)
    assert "nothing was generated" in str(caught.value)


def test_all_mistakes_are_named_at_once(tmp_path):
    with pytest.raises(ManifestError) as caught:
        read_manifest(
            manifest(
                tmp_path, entry(id="a", prompt=...), entry(id="b"), entry(id="b"), entry(id="c", seed=1.5), 5
            )
        )
    lines = str(caught.value).splitlines()
    assert "4 mistakes" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "case 'a'",
        "case 'b'",
        "case 'c'",
        "case 5",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"id": "a",]', "line 1"),
        ('{"id": "a"}\n{"id": }', "line 2"),
        ("3", "must hold a list of cases"),
        ("[]", "there are no cases in it"),
        ('[{"id": "a", "trajectories": {"t": {}, "t": {}}}]', "the name 't' stands twice"),
    ],
)
def test_broken_manifests_say_where(tmp_path, text, words):
    (tmp_path / "cases.json").write_text(text)
    with pytest.raises(ManifestError, match=words):
        read_manifest(tmp_path / "cases.json")


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(PoseFileError, match=r"none\.json does not exist"):
        read_manifest(tmp_path / "none.json")


def test_clips_have_poses_lens_frames_and_seeds(tmp_path):
    bent, slow, left = opened(write_cases(tmp_path))
    assert [clip.clip_id for clip in (bent, slow, left)] == ["street/bend", "street/slow", "rain/left"]
    file = read_poses(tmp_path / "bend.txt", format="kitti")
    torch.testing.assert_close(bent.poses.T_world_cam, file[:9].T_world_cam)
    # Five poses a second, ten frames a second: every other frame is a pose of the file.
    torch.testing.assert_close(slow.poses[::2].T_world_cam, file[2:7].T_world_cam)
    assert bent.lens == LENS
    assert left.lens == LENS
    assert bent.given_frames().shape == (5, HEIGHT, WIDTH, 3)
    assert bent.seed == slow.seed == case_seed(0, "street")
    assert left.seed == 7
    assert "poses 0 to 8 of 33, one per frame at 10 Hz" in bent.notes
    assert "poses 2 to 6 of 33, 5 a second, at 10 Hz" in slow.notes


def test_seeds_depend_on_the_run_and_the_case_alone():
    assert case_seed(0, "a") == case_seed(0, "a")
    assert len({case_seed(0, "a"), case_seed(1, "a"), case_seed(0, "b")}) == 3


def test_every_file_that_does_not_fit_is_named_before_anything_runs(tmp_path):
    write_cases(tmp_path)
    write_poses(tmp_path / "short.txt", bend(4), format="kitti")
    (tmp_path / "bad.json").write_text('{"model": "pinhole"}')
    (tmp_path / "text.mp4").write_text("no video")
    one = {"t": {"poses": "bend.txt", "format": "kitti"}}
    path = manifest(
        tmp_path,
        entry(id="none", trajectories={"t": {"poses": "gone.txt", "format": "kitti"}}, prefix="given"),
        entry(id="short", trajectories={"t": {"poses": "short.txt", "format": "kitti"}}, prefix="given"),
        entry(id="format", trajectories={"t": {"poses": "bend.txt", "format": "tum"}}, prefix="given"),
        entry(id="lens", fov=..., lens="bad.json", trajectories=one, prefix="given"),
        entry(id="nolens", fov=..., trajectories=one, prefix="given"),
        entry(id="wide", fov=190, trajectories=one, prefix="given"),
        entry(id="noprefix", trajectories=one),
        entry(id="video", trajectories=one, prefix="text.mp4"),
        entry(id="folder", trajectories=one, prefix="gone"),
        entry(id="fine", trajectories=one, prefix="given"),
    )
    with pytest.raises(ManifestError) as caught:
        opened(path)
    lines = str(caught.value).splitlines()[1:]
    for line, words in zip(
        lines,
        [
            "case 'none', trajectory 't': ",
            "case 'short', trajectory 't': ",
            "case 'format', trajectory 't': ",
            "case 'lens', field 'lens': ",
            "case 'nolens', field 'lens': is missing",
            "case 'wide', field 'lens': fov_x_deg",
            "case 'noprefix', field 'prefix': is missing; the model takes 5 given frames",
            "case 'video', field 'prefix': ",
            "case 'folder', field 'prefix': ",
        ],
        strict=True,
    ):
        assert line.strip().startswith(words), line
    assert "--pose-extend hold|constant-velocity" in lines[1]
    assert "--num-frames" not in lines[1]


def test_a_pose_file_may_bring_the_lens(tmp_path):
    lens = Pinhole.from_fov(fov_x_deg=60, height=HEIGHT, width=WIDTH)
    write_poses(tmp_path / "bend.json", bend(9), format="merope", camera=lens.to_dict())
    path = manifest(tmp_path, entry(fov=..., trajectories={"t": {"poses": "bend.json", "format": "merope"}}))
    (clip,) = opened(path, replace(spec(), prefix_frames=0))
    assert clip.lens == lens


def test_frames_given_to_a_model_that_takes_none_are_refused(tmp_path):
    path = write_cases(tmp_path)
    with pytest.raises(ManifestError, match="the model takes none"):
        opened(path, replace(spec(), prefix_frames=0))


def test_frames_and_lens_are_cut_and_resized_together(tmp_path):
    # Twice as large, and 40 columns more on either side.
    lens = KannalaBrandt.from_fov(fov_x_deg=150, height=128, width=272)
    frames = np.random.default_rng(1).integers(0, 256, (5, 128, 272, 3), dtype=np.uint8)
    write_frames(tmp_path / "large", frames)
    write_poses(tmp_path / "bend.txt", bend(9), format="kitti")
    (tmp_path / "lens.json").write_text(json.dumps(lens.to_dict()))
    path = manifest(tmp_path, entry(fov=..., lens="lens.json", prefix="large"))
    with pytest.raises(
        ManifestError,
        match=r"another shape than 64 x 96, which is wanted.*--crop to cut 0 rows and 80 columns",
    ):
        opened(path)
    (clip,) = opened(path, crop=True)
    assert clip.lens == lens.crop(top=0, left=40, height=128, width=192).resize(height=64, width=96)
    assert "frames and lens resized from 128 x 192 to 64 x 96, the middle of 128 x 272" in clip.notes
    middle = Image.fromarray(frames[2, :, 40:232]).resize((96, 64), Image.Resampling.LANCZOS)
    # At its edges a cut picture is resized with what lies beyond them.
    inside = np.s_[4:-4, 4:-4]
    assert np.abs(clip.given_frames()[2][inside].astype(int) - np.asarray(middle)[inside]).max() <= 1


def test_too_short_trajectories_are_extended_or_trimmed_and_it_is_said(tmp_path):
    write_poses(tmp_path / "bend.txt", bend(7), format="kitti")
    path = manifest(tmp_path, entry())
    wanted = replace(spec(), prefix_frames=0)
    with pytest.raises(
        ManifestError, match=r"\(7 poses\) ends 0.6 s after pose 0; 9 frames.*or --num-frames 5"
    ):
        opened(path, wanted)
    (held,) = opened(path, wanted, extend="hold")
    assert torch.equal(held.poses.T_world_cam[6], held.poses.T_world_cam[8])
    assert "the path ends at frame 6; frames 7 to 8 stay at its last pose" in held.notes
    (on,) = opened(path, wanted, extend="constant-velocity")
    one, other = (on.poses.relative(5, 6), on.poses.relative(7, 8))
    torch.testing.assert_close(one[0], other[0])
    torch.testing.assert_close(one[1], other[1])
    (cut,) = opened(path, wanted, trim=True)
    assert len(cut.poses) == cut.spec.num_frames == 5
    assert "trimmed from 9 to 5 frames, 1 + 4 k, so that frames 5 to 6 of the path are left out" in cut.notes


def test_what_a_check_refuses_is_named_with_its_clip(tmp_path):
    def check(clip, given):
        assert given.shape == (5, HEIGHT, WIDTH, 3)
        if clip.trajectory == "slow":
            raise TrajectoryError("too slow")

    with pytest.raises(ManifestError, match=r"1 mistake,.*\n.*case 'street', trajectory 'slow': too slow"):
        opened(write_cases(tmp_path), check=check)


def test_a_run_makes_what_is_asked_for_else_what_the_adapter_was_trained_for():
    configs = ModelConfigs.read(wan_folder(), adapter=adapter_file())
    assert run_spec(configs) == (spec(), ())
    larger, _ = run_spec(configs, height=96, num_frames=13, prefix_frames=0)
    assert (larger.height, larger.width, larger.num_frames, larger.prefix_frames) == (96, 96, 13, 0)
    with pytest.raises(ValueError, match="Use 9 or 13"):
        run_spec(configs, num_frames=12)
    trimmed, notes = run_spec(configs, num_frames=12, trim=True)
    assert trimmed.num_frames == 9
    assert notes == ("trimmed from 12 to 9 frames, 1 + 4 k: the poses of frames 9 to 11 are left out",)
    with pytest.raises(MeropeError, match="say --height, --num-frames"):
        run_spec(ModelConfigs.read(wan_folder()), width=96)


@pytest.mark.parametrize("name", ["no-such", "models/no/such", "."])
def test_a_name_without_a_pipeline_is_said_to_be_one(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder or hub name of a Wan pipeline"):
        ModelConfigs.read(name, local_files_only=True)


def test_batches_keep_the_order_and_what_cannot_run_together_apart(tmp_path):
    clips = opened(write_cases(tmp_path))
    ids = [[clip.clip_id for clip in batch] for batch in batches(clips, 4)]
    # One has a negative prompt and the others have none.
    assert ids == [["street/bend", "street/slow"], ["rain/left"]]
    assert [len(batch) for batch in batches(clips, 1)] == [1, 1, 1]
    shorter = [replace(clips[0], spec=replace(spec(), num_frames=13)), *clips[1:2]]
    assert [len(batch) for batch in batches(shorter, 4)] == [1, 1]
    with pytest.raises(ValueError, match="--batch"):
        batches(clips, 0)


def test_what_is_not_there_is_pending_and_something_else_in_its_place_is_refused(tmp_path):
    clips = opened(write_cases(tmp_path))
    assert pending(clips, tmp_path / "out", SAMPLING) == clips
    (tmp_path / "out" / "rain" / "left").mkdir(parents=True)
    with pytest.raises(MeropeError, match=r"rain/left is there and is no generated clip"):
        pending(clips, tmp_path / "out", SAMPLING)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "--steps"),
        ({"guidance": float("nan")}, "--guidance"),
        ({"guidance": float("inf")}, "--guidance"),
        ({"flow_shift": 0.0}, "--flow-shift"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        replace(SAMPLING, **values)


def test_a_case_from_code_is_as_good_as_one_from_a_file(tmp_path):
    write_poses(tmp_path / "bend.txt", bend(9), format="kitti")
    case = Case(
        id="a",
        prompt="rain",
        fov=90.0,
        trajectories={"t": Trajectory(poses=tmp_path / "bend.txt", format="kitti")},
    )
    (clip,) = open_cases([case], replace(spec(), prefix_frames=0), source="code")
    assert clip.inputs()["prompt"] == "rain"
    json.dumps(clip.inputs(), allow_nan=False)
