"""`merope worlds render`: flags arrive, the folder is one that `merope data` reads, and it goes on where it was."""

import json

import numpy as np

from merope.cameras import KannalaBrandt, Pinhole
from merope.cli.main import run
from merope.data.clips.folder import clip_ids, read_clip

SMALL = ["--height", "24", "--width", "32", "--frames", "4", "--turn-start", "1", "--samples", "1"]


def test_clips_are_rendered_as_asked_and_only_once(tmp_path, capsys):
    command = [
        "worlds",
        "render",
        "--out",
        str(tmp_path),
        "--fov",
        "100",
        "--fps",
        "8",
        "--seed",
        "5",
        *SMALL,
    ]
    assert run([*command, "--count", "1", "--depth"]) == 0
    assert "3 clips rendered, 0 were there" in capsys.readouterr().out
    assert clip_ids(tmp_path) == [f"world-0000005-{name}" for name in ("left", "original", "right")]
    clip = read_clip(tmp_path / "world-0000005-left")
    assert clip.lens == Pinhole.from_fov(fov_x_deg=100.0, height=24, width=32)
    assert (len(clip), clip.fps, clip.frames().shape) == (4, 8.0, (4, 24, 32, 3))
    assert np.isfinite(clip.depth()).any()
    assert clip.caption.startswith("View from a car")
    assert run([*command, "--count", "1", "--depth"]) == 0
    assert "0 clips rendered, 3 were there" in capsys.readouterr().out
    # Without depth these would be other clips.
    assert run([*command, "--count", "2"]) == 1
    assert "other values of depth" in capsys.readouterr().err


def test_a_fisheye_by_name(tmp_path, capsys):
    arguments = ["--count", "1", "--lens", "fisheye", "--fov", "180", "--out", str(tmp_path)]
    assert run(["worlds", "render", *arguments, *SMALL]) == 0
    described = json.loads((tmp_path / "render.json").read_text())
    assert described["lens"] == KannalaBrandt.from_fov(fov_x_deg=180.0, height=24, width=32).to_dict()
    assert run(["worlds", "render", "--count", "1", "--fov", "180", "--out", str(tmp_path / "no")]) == 1
    assert "fov_x_deg must be inside (0, 180) for a pinhole" in capsys.readouterr().err
