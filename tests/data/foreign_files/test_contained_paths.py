"""Names that files hold stay in their folder, whatever they are made of; and what is no file is never opened."""

import os

import pytest

from merope.data.clips.video import read_header, read_pictures
from merope.data.datasets import open_dataset
from merope.data.datasets.folder import FolderSet
from merope.data.foreign_files.contained_paths import below, inside
from merope.errors import MeropeError
from merope.files import require_file
from tests.support.nuscenes import write_nuscenes_root

OUT = (
    "../x.jpg",
    "a/../../x.jpg",
    "/etc/passwd",
    "..\\x.jpg",
    "C:\\x.jpg",
    "C:/x.jpg",
    "",
    ".",
    "a\0b",
    "..",
)


@pytest.mark.parametrize("name", OUT)
def test_names_that_lead_out_are_refused(tmp_path, name):
    for function in (below, inside):
        with pytest.raises(MeropeError, match="leads out of the folder"):
            function(tmp_path, name)


def test_links_that_lead_out_are_refused_and_others_are_not(tmp_path):
    for name in ("root/own", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root/own/out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/out").symlink_to(tmp_path / "root")
    (tmp_path / "root/disk").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "secret").write_text("")
    (tmp_path / "root/file").symlink_to(tmp_path / "secret")
    (tmp_path / "root/in").symlink_to(tmp_path / "root/own")
    (tmp_path / "again").symlink_to(tmp_path / "root")
    assert inside(tmp_path / "root", "in/x.jpg") == tmp_path / "root/in/x.jpg"
    assert inside(tmp_path / "again", "own/x.jpg") == tmp_path / "again/own/x.jpg"
    # A whole folder on another disk is the user's own doing, and is then the limit itself.
    assert inside(tmp_path / "root", "disk/x.jpg") == tmp_path / "root/disk/x.jpg"
    for name in ("own/out/x.jpg", "disk/out/x.jpg", "file"):
        with pytest.raises(MeropeError, match="leads through a link out of"):
            inside(tmp_path / "root", name)
        assert below(tmp_path / "root", name) == tmp_path / "root" / name


def test_pipes_and_devices_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        for read in (require_file, read_header, lambda path: read_pictures([path])):
            with pytest.raises(
                (OSError, MeropeError), match=f"not a file but a pipe.*{name}|{name}.*not a file"
            ):
                read(tmp_path / name)


def test_a_clip_outside_a_folder_of_clips_is_not_opened(tmp_path):
    clips = FolderSet(source="a", ids=("../b",), root=tmp_path)
    with pytest.raises(MeropeError, match="leads out of the folder"):
        clips[0]


def test_nuscenes_images_may_be_on_another_disk_but_not_behind_a_link_within(tmp_path):
    root = tmp_path / "nuscenes"
    write_nuscenes_root(root, count=4)
    (root / "samples").rename(tmp_path / "samples")
    (root / "samples").symlink_to(tmp_path / "samples")
    clips = open_dataset("nuscenes", root)
    clips[0]
    channel = next((tmp_path / "samples").iterdir())
    channel.rename(tmp_path / "elsewhere")
    channel.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MeropeError, match=r"samples/.*leads through a link out of"):
        open_dataset("nuscenes", root)[0]
