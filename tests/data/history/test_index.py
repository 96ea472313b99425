"""Searching an index of frames: exactly what looking at every frame finds, and never across worlds, clips or drives."""

import math
import pickle

import numpy as np
import pytest
import torch

from merope.data.history import HistoryError, HistoryIndex, QueryPath, Search, write_shard
from merope.errors import MissingDependency
from merope.geometry.poses import Poses
from merope.geometry.rotations import quaternion_to_matrix
from tests.support.history import FISHEYE, PINHOLE, brute_force, city, clip_rows

FAR = (6.4e6, 0.0, -6.4e6)


def straight(x=0.0, *, count=8, step=1.0):
    """Centres along z at this x."""
    return np.stack([np.full(count, x), np.zeros(count), step * np.arange(count)], axis=1)


def found(hits, query):
    return [(hit.source, hit.clip_id, hit.frame) for hit in hits[query]]


@pytest.fixture(scope="module")
def two_worlds(tmp_path_factory):
    """An index of two shards and two worlds 6 400 km from the origin, with frames in the same places in both worlds."""
    root = tmp_path_factory.mktemp("index")
    shards = []
    for number in range(2):
        clips = [
            *city(number, 20, origin=FAR, world="north", prefix=f"n{number}"),
            *city(number, 10, origin=FAR, world="south", prefix=f"s{number}"),
        ]
        write_shard(root, clips[::-1] if number else clips, [])
        # The order of the index: by world, else as they were given.
        shards += sorted(clips[::-1] if number else clips, key=lambda clip: clip.world)
    return HistoryIndex.open(root), shards


