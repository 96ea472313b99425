"""How this folder's loops are compiled: by numba, at their first call."""

# mypy: disable-error-code="no-untyped-def"

from numba import njit


def compiled(**options):
    """Compiled at the first call; kept on disk for later processes where there is a place to write."""

    def wrapped(function):
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            # Neither beside the package nor at home may anything be written.
            return njit(**options)(function)

    return wrapped
