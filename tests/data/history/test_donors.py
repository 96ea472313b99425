"""Donors beside a path: in the neighbouring lane, looking the same way, one clip for a whole path, drawn by seed."""

import math

import numpy as np
import pytest
import torch

from merope.data.history import HistoryIndex, QueryPath, Search, donors, write_shard
from merope.data.history.paths import sideways
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from tests.support.history import PINHOLE, clip_rows

FAR = np.array([6.4e6, 0.0, -6.4e6])


def lane(x, *, z=0.0, count=10):
    """Centres along z, ``x`` metres to the right of the path, a metre apart."""
    return FAR + np.stack([np.full(count, x), np.zeros(count), z + np.arange(count)], axis=1)


def opened(root, clips):
    write_shard(root, clips, [])
    return HistoryIndex.open(root)


def names(hits):
    return {hit.clip_id for query in range(len(hits)) for hit in hits[query]}


def own():
    return clip_rows("own", lane(0.0))


def test_only_the_neighbouring_lane_gives_donors(tmp_path):
    index = opened(
        tmp_path,
        [
            own(),
            clip_rows("same-lane", lane(0.5)),
            clip_rows("beside", lane(-3.5)),
            clip_rows("beyond", lane(7.0)),
            clip_rows("oncoming", lane(-3.4), yaw=math.pi),
            clip_rows("crossing", lane(3.0), yaw=math.pi / 2),
        ],
    )
    path = index.path_of("s", "own")
    hits = donors(index, path)
    assert names(hits) == {"beside"} and hits.counts.tolist() == [1] * 10
    for query in range(10):
        (hit,) = hits[query]
        assert hit.frame == query and hit.distance == pytest.approx(3.5) and 0.25 <= hit.overlap < 1
        np.testing.assert_allclose(hit.offset_query, [-3.5, 0, 0], atol=1e-8)
    # The target and its command are what they were; what is found beside the path is not what is found on it.
    assert names(index.query(path, Search(k=1))) == {"same-lane"}
    assert names(donors(index, path, Search(k=1, lateral=(6.5, 8.0), max_angle_deg=20.0))) == {"beyond"}
    bounds = {"k": 1, "lateral": (2.0, 6.0), "max_angle_deg": 20.0, "max_distance": 4.0}
    assert names(donors(index, path, Search(**bounds))) == {"beside"}
    assert names(donors(index, path, Search(**bounds, min_overlap=0.99))) == set()


def test_lanes_are_beside_the_path_for_a_camera_that_looks_sideways(tmp_path):
    right = math.pi / 2
    index = opened(
        tmp_path,
        [
            clip_rows("own", lane(0.0), yaw=right),
            clip_rows("ahead", lane(0.0, z=4.0), yaw=right),
            clip_rows("beside", lane(-3.5), yaw=right),
        ],
    )
    assert names(donors(index, index.path_of("s", "own"))) == {"beside"}


def test_the_draw_depends_on_seed_and_names_alone(tmp_path):
    clips = [own(), *(clip_rows(f"lane-{number}", lane(2.5 + number / 4)) for number in range(6))]
    index = opened(tmp_path / "one", clips)
    write_shard(tmp_path / "other", clips[:0:-1], [])
    write_shard(tmp_path / "other", clips[:1], [])
    other = HistoryIndex.open(tmp_path / "other")
    path = index.path_of("s", "own")
    drawn = [names(donors(index, path, seed=seed)) for seed in range(12)]
    assert all(len(each) == 1 for each in drawn)
    assert len(set().union(*drawn)) > 3
    assert drawn == [names(donors(index, path, seed=seed)) for seed in range(12)]
    assert drawn == [names(donors(other, other.path_of("s", "own"), seed=seed)) for seed in range(12)]


def test_a_donor_serves_a_share_of_the_path(tmp_path):
    search = Search(k=1, lateral=(2.0, 6.0), max_angle_deg=20.0, max_distance=3.6)
    index = opened(tmp_path, [own(), clip_rows("starts-late", lane(3.5, z=6.0))])
    path = index.path_of("s", "own")
    assert donors(index, path, search).counts.sum() == 0
    hits = donors(index, path, search, min_share=0.4)
    assert hits.counts.tolist() == [0] * 6 + [1] * 4
    with pytest.raises(ValueError, match="min_share must be above 0"):
        donors(index, path, min_share=0.0)
    with pytest.raises(ValueError, match="search must have lateral bounds"):
        donors(index, path, Search())


def test_several_frames_of_the_donor_where_they_are_wanted(tmp_path):
    index = opened(tmp_path, [own(), clip_rows("beside", lane(3.0))])
    search = Search(k=3, max_per_clip=3, lateral=(2.0, 6.0), max_angle_deg=20.0)
    hits = donors(index, index.path_of("s", "own"), search)
    assert [hit.frame for hit in hits[5]] == [5, 4, 6]


def poses(centers, rotation=None):
    rotations = torch.eye(3, dtype=torch.float64) if rotation is None else rotation
    return Poses(
        R_world_cam=rotations.expand(len(centers), 3, 3),
        center_world=torch.tensor(centers, dtype=torch.float64),
    )


def test_a_path_that_stands_has_the_side_of_where_it_goes(tmp_path):
    standing = [[0.0, 0.0, 0.0]] * 4
    np.testing.assert_allclose(sideways(poses([*standing, [2.0, 0.0, 0.0]])), [[0, 0, -1]] * 5, atol=1e-12)
    np.testing.assert_allclose(sideways(poses([[0.0, 0.0, -2.0], *standing])), [[1, 0, 0]] * 5, atol=1e-12)
    # There and back: at the turning point the nearest direction stands in.
    there = sideways(poses([[0.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(np.abs(there), [[1, 0, 0]] * 3, atol=1e-12)
    with pytest.raises(TrajectoryError, match=r"moves by less than 0\.5 m"):
        sideways(poses(standing))
    with pytest.raises(TrajectoryError, match="straight up or down"):
        sideways(poses([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))
    index = opened(tmp_path, [own(), clip_rows("beside", lane(3.0))])
    with pytest.raises(TrajectoryError, match="nothing is to the side"):
        donors(index, QueryPath(poses=poses(standing), lens=PINHOLE, world="w"))


def test_the_side_of_a_drive_of_an_hour_takes_no_table_of_all_pairs_of_poses():
    there, parked = np.arange(0.0, 6_000.0, 0.1), np.full(2_000, 6_000.0)
    ahead = np.concatenate([there, parked, parked[0] + there])
    path = poses(np.stack([np.zeros_like(ahead), np.zeros_like(ahead), ahead], axis=1))
    np.testing.assert_allclose(sideways(path), np.broadcast_to([1.0, 0.0, 0.0], (len(ahead), 3)), atol=1e-12)