SEARCHES = {
    "the usual": Search(),
    "all that is near": Search(
        k=50, max_distance=20.0, max_angle_deg=180.0, min_overlap=0.0, max_per_clip=50
    ),
    "few of each clip": Search(k=6, max_distance=15.0, max_angle_deg=90.0, min_overlap=0.4, max_per_clip=2),
    "overlap decides": Search(
        k=3, max_distance=25.0, max_angle_deg=180.0, min_overlap=0.6, depths=(3.0, 50.0)
    ),
    "the same drive later": Search(k=5, max_distance=15.0, max_angle_deg=120.0, min_time_apart=100.5),
    "the same drive at any time": Search(k=5, max_distance=15.0, max_angle_deg=120.0, min_time_apart=0.0),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_search_finds_exactly_what_looking_at_every_frame_finds(two_worlds, search):
    index, clips = two_worlds
    compared = 0
    for clip in clips[::13]:
        path = index.path_of(clip.source, clip.clip_id).every(5)
        assert path.world == clip.world and path.traversal == clip.traversal
        hits = index.query(path, search)
        expected = brute_force(clips, path, search, own_traversal=clip.traversal)
        for query, wanted in enumerate(expected):
            assert found(hits, query) == [each[:3] for each in wanted]
            for hit, (*_, distance, angle, overlap) in zip(hits[query], wanted, strict=True):
                assert hit.distance == pytest.approx(distance, abs=1e-9)
                assert hit.angle == pytest.approx(angle, abs=1e-7)
                assert hit.overlap == pytest.approx(overlap, abs=1e-12)
            compared += len(wanted)
    assert compared > 5


def test_relative_poses_keep_their_digits_far_from_the_origin(two_worlds):
    index, clips = two_worlds
    by_name = {clip.clip_id: clip for clip in clips}
    path = index.path_of("s", "n0-002")
    hits = index.query(path, Search(k=20, max_distance=20.0, max_angle_deg=180.0, min_overlap=0.0))
    assert hits.counts.sum() > 20
    for query in range(len(path)):
        for hit in hits[query]:
            clip = by_name[hit.clip_id]
            R_world_hit = quaternion_to_matrix(torch.from_numpy(clip.rotation_xyzw[hit.frame])).numpy()
            R_world_query = path.poses.R_world_cam[query].numpy()
            offset_world = clip.center_world[hit.frame] - path.poses.center_world[query].numpy()
            np.testing.assert_allclose(hit.offset_query, R_world_query.T @ offset_world, atol=1e-12)
            np.testing.assert_allclose(hit.R_query_hit, R_world_query.T @ R_world_hit, atol=1e-12)
            assert float(hit.time) == clip.time[hit.frame]
            assert np.linalg.norm(hit.offset_query) == pytest.approx(hit.distance, abs=1e-12)


def test_of_equal_frames_the_one_that_was_indexed_first_wins(tmp_path):
    centers = straight(1.0)
    write_shard(tmp_path, [clip_rows("b", centers), clip_rows("a", centers)], [])
    write_shard(tmp_path, [clip_rows("0", centers)], [])
    index = HistoryIndex.open(tmp_path)
    path = index.path_of("s", "a")
    assert [hit.clip_id for hit in index.query(path, Search(k=2))[3]] == ["b", "0"]
    assert [hit.clip_id for hit in index.query(path, Search(k=1))[3]] == ["b"]


def test_a_frame_on_the_bounds_counts(tmp_path):
    beside = clip_rows("beside", [[3.0, 0.0, 4.0]], yaw=math.radians(30))
    write_shard(tmp_path, [clip_rows("own", [[0.0, 0.0, 0.0]]), beside], [])
    index = HistoryIndex.open(tmp_path)
    path = index.path_of("s", "own")
    at_bound = {"min_overlap": 0.0, "max_angle_deg": 30.000001}
    assert len(index.query(path, Search(max_distance=5.0, **at_bound))[0]) == 1
    assert len(index.query(path, Search(max_distance=4.999999, **at_bound))[0]) == 0
    assert len(index.query(path, Search(max_distance=5.0, min_overlap=0.0, max_angle_deg=29.999999))[0]) == 0


def test_own_clip_its_windows_and_its_drive_are_no_history(tmp_path):
    write_shard(
        tmp_path,
        [
            clip_rows("drive_left", straight(), traversal="drive"),
            clip_rows("drive_front@00000", straight(), traversal="drive", time=50.0),
            clip_rows("other", straight(0.5)),
        ],
        [],
    )
    index = HistoryIndex.open(tmp_path)
    own = index.path_of("s", "drive_front@00000")
    window = QueryPath(poses=own.poses[2:4], lens=PINHOLE, clip=("s", "drive_front@00002"))
    assert found(index.query(window, Search()), 0) == [("s", "other", 2)]
    later = Search(min_time_apart=10.0)
    assert found(index.query(window, later), 0) == [("s", "drive_left", 2), ("s", "other", 2)]
    # Nobody says whose these poses are.
    stranger = QueryPath(poses=own.poses[2:4], lens=PINHOLE, world="w")
    assert len(index.query(stranger, Search())[0]) == 3
    named = QueryPath(poses=own.poses[2:4], lens=PINHOLE, world="w", traversal="drive")
    assert found(index.query(named, Search()), 0) == [("s", "other", 2)]


def test_the_rank_weighs_distance_and_angle_by_their_bounds(tmp_path):
    near_turned = clip_rows("near-turned", [[1.0, 0.0, 0.0]], yaw=math.radians(30))
    far_straight = clip_rows("far-straight", [[4.0, 0.0, 0.0]])
    write_shard(tmp_path, [clip_rows("own", [[0.0, 0.0, 0.0]]), near_turned, far_straight], [])
    index = HistoryIndex.open(tmp_path)
    path = index.path_of("s", "own")
    hits = index.query(path, Search(max_distance=10.0, max_angle_deg=45.0))
    assert [hit.clip_id for hit in hits[0]] == ["far-straight", "near-turned"]
    assert [hit.score for hit in hits[0]] == pytest.approx([0.4, 0.1 + 30 / 45])
    hits = index.query(path, Search(max_distance=5.0, max_angle_deg=180.0))
    assert [hit.clip_id for hit in hits[0]] == ["near-turned", "far-straight"]


def test_places_that_no_frame_fills_say_so(tmp_path):
    write_shard(tmp_path, [clip_rows("own", straight()), clip_rows("far", straight(1000.0))], [])
    index = HistoryIndex.open(tmp_path)
    hits = index.query(index.path_of("s", "own"), Search(k=3))
    assert len(hits) == 8 and hits[0] == () and hits.counts.tolist() == [0] * 8
    assert (hits.row == -1).all() and np.isinf(hits.distance).all() and (hits.overlap == 0).all()
    np.testing.assert_array_equal(hits.R_query_hit[0, 0], np.eye(3))


def test_a_car_that_stands_for_long_is_searched_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("merope.data.history.nearby._PAIRS", 64)
    standing = [clip_rows(f"stands-{number}", np.zeros((50, 3))) for number in range(3)]
    write_shard(tmp_path, [*standing, clip_rows("passes", straight(0.25, step=0.1))], [])
    index = HistoryIndex.open(tmp_path)
    hits = index.query(index.path_of("s", "passes"), Search(k=9, max_per_clip=2))
    for query in range(8):
        assert found(hits, query) == [("s", f"stands-{n}", frame) for n in range(3) for frame in (0, 1)]


def test_worlds_and_units_are_never_mixed(tmp_path):
    write_shard(tmp_path, [clip_rows("a", straight(), world="u"), clip_rows("b", straight(), world="v")], [])
    index = HistoryIndex.open(tmp_path)
    assert index.worlds == {"u": 8, "v": 8} and len(index) == 16 and index.num_clips == 2
    assert index.query(index.path_of("s", "a")).counts.sum() == 0
    poses = index.path_of("s", "a").poses
    with pytest.raises(HistoryError, match="no world 'w'; it has u, v"):
        index.query(QueryPath(poses=poses, lens=PINHOLE, world="w"))
    with pytest.raises(HistoryError, match="the index has no clip s/c, so nothing says which world"):
        index.query(QueryPath(poses=poses, lens=PINHOLE, clip=("s", "c")))
    with pytest.raises(HistoryError, match=r"which world the poses are in.*--world"):
        QueryPath(poses=poses, lens=PINHOLE)
    other = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world, unit="unknown")
    with pytest.raises(HistoryError, match=r"unit of the poses is 'unknown'.*--unit m"):
        QueryPath(poses=other, lens=PINHOLE, world="u")
    without_times = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world)
    with pytest.raises(HistoryError, match="told apart by their times"):
        index.query(QueryPath(poses=without_times, lens=PINHOLE, world="u"), Search(min_time_apart=5.0))


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        ({"k": 0}, "k and max_per_clip"),
        ({"max_distance": math.nan}, "max_distance must be positive"),
        ({"max_angle_deg": 0.0}, "max_angle_deg must be above 0"),
        ({"min_overlap": 1.1}, "min_overlap is a share"),
        ({"min_time_apart": -1.0}, "min_time_apart must be 0 s"),
        ({"depths": ()}, "depths must be positive"),
        ({"lateral": (6.0, 2.0)}, "the smaller one first"),
    ],
)
def test_bounds_without_meaning_are_refused(bound, says):
    with pytest.raises(ValueError, match=says):
        Search(**bound)


def test_an_index_goes_to_other_processes_as_its_path(tmp_path):
    write_shard(tmp_path, city(3, 12, origin=FAR, num_frames=200), [])
    index = HistoryIndex.open(tmp_path)
    path = index.path_of("s", "clip-001").every(50)
    hits = index.query(path)
    sent = pickle.dumps(index)
    assert len(sent) < 3000
    np.testing.assert_array_equal(pickle.loads(sent).query(path).row, hits.row)


def test_lenses_come_back_as_they_were(tmp_path):
    write_shard(tmp_path, [clip_rows("a", straight(), lens=FISHEYE), clip_rows("b", straight())], [])
    index = HistoryIndex.open(tmp_path)
    assert index.path_of("s", "a").lens == FISHEYE and index.path_of("s", "b").lens == PINHOLE


def test_without_scipy_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.spatial", None)
    with pytest.raises(MissingDependency, match="scipy"):
        HistoryIndex.open(tmp_path)
