"""`merope data check`: each planted defect is found by the name of its clip, sound clips are left alone."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.cli.main import run
from merope.data.caches.latent_cache import LatentCache
from merope.data.checks.checking import CheckConfig, ClipCheck
from merope.data.checks.expected_clips import ExpectedClips
from merope.data.checks.report import report_of
from merope.data.clips.folder import write_clip
from merope.data.selection.splits import Split, SplitClip, read_split, write_split
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.cached import random_clip, write_cache

pytestmark = pytest.mark.filterwarnings("ignore::merope.data.caches.cached_clip.CacheWarning")

HEIGHT, WIDTH, NUM = 16, 24, 13


def frames(seed):
    return np.random.default_rng(seed).integers(0, 255, (NUM, HEIGHT, WIDTH, 3), dtype=np.uint8)


def drive(*, step=0.5, turn_deg=1.0, unit="m", centers=None, angles=None, times=None):
    """Poses along an arc, far from the world's origin."""
    number = torch.arange(NUM, dtype=torch.float64)
    angles = torch.deg2rad(turn_deg * number) if angles is None else angles
    rotvecs = torch.zeros(NUM, 3, dtype=torch.float64)
    rotvecs[:, 1] = angles
    if centers is None:
        centers = torch.zeros(NUM, 3, dtype=torch.float64)
        centers[:, 2] = step * number
    return Poses(R_world_cam=rotvec_to_matrix(rotvecs), center_world=centers + 4.65e6, unit=unit, times=times)


def bent(place, away, **changes):
    """A drive whose pose at ``place``, and those after it, are moved away."""
    centers = torch.zeros(NUM, 3, dtype=torch.float64)
    centers[:, 2] = 0.5 * torch.arange(NUM, dtype=torch.float64)
    centers[place:, 2] += away
    return drive(centers=centers, **changes)


def shaking():
    return drive(angles=torch.deg2rad(2.0 * (torch.arange(NUM) % 2).double()))


def jumping_in_turn():
    return drive(angles=torch.deg2rad(torch.cat((torch.zeros(6), torch.full((NUM - 6,), 20.0))).double()))


def repeating():
    centers = torch.zeros(NUM, 3, dtype=torch.float64)
    centers[:, 2] = 0.5 * torch.tensor([0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11], dtype=torch.float64)
    return drive(centers=centers, turn_deg=0.0)


def sparse_times():
    """Thirteen poses of 25 frames, every second frame left out in half of the clip."""
    numbers = torch.tensor([0, 1, 2, 3, 4, 5, 6, 9, 12, 15, 18, 21, 24], dtype=torch.float64)
    return numbers / 12


