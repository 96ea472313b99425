"""What a mutated file must give, and the judgement of what a reader gave: an error of ours, or exactly these numbers."""

import signal
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from merope.data.poses.files import load_pose_file
from merope.errors import MeropeError

SECONDS = 20
LONGEST_MESSAGE = 4000


@dataclass(frozen=True, eq=False)
class Truth:
    """Camera-to-world rotations and centres, and times where the format has them, as the reader should give them."""

    R_world_cam: np.ndarray
    center_world: np.ndarray
    times: np.ndarray | None = None
    same_bits: bool = False
    """Whether the numbers must be these to the last bit: they came from the file before it was changed in its layout."""

    def differs(self, other: "Truth") -> str | None:
        """How the numbers that were read differ from these, or None."""
        if other.R_world_cam.shape != self.R_world_cam.shape:
            return f"{len(other.R_world_cam)} poses instead of {len(self.R_world_cam)}"
        for name in ("R_world_cam", "center_world", "times"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if (mine is None) != (theirs is None):
                return f"{name} is {'missing' if theirs is None else 'there'}"
            if mine is None:
                continue
            # The writers promise 1e-9; beyond 1e6 the last bit of a float64 is larger.
            slack = np.zeros_like(mine) if self.same_bits else 2e-9 + 4e-15 * np.abs(mine)
            with np.errstate(all="ignore"):
                far = ~((mine == theirs) | (np.abs(mine - theirs) <= slack))
            if far.any():
                return f"{name} off by {np.abs(mine - theirs)[far].max():.3g}"
        return None


@dataclass(frozen=True, eq=False)
class Expected:
    """The outcomes that are right: refusal if ``refused``, and any of the ``numbers``."""

    refused: bool = False
    numbers: tuple[Truth, ...] = ()
    any_numbers: bool = False
    """Whether the change cannot be told from another file of the format: then no numbers are wrong."""


REFUSED = Expected(refused=True)
ANYTHING = Expected(refused=True, any_numbers=True)


def reads(*numbers: Truth) -> Expected:
    return Expected(numbers=numbers)


def reads_or_refused(*numbers: Truth) -> Expected:
    return Expected(refused=True, numbers=numbers)


@dataclass(frozen=True, eq=False)
class Case:
    """One mutated file or folder."""

    mutation: str
    files: Mapping[str, bytes]
    """Contents by name below the case's folder."""
    expected: Expected
    place: Callable[[Path], None] | None = None
    """Puts what is no file (a pipe, a link) where it belongs, after the files were written."""


class Hang(Exception):
    pass


def judge(case: Case, target: Path, format: str) -> tuple[str, str | None]:
    """The outcome, "refused", "read", "undetectable" or the defect's kind, and what is wrong with it or None."""
    kind, found = outcome_of(lambda: truth_in(target, format))
    names = {target.name, *(name.rsplit("/", 1)[-1] for name in case.files)}
    if kind == "refused":
        message = str(found)
        if not case.expected.refused:
            return kind, f"refused, and should be read: {message[:300]}"
        if not any(name in message for name in names):
            return "nameless", f"no file is named in: {message[:300]}"
        return kind, too_long(message)
    if kind != "read":
        return kind, f"{found!r:.400}"
    if case.expected.any_numbers:
        return "undetectable", None
    if not case.expected.numbers:
        return kind, "read, and should be refused"
    wrong = [truth.differs(found) for truth in case.expected.numbers]
    return kind, None if None in wrong else f"other numbers: {'; '.join(map(str, wrong))}"


def too_long(message: str) -> str | None:
    return None if len(message) <= LONGEST_MESSAGE else f"a message of {len(message)} characters"


def outcome_of(read: Callable[[], object]) -> tuple[str, object]:
    """("read", value), ("refused", our error), ("hang", ...) or ("traceback", an error that is not ours)."""
    try:
        with limited(), warnings.catch_warnings():
            # Arithmetic on hostile numbers says nothing to the user either.
            warnings.simplefilter("error", RuntimeWarning)
            return "read", read()
    except MeropeError as error:
        return "refused", error
    except Hang as error:
        return "hang", error
    except Exception as error:
        return "traceback", error


def truth_in(path: Path, format: str) -> Truth:
    poses = load_pose_file(path, format=format).poses
    times = None if poses.times is None else poses.times.numpy()
    return Truth(poses.R_world_cam.numpy(), poses.center_world.numpy(), times)


@contextmanager
def limited():
    def stop(*_):
        raise Hang(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def settled(matrices: np.ndarray, times: np.ndarray | None = None, *, inverted: bool = False) -> Truth | None:
    """What matrices [T, 3, 4] in OpenCV axes mean, None for what is to be refused, by definition."""
    if not np.isfinite(matrices).all():
        return None
    R, t = matrices[:, :, :3], matrices[:, :, 3].astype(np.longdouble)
    with np.errstate(all="ignore"):
        error = np.abs(R.transpose(0, 2, 1) @ R - np.eye(3)).max(axis=(1, 2))
    if not (error <= 1e-3).all() or (np.linalg.det(R) < 0).any():
        return None
    if inverted:
        t = -(R.transpose(0, 2, 1).astype(np.longdouble) @ t[:, :, None])[:, :, 0]
        R = R.transpose(0, 2, 1)
    with np.errstate(all="ignore"):
        t = t.astype(np.float64)
    if not np.isfinite(t).all() or not increasing(times):
        return None
    if error.max() > 1e-12:
        U, _, V = np.linalg.svd(R)
        R = U @ V
    return Truth(R, t, times)


def increasing(times: np.ndarray | None) -> bool:
    return times is None or bool(np.isfinite(times).all() and (np.diff(times) > 0).all())


def turned(xyzw: np.ndarray) -> np.ndarray | None:
    """Rotations of quaternions [T, 4] within 1e-3 of unit length, else None."""
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(xyzw, axis=1)
    if not (np.abs(lengths - 1) <= 1e-3).all():
        return None
    x, y, z, w = (xyzw / lengths[:, None]).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def posed(R: np.ndarray | None, offsets: np.ndarray, times: np.ndarray | None = None, *, inverted=False):
    """`settled` of rotations and offsets."""
    if R is None:
        return None
    return settled(np.concatenate([R, offsets[:, :, None]], axis=2), times, inverted=inverted)


torch.set_num_threads(1)
