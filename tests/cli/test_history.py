"""`merope history index` and `query`: from folders of clips to a table of the frames near a path."""

import csv

import pytest

from merope.cli import main as entry
from merope.data.poses.files import write_poses
from tests.support.history import grey_clip, straight_drive


@pytest.fixture
def index(tmp_path, capsys):
    """An index of a path, a clip on its lane, one beside it, and one that does not say its world."""
    for name, x, world in (("own", 0.0, "w"), ("near", 0.5, "w"), ("beside", -3.5, "w"), ("lost", 1.0, None)):
        grey_clip(tmp_path / "clips", name, x, world=world)
    assert entry.run(["history", "index", str(tmp_path / "clips"), "--out", str(tmp_path / "index")]) == 0
    output = capsys.readouterr().out
    assert "left out: s/lost: nothing says which world" in output
    assert "18 frames of 3 clips added, 0 clips were there" in output
    assert "18 frames of 3 clips in 1 world" in output
    return str(tmp_path / "index")


def table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_query_by_a_clip_of_the_index(index, tmp_path, capsys):
    out = tmp_path / "hits.csv"
    assert (
        entry.run(
            ["history", "query", index, "--clip", "s/own", "--every", "2", "--k", "2", "--out", str(out)]
        )
        == 0
    )
    output = capsys.readouterr().out
    assert "6 frames for 3 of 3 poses" in output and "note" not in output
    rows = table(out)
    assert [(row["pose"], row["rank"], row["clip_id"], row["frame"]) for row in rows[:4]] == [
        *[("0", "0", "near", "0"), ("0", "1", "beside", "0")],
        *[("2", "0", "near", "2"), ("2", "1", "beside", "2")],
    ]
    assert [float(rows[1][name]) for name in ("distance_m", "angle_deg", "x_m", "z_m", "qx", "qw")] == (
        pytest.approx([3.5, 0.0, -3.5, 0.0, 0.0, 1.0], abs=1e-9)
    )


def test_query_for_donors(index, tmp_path, capsys):
    out = tmp_path / "donors.csv"
    arguments = ["history", "query", index, "--clip", "s/own", "--donors", "--out", str(out)]
    assert entry.run(arguments) == 0
    assert {row["clip_id"] for row in table(out)} == {"beside"} and len(table(out)) == 6
    assert entry.run([*arguments, "--lateral", "0.2", "1.0"]) == 0
    assert {row["clip_id"] for row in table(out)} == {"near"}
    assert entry.run([*arguments, "--min-share", "0"]) == 1
    assert "min_share must be above 0" in capsys.readouterr().err


def test_query_by_a_pose_file(index, tmp_path, capsys):
    poses = tmp_path / "path.txt"
    write_poses(poses, straight_drive(), format="tum")
    lens = tmp_path / "clips" / "own" / "lens.json"
    arguments = ["history", "query", index, "--poses", str(poses), "--format", "tum", "--lens", str(lens)]
    assert entry.run(arguments) == 1
    assert "--world" in capsys.readouterr().err
    assert entry.run([*arguments, "--world", "w", "--k", "9"]) == 0
    output = capsys.readouterr().out
    assert "note: nothing says which frames are of the path's own drive" in output and "s/own 3" in output
    assert entry.run([*arguments, "--clip", "s/own@00000", "--k", "9"]) == 0
    output = capsys.readouterr().out
    assert "note" not in output and "s/own" not in output and "s/near 3" in output
    assert entry.run([*arguments[:-2], "--world", "w"]) == 1
    assert "has no lens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the path: --poses FILE --format FORMAT, or --clip"),
        (["--clip", "own"], "--clip is SOURCE/CLIP_ID"),
        (["--poses", "x.txt", "--world", "w"], "--format is missing"),
    ],
)
def test_a_query_without_a_path_is_a_wrong_command_line(index, capsys, arguments, says):
    assert entry.run(["history", "query", index, *arguments]) == 2
    assert says in capsys.readouterr().err


def test_angles_of_zero_are_not_taken_for_left_out(index, capsys):
    assert entry.run(["history", "query", index, "--clip", "s/own", "--angle-deg", "0"]) == 1
    assert "max_angle_deg must be above 0" in capsys.readouterr().err


def test_pose_files_are_indexed_with_a_lens(tmp_path, capsys):
    poses = tmp_path / "path.txt"
    write_poses(poses, straight_drive(), format="tum")
    grey_clip(tmp_path / "clips", "own")
    arguments = ["history", "index", str(poses), "--out", str(tmp_path / "index"), "--world", "w"]
    lens = tmp_path / "clips" / "own" / "lens.json"
    assert entry.run([*arguments, "--format", "tum", "--lens", str(lens)]) == 0
    assert "6 frames of 1 clips" in capsys.readouterr().out
    assert entry.run([*arguments, "--lens", str(lens)]) == 2
    assert "--lens is for pose files" in capsys.readouterr().err
    assert entry.run(["history", "index", "--out", str(tmp_path / "index")]) == 2
