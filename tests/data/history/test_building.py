"""Making an index: poses of any clips, whole or not at all, each broken clip named, and images that are still those."""

import json

import numpy as np
import pytest

from merope.cameras import Pinhole
from merope.data.history import (
    HistoryError,
    HistoryIndex,
    IndexOptions,
    QueryPath,
    Search,
    add_to_index,
    write_shard,
)
from merope.data.poses.files import read_poses, read_times, write_poses
from merope.files import only_process
from tests.support.history import PINHOLE, clip_rows, grey_clip, straight_drive
from tests.support.nuscenes import write_nuscenes_root
from tests.support.shared import shared_file


def test_clips_are_indexed_once_and_their_images_come_back(tmp_path):
    root, index = tmp_path / "clips", tmp_path / "index"
    grey_clip(root, "a")
    grey_clip(root, "b", 1.0)
    report = add_to_index(index, [root])
    assert (report.clips, report.frames, report.there, report.skipped) == (2, 12, 0, ())
    grey_clip(root, "c", 3.0)
    report = add_to_index(index, [root])
    assert (report.clips, report.frames, report.there) == (1, 6, 2)
    opened = HistoryIndex.open(index)
    assert len(opened) == 18 and opened.worlds == {"w": 18}
    hits = opened.query(opened.path_of("s", "a"), Search(k=2))
    wanted = [*hits[4], *hits[1]]
    frames = opened.frames(*wanted)
    assert [frame.hit for frame in frames] == wanted
    assert [int(frame.image[0, 0, 0]) for frame in frames] == [41, 43, 11, 13]
    assert frames[0].image.shape == (36, 64, 3) and frames[0].lens == PINHOLE
    np.testing.assert_allclose(frames[1].hit.offset_query, [3, 0, 0], atol=1e-9)
    assert opened.frames() == ()


def test_every_nth_frame_keeps_its_number_and_time(tmp_path):
    grey_clip(tmp_path / "clips", "a")
    grey_clip(tmp_path / "clips", "b", 1.0)
    add_to_index(tmp_path / "index", [tmp_path / "clips"], IndexOptions(every=2))
    opened = HistoryIndex.open(tmp_path / "index")
    path = opened.path_of("s", "a")
    assert path.poses.times.tolist() == [0.0, 0.5, 1.0]
    hit = opened.query(path)[2][0]
    assert (hit.frame, hit.time) == (4, 1.0) and int(opened.frames(hit)[0].image[0, 0, 0]) == 41


def test_what_cannot_be_indexed_costs_itself_alone(tmp_path):
    root = tmp_path / "clips"
    grey_clip(root, "fine")
    grey_clip(root, "no-world", world=None)
    grey_clip(root, "odd-world", world=7)
    grey_clip(root, "no-unit", unit="unknown")
    grey_clip(root, "damaged")
    (root / "damaged" / "poses.json").write_text("{")
    report = add_to_index(tmp_path / "index", [root])
    assert report.clips == 1
    said = {error.clip_id: str(error) for error in report.skipped}
    assert set(said) == {"no-world", "odd-world", "no-unit", "damaged"}
    assert "--world NAME" in said["no-world"] and "is 7 and no text" in said["odd-world"]
    assert "unit 'unknown'" in said["no-unit"]
    named = add_to_index(tmp_path / "index", [root], IndexOptions(world="w"))
    assert (named.clips, named.there, len(named.skipped)) == (2, 1, 2)
    grey_clip(tmp_path / "only", "no-world", world=None)
    with pytest.raises(HistoryError, match=r"nothing to index\. s/no-world: nothing says"):
        add_to_index(tmp_path / "new", [tmp_path / "only"])


def test_an_index_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("merope.data.history.shards.json.dumps", fails)
    with pytest.raises(OSError, match="No space left"):
        write_shard(tmp_path / "index", [clip_rows("a", np.zeros((3, 3)))], [])
    monkeypatch.undo()
    monkeypatch.setattr(np, "save", fails)
    with pytest.raises(OSError, match="No space left"):
        write_shard(tmp_path / "index", [clip_rows("a", np.zeros((3, 3)))], [])
    assert not (tmp_path / "index").exists() or list((tmp_path / "index").iterdir()) == []
    with pytest.raises(HistoryError, match="holds no index"):
        HistoryIndex.open(tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("center_world.npy", lambda content: content[:-40]),
        ("clip.npy", lambda content: b""),
        ("world.npy", lambda content: b"\x80\x04N."),
        ("shard.json", lambda content: content.replace(b'"rows": 4', b'"rows": 5')),
        ("shard.json", lambda content: content[:30]),
        ("shard.json", lambda content: b"[]"),
        ("time.npy", None),
    ],
)
def test_a_damaged_part_is_named(tmp_path, name, damage):
    folder = write_shard(tmp_path, [clip_rows("a", np.zeros((4, 3)))], [])
    content = (folder / name).read_bytes()
    (folder / name).unlink() if damage is None else (folder / name).write_bytes(damage(content))
    with pytest.raises(HistoryError, match="shard-000000 is a damaged part of an index"):
        HistoryIndex.open(tmp_path)


