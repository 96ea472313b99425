"""The camera path that a search starts from: what has to be known of it, and of the clips that are indexed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from merope.cameras import CameraModel
from merope.data.clips.clip import Clip
from merope.data.history.shards import HistoryError, whole_clip
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses

# Provenance entries by which a clip says where it is.
WORLD, TRAVERSAL = "world", "traversal"
# A camera that moves less than this between two frames has no direction of travel: noise of poses is of centimetres.
_MOVES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryPath:
    """Poses of one camera in one world, in metres.

    Raises:
        HistoryError: if the unit is not metres, or neither a world nor a clip is named.
    """

    poses: Poses
    lens: CameraModel
    world: str | None = None
    """What the poses are relative to, as the index calls it; None takes that of the clip in the index."""
    clip: tuple[str, str] | None = None
    """Source and name of the clip that the path is of; its own frames are no history. A window "ID@00049" is of clip ID."""
    traversal: str | None = None
    """The drive that the path is of. Without it that of the clip in the index, if it is there, else the clip itself."""

    def __post_init__(self) -> None:
        if self.poses.unit != "m":
            raise HistoryError(
                f"distances of a search are metres, and the unit of the poses is {self.poses.unit!r}. Say unit='m' "
                "(--unit m) if a length of 1 is a metre."
            )
        if not self.world and self.clip is None:
            raise HistoryError(
                "nothing says which world the poses are in. Name it with world (--world), or name the clip that they are of "
                "with clip (--clip)."
            )

    @classmethod
    def of_clip(cls, clip: Clip, *, world: str | None = None, traversal: str | None = None) -> "QueryPath":
        """The cameras of a clip, in the world that it names itself unless ``world`` does.

        Raises:
            ClipError: if nothing says which world its poses are in, or they are not in metres.
        """
        world, traversal = place_of(clip, world=world, traversal=traversal)
        try:
            return cls(
                poses=clip.poses.with_times(torch.tensor(clip.times)),
                lens=clip.lens,
                world=world,
                clip=(clip.source, clip.clip_id),
                traversal=traversal,
            )
        except HistoryError as error:
            raise clip.error(error) from None

    def __len__(self) -> int:
        return len(self.poses)

    def every(self, step: int) -> "QueryPath":
        """Every ``step``-th pose.

        Raises:
            ValueError: if ``step`` is not positive.
        """
        if step < 1:
            raise ValueError(f"step must be at least 1; got {step}.")
        return QueryPath(
            poses=self.poses[::step],
            lens=self.lens,
            world=self.world,
            clip=self.clip,
            traversal=self.traversal,
        )


def place_of(clip: Clip, *, world: str | None, traversal: str | None) -> tuple[str, str]:
    """World and traversal of a clip: as given, else as the clip's provenance says ("world", "traversal").

    A clip that does not say its traversal is one of its own.

    Raises:
        ClipError: if nobody says the world.
    """
    world = world or _said(clip, WORLD)
    if world is None:
        raise clip.error(
            "nothing says which world its poses are in, and poses of two worlds cannot be compared. Name the world that all "
            'these clips share with world (--world NAME), or write "world" into the provenance of each.'
        )
    return world, traversal or _said(clip, TRAVERSAL) or whole_clip(clip.source, clip.clip_id)


def _said(clip: Clip, name: str) -> str | None:
    value = clip.provenance.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise clip.error(f"{name!r} in its provenance is {value!r:.60} and no text.")
    return value


def sideways(poses: Poses) -> Float[np.ndarray, "time 3"]:
    """The direction to the right of the path at each pose, unit vectors in the world: down x the direction of travel.

    Travel is from the last pose before that is 0.5 m away to the first one after, so that a camera that stands has the
    direction in which it came or goes on. Down is the camera's y axis: the camera may look anywhere along the horizon.

    Raises:
        TrajectoryError: if the path does not move by 0.5 m, or goes straight up or down.
    """
    travel = _directions_of_travel(poses.center_world.numpy())
    right = np.cross(poses.R_world_cam[:, :, 1].numpy(), travel)
    lengths = np.linalg.norm(right, axis=1, keepdims=True)
    if lengths.min() < 1e-3:
        raise TrajectoryError(
            "the path goes straight up or down as its camera sees it, so nothing is to the side of it."
        )
    return right / lengths


def _directions_of_travel(centers: Float[np.ndarray, "time 3"]) -> np.ndarray:
    travel = centers[_first_away(centers, 1)] - centers[_first_away(centers, -1)]
    lengths = np.linalg.norm(travel, axis=1)
    known = np.flatnonzero(lengths >= _MOVES)
    if len(known) == 0:
        raise TrajectoryError(
            f"the path moves by less than {_MOVES} m, so it has no direction and nothing is to the side of it."
        )
    # Where it turns back on itself, or is too short for two such poses, the nearest direction in time stands in.
    numbers = np.arange(len(centers))
    place = np.searchsorted(known, numbers)
    before, after = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    nearest = np.where(np.abs(numbers - before) <= np.abs(numbers - after), before, after)
    return travel[nearest] / lengths[nearest, None]


def _first_away(centers: Float[np.ndarray, "time 3"], step: Literal[1, -1]) -> Int[np.ndarray, "time"]:
    """The first pose after (1) or before (-1) each one that is 0.5 m away; the pose itself where there is none."""
    found = np.arange(len(centers))
    # One further at a time, for all that are still looking: no table of all pairs, which long drives would not fit.
    looking, ahead = found.copy(), int(step)
    while len(looking := looking[(looking + ahead >= 0) & (looking + ahead < len(centers))]):
        away = np.linalg.norm(centers[looking + ahead] - centers[looking], axis=1) >= _MOVES
        found[looking[away]] = looking[away] + ahead
        looking, ahead = looking[~away], ahead + step
    return found
