"""`Benchmark`: an evaluation that has a name. Which clips, how long, which estimator, which averages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merope.cameras import CameraModel
from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.protocol import SPECS
from merope.evaluation.runs.run import ScoredRun
from merope.geometry.poses import Poses, Unit

NO_SPLIT = (
    "no split file was given, so nothing says which clips these should be (--split; `merope benchmark show` says what it "
    "holds)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedClip:
    """One clip of a benchmark, as a complete run has it."""

    clip_id: str
    """CASE/TRAJECTORY for what `merope generate` makes, or as the clips of the benchmark are called."""
    num_frames: int
    digest: str | None
    """`digest_of_command` of the commanded poses; None where the split says nothing of them."""
    group: str = "all"
    """Kind of motion, such as the cluster of a split."""
    commanded: Poses | None = field(default=None, repr=False)
    """The commanded poses themselves, where the split has them."""
    lens: CameraModel | None = field(default=None, repr=False)
    """Its lens, where the split has it."""
    also: tuple[str, ...] = ()
    """Other names that this clip goes by, such as that of its pose file."""


Expect = Callable[["Benchmark", Path | None], tuple[ExpectedClip, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """The protocol of a named evaluation. `expected` are its clips, `verdict` says whether a run is one of them all."""

    name: str
    title: str
    source: str
    """Where it comes from, and where what it says stands."""
    num_clips: int
    variants: tuple[str, ...]
    """Trajectories of each case, by the names that clips end in."""
    num_frames: int
    """Frames of a clip, given ones included."""
    prefix_frames: int
    """Leading frames that are given; 0 where none are."""
    fps: float
    height: int
    width: int
    unit: Unit
    """Unit of the commanded poses."""
    assumed_unit: Unit | None = None
    """What poses of unknown unit are taken to be in; None refuses them."""
    lens: str
    """In words."""
    estimator: str
    """Name of the pose estimator in `merope.evaluation.estimators.registry.ESTIMATORS`."""
    metrics: tuple[str, ...]
    """Columns of its table, keys of `SPECS`."""
    averages: str
    scale: str
    """Which treatment of scale each of the columns has."""
    on_failure: str
    """What becomes of a clip whose camera was not recovered."""
    fidelity: str | None
    """Preset of `merope fidelity` for the same table; None where it has no such column."""
    split: str
    """What the split file must hold."""
    open_points: str
    """What its source leaves open and this project decided."""
    steps: tuple[str, ...]
    """Command lines from data to the table."""
    yours: Mapping[str, str] = field(default_factory=dict)
    """What in them a user has to bring or to name, in words."""
    expect: Expect = field(repr=False)
    estimator_sha256: Callable[[], str] | None = field(default=None, repr=False)
    """Gives the hash of the weights that the estimator must have; None where any that go by its name will do."""

    def __post_init__(self) -> None:
        unknown = [key for key in self.metrics if key not in SPECS]
        if unknown:
            raise ValueError(f"metrics must be keys of SPECS, got {unknown}; there are {', '.join(SPECS)}.")

    @property
    def first_generated(self) -> int | None:
        """Number of the first frame that is not given; None where nothing is given."""
        return self.prefix_frames or None

    @property
    def needs_split(self) -> bool:
        """Whether its clips are data of the user's, or follow from its name."""
        return not self.split.startswith("none")

    def expected(self, split: str | Path | None = None) -> tuple[ExpectedClip, ...]:
        """The clips of a complete run, in the order of the split; none where the benchmark needs one and has none.

        Raises:
            SplitError: if the split cannot be read, or a path in it does not reach over all frames.
            FileNotFoundError: if it is not there.
        """
        return self.expect(self, None if split is None else Path(split))

    def verdict(self, run: ScoredRun, expected: tuple[ExpectedClip, ...]) -> Verdict:
        """Whether the run's numbers may stand beside others of this benchmark; every reason against it, named.

        What cannot be checked (no split, a command without a digest, poses from files) is a reason too.
        """
        from merope.evaluation.benchmarks.checking import reasons_against

        reasons, used = reasons_against(self, run, expected)
        return Verdict(
            benchmark=self.name,
            num_expected=len(expected) or self.num_clips,
            num_used=used,
            reasons=tuple(reasons),
        )

    def describe(self) -> str:
        """The protocol in words, a line for each thing that it fixes."""
        width = max(len(name) for name, _ in self._lines())
        lines = [f"{name:<{width}}  {words}" for name, words in self._lines()]
        return "\n".join([f"{self.name}: {self.title}", *lines])

    def _lines(self) -> tuple[tuple[str, str], ...]:
        given = f"{self.prefix_frames} of them given" if self.prefix_frames else "none given"
        columns = ", ".join(SPECS[key].label for key in self.metrics)
        return (
            ("from", self.source),
            (
                "clips",
                f"{self.num_clips}: {self.num_clips // len(self.variants)} x {', '.join(self.variants)}",
            ),
            ("frames", f"{self.num_frames} at {self.fps:g} Hz, {given}; {self.height} x {self.width} pixels"),
            ("lens", self.lens),
            ("commands", f"in {'metres' if self.unit == 'm' else self.unit + ' units'}"),
            ("estimator", self.estimator),
            ("columns", columns),
            ("averages", self.averages),
            ("scale", self.scale),
            ("failures", self.on_failure),
            ("fidelity", self.fidelity or "no such column"),
            ("split", self.split),
            ("left open", self.open_points),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        words = {name: text for name, text in self._lines() if name not in ("clips", "frames", "columns")}
        return {
            "name": self.name,
            "title": self.title,
            "num_clips": self.num_clips,
            "variants": list(self.variants),
            "num_frames": self.num_frames,
            "prefix_frames": self.prefix_frames,
            "fps": self.fps,
            "height": self.height,
            "width": self.width,
            "unit": self.unit,
            "estimator": self.estimator,
            "metrics": list(self.metrics),
            "needs_split": self.needs_split,
            "words": words,
            "steps": list(self.steps),
            "yours": dict(self.yours),
        }