@pytest.mark.parametrize("values", [[np.nan, 0, 0], [np.inf, 0, 0]])
def test_numbers_that_are_none_are_found_when_they_are_used(tmp_path, values):
    folder = write_shard(tmp_path, [clip_rows("a", np.zeros((4, 3))), clip_rows("b", np.ones((4, 3)))], [])
    centers = np.load(folder / "center_world.npy")
    centers[6] = values
    np.save(folder / "center_world.npy", centers)
    index = HistoryIndex.open(tmp_path)
    with pytest.raises(HistoryError, match="damaged part"):
        index.query(index.path_of("s", "a"))


def test_only_one_process_adds_at_a_time_and_other_folders_are_left_alone(tmp_path):
    grey_clip(tmp_path / "clips", "a")
    with pytest.raises(HistoryError, match=r"holds other things \(a\)"):
        add_to_index(tmp_path / "clips", [tmp_path / "clips"])
    (tmp_path / "index").mkdir()
    with (
        only_process(tmp_path / "index" / ".lock"),
        pytest.raises(HistoryError, match="another process is adding"),
    ):
        add_to_index(tmp_path / "index", [tmp_path / "clips"])
    assert add_to_index(tmp_path / "index", [tmp_path / "clips"]).clips == 1


def test_what_a_killed_process_left_behind_goes_with_the_next(tmp_path):
    grey_clip(tmp_path / "clips", "a")
    left_over = tmp_path / "index" / ".shard-000000.0123abcd.tmp"
    left_over.mkdir(parents=True)
    (left_over / "frame.npy").write_bytes(b"half")
    assert add_to_index(tmp_path / "index", [tmp_path / "clips"]).clips == 1
    assert not left_over.exists() and len(HistoryIndex.open(tmp_path / "index")) == 6


def test_pose_files_are_clips_without_images(tmp_path):
    for name, x in (("one", 0.0), ("two", 2.0)):
        write_poses(tmp_path / f"{name}.json", straight_drive(x), format="merope", camera=PINHOLE.to_dict())
        write_poses(tmp_path / f"{name}.txt", straight_drive(x), format="tum")
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    add_to_index(tmp_path / "index", files, IndexOptions(format="merope", world="w", source="s"))
    opened = HistoryIndex.open(tmp_path / "index")
    hit = opened.query(opened.path_of("s", "one"))[3][0]
    assert (hit.clip_id, hit.frame) == ("two", 3)
    with pytest.raises(HistoryError, match="poses alone and has no frames"):
        opened.frames(hit)
    tum = [tmp_path / "one.txt"]
    with pytest.raises(HistoryError, match=r"does not say which world.*--world"):
        add_to_index(tmp_path / "other", tum, IndexOptions(format="tum"))
    with pytest.raises(HistoryError, match=r"has no lens.*--lens"):
        add_to_index(tmp_path / "other", tum, IndexOptions(format="tum", world="w"))
    assert (
        add_to_index(tmp_path / "other", tum, IndexOptions(format="tum", world="w", lens=PINHOLE)).clips == 1
    )


def test_no_time_is_made_up_for_poses_without(tmp_path):
    write_poses(tmp_path / "bare.txt", straight_drive(), format="kitti")
    options = IndexOptions(format="kitti", world="w", lens=PINHOLE, source="s", traversal="drive")
    add_to_index(tmp_path / "index", [tmp_path / "bare.txt"], options)
    index = HistoryIndex.open(tmp_path / "index")
    path = index.path_of("s", "bare")
    assert path.poses.times is None and index.query(path).counts.sum() == 0
    other = QueryPath(poses=straight_drive(), lens=PINHOLE, world="w", traversal="drive")
    hits = index.query(other, Search(min_time_apart=0.0))
    assert hits.counts.sum() == 6 and np.isnan(hits[0][0].time)
    # None of its frames is known to be far enough from another.
    assert index.query(other, Search(min_time_apart=0.1)).counts.sum() == 0


