"""Files and folders appear whole or not at all."""

import shutil

import pytest

from merope.files import atomic_folder, atomic_path


def test_a_folder_appears_when_its_block_is_done(tmp_path):
    with atomic_folder(tmp_path / "deep" / "new") as folder:
        (folder / "file").write_text("whole")
        assert not (tmp_path / "deep" / "new").exists()
    assert (tmp_path / "deep" / "new" / "file").read_text() == "whole"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    def fail():
        with atomic_folder(tmp_path / "new") as folder:
            (folder / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not any(tmp_path.iterdir())


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path):
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty") as folder:
        (folder / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="choose another"), atomic_folder(tmp_path / "empty"):
        pass
    assert (tmp_path / "empty" / "file").read_text() == "mine"


def test_processes_with_equal_ids_write_beside_each_other(tmp_path, monkeypatch):
    # Containers that share a file system, or start again after a kill, give the same ids.
    monkeypatch.setattr("os.getpid", lambda: 7)
    with atomic_folder(tmp_path / "new") as killed:
        with atomic_folder(tmp_path / "new") as folder:
            assert folder != killed
            (folder / "file").write_text("whole")
        shutil.rmtree(tmp_path / "new")
    with atomic_path(tmp_path / "text") as one, atomic_path(tmp_path / "text") as other:
        for path in (one, other):
            path.write_text("equal")
    assert (tmp_path / "text").read_text() == "equal"
