"""`merope data scale`: the scale by hand, from every kind of input the same, and on its way into training."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.cli.finetune import _scaled
from merope.cli.main import run
from merope.data.caches.latent_cache import LatentCaches
from merope.data.clips.folder import write_clip
from merope.data.selection.motion_statistics import MotionError, motion_beside, read_motion
from merope.data.selection.split_caches import ClipsOfSplit
from merope.data.selection.splits import Split, SplitClip, read_split, write_split
from merope.encodings.registry import default_encoding, encoding_to_config
from merope.errors import CheckpointMismatch
from merope.geometry.poses import Poses
from merope.training.finetune_config import FinetuneConfig
from merope.training.motion import with_scale_of
from tests.support.cached import write_cache

pytestmark = pytest.mark.filterwarnings("ignore::merope.data.caches.cached_clip.CacheWarning")

NUM = 9
# Latent frames of 9 are 0, 4 and 8: at 0, 4 and 8 steps, whose distances are 4, 4 and 8 of them.
RMS_STEPS = math.sqrt((16 + 16 + 64) / 3)


def ahead(step, unit="m", num=NUM):
    centers = torch.zeros(num, 3, dtype=torch.float64)
    centers[:, 2] = step * torch.arange(num, dtype=torch.float64)
    return Poses(
        R_world_cam=torch.eye(3, dtype=torch.float64).repeat(num, 1, 1),
        center_world=centers - 6.4e6,
        unit=unit,
    )


def write_clips(root, steps, **changes):
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=16, width=24)
    for name, step in steps.items():
        frames = np.zeros((NUM, 16, 24, 3), np.uint8)
        write_clip(root, name, frames, poses=ahead(step, **changes), lens=lens, fps=12.0, source="set")
    return root


@pytest.fixture
def clips(tmp_path):
    """Three that drive, one that stands by millimetres, and one that the split leaves out."""
    return write_clips(tmp_path / "clips", {"a": 0.5, "b": 1.0, "c": 3.0, "standing": 1e-3, "other": 100.0})


def scale(*arguments):
    return run(["data", "scale", *map(str, arguments)])


def split_of(path, *names):
    write_split(path, Split("train", tuple(SplitClip("set", name) for name in names), statistics={"kept": 1}))
    return path


def test_the_scale_of_a_split_is_that_by_hand_and_stands_in_it(clips, tmp_path, capsys):
    split = split_of(tmp_path / "split.json", "a", "b", "c", "standing")
    assert scale(clips, "--frames", NUM, "--split", split, "--out", tmp_path / "motion.json") == 0
    found = read_motion(split)
    assert found.scale.per_metre == pytest.approx(1 / (1.0 * RMS_STEPS), rel=1e-9)
    assert found.scale.reach == pytest.approx(8 * 3.0, rel=1e-9)
    assert (found.clips, found.static, found.unit, found.num_frames) == (4, 1, "m", NUM)
    # Only the three that move count: 8 steps each, at 0.5, 1 and 3 m.
    assert found.motion["path"]["p50"] == pytest.approx(8.0)
    assert found.motion["reach"]["mean"] == pytest.approx(8 * 4.5 / 3)
    squares = sum(step**2 for step in (0.5, 1.0, 3.0)) * sum(number**2 for number in range(NUM))
    assert found.motion["axis_rms"] == pytest.approx([0, 0, math.sqrt(squares / (3 * NUM))], abs=1e-6)
    assert read_motion(tmp_path / "motion.json") == found
    kept = read_split(split)
    assert kept.statistics["kept"] == 1 and len(kept) == 4
    output = capsys.readouterr().out
    assert (
        "4 clips of 9 frames (3 latent frames, pose policy last); 1 of them stand (within 0.01 m)" in output
    )
    assert "stored in" in output


def test_without_a_split_all_clips_count_and_nothing_is_stored_unasked(clips, capsys):
    assert scale(clips, "--frames", NUM) == 0
    output = capsys.readouterr().out
    assert "longest distance 800 m" in output and "stored nowhere" in output


@pytest.mark.parametrize(("policy", "places"), [("first", (0, 1, 5)), ("mean", (0, 2.5, 6.5))])
def test_latent_frames_are_those_of_the_pose_policy(clips, tmp_path, policy, places):
    split, out = split_of(tmp_path / "split.json", "b"), tmp_path / "motion.json"
    assert scale(clips, "--frames", NUM, "--split", split, "--pose-policy", policy, "--out", out) == 0
    apart = [places[1] - places[0], places[2] - places[1], places[2] - places[0]]
    expected = 1 / math.sqrt(sum(value**2 for value in apart) / 3)
    assert read_motion(out).scale.per_metre == pytest.approx(expected, rel=1e-9)


def test_an_array_of_paths_gives_what_its_clips_give(clips, tmp_path):
    centers = np.stack([(ahead(step).center_world + 6.4e6).numpy() for step in (0.5, 1.0, 3.0, 1e-3, 100.0)])
    np.savez(
        tmp_path / "paths.npz",
        centers=centers,
        ids=["a", "b", "c", "standing", "other"],
        sources="set",
        unit="m",
    )
    assert scale(tmp_path / "paths.npz", "--out", tmp_path / "one.json") == 0
    assert scale(clips, "--frames", NUM, "--out", tmp_path / "two.json") == 0
    one, two = read_motion(tmp_path / "one.json"), read_motion(tmp_path / "two.json")
    assert one.scale.per_metre == pytest.approx(two.scale.per_metre, rel=1e-9)


def test_a_missing_part_of_a_split_is_told(clips, tmp_path, capsys):
    split = split_of(tmp_path / "split.json", "a", "gone")
    assert scale(clips, "--frames", NUM, "--split", split) == 0
    assert "the split names 2 clips and 1 were measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("m", 1.0), ("normalized", 1.0), "in unit 'normalized' and those before it in 'm'"),
        (("unknown", 1.0), ("unknown", 1.0), "does not say what its unit is"),
        (("m", 1e-4), ("m", 0.0), "none of the 2 clips moves"),
    ],
)
def test_what_has_no_one_scale_is_refused(first, second, message, tmp_path, capsys):
    for name, (unit, step) in (("a", first), ("b", second)):
        write_clips(tmp_path, {name: step}, unit=unit)
    assert scale(tmp_path, "--frames", NUM) == 1
    assert message in capsys.readouterr().err


def test_clips_of_several_lengths_and_names_twice_are_refused(tmp_path, capsys):
    for name, num in (("a", 9), ("b", 13)):
        np.savez(tmp_path / f"{name}.npz", centers=ahead(1.0, num=num).center_world[None], unit="m")
    assert scale(tmp_path / "a.npz", tmp_path / "b.npz") == 1
    assert "has 13 frames and those before it 9" in capsys.readouterr().err
    assert scale(tmp_path / "a.npz", tmp_path / "a.npz") == 1
    assert "two clips are called a/0000000" in capsys.readouterr().err
    assert scale() == 2


def finetuned(encoding="gta", unit="m"):
    made = default_encoding(encoding, head_dim=64, num_heads=1)
    spec = VideoSpec(height=32, width=48, num_frames=NUM, prefix_frames=1, fps=12.0)
    return FinetuneConfig(
        name="x", spec=spec, encoding=encoding_to_config(made), pose_unit=unit, steps=1, global_batch=1
    )


def scaled(folders, scale=None, config=None, split=None):
    notes = []
    clips = LatentCaches(folders)
    if split is not None:
        clips = ClipsOfSplit(clips, read_split(split))
    made = _scaled(config or finetuned(), clips, None, scale, split, notes)
    return made.encoding.get("scale"), notes


@pytest.fixture
def caches(tmp_path):
    """Two caches of clips of other motion."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, numbers in zip(folders, (range(3), range(3, 7)), strict=True):
        write_cache(folder, numbers)
    return folders


