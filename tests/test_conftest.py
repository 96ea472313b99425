"""The test run's own promises."""

import socket

import pytest
import torch
from jaxtyping import TypeCheckError

from tests.support.fresh_python import run_python


def test_wrong_shape_is_caught_at_the_door():
    from merope.geometry.sphere import minrot

    with pytest.raises(TypeCheckError):
        minrot(torch.zeros(2, 4))


def test_shape_checks_stay_out_of_a_normal_interpreter():
    done = run_python(
        "import sys; import merope.geometry.sphere as sphere; "
        "print('beartype' in sys.modules, hasattr(sphere.minrot, '__wrapped__'))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_poisoned_memory_shows_unwritten_elements(poisoned_memory):
    assert torch.isnan(torch.empty(3, 5)).all()


def test_every_test_starts_from_the_same_random_state():
    assert torch.initial_seed() == 0


def test_a_connection_to_another_machine_fails():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as line,
        pytest.raises(AssertionError, match=r"192\.0\.2\.1"),
    ):
        line.connect(("192.0.2.1", 80))
