"""Counts the bytes of tensors that are alive at once, which the CPU allocator of torch does not report."""

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While active, follows every storage that an operation makes until it is freed.

    ``peak`` is the most that was alive at once of what was made inside; `restart` begins a new peak at
    what is alive now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = 0
        self.peak = 0
        self._known: set[int] = set()

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.current

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in given | self._known:
                    self._follow(storage)
        return out

    def _follow(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.current += size
        self.peak = max(self.peak, self.current)

        def freed() -> None:
            self._known.discard(key)
            self.current -= size

        weakref.finalize(storage, freed)
