"""``merope poses inspect``: what a pose file is, what it measures, and what would mend it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from merope.cli.pose_options import ReadFlags

if TYPE_CHECKING:
    from merope.data.poses.inspection import Inspection
    from merope.data.poses.readings import Reading

_SYMBOL = {"m": " m", "normalized": " units", "unknown": " units"}


def inspect(
    file: Path,
    /,
    *,
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    times: Path | None = None,
    json: bool = False,
) -> None:
    """Say what a pose file is, and what is odd about it.

    Without --format: which formats the file may be in, and why; where it can be one only, it is read as that. With it: the
    convention, unit, path, turns and times of the poses, how far rotations are from rotations, poses that repeat or jump,
    and whether the cameras move the way they look, under every reading of the matrices. What the motion speaks for is
    said together with the flag that selects it; nothing is read otherwise than asked.

    Args:
        file: A pose file, or a folder in a format of several files.
        read: How to read it.
        times: File with the time of each pose in seconds, one a line, for formats without times.
        json: Print one JSON object with every number.
    """
    from merope.data.poses.files import read_times
    from merope.data.poses.inspection import flags_of, inspect_poses

    options = read.options()
    found = inspect_poses(
        file, format=read.format, options=options, times=None if times is None else read_times(times)
    )
    extra = flags_of(options) + ("" if times is None else f" --times {shlex.quote(str(times))}")
    commands = _commands(found, extra.strip())
    if json:
        import json as encoder

        print(encoder.dumps({**found.to_dict(), "commands": commands}, indent=1))
        return
    following = ["", "next:", *(f"  {command}" for command in commands)] if commands else []
    print("\n".join([*_lines(found), *following]))


def _commands(found: "Inspection", extra: str) -> list[str]:
    """The command lines that follow from an inspection."""
    file = shlex.quote(found.path)
    if found.format is None:
        return [
            " ".join(filter(None, ["merope poses inspect", file, "--format", candidate.format, extra]))
            for candidate in found.candidates
        ]
    start = " ".join(filter(None, [file, "--format", found.format, extra]))
    mending = [flag for finding in found.findings for flag in finding.flags if "--to-unit" not in flag]
    scaling = [flag for finding in found.findings for flag in finding.flags if "--to-unit" in flag]
    commands = [f"merope poses inspect {start} {flag}" for flag in mending]
    commands += [
        f"merope poses convert {start.replace(file, f'{file} poses.json', 1)} {flag} --to merope"
        for flag in scaling
    ]
    kinds = {finding.kind for finding in found.findings}
    if not (kinds & _WRONG or (kinds & _DOUBTFUL and commands)):
        commands.append(f"merope poses convert {start.replace(file, f'{file} poses.json', 1)} --to merope")
        commands.append(f"merope poses plot {start} --out path.png")
    return commands


_WRONG = {"refused", "left-handed", "not-orthonormal", "transposed"}
"""Findings with which no other command is of use, and most refuse the file as well."""
_DOUBTFUL = {"convention", "unit", "times"}
"""Findings that are mended before a file is used, where a flag may do that."""


def _lines(found: "Inspection") -> list[str]:
    lines = [found.path]
    if found.candidates:
        lines.append("  may be")
        lines += [f"    {candidate.format}: {candidate.reason}" for candidate in found.candidates]
    if found.facts is None or found.matrices is None or found.reading is None or found.verdict is None:
        return [*lines, "  several formats are possible: choose with --format"]
    facts, matrices, reading = found.facts, found.matrices, found.reading
    unit = _SYMBOL[found.unit or "unknown"]
    order = f", quaternions {reading.quaternion_order}" if reading.quaternion_order else ""
    summed = f"{facts.summed_rotation_deg:.6g} deg in all"
    if abs(matrices.summed_arccos_deg - facts.summed_rotation_deg) > 0.05:
        summed += f" ({matrices.summed_arccos_deg:.6g} by arccos of the matrices as rounded)"
    lines += [
        f"  read as {found.format}: {reading.direction} of the {found.body}, {reading.camera_axes} axes{order}, "
        f"unit {found.unit}",
        f"  {facts.num_poses} poses, path {facts.path_length:.6g}{unit}; step {facts.mean_step:.4g} mean, "
        f"{facts.median_step:.4g} median, {facts.max_step:.4g} largest",
        "  box " + " x ".join(f"{edge:.5g}" for edge in facts.extent) + f"{unit}, largest coordinate "
        f"{facts.max_coordinate:.6g}; float32 would change steps by up to {facts.float32_step_error:.1g}",
        f"  turns {summed}, {facts.max_rotation_step_deg:.3g} deg at most in one step; "
        f"last pose {abs(facts.turn_deg):.3g} deg to the {'left' if facts.turn_deg >= 0 else 'right'} of the first",
        f"  up of the cameras in the world: ({', '.join(f'{value:.2f}' for value in facts.up)})",
        f"  rotations off by {matrices.r_rt_error:.0e} (largest entry of R R^T - I); "
        + (
            "right-handed"
            if not matrices.left_handed
            else f"{matrices.left_handed} of {facts.num_poses} left-handed"
        ),
    ]
    if facts.times is not None:
        times, speed = facts.times, facts.speed
        rate = "" if times.fps is None else f", {times.fps:.4g} a second"
        moving = (
            ""
            if speed is None
            else f"; speed {speed[0]:.3g} to {speed[2]:.3g}{unit}/s, median {speed[1]:.3g}"
        )
        lines.append(
            f"  {times.count} times over {times.span:.6g} s, {times.min_spacing:.4g} to {times.max_spacing:.4g} s "
            f"apart{rate}{moving}"
        )
    else:
        lines.append("  no times")
    if found.frame_ids is not None:
        first, last, missing = found.frame_ids
        lines.append(f"  frames {first} to {last}, {missing} missing between them")
    if found.camera is not None:
        lines.append(f"  lens {found.camera.get('model', 'of its own')}")
    lines += ["", *_heading_table(found)]
    if found.verdict.outcome != "disagrees":
        lines.append(f"  {found.verdict.text}")
    lines += [f"  note: {note}" for note in found.notes]
    if found.findings:
        lines += ["", "findings"]
    for finding in found.findings:
        flags = f" [{' | '.join(finding.flags)}]" if finding.flags else ""
        lines.append(f"  {finding.kind}: {finding.text}{flags}")
    return lines


def _heading_table(found: "Inspection") -> list[str]:
    """Mean cosine between motion and viewing direction: a row per axes convention, a column per direction."""
    from merope.data.poses.readings import rounded

    orders = list(dict.fromkeys(reading.quaternion_order for reading in found.readings))
    columns = [(order, direction) for order in orders for direction in ("camera-to-world", "world-to-camera")]

    def of(order: str | None, direction: str, axes: str) -> "Reading":
        return next(
            reading
            for reading in found.readings
            if (reading.quaternion_order, reading.direction, reading.camera_axes) == (order, direction, axes)
        )

    def row(label: str, cells: list[str]) -> str:
        return f"    {label:<20}" + "".join(f"{cell:>24}" for cell in cells)

    # Conventions whose forward axis is the same are one row.
    rows = {"opencv": "opencv", "opengl": "opengl", "flu": "flu, frd, unreal"}
    table = [
        "  moves the way it looks (mean cosine), if read as",
        row(
            "",
            [f"{direction}{f' {order}' if order else ''}" for order, direction in columns],
        ),
    ]
    table += [
        row(label, [rounded(of(order, direction, axes).heading) for order, direction in columns])
        for axes, label in rows.items()
    ]
    for label, name in (("path", "path_length"), ("largest step", "max_step")):
        table.append(row(label, [f"{getattr(of(order, way, 'opencv'), name):.4g}" for order, way in columns]))
    return table
