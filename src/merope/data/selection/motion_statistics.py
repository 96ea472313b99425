"""`MotionStatistics`: the one translation scale of a training set and how its cameras move, measured once and stored.

They stand under "statistics" in the split that was measured, or in ``motion.json`` beside a cache of latents; training reads
the scale from there. Poses alone are read. Memory grows by some numbers per clip.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from merope.cameras.latent_poses import latent_pose_index
from merope.data.caches.latent_cache import LatentCache, is_latent_cache
from merope.data.clips.clip import ClipError
from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.formats.raw import PosePolicy
from merope.data.selection.prototypes.arc_length import relative_centers
from merope.data.selection.prototypes.inputs import InputOptions, Trajectory, read_trajectories
from merope.data.selection.splits import FORMAT as SPLIT_FORMAT
from merope.data.selection.splits import Split, read_split
from merope.encodings.scale import STANDING, TranslationScale, baselines
from merope.errors import CheckpointMismatch, MeropeError
from merope.files import write_text_atomically
from merope.geometry.poses import Unit

MOTION_FILE = "motion.json"
"""The file beside a cache."""
_FORMAT = "merope-motion-1"
SCALE = "translation_scale"
"""The entry of a split's statistics that holds it."""
_MOTION = "motion"
_QUANTILES = {"p05": 0.05, "p50": 0.5, "p95": 0.95}


class MotionError(MeropeError):
    """Clips give no translation scale, or a file of one cannot be used; the message says why and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MotionStatistics:
    """What was measured on training clips. Lengths are in ``unit``."""

    scale: TranslationScale
    """One over the median, over the clips that move, of the root mean square distance between their latent frames."""
    unit: Unit
    num_frames: int
    """Frames of each clip; the scale is of clips of this length."""
    pose_policy: PosePolicy
    """Which of its frames a latent frame takes its pose from."""
    temporal_stride: int
    """Frames per latent frame after the first."""
    clips: int
    """Clips that were measured."""
    static: int
    """Those of them that stand: no two latent frames are further apart than ``standing``. They do not count."""
    standing: float
    """Distance up to which a clip stands."""
    clips_sha256: str
    """Of the names of the clips."""
    motion: Mapping[str, Any] = field(default_factory=dict)
    """Mean, quantiles (values of clips, none between two) and largest value over the clips that move, of: ``baseline``,
    the root mean square distance of latent frames; ``reach``, the largest from the first frame; ``path``, the length of the
    path; ``step``, the median step. And ``axis_rms``: root mean square coordinates of all their frames in the axes of the
    first camera (right, down, ahead)."""

    def to_dict(self) -> dict[str, Any]:
        """As "statistics" of a split hold it."""
        plain = asdict(self)
        motion = plain.pop("motion")
        return {SCALE: {**plain.pop("scale"), **plain}, _MOTION: motion}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            ValueError: if there is no translation scale, or an entry is missing, unknown or no such number.
        """
        stored = values.get(SCALE)
        if not isinstance(stored, dict):
            raise ValueError(f'it has no "{SCALE}"')
        own = {name: value for name, value in stored.items() if name not in ("per_metre", "reach")}
        wanted = {one.name for one in fields(cls)} - {"scale", _MOTION}
        if set(own) != wanted or not {"per_metre", "reach"} <= set(stored):
            raise ValueError(f'"{SCALE}" has the entries {sorted(stored)}')
        for name in ("per_metre", "reach", "standing", "num_frames", "temporal_stride", "clips", "static"):
            if isinstance(stored[name], bool) or not isinstance(stored[name], int | float):
                raise ValueError(f"{name!r} is {stored[name]!r:.40} and no number")
        scale = TranslationScale(per_metre=stored["per_metre"], reach=stored["reach"])
        return cls(scale=scale, motion=values.get(_MOTION, {}), **own)

    def require_fits(
        self, *, unit: Unit, num_frames: int, pose_policy: str, temporal_stride: int, of: str
    ) -> None:
        """Raise unless the scale was measured on such clips.

        Raises:
            CheckpointMismatch: naming every difference.
        """
        wanted = {
            "unit": unit,
            "num_frames": num_frames,
            "pose_policy": pose_policy,
            "temporal_stride": temporal_stride,
        }
        different = [
            f"{name} {getattr(self, name)} (here {value})"
            for name, value in wanted.items()
            if getattr(self, name) != value
        ]
        if different:
            raise CheckpointMismatch(
                f"the translation scale of {of} was measured on clips with {', '.join(different)}. Measure it on the clips "
                "that are trained on: `merope data scale`."
            )


