"""Change what calling one module does, and change it back.

A forward hook would do, were it not for ``torch.compile``: its graphs do not watch hooks, so a block that was
compiled without one, or a block compiled after its neighbour without one, drops it and says nothing. The
type of a module is watched. `replace_call` gives the one module a class of its own, derived from its class.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

_STATE = "_merope_call_"


def replace_call(module: nn.Module, name: str, around: Callable[..., Any], state: Any) -> None:
    """Make ``module(*args, **kwargs)`` return ``around(state, call, *args, **kwargs)``; ``call`` is what it did before.

    Weights, their names and ``forward`` stay. ``__call__`` is replaced rather than ``forward``, which
    other libraries (offloading, layer-wise casting) put on the module itself. Calls of different names may be
    replaced one after another; the last one is the outermost.
    """
    # Past nn.Module's own bookkeeping: the state may hold modules that belong elsewhere.
    module.__dict__[_STATE + name] = state
    kind: Any = type(module)
    module.__class__ = _derived(kind, name, around)


def has_replaced_call(module: nn.Module, name: str | None = None) -> bool:
    """Whether a `replace_call` of this name is in force; None asks for any."""
    if name is not None:
        return _STATE + name in module.__dict__
    return any(key.startswith(_STATE) for key in module.__dict__)


def call_state(module: nn.Module, name: str) -> Any:
    """The state of the `replace_call` of this name, or None where there is none."""
    return module.__dict__.get(_STATE + name)


def require_restorable(module: nn.Module) -> None:
    """Raise ValueError if another library has derived a class of its own from that of a replaced call."""
    if "merope_state" not in vars(type(module)):
        raise ValueError(
            f"a module of the camera adapter became a {type(module).__name__}: another library has taken it over since. "
            "Give whole blocks to fully_shard, not their self-attention."
        )


def restore_call(module: nn.Module) -> None:
    """Undo the last `replace_call`."""
    require_restorable(module)
    kind: Any = type(module)
    module.__class__ = kind.__bases__[0]
    del module.__dict__[kind.merope_state]


@cache
def _derived(kind: type, name: str, around: Callable[..., Any]) -> type:
    """One class for all modules of a kind: compiled blocks share their graph."""
    state = _STATE + name

    class Called(kind):  # type: ignore[valid-type, misc]
        merope_state = state

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return around(self.__dict__[state], super().__call__, *args, **kwargs)

        def __reduce__(self) -> tuple[Any, ...]:
            # No module holds this class by its name.
            return _blank, (kind, name, around), self.__dict__

    Called.__name__ = Called.__qualname__ = name
    return Called


def _blank(kind: type, name: str, around: Callable[..., Any]) -> Any:
    """A module of `_derived` for unpickling to fill."""
    called: Any = _derived(kind, name, around)
    return called.__new__(called)
