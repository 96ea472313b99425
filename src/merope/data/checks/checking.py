"""What is wrong with one clip: files that do not open, frames that do not decode, poses that jump, shake or repeat."""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.frame_timing import GAP, stretches
from merope.data.clips.jitter import jitter_deg
from merope.data.poses.facts import PoseFacts, pose_facts
from merope.data.poses.findings import LARGEST, motion_findings, unit_findings
from merope.errors import MeropeError
from merope.geometry.poses import Poses, Unit

Kind = Literal[
    "missing",
    "corrupt",
    "duplicate",
    "jitter",
    "jumps",
    "rotation-jumps",
    "repeated-poses",
    "unregistered",
    "unit",
    "no-unit",
    "static",
    "gaps",
]
"""What can be found."""
PROBLEMS: dict[Kind, str] = {
    "missing": "not there, or a file of it is not",
    "corrupt": "cannot be opened or decoded, or does not fit together",
    "duplicate": "same name, or same poses and frames, as another",
    "jitter": "shakes more than the threshold",
    "jumps": "steps far longer than the median",
    "rotation-jumps": "turns of more than 15 deg from frame to frame",
    "repeated-poses": "a pose equals the one before, in a clip that moves",
    "unregistered": "too many frames have no pose",
    "unit": "steps that are no metres",
}
"""Kinds of findings that keep a clip from use, and what they mean."""
NOTES: dict[Kind, str] = {
    "no-unit": "the unit is not metres",
    "static": "the camera stands still",
    "gaps": "frames are missing within",
}
"""Kinds that are told alone; "no-unit" is a problem under `CheckConfig.strict`."""
# Frames are hashed in pieces: a recording of a thousand frames need not fit into memory.
_PIECE_BYTES = 512 * 2**20
_INSPECTION_KINDS: dict[str, Kind] = {"duplicates": "repeated-poses", "unit-unknown": "no-unit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckConfig:
    """How strictly clips are looked at.

    Raises:
        ValueError: if a threshold is out of its range.
    """

    max_jitter_deg: float = 1.0
    """Largest `jitter_deg` of a clip that does not shake. Measured drives and walks at 10 to 30 Hz stay below 0.9."""
    near_depth: float = 10.0
    """Distance of the nearest surface, metres, from which `jitter_deg` sees shaking positions where the unit is metres."""
    min_registered: float = 0.9
    """Least share of the frames between the first and the last pose that have a pose."""
    quick: bool = False
    """Whether frames and latents are left unread: then damage in them, and duplicates by content, are not seen."""
    strict: bool = False
    """Whether a unit other than metres is a problem."""
    ignore: tuple[Kind, ...] = ()
    """Kinds of findings that are told and do not count."""

    def __post_init__(self) -> None:
        if not self.max_jitter_deg > 0 or not self.near_depth > 0:
            raise ValueError(
                f"max_jitter_deg and near_depth must be positive; got {self.max_jitter_deg:g} and {self.near_depth:g}."
            )
        if not 0 <= self.min_registered <= 1:
            raise ValueError(f"min_registered must be within [0, 1]; got {self.min_registered:g}.")

    def is_problem(self, kind: Kind) -> bool:
        """Whether a finding of this kind keeps a clip from use."""
        return kind not in self.ignore and (kind in PROBLEMS or (self.strict and kind == "no-unit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipFinding:
    """Something odd about a clip."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCheck:
    """What was found of one clip; numbers are None where it could not be opened."""

    place: str
    """The folder that was checked, as it was named."""
    source: str
    clip_id: str
    cluster: str = "all"
    findings: tuple[ClipFinding, ...] = ()
    unit: Unit | None = None
    frames: int | None = None
    median_step: float | None = None
    """Median distance from frame to frame, in ``unit``."""
    largest_baseline: float | None = None
    """Largest distance from the first frame, in ``unit``."""
    jitter_deg: float | None = None
    poses_sha256: str | None = None
    """Of the camera-to-world matrices in float64 and their unit."""
    content_sha256: str | None = None
    """Of the decoded frames, or of the latents of a cache; None where they were not read."""

    @property
    def name(self) -> str:
        """Source and name."""
        return f"{self.source}/{self.clip_id}"

    def with_finding(self, kind: Kind, text: str) -> "ClipCheck":
        """The same with one finding more."""
        return replace(self, findings=(*self.findings, ClipFinding(kind=kind, text=text)))


def check_clip(clip: Clip | ClipError, config: CheckConfig, *, place: str) -> ClipCheck:
    """Look at the poses of a clip and, unless ``config.quick``, decode all its frames and depth maps."""
    if isinstance(clip, ClipError):
        found = ClipCheck(place=place, source=clip.source, clip_id=clip.clip_id)
        return found.with_finding(_kind(clip), clip.reason)
    content, problem = None, None
    if not config.quick:
        try:
            content = _content_sha256(clip)
        except ClipError as error:
            problem = error
    found = check_poses(
        clip.poses,
        config,
        place=place,
        source=clip.source,
        clip_id=clip.clip_id,
        cluster=clip.cluster,
        fps=clip.fps,
        content_sha256=content,
    )
    return found if problem is None else found.with_finding(_kind(problem), problem.reason)


def _kind(error: ClipError) -> Kind:
    return "missing" if isinstance(error.__cause__, FileNotFoundError) else "corrupt"


def check_poses(poses: Poses, config: CheckConfig, *, fps: float, **known: Any) -> ClipCheck:
    """Look at the poses of one clip; ``known`` are the other fields of its `ClipCheck`."""
    unit, centers = poses.unit, poses.center_world
    if not float(centers.abs().max()) < LARGEST:
        damaged = ClipCheck(unit=unit, **{**known, "content_sha256": None})
        return damaged.with_finding("corrupt", f"its poses hold a number of {float(centers.abs().max()):.1g}")
    facts = _without_gaps(
        pose_facts(poses.R_world_cam, centers, times=poses.times, metric=unit == "m"), poses, fps
    )
    findings = [
        ClipFinding(kind=_INSPECTION_KINDS.get(one.kind, one.kind), text=one.text)  # type: ignore[arg-type]
        for one in (*unit_findings(facts, unit), *motion_findings(facts, unit))
    ]
    if unit != "m" and not any(one.kind == "no-unit" for one in findings):
        findings.append(ClipFinding(kind="no-unit", text=f"its unit is {unit!r}"))
    shake = _jitter(poses, config, fps)
    if shake > config.max_jitter_deg:
        findings.append(
            ClipFinding(
                kind="jitter",
                text=f"it shakes by {shake:.3g} deg from frame to frame (root mean square), more than "
                f"{config.max_jitter_deg:g}",
            )
        )
    if poses.times is not None:
        expected = round(float(poses.times[-1] - poses.times[0]) * fps) + 1
        if len(poses) < config.min_registered * expected:
            findings.append(
                ClipFinding(
                    kind="unregistered",
                    text=f"{len(poses)} of about {expected} frames from its first to its last have a pose",
                )
            )
    return ClipCheck(
        findings=tuple(findings),
        unit=unit,
        frames=len(poses),
        median_step=facts.median_step,
        largest_baseline=float((centers - centers[0]).norm(dim=-1).max()),
        jitter_deg=shake,
        poses_sha256=hashlib.sha256(poses.T_world_cam.numpy().tobytes() + unit.encode()).hexdigest(),
        **known,
    )


def _parts(poses: Poses, fps: float) -> list[range]:
    """Stretches without a gap in time."""
    return [range(len(poses))] if poses.times is None else stretches(poses.times.numpy(), fps=fps)


def _without_gaps(facts: PoseFacts, poses: Poses, fps: float) -> PoseFacts:
    """Facts in which a camera that moved on while frames are missing has not jumped."""
    after = {part.start for part in _parts(poses, fps)}
    times = facts.times
    if times is not None:
        # Also the median spacing, by which these are found, may be one of a clip with gaps.
        seconds = poses.times.diff() if poses.times is not None else torch.zeros(0)
        gaps = tuple(int(place) + 1 for place in (seconds > GAP / fps).nonzero().flatten())
        times = replace(times, gaps=gaps)
    return replace(
        facts,
        times=times,
        step_jumps=tuple(index for index in facts.step_jumps if index not in after),
        rotation_jumps=tuple(index for index in facts.rotation_jumps if index not in after),
    )


def _jitter(poses: Poses, config: CheckConfig, fps: float) -> float:
    """The largest of the stretches between gaps."""
    near = config.near_depth if poses.unit == "m" else math.inf
    return max(jitter_deg(poses[part.start : part.stop], near_depth=near) for part in _parts(poses, fps))


def _content_sha256(clip: Clip) -> str:
    """Hash of all decoded frames, which is that of the clip's pixels however they are stored; depth maps are read too.

    Raises:
        ClipError: if they cannot be decoded or do not fit poses and lens.
    """
    digest = hashlib.sha256(f"{clip.lens.height} {clip.lens.width} ".encode())
    step = max(1, _PIECE_BYTES // (3 * clip.lens.height * clip.lens.width))
    for start in range(0, len(clip), step):
        numbers = range(start, min(start + step, len(clip)))
        try:
            frames = clip.frames(numbers)
            if clip.decode_depth is not None:
                clip.depth(numbers)
        except ClipError:
            raise
        except (MeropeError, OSError, ValueError) as error:
            raise clip.error(error) from error
        digest.update(frames.tobytes())
    return digest.hexdigest()
