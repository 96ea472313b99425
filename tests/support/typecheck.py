"""The type checker that the test run puts on every function of the library."""

from collections.abc import Callable
from typing import Any, Self, get_args

from beartype import BeartypeConf, beartype

# An int is a float wherever Python's own typing says so.
CHECKER = beartype(conf=BeartypeConf(is_pep484_tower=True))


def typechecked(function: Callable | type) -> Callable | type:
    """beartype, with the two kinds of hint that it refuses left unchecked.

    ``Self`` works only where the class is decorated, and jaxtyping's import hook decorates each method
    alone. A protocol can be checked at run time only where it is declared so.
    """
    annotations = getattr(function, "__annotations__", {})
    if not isinstance(function, type) and any(_refused(hint) for hint in annotations.values()):
        function.__annotations__ = {
            name: object if _refused(hint) else hint for name, hint in annotations.items()
        }
    return CHECKER(function)


def _refused(hint: Any) -> bool:
    if hint is Self:
        return True
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return True
    return any(_refused(inner) for inner in get_args(hint))
