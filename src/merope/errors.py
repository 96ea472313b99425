"""The errors a user of the library can meet, one family.

``ValueError`` and ``TypeError`` report a wrong argument. Everything that needs more than a better
argument (a package to install, a file to replace, a trajectory to mend) is a :class:`MeropeError`.
The command line prints both plainly and keeps the traceback of anything else.
"""

from typing import Self


class MeropeError(Exception):
    """Something the user can mend; the message says how."""


class MissingDependency(MeropeError):
    """An optional package is not installed."""

    @classmethod
    def for_extra(cls, package: str, *, extra: str, purpose: str) -> Self:
        """Name the package, what needs it, and the extra of this project that brings it."""
        return cls(
            f"{purpose} needs the package '{package}', which is not installed. "
            f"Install it with: pip install 'merope[{extra}]'"
        )


class SharedClipError(MeropeError):
    """A clip that several processes share cannot go on: another of them failed, left, or holds another clip."""


class CheckpointMismatch(MeropeError):
    """Saved weights do not fit the model, encoding or data layout they are loaded into."""


class TrajectoryError(MeropeError):
    """A trajectory is readable but does not fit the request: length, unit, rate, or place in a world."""