def test_kitti_comes_back_to_its_own_streets(tmp_path):
    poses = shared_file("data/kitti_odom/poses/00.txt")
    times = read_times(shared_file("data/kitti_odom/times_00.txt"))
    drive = read_poses(poses, format="kitti", times=times)
    write_poses(tmp_path / "00.txt", drive, format="tum")
    lens = Pinhole(fx=718.9, fy=718.9, cx=607.2, cy=185.2, width=1241, height=376, pixel_origin="center")
    options = IndexOptions(format="tum", world="kitti/00", lens=lens, source="kitti", traversal="00")
    add_to_index(tmp_path / "index", [tmp_path / "00.txt"], options)
    index = HistoryIndex.open(tmp_path / "index")
    path = QueryPath(poses=drive, lens=lens, world="kitti/00", traversal="00").every(50)
    hits = index.query(path, Search(k=1, max_angle_deg=20.0, min_time_apart=30.0))
    centers, axes = drive.center_world.numpy(), drive.R_world_cam[:, :, 2].numpy()
    for query in range(len(path)):
        here = 50 * query
        near = np.linalg.norm(centers - centers[here], axis=1) <= 10.0
        alike = axes @ axes[here] >= np.cos(np.radians(20.0))
        again = near & alike & (np.abs(times.numpy() - float(times[here])) >= 30.0)
        assert (len(hits[query]) == 1) == again.any()
    assert len(path) == 91 and hits.counts.sum() == 34
    assert np.median(hits.distance[hits.row >= 0]) < 1.0


def test_clips_that_have_changed_since_are_not_taken_for_what_was_found(tmp_path):
    root = tmp_path / "clips"
    for name, x in (("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0)):
        grey_clip(root, name, x)
    add_to_index(tmp_path / "index", [root])
    opened = HistoryIndex.open(tmp_path / "index")
    by_name = {hit.clip_id: hit for hit in opened.query(opened.path_of("s", "a"))[5]}
    write_poses(root / "b" / "poses.json", straight_drive(1.001), format="merope", camera=PINHOLE.to_dict())
    with pytest.raises(HistoryError, match=r"s/b is not what was indexed: frame 5 is 0\.001 m elsewhere"):
        opened.frames(by_name["b"])
    lens = json.loads((root / "c" / "lens.json").read_text())
    (root / "c" / "lens.json").write_text(json.dumps(lens | {"fx": 41.0}))
    with pytest.raises(HistoryError, match="its lens is another"):
        opened.frames(by_name["c"])
    (root / "d").rename(root / "e")
    with pytest.raises(HistoryError, match="no clip of this name any more"):
        HistoryIndex.open(tmp_path / "index").frames(by_name["d"])
    root.rename(tmp_path / "moved")
    with pytest.raises(HistoryError, match="roots="):
        HistoryIndex.open(tmp_path / "index").frames(by_name["b"])


def test_data_that_has_moved_is_found_where_it_is_now(tmp_path):
    grey_clip(tmp_path / "clips", "a")
    grey_clip(tmp_path / "clips", "b", 1.0)
    add_to_index(tmp_path / "index", [tmp_path / "clips"])
    (tmp_path / "clips").rename(tmp_path / "moved")
    opened = HistoryIndex.open(
        tmp_path / "index", roots={str((tmp_path / "clips").resolve()): tmp_path / "moved"}
    )
    hit = opened.query(opened.path_of("s", "a"))[2][0]
    assert int(opened.frames(hit)[0].image[0, 0, 0]) == 21


def test_nuscenes_says_its_map_and_its_drive(tmp_path):
    tables = write_nuscenes_root(tmp_path / "data", scenes=("scene-0001", "scene-0002", "scene-0003"))
    scenes = json.loads((tables / "scene.json").read_text())
    for number, scene in enumerate(scenes):
        scene["log_token"] = f"log-{min(number, 1)}"
    (tables / "scene.json").write_text(json.dumps(scenes))
    logs = [{"token": f"log-{n}", "logfile": f"n008-{n}", "location": "boston-seaport"} for n in range(2)]
    (tables / "log.json").write_text(json.dumps(logs))
    add_to_index(tmp_path / "index", [tmp_path / "data"], IndexOptions(reader="nuscenes"))
    opened = HistoryIndex.open(tmp_path / "index")
    assert list(opened.worlds) == ["nuscenes/boston-seaport"]
    # All scenes of this data set take the same way; two are of one drive.
    path = opened.path_of("nuscenes", "scene-0002_CAM_FRONT")
    assert path.traversal == "n008-1"
    hits = opened.query(path, Search(min_overlap=0.0))
    assert [hit.clip_id for hit in hits[5]] == ["scene-0001_CAM_FRONT"]
    window = QueryPath(poses=path.poses[4:8], lens=path.lens, clip=("nuscenes", "scene-0002_CAM_FRONT@00004"))
    assert [hit.clip_id for hit in opened.query(window)[1]] == ["scene-0001_CAM_FRONT"]
    assert opened.frames(*hits[5])[0].image.shape == (36, 64, 3)
