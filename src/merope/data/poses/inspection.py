"""`inspect_poses`: what a pose file is, what its poses measure, what is odd about it, and which option would mend that."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from merope.data.poses.facts import PoseFacts, pose_facts
from merope.data.poses.files import settled
from merope.data.poses.findings import LARGEST, Finding, motion_findings, time_findings, unit_findings
from merope.data.poses.formats import FORMATS, PoseFormat, RawPoses
from merope.data.poses.formats.recognition import array_head
from merope.data.poses.readings import SHORTER, Reading, Verdict, fits_transposed, judge, readings
from merope.data.poses.table import PoseFileError, ReadOptions, explain_columns, read_bytes, read_table
from merope.geometry.poses import Unit

_TURNING_DEG = 30.0
_FREE = ("tum",)
"""Formats whose files come with quaternions of either order, and with stamps of any unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A format that a file may be in, and why."""

    format: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFacts:
    """Rotations R from camera to world as they stand in the file, before anything is mended."""

    rt_r_error: float
    """Largest entry of R^T R - I."""
    r_rt_error: float
    """Largest entry of R R^T - I."""
    min_determinant: float
    max_determinant: float
    left_handed: int
    """Matrices with a negative determinant."""
    summed_arccos_deg: float
    """Sum of arccos((trace - 1) / 2) from each matrix to the next, as it is often given. The rounding of a file adds to
    small angles there; `PoseFacts.summed_rotation_deg` is without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is known of a pose file; everything from ``format`` on is None where several formats are possible."""

    path: str
    candidates: tuple[Candidate, ...]
    format: str | None = None
    body: str | None = None
    unit: Unit | None = None
    matrices: MatrixFacts | None = None
    facts: PoseFacts | None = None
    reading: Reading | None = None
    """The reading that was asked for: that of the format, unless options say otherwise."""
    readings: tuple[Reading, ...] = ()
    verdict: Verdict | None = None
    frame_ids: tuple[int, int, int] | None = None
    """First and last frame number, and how many are missing between them."""
    camera: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; nothing is rounded."""
        return asdict(self)


def recognised_formats(path: str | Path) -> tuple[Candidate, ...]:
    """The formats that a file or folder looks like, with the reason for each."""
    found = []
    # Numbers of a damaged file may overflow on the way to the answer no.
    with np.errstate(over="ignore", invalid="ignore"):
        for name, kind in FORMATS.items():
            reason = None if kind.recognise is None else kind.recognise(Path(path))
            if reason is not None:
                found.append(Candidate(format=name, reason=reason))
    return tuple(found)


def inspect_poses(
    path: str | Path,
    *,
    format: str | None = None,
    options: ReadOptions | None = None,
    times: Float[Tensor, "time"] | None = None,
) -> Inspection:
    """What a pose file is. Without ``format`` the facts are there only where one format alone is possible.

    Conventions are those of the format and of ``options``; the motion is held against them, and where it speaks for
    others, `Verdict.better` and the findings say so. Nothing is read otherwise than asked.

    Raises:
        PoseFileError: if nothing is known of the file, or it cannot be read in the format; the message names the cure.
    """
    path, options = Path(path), options or ReadOptions()
    if not path.exists():
        raise PoseFileError(f"{path} does not exist.")
    candidates = recognised_formats(path)
    if format is None:
        if not candidates:
            raise _unknown(path, options)
        if len(candidates) > 1:
            return Inspection(path=str(path), candidates=candidates)
        format = candidates[0].format
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}.")
    kind = FORMATS[format]
    try:
        raw = kind.read(path, options)
    except PoseFileError as error:
        others = [found for found in candidates if found.format != format]
        seems = "; ".join(f"{found.format} (--format {found.format}): {found.reason}" for found in others)
        raise PoseFileError(f"{error} It looks like {seems}." if others else str(error)) from None
    if not np.abs(raw.matrices).max() < LARGEST:
        # Most are refused by name and line; what is left is a position.
        settled(path, raw, format=format, times=times, options=options)
        raise PoseFileError(
            f"{path} holds a number of {np.abs(raw.matrices).max():.1g}: it is damaged, or not {format}."
        )
    return _inspected(path, format, kind, raw, options, times, candidates)


