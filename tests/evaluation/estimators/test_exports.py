"""The folder of estimators offers each of them by name, and loads none before it is used."""

import pytest

from merope.evaluation import PoseEstimator, estimators
from tests.support.fresh_python import run_python


@pytest.mark.parametrize("name", ["ColmapEstimator", "NetworkEstimator", "PoseFileEstimator"])
def test_every_estimator_can_be_imported_from_the_folder(name):
    assert name in estimators.__all__
    assert name in dir(estimators)
    assert callable(getattr(estimators, name).estimate)
    assert estimators.__doc__
    assert name in estimators.__doc__


def test_an_estimator_from_the_folder_follows_the_protocol():
    assert isinstance(estimators.ColmapEstimator(), PoseEstimator)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match=r"ColmapEstimator, .*NetworkEstimator, PoseFileEstimator"):
        _ = estimators.Guess


def test_importing_the_folder_loads_neither_pycolmap_nor_an_estimator():
    done = run_python(
        "import sys, merope.evaluation.estimators as folder\n"
        "loaded = {'pycolmap', *(f'{folder.__name__}.{name}' for name in ('colmap', 'network'))} & set(sys.modules)\n"
        "print(sorted(loaded))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
