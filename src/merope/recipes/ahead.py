"""Work on a sequence in threads, a bounded number of items ahead of whoever takes the results."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ahead(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, workers: int, count: int
) -> Iterator[_Result]:
    """Results in order, ``count`` of them made ahead in ``workers`` threads."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[_Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Whoever takes the results has stopped: what has not begun need not.
            for future in waiting:
                future.cancel()