def test_what_is_stored_is_what_training_would_estimate(caches, capsys):
    estimated, notes = scaled(caches)
    assert "from the clips' motion (`merope data scale` stores it)" in notes[0]
    assert scale(*caches) == 0
    stored, notes = scaled(caches)
    assert "measured on 7 clips of which 0 stand" in notes[0]
    assert stored == pytest.approx(estimated, rel=1e-9)
    clips = LatentCaches(caches)
    own = with_scale_of(finetuned().encoding, [clips.poses(i) for i in range(7)], finetuned().spec)
    assert own["scale"] == estimated


def test_a_scale_of_other_clips_is_not_taken_in_silence(caches, tmp_path):
    assert scale(*caches) == 0
    with pytest.raises(CheckpointMismatch, match="was measured on 7 clips, and they are not those"):
        scaled(caches[:1])
    # Named, it is meant.
    both, _ = scaled(caches)
    assert scaled(caches[:1], scale=caches[0])[0] == both
    (caches[1] / "motion.json").unlink()
    with pytest.raises(CheckpointMismatch, match="not all of these caches have the same translation scale"):
        scaled(caches)
    for folder in caches:
        assert scale(folder) == 0
    with pytest.raises(
        CheckpointMismatch, match=r"Measure them together \(`merope data scale .*one .*two`\)"
    ):
        scaled(caches)