def _unknown(path: Path, options: ReadOptions) -> PoseFileError:
    """What is in a file that no format recognises, as far as that helps."""
    if path.is_dir():
        return PoseFileError(f"{path} is no folder of poses that is known here; name a pose file in it.")
    read_bytes(path)
    changes: Mapping[str, Any]
    for changes in ({}, {"delimiter": "comma"}, {"skip_lines": 1}, {"delimiter": "comma", "skip_lines": 1}):
        try:
            table = read_table(path, replace(options, **changes))
        except PoseFileError:
            continue
        error = explain_columns(path, table, "no known format was recognised in it")
        return PoseFileError(f"{error} It is read with {_flags(changes)}.") if changes else error
    head = array_head(path)
    what = f"a NumPy array of shape {list(head.shape)}" if head is not None else "no table of numbers"
    return PoseFileError(
        f"{path} is {what}, and no known format was recognised in it: is it a file of poses? A format that is named all the "
        f"same (--format {' | '.join(FORMATS)}) says what it misses."
    )


def _inspected(
    path: Path,
    format: str,
    kind: PoseFormat,
    raw: RawPoses,
    options: ReadOptions,
    times: Tensor | None,
    candidates: tuple[Candidate, ...],
) -> Inspection:
    found, order = _all_readings(path, format, raw, options)
    asked = next(
        reading
        for reading in found
        if reading.direction == (options.direction or kind.direction)
        and reading.camera_axes == (options.camera_axes or raw.axes or kind.axes)
        and reading.quaternion_order == order
    )
    rotations = raw.matrices[:, :, :3]
    matrices = _matrix_facts(
        rotations.transpose(0, 2, 1) if asked.direction == "world-to-camera" else rotations
    )
    unit = options.unit or raw.unit or kind.unit
    stamps = times if times is not None else raw.times
    stamps = None if stamps is None else torch.as_tensor(stamps, dtype=torch.float64)
    findings = []
    try:
        poses = settled(path, raw, format=format, times=times, options=options).poses
        R_world_cam, center_world = poses.R_world_cam, poses.center_world
    except PoseFileError as error:
        # Lengths and turns between neighbours are the same in a mirrored world.
        R_world_cam, center_world = _as_they_are(raw.matrices, asked)
        findings.append(_refusal(error, matrices, options))
    facts = pose_facts(R_world_cam, center_world, times=stamps, metric=unit == "m")
    verdict = judge(found, asked, moves=facts.moves and not facts.static, rig=options.camera is not None)
    # On a path with few turns a matrix and its transpose are told apart by the camera's mounting alone.
    turns = facts.turn_range_deg > _TURNING_DEG and verdict.outcome != "agrees" and options.camera is None
    transposed = fits_transposed(raw.matrices, found) if turns else None
    if transposed is not None:
        findings.append(
            Finding(
                kind="transposed",
                text=f"the cameras move the way they look (mean cosine {transposed:.2f}) if the rotations alone are "
                "transposed, and under no reading of the file as it is: the rotations are of one direction, the positions "
                "of the other. No flag mends that: transpose the rotations where the file comes from",
            )
        )
    elif verdict.outcome == "disagrees":
        findings.append(
            Finding(
                kind="convention",
                text=verdict.text,
                flags=tuple(_flags(reading.changes_from(asked)) for reading in verdict.better),
            )
        )
    findings += [_after_direction(finding, verdict, found, asked) for finding in unit_findings(facts, unit)]
    if facts.times is not None and times is None:
        findings += time_findings(facts.times, options.time_unit, is_free=format in _FREE)
    findings += motion_findings(facts, unit)
    ids = raw.frame_ids
    return Inspection(
        path=str(path),
        candidates=candidates,
        format=format,
        body=raw.body or kind.body,
        unit=unit,
        matrices=matrices,
        facts=facts,
        reading=asked,
        readings=found,
        verdict=verdict,
        frame_ids=None if not ids else (ids[0], ids[-1], ids[-1] - ids[0] + 1 - len(ids)),
        camera=raw.camera,
        notes=raw.notes,
        findings=tuple(findings),
    )