def read_motion_inputs(
    inputs: Sequence[str | Path], options: InputOptions, *, only: Split | None = None
) -> Iterator[Trajectory | ClipError]:
    """Trajectories as `read_trajectories` gives them, and those of caches of latents, whose clips are windows already."""
    for path in map(Path, inputs):
        if is_latent_cache(path):
            cache = LatentCache(path)
            for number, (source, clip_id) in enumerate(zip(cache.sources, cache.clip_ids, strict=True)):
                if only is None or only.cluster_of(source, clip_id):
                    poses = cache.poses(number)
                    yield Trajectory(
                        source=source,
                        clip_id=clip_id,
                        centers=relative_centers(poses),
                        unit=poses.unit,
                        load_poses=None,
                    )
        else:
            yield from read_trajectories([path], options, only=only)


def measure_motion(
    trajectories: Iterable[Trajectory | ClipError],
    *,
    pose_policy: PosePolicy = "last",
    temporal_stride: int = 4,
    skipped: list[ClipError] | None = None,
    progress: bool = False,
) -> MotionStatistics:
    """Measure clips as they come; ``skipped`` gets those that could not be read.

    Raises:
        MotionError: if units or numbers of frames differ, a unit is unknown, a clip comes twice, or none moves.
        ValueError: if the number of frames is not 1 + stride k.
    """
    unit: Unit | None = None
    num_frames = 0
    names: set[str] = set()
    numbers: dict[str, list[float]] = {name: [] for name in ("baseline", "longest", "reach", "path", "step")}
    squares, points = np.zeros(3), 0
    first_broken: ClipError | None = None
    for each in tqdm(trajectories, desc="scale", unit="clip", disable=not progress):
        if isinstance(each, ClipError):
            first_broken = first_broken or each
            if skipped is not None:
                skipped.append(each)
            continue
        name = f"{each.source}/{each.clip_id}"
        _require_alike(name, each, names, unit, num_frames)
        unit, num_frames = each.unit, len(each.centers)
        names.add(name)
        centers = torch.from_numpy(np.asarray(each.centers, dtype=np.float64))
        found = baselines(_latent_centers(centers, pose_policy, temporal_stride))
        if found is None:
            continue
        steps = centers.diff(dim=0).norm(dim=-1)
        numbers["baseline"].append(found[0])
        numbers["longest"].append(found[1])
        numbers["reach"].append(float((centers - centers[0]).norm(dim=-1).max()))
        numbers["path"].append(float(steps.sum()))
        numbers["step"].append(float(np.median(steps.numpy())))
        squares += ((centers - centers[0]) ** 2).sum(0).numpy()
        points += len(centers)
    if unit is None:
        why = "" if first_broken is None else f" The first that was left out: {first_broken}"
        raise MotionError(f"there is no clip that can be read, so nothing tells a translation scale.{why}")
    longest = numbers.pop("longest")
    if not longest:
        raise MotionError(
            f"none of the {len(names)} clips moves: no two latent frames are further apart than {STANDING} {unit}."
        )
    return MotionStatistics(
        scale=TranslationScale.from_baselines(numbers["baseline"], longest),
        unit=unit,
        num_frames=num_frames,
        pose_policy=pose_policy,
        temporal_stride=temporal_stride,
        clips=len(names),
        static=len(names) - len(longest),
        standing=STANDING,
        clips_sha256=names_sha256(names),
        motion={
            **{name: _summary(values) for name, values in numbers.items()},
            "axis_rms": np.sqrt(squares / points).tolist(),
        },
    )


