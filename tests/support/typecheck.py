"""The type checker that the test run puts on every function of the library."""

from collections.abc import Callable
from typing import Self

from beartype import BeartypeConf, beartype

# An int is a float wherever Python's own typing says so.
CHECKER = beartype(conf=BeartypeConf(is_pep484_tower=True))


def typechecked(function: Callable | type) -> Callable | type:
    """beartype, with ``Self`` left unchecked.

    beartype understands ``Self`` only when it decorates the class; jaxtyping's import hook decorates
    each method alone.
    """
    annotations = getattr(function, "__annotations__", {})
    if not isinstance(function, type) and Self in annotations.values():
        function.__annotations__ = {
            name: object if hint is Self else hint for name, hint in annotations.items()
        }
    return CHECKER(function)
