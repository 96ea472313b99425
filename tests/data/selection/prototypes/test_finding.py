"""Groups of shapes, prototypes and the selection among them."""

import numpy as np
import pytest
import torch
from benchmarks.prototypes import drives
from threadpoolctl import threadpool_limits

from merope.data.selection.prototypes import PrototypeConfig, find_prototypes, select, with_variants
from merope.data.selection.prototypes.arc_length import path_extents, resample_paths
from merope.data.selection.prototypes.clusters import group_by_shape
from merope.data.selection.prototypes.frechet import frechet_distances
from merope.data.selection.sampling import BalancedSampler
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses


@pytest.fixture(scope="module")
def paths():
    return resample_paths(drives(1500, seed=7)[0], 25)


@pytest.fixture(scope="module")
def found(paths):
    return find_prototypes(paths, PrototypeConfig(num_groups=12))


def shaped(kind: str, scale: float) -> np.ndarray:
    along = np.linspace(0, 1, 49)
    side = {"straight": 0 * along, "left": -(along**2), "right": along**2, "up": 0 * along}[kind]
    height = -(along**2) if kind == "up" else 0 * along
    return scale * np.stack([side, height, along], axis=-1)


def test_shapes_are_grouped_whatever_their_size_and_static_paths_stay_apart():
    kinds = ["straight"] * 6 + ["left"] * 5 + ["right"] * 4 + ["up"] * 3
    scales = np.linspace(1.5, 90, 6)
    moving = [shaped(kind, scales[number % 6]) for number, kind in enumerate(kinds)]
    still = [0.01 * np.random.default_rng(0).normal(size=(49, 3)), np.zeros((49, 3))]
    groups = group_by_shape(resample_paths(np.stack(still + moving), 25), num_groups=4)
    np.testing.assert_array_equal(groups.labels, [-1, -1, *[0] * 6, *[1] * 5, *[2] * 4, *[3] * 3])
    np.testing.assert_array_equal(groups.sizes, [6, 5, 4, 3])
    assert (groups.distances < 1e-5).all()


def test_a_medoid_is_the_member_nearest_to_the_mean_and_the_first_of_equals(paths):
    groups = group_by_shape(paths, num_groups=6)
    for number, medoid in enumerate(groups.medoids):
        members = np.flatnonzero(groups.labels == number)
        shapes = (paths[members] / path_extents(paths[members])[:, None, None]).astype(np.float64)
        away = np.sqrt(((shapes - shapes.mean(axis=0)) ** 2).sum(axis=-1).mean(axis=-1))
        np.testing.assert_allclose(groups.distances[members], away, atol=1e-6)
        assert groups.distances[medoid] == groups.distances[members].min()
    twice = np.repeat(paths[:40], 2, axis=0)
    assert (group_by_shape(twice, num_groups=5).medoids % 2 == 0).all()


def test_fewer_shapes_than_groups_make_fewer_groups():
    same = resample_paths(np.stack([shaped("left", 20.0)] * 5 + [shaped("right", 20.0)] * 2), 25)
    groups = group_by_shape(same, num_groups=5)
    np.testing.assert_array_equal(groups.sizes, [5, 2])
    np.testing.assert_array_equal(groups.medoids, [0, 5])


def test_paths_that_all_stand_still_have_no_groups():
    groups = group_by_shape(np.zeros((3, 25, 3), dtype=np.float32))
    assert len(groups.medoids) == 0
    found = find_prototypes(np.zeros((3, 25, 3), dtype=np.float32), PrototypeConfig())
    assert found.labels() == ["static"] * 3
    assert len(found.kept) == 0


def test_every_path_is_within_the_threshold_of_its_prototype(paths, found):
    moving = np.flatnonzero(found.kept_by >= 0)
    stands_for = paths[found.kept[found.kept_by[moving]]]
    assert (frechet_distances(paths[moving], stands_for) <= 1).all()
    assert found.sizes.sum() == len(moving) == len(paths) - len(found.static)
    assert (found.sizes > 0).all()


def test_medoids_come_first_and_are_kept_unless_another_stands_for_them(paths, found):
    first = found.kept[: int(np.isin(found.medoids, found.kept).sum())]
    np.testing.assert_array_equal(first, found.medoids[np.isin(found.medoids, found.kept)])
    for medoid in found.medoids:
        assert medoid in found.kept or found.kept[found.kept_by[medoid]] in found.medoids


def test_static_paths_are_within_half_the_threshold_of_their_start(paths, found):
    still = np.zeros(len(paths), dtype=bool)
    still[found.static] = True
    np.testing.assert_array_equal(path_extents(paths) <= 0.5, still)
    assert len(found.static) > 10
    assert path_extents(paths[found.static[:1]]) == path_extents(paths[found.static]).min()
    assert {label for label, is_still in zip(found.labels(), still, strict=True) if is_still} == {"static"}
    assert {label for label, is_still in zip(found.group_labels(), still, strict=True) if is_still} == {
        "static"
    }


def test_the_sampler_draws_evenly_over_the_labels(found):
    sampler = BalancedSampler(found.group_labels(), seed=0)
    assert sampler.num_clusters == 1 + len(found.medoids)
    labels = np.array(found.group_labels())[sampler.batch(0, 10 * sampler.num_clusters)]
    assert set(np.unique(labels, return_counts=True)[1]) == {10}


def test_the_same_seed_gives_the_same_for_any_number_of_threads(paths, found):
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            again = find_prototypes(paths, PrototypeConfig(num_groups=12))
        for name in ("kept", "kept_by", "groups", "medoids", "static"):
            np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


def test_the_selection_covers_what_there_is(paths, found):
    prototypes = paths[found.kept]
    chosen = select(prototypes, count=24)
    assert len(set(chosen.tolist())) == 24
    np.testing.assert_array_equal(chosen, select(prototypes, count=24))

    def uncovered(rows):
        away = np.sqrt(((prototypes[:, None] - prototypes[None, rows]) ** 2).sum(-1).mean(-1))
        return away.min(axis=1).mean()

    random = [
        uncovered(np.random.default_rng(seed).choice(len(prototypes), 24, replace=False))
        for seed in range(20)
    ]
    assert uncovered(chosen) < min(random)


@pytest.mark.parametrize("count", [4, 10_000])
def test_more_than_there_are_cannot_be_selected(count):
    with pytest.raises(TrajectoryError, match=f"3 prototypes that move, and {count} are wanted"):
        select(np.zeros((3, 25, 3), dtype=np.float32), count=count)


def test_variants_stand_beside_the_original_and_are_named_where_they_fail():
    poses = Poses(R_world_cam=torch.eye(3).expand(4, 3, 3), center_world=torch.arange(12.0).reshape(4, 3))
    made = with_variants(poses, {"far": lambda drive: drive.scaled(2.0)})
    assert list(made) == ["original", "far"]
    assert made["original"] is poses
    assert made["far"].path_length == pytest.approx(2 * poses.path_length)

    def refuses(drive):
        raise TrajectoryError("too short")

    with pytest.raises(TrajectoryError, match="variant 'near': too short"):
        with_variants(poses, {"near": refuses})
    with pytest.raises(ValueError, match="names of their own"):
        with_variants(poses, {"original": lambda drive: drive})


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0.0}, {"threshold": np.nan}, {"num_groups": 0}, {"seed": -1}, {"still": -0.1}]
)
def test_a_wrong_configuration_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PrototypeConfig(**wrong)