def names_sha256(names: Iterable[str]) -> str:
    """Hash of clips by their names "SOURCE/ID", in any order."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def write_motion(path: str | Path, statistics: MotionStatistics, *, made: Mapping[str, Any]) -> None:
    """Write a file of its own, such as `MOTION_FILE` beside a cache; ``made`` says how, as JSON values."""
    content = {"format": _FORMAT, "made": made, "statistics": statistics.to_dict()}
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_motion(path: str | Path) -> MotionStatistics:
    """The statistics in a split, in a file of `write_motion`, or in the one beside a cache, whose folder is given.

    Raises:
        FileNotFoundError: if there is no such file.
        MotionError: if it holds none.
    """
    return _read(Path(path))[0]


def motion_beside(folders: Sequence[str | Path], names: Iterable[str]) -> MotionStatistics | None:
    """What stands beside these caches, whose clips have these ``names``; None where nothing stands beside any.

    Raises:
        CheckpointMismatch: if the caches do not all have the same, or it is of other clips: those of a split excepted,
            which are what whoever encoded them with it says.
        MotionError: if a file is damaged.
    """
    files = [Path(folder) / MOTION_FILE for folder in folders]
    there = [path for path in files if path.exists()]
    if not there:
        return None
    both = f"Measure them together (`merope data scale {' '.join(map(str, folders))}`), or name a file with --scale."
    found = [_read(path) for path in there]
    if len(there) < len(files) or any(one != found[0][0] for one, _ in found[1:]):
        raise CheckpointMismatch(
            f"not all of these caches have the same translation scale beside them ({MOTION_FILE}): "
            f"{', '.join(map(str, folders))}. {both}"
        )
    statistics, made = found[0]
    if made.get("split") is None and statistics.clips_sha256 != names_sha256(names):
        raise CheckpointMismatch(
            f"{there[0]} was measured on {statistics.clips} clips, and they are not those that are trained on. {both}"
        )
    return statistics


def _read(path: Path) -> tuple[MotionStatistics, dict[str, Any]]:
    if path.is_dir():
        path = path / MOTION_FILE
    try:
        content = parse_json(path.read_bytes().decode("utf-8-sig"))
        if not isinstance(content, dict) or content.get("format") not in (_FORMAT, SPLIT_FORMAT):
            raise ValueError("it is neither a split nor a file of `merope data scale`")
        if content["format"] == SPLIT_FORMAT:
            return MotionStatistics.from_dict(read_split(path).statistics), {}
        made, stored = content.get("made", {}), content.get("statistics")
        if not isinstance(made, dict) or not isinstance(stored, dict):
            raise ValueError('"made" and "statistics" must be objects')
        return MotionStatistics.from_dict(stored), made
    except (ValueError, TypeError, RecursionError) as error:
        raise MotionError(
            f"{path} holds no translation scale: {error}. `merope data scale` measures it."
        ) from None


def _require_alike(name: str, each: Trajectory, names: set[str], unit: Unit | None, num_frames: int) -> None:
    if name in names:
        raise MotionError(
            f"two clips are called {name}; they would count twice. Give one of the inputs another --source."
        )
    if each.unit == "unknown":
        raise MotionError(
            f"{name} does not say what its unit is, and one scale needs one unit. Say --unit m if a length of 1 is a metre."
        )
    if unit not in (None, each.unit):
        raise MotionError(
            f"{name} is in unit {each.unit!r} and those before it in {unit!r}: one scale for both means nothing. Measure "
            "the inputs one by one."
        )
    if num_frames and len(each.centers) != num_frames:
        raise MotionError(
            f"{name} has {len(each.centers)} frames and those before it {num_frames}; the distance between frames grows "
            "with their number. Cut windows of one length (--frames)."
        )
    farthest = float(np.abs(each.centers).max(initial=0.0))
    if not farthest < 1e9:
        raise MotionError(
            f"{name} goes {farthest:.3g} {each.unit} from its first frame; `merope data check` finds such clips."
        )


def _latent_centers(
    centers: Float[Tensor, "time 3"], policy: PosePolicy, stride: int
) -> Float[Tensor, "latent 3"]:
    """As `latent_poses` gives centres, without a rotation."""
    if policy != "mean":
        return centers[latent_pose_index(len(centers), policy, stride)]
    latent_pose_index(len(centers), "last", stride)
    return torch.cat((centers[:1], centers[1:].reshape(-1, stride, 3).mean(1)))


def _summary(values: Sequence[float]) -> dict[str, float]:
    array = np.asarray(values)
    return {
        "mean": float(array.mean()),
        **{name: float(np.quantile(array, share, method="lower")) for name, share in _QUANTILES.items()},
        "max": float(array.max()),
    }