def _matrix_facts(rotations: Float[np.ndarray, "time 3 3"]) -> MatrixFacts:
    transposed = rotations.transpose(0, 2, 1)
    determinants = np.linalg.det(rotations)
    traces = (rotations[:-1] * rotations[1:]).sum(axis=(1, 2))
    return MatrixFacts(
        rt_r_error=float(np.abs(transposed @ rotations - np.eye(3)).max()),
        r_rt_error=float(np.abs(rotations @ transposed - np.eye(3)).max()),
        min_determinant=float(determinants.min()),
        max_determinant=float(determinants.max()),
        left_handed=int((determinants < 0).sum()),
        summed_arccos_deg=float(np.rad2deg(np.arccos(((traces - 1) / 2).clip(-1, 1)).sum())),
    )


def _all_readings(
    path: Path, format: str, raw: RawPoses, options: ReadOptions
) -> tuple[tuple[Reading, ...], str | None]:
    """Every reading of the matrices, and the quaternion order as asked, None where the format leaves no choice of it."""
    if format not in _FREE:
        return readings(raw.matrices), None
    other = _read_with(path, format, options, quaternion_order=_other_order(options.quaternion_order))
    if other is None:
        return readings(raw.matrices), None
    order = options.quaternion_order
    return (
        readings(raw.matrices, quaternion_order=order)
        + readings(other.matrices, quaternion_order=_other_order(order)),
        order,
    )


def _other_order(order: str) -> str:
    return "wxyz" if order == "xyzw" else "xyzw"


def _read_with(path: Path, format: str, options: ReadOptions, **changes: Any) -> RawPoses | None:
    """The file read otherwise; None where that cannot be."""
    try:
        return FORMATS[format].read(path, replace(options, **changes))
    except PoseFileError:
        return None


def _as_they_are(matrices: Float[np.ndarray, "time 3 4"], reading: Reading) -> tuple[Tensor, Tensor]:
    """Rotations and centres of matrices that `Poses` refuses, with the scale taken out of the rotations."""
    rotations, offsets = (
        torch.from_numpy(matrices[:, :, :3].copy()),
        torch.from_numpy(matrices[:, :, 3].copy()),
    )
    scale = torch.linalg.det(rotations).abs().pow(1 / 3)
    rotations = rotations / scale.clamp_min(1e-12)[:, None, None]
    if reading.direction == "world-to-camera":
        return rotations.mT, -(rotations.mT @ offsets[..., None]).squeeze(-1)
    return rotations, offsets


def _refusal(error: PoseFileError, matrices: MatrixFacts, options: ReadOptions) -> Finding:
    """Why the file is refused as asked, and the flags that may mend it."""
    flags: tuple[str, ...] = ()
    kind = "refused"
    # Readers take the error of the file's own matrices, which are the transposed ones for one direction.
    worst = max(matrices.rt_r_error, matrices.r_rt_error)
    if worst > options.tolerance:
        kind = "not-orthonormal"
        if worst < 0.05:
            flags = (f"--tolerance {_rounded_up(worst)}",)
    elif matrices.left_handed:
        kind, flags = "left-handed", ("--mirror x", "--mirror y", "--mirror z")
    return Finding(kind=kind, text=str(error), flags=flags)


def _rounded_up(value: float) -> str:
    magnitude = 10 ** np.floor(np.log10(value))
    return f"{np.ceil(value / magnitude * 1.0001) * magnitude:.0e}"


def _after_direction(
    finding: Finding, verdict: Verdict, found: tuple[Reading, ...], asked: Reading
) -> Finding:
    """A finding about the unit, with the direction of the matrices before a scale: the wrong one makes any step long."""
    if finding.kind != "unit":
        return finding
    if verdict.outcome == "disagrees":
        return replace(finding, text=f"{finding.text} First mend the convention.", flags=())
    other = next(reading for reading in found if reading.changes_from(asked).keys() == {"direction"})
    if other.path_length > SHORTER * asked.path_length:
        return finding
    return replace(
        finding,
        text=f"{finding.text} Or {other.direction} matrices, of a path of {other.path_length:.4g} in place of "
        f"{asked.path_length:.4g}?",
        flags=(_flags(other.changes_from(asked)), *finding.flags),
    )


def _flags(changes: Mapping[str, Any]) -> str:
    """Fields of `ReadOptions` as flags of the command line."""
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
        for name, value in changes.items()
    )


def flags_of(options: ReadOptions) -> str:
    """The flags that give these options; empty for the default ones."""
    default = ReadOptions()
    return _flags(
        {
            field.name: getattr(options, field.name)
            for field in fields(ReadOptions)
            if getattr(options, field.name) != getattr(default, field.name)
        }
    )
