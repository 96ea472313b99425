"""The table of extras against the project's metadata."""

import tomllib

import pytest

from merope.cli.extras import EXTRA_OF, require
from merope.errors import MissingDependency
from tests.support.shared import REPOSITORY

# Where the name to import is not that of the distribution.
DISTRIBUTIONS = {
    "cdfvd": "cd-fvd",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "torch_fidelity": "torch-fidelity",
}


def test_every_extra_brings_its_package():
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for package, extra in EXTRA_OF.items():
        assert any(line.startswith(DISTRIBUTIONS.get(package, package)) for line in extras[extra]), (
            f"{extra} does not bring {package}"
        )


def test_constraints_hold_exact_versions_and_no_places():
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    for pin in pins:
        name, _, version = pin.partition("==")
        assert name, pin
        assert version[0].isdigit(), pin
        assert "/" not in pin, pin
        assert "+" not in pin, pin


def test_a_missing_package_stops_with_the_extra_that_brings_it(monkeypatch):
    require("pytest", purpose="the test run")
    monkeypatch.setattr("merope.cli.extras.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"the demo needs the package 'matplotlib'.*merope\[plot\]"):
        require("matplotlib", purpose="the demo")
