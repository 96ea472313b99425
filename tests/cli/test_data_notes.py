"""What a reader left out is told by the commands that read data sets."""

from merope.cli.data.reader_options import tell_notes
from merope.cli.main import run
from merope.data.clips.folder import read_clip
from merope.data.datasets import open_dataset
from tests.support.nuscenes import write_nuscenes_root


def test_gaps_and_short_stretches_are_told(tmp_path, capsys):
    write_nuscenes_root(tmp_path / "in", count=14, dropped=(8,))
    options = ["frames=8", "height=18", "width=32"]
    arguments = [
        "data",
        "convert",
        str(tmp_path / "in"),
        "--reader",
        "nuscenes",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*arguments, *(part for option in options for part in ("--option", option))]) == 0
    told = capsys.readouterr().out
    assert "1 clips written" in told
    assert "note: scene-0061_CAM_FRONT: images 7 and 8 are 0.150 s apart" in told
    assert "note: scene-0061_CAM_FRONT@00008: left out, 5 images without a gap where a clip has 8" in told
    clip = read_clip(tmp_path / "out" / "scene-0061_CAM_FRONT@00000")
    assert (clip.lens.height, clip.lens.width, clip.fps, clip.unit) == (18, 32, 12.0, "m")
    assert clip.up_world == (0.0, 0.0, 1.0)


def test_many_notes_are_counted(tmp_path, capsys):
    scenes = tuple(f"scene-{number:04d}" for number in range(12))
    write_nuscenes_root(tmp_path, count=14, dropped=(8,), scenes=scenes, pictures=False)
    tell_notes([open_dataset("nuscenes", tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "note: 14 more like these (ClipSet.notes)"