def test_a_split_reaches_training_by_a_flag_and_beside_the_caches(caches, tmp_path):
    names = tuple(SplitClip("clips", f"clip-{number:03d}") for number in (0, 4, 6))
    write_split(tmp_path / "split.json", Split("train", names))
    assert scale(*caches, "--split", tmp_path / "split.json") == 0
    by_flag, notes = scaled(caches[:1], scale=tmp_path / "split.json")
    assert "measured on 3 clips" in notes[0]
    assert scaled(caches)[0] == by_flag
    with pytest.raises(CheckpointMismatch, match=r"measured on clips with unit m \(here normalized\)"):
        scaled(caches, config=finetuned(unit="normalized"))
    _, notes = scaled(caches, scale=tmp_path / "split.json", config=finetuned("merope"))
    assert notes == ["merope has no translation scale; --scale is left aside"]


def test_clips_of_a_later_split_have_its_scale_and_not_that_beside_the_caches(caches, tmp_path):
    assert scale(*caches) == 0
    names = tuple(SplitClip("clips", f"clip-{number:03d}") for number in (2, 6))
    path = tmp_path / "later.json"
    write_split(path, Split("train", names))
    estimated, notes = scaled(caches, split=path)
    assert f"from the clips' motion, since {path} has none" in notes[0]
    assert estimated != scaled(caches)[0]
    assert scale(*caches, "--split", path) == 0
    stored, notes = scaled(caches, split=path)
    assert stored == pytest.approx(estimated, rel=1e-9) and f"of {path}, measured on 2 clips" in notes[0]


def test_files_without_a_scale_say_how_to_get_one(tmp_path):
    split = split_of(tmp_path / "split.json", "a")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bad.json").write_text(
        json.dumps({"format": "merope-motion-1", "statistics": {"translation_scale": {"per_metre": "1"}}})
    )
    for path, message in ((split, 'it has no "translation_scale"'), (tmp_path / "list.json", "neither a split"),
                          (tmp_path / "bad.json", "has the entries")):  # fmt: skip
        with pytest.raises(MotionError, match=message):
            read_motion(path)
    with pytest.raises(FileNotFoundError):
        read_motion(tmp_path)
    assert motion_beside([tmp_path], []) is None


def test_a_damaged_number_is_refused(caches, tmp_path):
    assert scale(caches[0]) == 0
    content = json.loads((caches[0] / "motion.json").read_text())
    content["statistics"]["translation_scale"]["per_metre"] = -1
    (caches[0] / "motion.json").write_text(json.dumps(content))
    with pytest.raises(MotionError, match="per_metre must be > 0"):
        scaled(caches[:1])
    shutil.rmtree(caches[1])
