"""What speaks against a run: every way in which it is not the benchmark it is held against, in sentences."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from merope.cameras import CameraModel
from merope.data.lenses.facts import compare_lenses
from merope.evaluation.benchmarks.benchmark import NO_SPLIT, Benchmark, ExpectedClip
from merope.evaluation.command_digest import digest_of_command
from merope.evaluation.runs.run import RunClip, ScoredRun
from merope.geometry.poses import Poses

TOLERANCE = 1e-6
"""Difference of two relative poses, in metres (or units) and in entries of rotation matrices, that is none."""

LENS_TOLERANCE_DEG = 0.01
"""Angle between the rays of two lenses that is none: a tenth of a pixel of 512 over 70 degrees."""

_GRID = 9
_MOST_NAMED = 5
_Pair = tuple[RunClip, ExpectedClip]


def reasons_against(
    benchmark: Benchmark, run: ScoredRun, expected: Sequence[ExpectedClip]
) -> tuple[list[str], int]:
    """Sentences that each say why the run is not comparable, none where it is; and how many expected clips were scored."""
    reasons: list[str] = []
    by_name = _by_name(expected)
    known = [(clip, by_name[clip.clip_id]) for clip in run.clips if clip.clip_id in by_name]
    scored = {by_name[clip.clip_id].clip_id for clip in run.result.clips if clip.clip_id in by_name}
    if not expected:
        reasons.append(f"{NO_SPLIT[0].upper()}{NO_SPLIT[1:]}.")
        pairs = [(clip, _unnamed(benchmark, clip)) for clip in run.clips]
    else:
        pairs = known
        reasons += _wrong_clips(benchmark, run, expected, known, scored)
    reasons += _wrong_frames(benchmark, pairs)
    if expected:
        reasons += _wrong_commands(known)
    reasons += _wrong_estimator(benchmark, run)
    if run.result.num_skipped:
        reasons.append(
            f"Clips whose camera was not recovered were left out of the averages ({run.result.num_skipped}, on_failure = "
            f"{run.result.on_failure}); the benchmark counts them: {benchmark.on_failure}."
        )
    return reasons, len(scored)


def difference(commanded: Poses, expected: Poses) -> str | None:
    """How far a command is from the one it should have been, in words; None where they agree to 1e-6.

    Poses are compared relative to their first, so the worlds may differ.

    Raises:
        ValueError: if they do not have the same number of poses.
    """
    if len(commanded) != len(expected):
        raise ValueError(f"commanded must have {len(expected)} poses as expected has; got {len(commanded)}.")
    first, other = (poses.rebase_to_first().T_world_cam[:, :3] for poses in (commanded, expected))
    apart = (first - other).abs()
    rotations, centers = float(apart[..., :3].amax()), float(apart[..., 3].amax())
    if max(rotations, centers) <= TOLERANCE:
        return None
    lengths = "m" if expected.unit == "m" else "units"
    frame = int(apart.amax(dim=(1, 2)).gt(TOLERANCE).nonzero()[0, 0])
    return f"from frame {frame} on, centres by up to {centers:.3g} {lengths}, rotation entries by {rotations:.3g}"


def _by_name(expected: Sequence[ExpectedClip]) -> dict[str, ExpectedClip]:
    """Clips by all of their names; another name that two share, such as those of two sources, is none."""
    shared = Counter(name for clip in expected for name in clip.also)
    found = {name: clip for clip in expected for name in clip.also if shared[name] == 1}
    return found | {clip.clip_id: clip for clip in expected}


def _unnamed(benchmark: Benchmark, clip: RunClip) -> ExpectedClip:
    return ExpectedClip(clip_id=clip.clip_id, num_frames=benchmark.num_frames, digest=None)


def _wrong_clips(
    benchmark: Benchmark,
    run: ScoredRun,
    expected: Sequence[ExpectedClip],
    known: Sequence[_Pair],
    scored: set[str],
) -> list[str]:
    reasons = []
    if len(expected) != benchmark.num_clips:
        reasons.append(f"The split names {len(expected)} clips; {benchmark.name} has {benchmark.num_clips}.")
    missing = [clip.clip_id for clip in expected if clip.clip_id not in scored]
    if missing:
        reasons.append(f"{len(missing)} of {len(expected)} clips are missing: {_named(missing)}.")
    names = {clip.clip_id for clip, _ in known}
    came = dict.fromkeys([clip.clip_id for clip in run.clips] + [clip.clip_id for clip in run.result.clips])
    if extra := [name for name in came if name not in names]:
        reasons.append(_count(extra, "is no clip of the split", "are no clips of the split") + ".")
    times = Counter(wanted.clip_id for _, wanted in known)
    if twice := [name for name, count in times.items() if count > 1]:
        reasons.append(_count(twice, "is there more than once", "are there more than once") + ".")
    return reasons


def _wrong_frames(benchmark: Benchmark, pairs: Sequence[_Pair]) -> list[str]:
    """Numbers of frames, prefix, rate, size and unit; what a clip does not say cannot be checked and is a reason too."""

    def check(what: str, wanted: str, found: Callable[[RunClip, ExpectedClip], str | None]) -> Iterable[str]:
        wrong = [(clip.clip_id, words) for clip, expected in pairs if (words := found(clip, expected))]
        if wrong:
            listed = _named([f"{name} ({words})" for name, words in wrong])
            yield f"{_clips(len(wrong))} of another {what} than {wanted}: {listed}."

    def frames(clip: RunClip, expected: ExpectedClip) -> str | None:
        came = len(clip.commanded)
        return None if came == expected.num_frames else str(came)

    def prefix(clip: RunClip, expected: ExpectedClip) -> str | None:
        if clip.first_generated is None:
            return "not said" if benchmark.prefix_frames else None
        return None if clip.first_generated == benchmark.prefix_frames else str(clip.first_generated)

    def rate(clip: RunClip, expected: ExpectedClip) -> str | None:
        if clip.fps is None:
            return "not known"
        return None if abs(clip.fps / benchmark.fps - 1) < 1e-3 else f"{clip.fps:g} Hz"

    def size(clip: RunClip, expected: ExpectedClip) -> str | None:
        if clip.lens is None:
            return "not known"
        came = (clip.lens.height, clip.lens.width)
        return None if came == (benchmark.height, benchmark.width) else f"{came[0]} x {came[1]}"

    def lens(clip: RunClip, expected: ExpectedClip) -> str | None:
        if clip.lens is None or expected.lens is None:
            return None
        if (clip.lens.height, clip.lens.width) != (expected.lens.height, expected.lens.width):
            return None
        return _lens_difference(clip.lens, expected.lens)

    def unit(clip: RunClip, expected: ExpectedClip) -> str | None:
        return None if clip.commanded.unit == benchmark.unit else clip.commanded.unit

    return [
        *check("number of frames", str(benchmark.num_frames), frames),
        *check("number of given frames", str(benchmark.prefix_frames), prefix),
        *check("frame rate", f"{benchmark.fps:g} Hz", rate),
        *check("frame size", f"{benchmark.height} x {benchmark.width}", size),
        *check("lens", "the split's" if benchmark.needs_split else benchmark.lens, lens),
        *check("unit", benchmark.unit, unit),
    ]


def _lens_difference(lens: CameraModel, expected: CameraModel) -> str | None:
    try:
        found = compare_lenses(expected, lens, columns=_GRID, rows=_GRID)
    except ValueError as error:
        return f"not comparable: {error}"
    if found.max_deg <= LENS_TOLERANCE_DEG and not found.num_one_sided:
        return None
    return f"rays up to {found.max_deg:.3g} degrees apart"


def _wrong_commands(known: Sequence[_Pair]) -> list[str]:
    reasons, moved = [], []
    for clip, wanted in known:
        if len(clip.commanded) != wanted.num_frames:
            continue
        if wanted.commanded is not None:
            if words := difference(clip.commanded, wanted.commanded):
                moved.append(f"{clip.clip_id} ({words})")
        elif wanted.digest is not None and digest_of_command(clip.commanded) != wanted.digest:
            moved.append(f"{clip.clip_id} (another digest)")
    if moved:
        reasons.append(f"{_clips(len(moved))} driven along other commands than the split's: {_named(moved)}.")
    unsaid = [wanted.clip_id for _, wanted in known if wanted.digest is None and wanted.commanded is None]
    if unsaid:
        reasons.append(
            f"The split has neither poses nor digests of {len(unsaid)} clips, so nothing says that they were driven "
            "along the same commands (`merope benchmark clips` writes them)."
        )
    return reasons


def _wrong_estimator(benchmark: Benchmark, run: ScoredRun) -> list[str]:
    came = run.result.settings.get("estimator")
    if came is None or came == "poses":
        return [
            f"Estimated poses were handed in, and nothing says that {benchmark.estimator} made them; the numbers stand, "
            "and are those of another estimator until it does."
        ]
    if came != benchmark.estimator:
        return [
            f"Cameras were recovered by {came}; {benchmark.name} takes {benchmark.estimator}. The numbers stand, and are "
            "not comparable with those of another estimator."
        ]
    if benchmark.estimator_sha256 is None:
        return []
    identity = run.result.settings.get("estimator_identity")
    weights = identity.get("weights_sha256") if isinstance(identity, dict) else None
    if weights != benchmark.estimator_sha256():
        return [f"The estimator {came} has other weights than those that {benchmark.name} takes."]
    return []


def _clips(count: int) -> str:
    return "1 clip is" if count == 1 else f"{count} clips are"


def _count(names: Sequence[str], one: str, many: str) -> str:
    return f"{names[0]} {one}" if len(names) == 1 else f"{len(names)} clips {many}: {_named(names)}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    rest = len(names) - _MOST_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown
