"""Where clips come from: generated folders, true clips, true frames beside generated ones; and folders of the wrong kind."""

import numpy as np
import pytest

from merope.data.clips.folder import write_clip as write_true_clip
from merope.data.clips.generated import not_generated, note_asked
from merope.data.clips.video import write_frames, write_video
from merope.errors import MeropeError
from merope.evaluation.runs.sources import generated_sources, generated_with, true_sources
from tests.evaluation.runs.clips import LENS, write_clip
from tests.evaluation.trajectories import turning


def test_frames_are_the_lossless_ones_with_lens_rate_and_given_frames(tmp_path):
    frames = write_clip(tmp_path, "a/one", fps=12.0)
    # What the mp4 shows plays no part.
    write_video(tmp_path / "a" / "one" / "video.mp4", np.zeros_like(frames[:, :20, :32]), fps=12)
    (source,) = generated_sources(tmp_path)
    assert np.array_equal(source.frames(), frames)
    assert (source.clip_id, source.lens, source.fps, source.first_generated) == ("a/one", LENS, 12.0, 5)
    assert generated_sources(tmp_path / "a" / "one")[0].clip_id == "a/one"


def test_a_hash_is_of_the_frames_alone(tmp_path):
    write_clip(tmp_path / "1", "a/one", fill=3)
    write_clip(tmp_path / "2", "b/two", fill=3, fps=20.0, poses=turning(9, turn_deg=5.0))
    write_clip(tmp_path / "3", "a/one", fill=4)
    one, two, three = (generated_sources(tmp_path / name)[0].frames_sha256() for name in "123")
    assert one == two != three


def test_no_given_frames_means_no_first_generated_one(tmp_path):
    write_clip(tmp_path, "a/one", prefix_frames=0)
    assert generated_sources(tmp_path)[0].first_generated is None


def test_settings_that_all_clips_share_are_told(tmp_path):
    write_clip(tmp_path, "a/one", model="m", steps=3)
    write_clip(tmp_path, "a/two", model="m", steps=4)
    told = generated_with(tmp_path)
    assert told["model"] == "m"
    assert "steps" not in told


def test_true_clips_are_sent_to_the_flag_for_them(tmp_path):
    frames = np.zeros((9, 20, 32, 3), np.uint8)
    write_true_clip(tmp_path, "x", frames, poses=turning(9), lens=LENS, fps=10.0, source="s")
    with pytest.raises(MeropeError, match=r"holds true clips.*--floor"):
        generated_sources(tmp_path)
    assert [source.clip_id for source in true_sources(tmp_path)] == ["x"]
    assert [source.clip_id for source in true_sources(tmp_path / "x")] == ["x"]


def test_true_frames_beside_generated_ones_serve_as_a_floor(tmp_path):
    shown = write_clip(tmp_path, "a/one")
    with pytest.raises(MeropeError, match=r"no true frames \(true_frames/"):
        true_sources(tmp_path)
    write_frames(tmp_path / "a" / "one" / "true_frames", 255 - shown)
    (source,) = true_sources(tmp_path)
    assert np.array_equal(source.frames(), 255 - shown)
    assert source.frames_sha256() != generated_sources(tmp_path)[0].frames_sha256()
    (tmp_path / "a" / "one" / "true_frames" / "frame_00008.png").unlink()
    with pytest.raises(MeropeError, match="true_frames holds 8 frames"):
        source.frames()


def test_clips_that_were_asked_for_and_never_made_are_known(tmp_path):
    write_clip(tmp_path, "a/left")
    note_asked(tmp_path, ["a/left", "a/right"])
    note_asked(tmp_path, ["b/left"])
    assert not_generated(tmp_path) == ["a/right", "b/left"]
    (tmp_path / "clips.json").write_text("{}")
    with pytest.raises(MeropeError, match="does not list clips"):
        not_generated(tmp_path)


def test_a_folder_without_clips_says_who_writes_them(tmp_path):
    with pytest.raises(MeropeError, match="`merope generate --out` writes them"):
        generated_sources(tmp_path)
