"""Requests to stop: SIGTERM as often as it comes, Ctrl-C once; and nothing of it is left behind."""

import os
import signal

import pytest

from merope.training.stopping import StopRequest


@pytest.fixture
def foreground():
    """As a terminal starts programs: a shell's background jobs ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_sigterm_may_come_again_while_the_run_is_saved(foreground):
    # A batch system sends it to every process, and torchrun passes its own on.
    before = signal.getsignal(signal.SIGTERM)
    stop = StopRequest()
    with stop.listening():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_a_second_time_does_not_wait(foreground):
    stop = StopRequest()

    def interrupted_twice():
        with stop.listening():
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.asked
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
