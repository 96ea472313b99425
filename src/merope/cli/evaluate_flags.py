"""The flags of ``merope evaluate``, by what they are about."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.pose_options import Axes, Direction, Format, Unit

if TYPE_CHECKING:
    from merope.data.poses.table import ReadOptions

Estimator = Literal["network", "colmap", "xfeat", "vggt", "vggt-omega", "depth-anything-3", "poses"]

SCALES: dict[str, Literal["metric", "up_to_scale"] | None] = {
    "auto": None,
    "metric": "metric",
    "up-to-scale": "up_to_scale",
}


@dataclass(frozen=True, kw_only=True)
class ScoredFlags:
    """What is scored, and by which rules."""

    commanded: Path | None = None
    """File of commanded (true) poses, or a folder with one for each clip."""
    estimated: Annotated[
        tuple[Path, ...], tyro.conf.arg(metavar="PATH [PATH ...]", help_behavior_hint="")
    ] = ()
    """File of estimated poses, or a folder with one for each clip, of the same names; several are several rows."""
    window: int | None = None
    """Cut pose files into consecutive clips of this many frames, without overlap; without it a file is one clip."""
    fill: bool = False
    """Keep commanded poses without an estimated one, interpolated and counted as not registered; else they are left out."""
    first_generated: int | None = None
    """Number of given frames at the start of each clip of pose files; adds figures over the generated ones alone."""
    floor: Path | None = None
    """True clips for the noise floor, alone or beside runs: as `merope data convert` writes them, or with true_frames/."""
    benchmark: str | None = None
    """Benchmark that these should be (`merope benchmark list`); it says whatever of the protocol other flags leave open."""
    split: Path | None = None
    """Split file of the benchmark: which clips there should be."""
    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")] = ()
    """Names of the rows; by default those of folders, and of files without their ending."""
    on_failure: Literal["worst", "skip", "error"] | None = None
    """A clip without cameras counts as the worst possible answer (the usual), is left out, or ends the command."""
    scale: Literal["auto", "metric", "up-to-scale"] = "auto"
    """Whether estimated centres have a metric scale, which defines the metric scale error; auto asks estimator and units."""
    angle: Literal["atan2", "acos"] = "atan2"
    """atan2 is exact; acos is the formula as the paper prints it."""
    seed: int = 0
    """Seed of the bootstrap intervals."""


@dataclass(frozen=True, kw_only=True)
class ReadingFlags:
    """How pose files are read: those of --commanded, --estimated and --estimates."""

    format: Format | None = None
    """Format of the files. It is never guessed: `merope poses inspect FILE` lists what a file may be."""
    estimated_format: Format | None = None
    """Format of the estimated files where it differs."""
    unit: Unit | None = None
    """What a length of 1 is; by default what a file says, or else its format: KITTI and TUM are metres, arrays unknown."""
    estimated_unit: Unit | None = None
    """Unit of the estimated files where it differs."""
    index_column: bool = False
    """A frame number stands before each row, in all files (KITTI rows of 13 numbers say that themselves)."""
    estimated_index_column: bool = False
    """The same, in the estimated files alone."""
    delimiter: Literal["space", "comma"] = "space"
    """What separates numbers."""
    skip_lines: int = 0
    """Lines to leave out at the top of each file."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """Unit of time stamps."""
    max_time_difference: float = 0.02
    """Seconds by which time stamps of poses that belong together may differ; evo's default is 0.01."""
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw"
    """Order of quaternion components."""
    direction: Direction | None = None
    """Which way the matrices of estimated files map; by default as the format says."""
    camera_axes: Axes | None = None
    """Axes of estimated files; opengl has y up and z back; by default as the format says."""
    mirror: Literal["none", "x", "y", "z"] = "none"
    """World axis of estimated files to negate, where their world is left-handed."""
    tolerance: float = 1e-3
    """How far R^T R may be from the identity."""

    def commanded_options(self) -> "ReadOptions":
        """How commanded files are read; NaN in them is an error."""
        from merope.data.poses.table import ReadOptions

        return ReadOptions(
            unit=self.unit,
            index_column=self.index_column,
            delimiter=self.delimiter,
            skip_lines=self.skip_lines,
            time_unit=self.time_unit,
            quaternion_order=self.quaternion_order,
            tolerance=self.tolerance,
        )

    def estimated_options(self) -> "ReadOptions":
        """How estimated files are read; rows of NaN are frames without a pose."""
        from dataclasses import replace

        return replace(
            self.commanded_options(),
            unit=self.estimated_unit or self.unit,
            index_column=self.index_column or self.estimated_index_column,
            direction=self.direction,
            camera_axes=self.camera_axes,
            mirror=self.mirror,
            nan_rows="leave out",
        )


@dataclass(frozen=True, kw_only=True)
class RecoveryFlags:
    """How cameras are recovered from the frames of clips."""

    estimator: Estimator | None = None
    """network (the usual one: street clips, metres), colmap or xfeat (any texture), learned with --weights, or poses."""
    estimates: Path | None = None
    """For --estimator poses: a folder with CASE/TRAJECTORY.* that another program recovered, in --format (merope)."""
    weights: Path | None = None
    """Weights of the estimator: a file or folder."""
    device: str = "cpu"
    """Where the estimator computes, such as cuda:0."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option of the estimator, as FIELD=VALUE; may come several times. docs/estimators.md lists them."""
    workers: int = 1
    """Processes that recover cameras, at most one for each clip: one worker, one CPU core. Their number changes no digit."""
    share: str | None = None
    """K/N recovers the K-th of N parts into --out, for machines that share it; the command without --share scores them."""
    again: bool = False
    """Recover all cameras anew, those that failed too, also where --out has them."""
    check_reliability: bool = False
    """Recover each clip twice, backwards (network: mirrored), and flag those where both differ; no number changes."""


@dataclass(frozen=True, kw_only=True)
class WrittenFlags:
    """What is written and printed."""

    out: Path | None = None
    """Folder for report.html, results.*, figures, and recovered cameras, which later calls with this folder use again."""
    fidelity: Path | None = None
    """fidelity.json of `merope fidelity`: its distances become columns of the rows with the same labels."""
    json: bool = False
    """Print JSON with values, units, protocols, flags and every clip, and nothing else."""