PLANTED = {
    "jitter": ("jitter", shaking()),
    "jump": ("jumps", bent(6, 9.0)),
    "spin": ("rotation-jumps", jumping_in_turn()),
    "repeat": ("repeated-poses", repeating()),
    "few-poses": ("unregistered", drive(step=0.1, times=sparse_times())),
    "millimetres": ("unit", drive(step=500.0)),
    "kilometres": ("unit", drive(step=5e-4, turn_deg=3.0)),
}
SOUND = {"sound-0": drive(), "sound-1": drive(step=0.3), "still": drive(step=0.0, turn_deg=0.0)}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Three sound clips, and one for each defect."""
    root = tmp_path_factory.mktemp("clips")
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=HEIGHT, width=WIDTH)
    every = {**SOUND, **{name: poses for name, (_, poses) in PLANTED.items()}}
    every |= dict.fromkeys(
        ("cut-picture", "few-frames", "damaged-poses", "no-poses", "depth"), drive(step=0.7)
    )
    for seed, (name, poses) in enumerate(every.items()):
        depth = np.ones((NUM, HEIGHT, WIDTH), np.float32) if name == "depth" else None
        write_clip(root, name, frames(seed), poses=poses, lens=lens, fps=12.0, source="set", depth=depth)
    shutil.copytree(root / "sound-0", root / "twin")
    picture = root / "cut-picture" / "frames" / "frame_00007.png"
    picture.write_bytes(picture.read_bytes()[:300])
    (root / "few-frames" / "frames" / f"frame_{NUM - 1:05d}.png").unlink()
    text = (root / "damaged-poses" / "poses.json").read_text()
    (root / "damaged-poses" / "poses.json").write_text(text.replace("4650000.0", "NaN", 1))
    (root / "no-poses" / "poses.json").unlink()
    content = bytearray((root / "depth" / "depth.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (root / "depth" / "depth.npz").write_bytes(content)
    return root


def checked(capsys, *arguments, code):
    assert run(["data", "check", *map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def kinds(report):
    return {clip["clip_id"]: {finding["kind"] for finding in clip["findings"]} for clip in report["clips"]}


def test_each_defect_is_found_by_name_and_sound_clips_are_left_alone(planted, capsys):
    found = kinds(checked(capsys, planted, code=1))
    for name, (kind, _) in PLANTED.items():
        assert kind in found[name], name
    assert {name: found[name] for name in SOUND} == {"sound-0": set(), "sound-1": set(), "still": {"static"}}
    for name in ("cut-picture", "few-frames", "damaged-poses", "depth"):
        assert found[name] == {"corrupt"}
    assert found["twin"] == {"duplicate"}
    assert found["no-poses"] == {"missing"}
    # A defect is not told as others as well.
    assert all(len(found[name]) == 1 for name in ("jitter", "millimetres", "kilometres"))


def test_texts_say_what_was_found(planted, capsys):
    report = checked(capsys, planted, code=1)
    texts = {clip["clip_id"]: " ".join(one["text"] for one in clip["findings"]) for clip in report["clips"]}
    assert "frame_00007.png cannot be read as a picture" in texts["cut-picture"]
    assert f"there are {NUM - 1} frames and {NUM} poses" in texts["few-frames"]
    assert "has the poses and the frames of set/sound-0" in texts["twin"]
    assert "13 of about 25 frames" in texts["few-poses"]
    assert "the median step is 500 per pose, too long for metres" in texts["millimetres"]
    assert report["counts"]["corrupt"] == 4 and report["missing"] == [f"{planted.name}/no-poses"]
    assert run(["data", "check", str(planted)]) == 1
    output = capsys.readouterr().out
    assert "duplicate" in output and "set/twin: it has the poses and the frames of set/sound-0" in output
    assert "3 of 16 clips can be used" in output


def test_the_report_does_not_depend_on_the_number_of_workers(planted, capsys):
    one, two = (checked(capsys, planted, "--workers", workers, code=1) for workers in (1, 3))
    assert one == two


def test_the_split_holds_the_sound_clips_and_the_thresholds(planted, tmp_path, capsys):
    out, manifest = tmp_path / "split.json", tmp_path / "manifest.json"
    places = ("--out", out, "--manifest", manifest, "--max-jitter", "5")
    report = checked(capsys, planted, *places, "--ignore", "repeated-poses", code=1)
    split = read_split(out)
    assert {clip.clip_id for clip in split.clips} == {*SOUND, "jitter", "repeat"}
    assert split.made["checked"]["max_jitter_deg"] == 5 and split.made["checked"]["ignore"] == [
        "repeated-poses"
    ]
    assert json.loads(manifest.read_text()) == report
    sound = next(clip for clip in report["clips"] if clip["clip_id"] == "sound-0")
    assert len(sound["content_sha256"]) == len(sound["poses_sha256"]) == 64
    # What was chosen is clean.
    assert checked(
        capsys, planted, "--expected", out, "--max-jitter", 5, "--ignore", "repeated-poses", code=0
    )["clean"]


def test_quick_sees_files_and_poses_alone(planted, capsys):
    found = kinds(checked(capsys, planted, "--quick", code=1))
    assert found["cut-picture"] == found["depth"] == found["twin"] == set()
    assert found["few-frames"] == {"corrupt"} and "jumps" in found["jump"]


def test_a_clip_of_the_same_name_in_another_folder_is_a_duplicate(planted, tmp_path, capsys):
    shutil.copytree(planted / "sound-0", tmp_path / "sound-0")
    name = ("--expected", tmp_path / "names.txt")
    (tmp_path / "names.txt").write_text("# one\nset/sound-0\n")
    report = checked(capsys, planted, tmp_path, *name, code=1)
    assert [len(clip["findings"]) for clip in report["clips"]] == [0, 1]
    assert "both hold a clip of this name" in report["clips"][1]["findings"][0]["text"]


def test_what_is_expected_and_missing_makes_results_incomparable(planted, tmp_path, capsys):
    clips = tuple(SplitClip("set", name, "x") for name in ("sound-0@00000", "sound-1", "cut-picture", "gone"))
    write_split(tmp_path / "all.json", Split("test", clips, statistics={"translation_scale": 1}))
    out = tmp_path / "there.json"
    report = checked(capsys, planted, "--expected", tmp_path / "all.json", "--out", out, code=1)
    assert report["expected"] == {"n_expected": 4, "n_used": 2, "comparable": False, "not_expected": 12}
    assert report["missing"] == ["set/gone"]
    kept = read_split(out)
    assert [(clip.clip_id, clip.cluster) for clip in kept.clips] == [("sound-0@00000", "x"), ("sound-1", "x")]
    assert kept.statistics == {}
    (tmp_path / "names.txt").write_text("sound-0\nsound-1\n")
    assert run(["data", "check", str(planted), "--expected", str(tmp_path / "names.txt")]) == 0
    output = capsys.readouterr().out
    assert "n_used/n_expected: 2/2" in output and "not comparable" not in output


def test_one_in_a_hundred_may_be_missing():
    there = [ClipCheck(place="x", source="set", clip_id=str(number), frames=1) for number in range(99)]
    for count, comparable in ((100, True), (101, False)):
        expected = ExpectedClips(tuple(f"set/{number}" for number in range(count)))
        report = report_of(there, CheckConfig(), expected=expected)
        assert (len(report.used), report.is_comparable) == (99, comparable)
        assert len(report.by_kind()["missing"]) == count - 99


def test_clips_without_metres_are_a_note_and_strictly_a_problem(tmp_path, capsys):
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=HEIGHT, width=WIDTH)
    for name, unit in (("a", "normalized"), ("b", "unknown")):
        write_clip(tmp_path, name, frames(1), poses=drive(unit=unit), lens=lens, fps=12.0, source="set")
    report = checked(capsys, tmp_path, code=0)
    assert kinds(report) == {"a": {"no-unit"}, "b": {"no-unit"}}
    assert (
        f"{tmp_path}: of 2 clips there are 1 in unit 'normalized' and 1 in unit 'unknown'"
        in report["notes"][0]
    )
    assert "not all in one unit" in report["notes"][1]
    assert checked(capsys, tmp_path, "--strict", code=1)["n_sound"] == 0


def test_a_sound_cache_is_clean(tmp_path, capsys):
    write_cache(tmp_path, range(4))
    assert checked(capsys, tmp_path, code=0)["n_sound"] == 4


def test_a_flipped_byte_costs_the_clips_of_its_shard(tmp_path, capsys):
    cache = write_cache(tmp_path, range(6), shard_bytes=10_000)
    folder, numbers = cache.shards[0]
    path = tmp_path / folder / "latents.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    hit = {cache.clip_ids[number] for number in numbers}
    assert 0 < len(hit) < 6
    found = kinds(checked(capsys, tmp_path, code=1))
    assert {name for name, what in found.items() if what} == hit
    assert checked(capsys, tmp_path, "--quick", code=0)["clean"]
    path.write_bytes(content[:-1])
    report = checked(capsys, tmp_path, "--quick", "--out", tmp_path / "split.json", code=1)
    assert {name for name, what in kinds(report).items() if what == {"corrupt"}} == hit
    assert {clip.clip_id for clip in read_split(tmp_path / "split.json").clips} == set(cache.clip_ids) - hit


def test_a_cache_that_is_damaged_elsewhere_is_told(tmp_path, capsys):
    write_cache(tmp_path, range(2))
    text = tmp_path / "empty-text.safetensors"
    content = bytearray(text.read_bytes())
    content[-1] ^= 1
    text.write_bytes(content)
    with pytest.raises(Exception, match="has other bytes than the manifest says"):
        LatentCache(tmp_path).verify()
    described = json.loads((tmp_path / "encoding.json").read_text())
    (tmp_path / "encoding.json").write_text(json.dumps({**described, "text_length": 13}))
    problems = checked(capsys, tmp_path, code=1)["problems"]
    assert "the embedding of the empty prompt has other bytes" in problems[0]
    assert "differ in text_length (13 and 12)" in problems[1]


def test_clips_of_a_cache_are_looked_at_as_others_are(tmp_path, capsys):
    twin = random_clip(0)
    write_cache(tmp_path / "one", range(2))
    write_cache(
        tmp_path / "two",
        range(5, 6),
        changes={"mean": twin.mean, "logvar": twin.logvar, "T_world_cam": twin.T_world_cam},
        text_length=20,
    )
    jump = twin.T_world_cam.clone()
    jump[4:, 2, 3] += 50
    write_cache(tmp_path / "two", range(6, 7), changes={"T_world_cam": jump}, text_length=20)
    report = checked(capsys, tmp_path / "one", tmp_path / "two", code=1)
    assert kinds(report)["clip-005"] == {"duplicate"} and kinds(report)["clip-006"] >= {"jumps"}
    assert any("do not belong together; they differ in text_length" in note for note in report["notes"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name at least one folder"),
        (["gone"], 1, "gone: no such folder of clips"),
        (["--max-jitter", "0", "."], 1, "max_jitter_deg and near_depth must be positive"),
        (["--workers", "0", "."], 1, "workers must be positive"),
        (["--expected", "empty.txt", "."], 1, "empty.txt names no clips"),
    ],
)
def test_what_cannot_be_checked_is_one_line(arguments, code, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    assert run(["data", "check", *arguments]) == code
    assert message in capsys.readouterr().err


def test_a_manifest_of_its_own_makes_no_cache_of_a_folder_of_clips(planted, tmp_path, capsys):
    shutil.copytree(planted / "sound-0", tmp_path / "sound-0")
    for _ in range(2):
        assert checked(capsys, tmp_path, "--manifest", tmp_path / "manifest.json", code=0)["n_sound"] == 1
    write_cache(tmp_path / "cache", range(1))
    (tmp_path / "cache" / "encoding.json").unlink()
    assert "encoding.json" in checked(capsys, tmp_path / "cache", code=1)["problems"][0]


def test_an_unfinished_cache_is_refused(tmp_path, capsys):
    write_cache(tmp_path, range(1))
    (tmp_path / "manifest.json").unlink()
    assert run(["data", "check", str(tmp_path)]) == 1
    assert "no finished cache of latents here" in capsys.readouterr().err


def test_a_threshold_out_of_range_is_refused():
    for values in ({"min_registered": 1.5}, {"near_depth": math.nan}):
        with pytest.raises(ValueError, match="must"):
            CheckConfig(**values)
