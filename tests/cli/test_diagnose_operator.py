"""`merope diagnose operator`: what it prints, what it draws, and how it ends."""

import json

import pytest

from merope.cli.main import run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_by_default_the_two_ray_frames_and_the_geometry_are_drawn(tmp_path, capsys):
    assert run(["diagnose", "operator", "--output", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "geometry.png",
        "operator-merope.png",
        "operator-ucpe.png",
        "ray-frames.png",
    ]
    printed = capsys.readouterr().out
    assert "merope: norm ratios 1 to 1" in printed
    assert " 72 -  95  trans      12 blocks of 2 x 2, per query camera" in printed
    assert "ray-frames.png" in printed


def test_json_has_bands_and_files(tmp_path, capsys):
    assert run(["diagnose", "operator", "--encoding", "gta", "--output", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gta"]["pictures"] == ["operator-gta.png"]
    assert [band["name"] for band in found["gta"]["bands"]] == ["pose", "image"]
    assert found["gta"]["norm_ratio_max"] > 2


def test_of_added_features_no_norm_ratio_is_shown(tmp_path, capsys):
    assert run(["diagnose", "operator", "--encoding", "cameractrl", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "cameractrl: 6 features of the camera are added to q and k" in printed
    assert "norm ratios" not in printed


def test_cameras_on_one_spot_have_a_matrix_where_no_geometry_is_drawn(tmp_path, capsys):
    spot = ["--offset", "0", "0", "0", "--output", str(tmp_path)]
    assert run(["diagnose", "operator", "--encoding", "ucpe", *spot]) == 0
    assert "ucpe: norm ratios" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["operator-ucpe.png", "ray-frames.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encoding", "merop"], "Did you mean 'merope'?"),
        (["--offset", "0", "0", "0"], "the two cameras coincide"),
        (["--encoding"], "--encoding must name at least one"),
        (["--offset", "nan", "0", "1"], "--offset must lie within 1e+06 m"),
        (["--offset", "1e300", "0", "1"], "--offset must lie within 1e+06 m"),
        (["--yaw-deg", "inf"], "--yaw-deg be finite"),
        (["--key-token", "99"], "key_token must lie in 0 ... 14"),
        (["--encoding", "gta", "--query-token", "-1"], "query_token must lie in 0 ... 14"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_no_file(arguments, message, tmp_path, capsys):
    assert run(["diagnose", "operator", *arguments, "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("merope diagnose operator: ")
    assert message in error
    assert not (tmp_path / "out").exists()
