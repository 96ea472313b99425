"""Set-up of the test run: one thread per worker, fixed seeds, and shape types checked at every call.

The shape checks (jaxtyping with beartype) are put on while ``merope`` is imported and only here. They
stay off where they cannot work: modules that compile their functions with numba, and the whole run
under ``MEROPE_SHAPE_CHECKS=0``. Code under ``torch.compile(fullgraph=True)`` runs in a process of its
own: ``tests.support.fresh_python``.
"""

import os

# Two workers with two threads each on two cores would fight; set before torch and numpy load.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Nothing in the tests may reach for a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import importlib.machinery
import random
import re
import socket
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

import tests.support.typecheck

UNCHECKED: tuple[str, ...] = ()
"""Modules whose functions stay bare, by full name; those that use numba are found by themselves."""


class BareModules:
    """Finds the modules that must not be decorated before the checking hook does."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        """The plain spec of a module that opts out, else None: the next finder's turn."""
        if not fullname.startswith("merope."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        with open(spec.origin, encoding="utf-8") as source:
            text = source.read()
        uses_numba = re.search(r"\b(numba|_jit)\b", text) is not None
        return spec if uses_numba or fullname in UNCHECKED else None


if os.environ.get("MEROPE_SHAPE_CHECKS", "1") != "0":
    install_import_hook("merope", f"{tests.support.typecheck.__name__}.typechecked")
    sys.meta_path.insert(0, BareModules)

settings.register_profile("merope", deadline=None, max_examples=30, derandomize=True, print_blob=True)
settings.load_profile("merope")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Every test starts from the same random state, whatever ran before it."""
    random.seed(0)
    # A library under test may still draw from numpy's global state.
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything works offline: a test that reaches for another machine fails and says where to."""
    connect = socket.socket.connect

    def connect_here_only(own, address):
        if own.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
            raise AssertionError(f"a test tried to connect to {address}")
        return connect(own, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here_only)


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """``torch.empty`` is full of NaN: an element that nobody wrote shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    previous = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = previous
    torch.use_deterministic_algorithms(False)
