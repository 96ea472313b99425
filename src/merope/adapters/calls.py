"""Change what calling one module does, and change it back.

A forward hook would do, were it not for ``torch.compile``: its graphs do not watch hooks, so a block that was
compiled without one, or a block compiled after its neighbour without one, drops it and says nothing. The
type of a module is watched. `replace_call` gives the one module a class of its own, derived from its class.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

_STATE = "_merope_call"


def replace_call(module: nn.Module, name: str, then: Callable[..., Any], state: Any) -> None:
    """Make ``module(*args, **kwargs)`` return ``then(state, output, *args, **kwargs)`` of what it returned.

    Weights, their names and ``forward`` stay. ``__call__`` is replaced rather than ``forward``, which
    other libraries (offloading, layer-wise casting) put on the module itself.
    """
    # Past nn.Module's own bookkeeping: the state may hold modules that belong elsewhere.
    module.__dict__[_STATE] = state
    kind: Any = type(module)
    module.__class__ = _derived(kind, name, then)


def has_replaced_call(module: nn.Module) -> bool:
    """Whether `replace_call` is in force."""
    return _STATE in module.__dict__


def restore_call(module: nn.Module) -> None:
    """Undo `replace_call`."""
    module.__class__ = type(module).__bases__[0]
    del module.__dict__[_STATE]


@cache
def _derived(kind: type, name: str, then: Callable[..., Any]) -> type:
    """One class for all modules of a kind: compiled blocks share their graph."""

    class Called(kind):  # type: ignore[valid-type, misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return then(self.__dict__[_STATE], super().__call__(*args, **kwargs), *args, **kwargs)

        def __reduce__(self) -> tuple[Any, ...]:
            # No module holds this class by its name.
            return _blank, (kind, name, then), self.__dict__

    Called.__name__ = Called.__qualname__ = name
    return Called


def _blank(kind: type, name: str, then: Callable[..., Any]) -> Any:
    """A module of `_derived` for unpickling to fill."""
    called: Any = _derived(kind, name, then)
    return called.__new__(called)
