"""`merope fidelity` on folders, with weight files of random networks: table, file, what is reused, what is refused."""

import json
import shutil

import pytest

from merope.cli.main import run
from merope.data.clips.generated import note_asked
from merope.evaluation.fidelity import read_fidelity
from tests.evaluation.fidelity.clips import write_real, write_run
from tests.evaluation.fidelity.networks import save_frames, save_i3d


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    root = tmp_path_factory.mktemp("fidelity")
    write_real(root / "real", count=5)
    write_run(root / "near", shift=5)
    write_run(root / "far", shift=60, seed=200)
    save_frames(root / "frames.pt")
    save_i3d(root / "i3d.pt")
    return root


def call(inputs, out, *runs, real="real", more=()):
    return run(
        [
            "fidelity",
            *(str(inputs / name) for name in runs),
            *("--real", str(inputs / real), "--out", str(out)),
            *("--fid-features", "torchscript", "--fid-weights", str(inputs / "frames.pt")),
            *("--fvd-weights", str(inputs / "i3d.pt"), *map(str, more)),
        ]
    )


def test_the_table_has_every_run_and_the_protocol(inputs, tmp_path, capsys):
    assert call(inputs, tmp_path, "near", "far", more=("--allow-small",)) == 0
    text = capsys.readouterr().out
    for word in (
        "clips were given 3 frames; the first 3 of every clip do not count",
        "distance from real",
        "near: 5 clips compared",
        "50 generated and 50 real frames of 5 clips each, T = 10",
        "FVD: protocol custom; 5 generated and 5 real videos",
        "i3d.pt, not the usual file, sha256",
        "rank-deficient, 5 samples for 5 features",
    ):
        assert word in text
    metrics = read_fidelity(tmp_path)
    for name in ("fid", "kid", "fvd", "kvd"):
        assert metrics["near"][name].value < metrics["far"][name].value
        assert metrics["near"][name].unit == "1"


def test_an_added_run_computes_its_own_clips_alone_to_the_same_digits(inputs, tmp_path):
    assert call(inputs, tmp_path, "near", more=("--measures", "fid", "kid")) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "features").rglob("*.npy")}
    alone = read_fidelity(tmp_path)["near"]
    assert call(inputs, tmp_path, "near", "far", more=("--measures", "fid", "kid", "--workers", "5")) == 0
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "features").rglob("*.npy")}
    assert read_fidelity(tmp_path)["near"] == alone
    assert before.items() <= after.items() and len(after) == len(before) + 5


def test_json_is_the_file(inputs, tmp_path, capsys):
    assert call(inputs, tmp_path, "near", more=("--measures", "kvd", "--json", "--labels", "mine")) == 0
    text = capsys.readouterr().out
    assert text == (tmp_path / "fidelity.json").read_text()
    content = json.loads(text)
    assert content["results"][0]["label"] == "mine"
    assert list(content["results"][0]["scores"]) == ["kvd"]


def test_another_reader_and_another_resize_are_stated(inputs, tmp_path, capsys):
    more = (
        "--measures",
        "fvd",
        "--allow-small",
        "--resize",
        "bilinear",
        "--antialias",
        "--exclude-prefix",
        "3",
    )
    assert call(inputs, tmp_path, "near", more=more) == 0
    text = capsys.readouterr().out
    assert "resized to 224 x 224, bilinear, antialiased, rounded to uint8" in text
    assert "rescale=False, resize=False" in text
    assert "clips were given" not in text


def test_clips_that_were_asked_for_and_are_not_there_are_named(inputs, tmp_path, capsys):
    shutil.copytree(inputs / "near", tmp_path / "near")
    note_asked(tmp_path / "near", ["c77/original", "c00/original"])
    shutil.copytree(inputs / "real", tmp_path / "real")
    (tmp_path / "real" / "c01" / "poses.json").write_text("{")
    arguments = ["fidelity", str(tmp_path / "near"), "--real", str(tmp_path / "real"), "--out", str(tmp_path)]
    arguments += ["--fvd-features", "none", "--fid-features", "torchscript"]
    arguments += ["--fid-weights", str(inputs / "frames.pt")]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "near: 4 clips compared; 1 not taken: c04/original; 1 missing: c77/original" in text
    assert "real clip that cannot be opened: real/c01" in text
    assert run([*arguments, "--clips", "5"]) == 1
    assert "takes 5 clips of each set; there are 4 of real (missing: real/c01" in capsys.readouterr().err


def test_the_preset_refuses_clips_of_other_lengths_and_numbers(inputs, tmp_path, capsys):
    assert call(inputs, tmp_path, "near", more=("--preset", "nuscenes-512")) == 1
    assert "'nuscenes-512' takes 512 clips of each set" in capsys.readouterr().err
    assert call(inputs, tmp_path, "near", more=("--preset", "nuscenes-512", "--allow-fewer")) == 1
    assert "takes exactly 40" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--preset", "nuscenes-512", "--frames", "40"), "drop --exclude-prefix, --frames"),
        (("--antialias",), "go with --resize MODE"),
        (("--labels", "a", "b"), "1 runs, 2 labels"),
        (("--measures", "kid", "--fid-features", "none"), "no distance is left"),
        (("--workers", "0"), "--workers must be at least 1"),
        (("--frames", "0"), "num_frames must be at least 1"),
        (("--clips", "1"), "num_clips must be at least 2"),
        (("--kernel-subsets", "3", "--kernel-subset-size", "1"), "kernel_subset_size must be at least 2"),
        (("--resize", "area", "--antialias"), "antialias goes with bilinear"),
        (("--resize", "area", "--resize-height", "9"), "height and width belong together"),
    ],
)
def test_flags_that_contradict_each_other_are_usage_errors(inputs, tmp_path, capsys, more, words):
    assert call(inputs, tmp_path, "near", more=more) == 2
    assert words in capsys.readouterr().err


def test_runs_of_one_name_are_a_usage_error(inputs, tmp_path, capsys):
    assert call(inputs, tmp_path, "near", "near") == 2
    assert "two runs would be called 'near'" in capsys.readouterr().err


def test_no_run_is_a_usage_error(inputs, tmp_path, capsys):
    assert call(inputs, tmp_path) == 2
    assert "at least one folder" in capsys.readouterr().err


def test_missing_weights_name_file_size_hash_and_flag(inputs, tmp_path, capsys):
    arguments = ["fidelity", str(inputs / "near"), "--real", str(inputs / "real"), "--out", str(tmp_path)]
    assert run([*arguments, "--measures", "fvd"]) == 1
    message = capsys.readouterr().err
    for word in ("i3d_torchscript.pt", "51235320 bytes", "sha256 bec6519f", "--fvd-weights PATH"):
        assert word in message
