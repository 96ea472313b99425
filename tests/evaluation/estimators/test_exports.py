"""The folder of estimators offers each of them by name, and loads none before it is used."""

import pytest

from merope.evaluation import PoseEstimator, estimators
from tests.support.fresh_python import run_python

CLASSES = [name for name in estimators.__all__ if name.endswith("Estimator")]


def test_every_named_estimator_is_offered_as_a_class():
    assert {entry.home.partition(":")[2] for entry in estimators.ESTIMATORS.values()} <= set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_estimator_can_be_imported_from_the_folder(name):
    assert name in estimators.__all__
    assert name in dir(estimators)
    assert callable(getattr(estimators, name).estimate)
    assert estimators.__doc__
    assert name in estimators.__doc__


def test_an_estimator_from_the_folder_follows_the_protocol():
    assert isinstance(estimators.ColmapEstimator(), PoseEstimator)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        AttributeError, match=r"ColmapEstimator, .*NetworkEstimator, PoseFileEstimator, .*XFeatEstimator"
    ):
        _ = estimators.Guess


def test_importing_the_folder_loads_neither_pycolmap_nor_an_estimator():
    done = run_python(
        "import sys, merope.evaluation.estimators as folder\n"
        "loaded = [name for name in sys.modules if name.startswith((folder.__name__ + '.', 'pycolmap'))]\n"
        "print(sorted(set(loaded) - {folder.__name__ + '.base'}))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
