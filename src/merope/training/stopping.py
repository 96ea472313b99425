"""`StopRequest`: SIGTERM and Ctrl-C ask a run to save and stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether a signal has asked to stop since `listening` began; Ctrl-C a second time does not wait.

    SIGTERM may come any number of times: a batch system sends it to a process and to the launcher that passes it on.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block signals are heard; outside the main thread, where none arrive, the caller handles them."""
        self.asked = False
        before: dict[int, Any] = {}

        def stop(number: int, _: Any) -> None:
            self.asked = True
            if number == signal.SIGINT:
                signal.signal(number, before[number])

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                # None stands for a handler that was not set from Python; it cannot be put back.
                before[number] = signal.getsignal(number) or signal.SIG_DFL
                signal.signal(number, stop)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            for changed, handler in before.items():
                signal.signal(changed, handler)
