"""What a benchmark's split may be: the folder of a selection, a folder of clips, or a list of clips with digests."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merope.cameras import CameraModel
from merope.data.clips.folder import clip_ids
from merope.data.foreign_files.strict_json import parse_json
from merope.data.lenses.files import read_lens
from merope.data.poses.command_files import read_command
from merope.data.selection.splits import FORMAT as SPLIT_FORMAT
from merope.data.selection.splits import Split, SplitError, read_split
from merope.errors import MeropeError
from merope.evaluation.benchmarks.benchmark import Benchmark, ExpectedClip
from merope.evaluation.command_digest import digest_of_command
from merope.files import write_text_atomically
from merope.geometry.poses import Poses

CLIPS_FORMAT = "merope-benchmark-clips-1"
_COLUMNS = ("clip_id", "num_frames", "digest", "group")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_DIGEST = re.compile(r"[0-9a-f]{16}")


def case_name(clip_id: str) -> str:
    """What a clip's case is called in a manifest: letters, digits and _ . + = - stay, anything else becomes "-"."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "-", clip_id).lstrip(".+=-") or "clip"


def expected_of_split(benchmark: Benchmark, split: Path | None) -> tuple[ExpectedClip, ...]:
    """The clips that a split names, each along every trajectory of the benchmark; none without a split.

    ``split`` is the folder that `merope data select` writes, or the split.json in it; a folder of clips, as
    `merope data convert` writes it; or a list (.json, .csv or a name a line). Commanded poses are read as
    `merope generate` reads them, by their times at the benchmark's rate.

    Raises:
        FileNotFoundError: if it is not there.
        SplitError: if it cannot be read, has poses of some trajectories and not of others, or a path is too short.
    """
    if split is None:
        return ()
    if not split.exists():
        raise FileNotFoundError(2, "No such split", str(split))
    if split.is_dir() and not (split / "split.json").is_file():
        return _of_clips(benchmark, split)
    file = split / "split.json" if split.is_dir() else split
    text = _text(file)
    if file.suffix.lower() != ".json":
        return _of_list(benchmark, file, _rows(file, text))
    content = _json(file, text)
    if isinstance(content, dict) and content.get("format") == SPLIT_FORMAT:
        return _of_selection(benchmark, file, read_split(file))
    return _of_list(benchmark, file, _entries(file, content, benchmark))


def write_clip_list(path: str | Path, benchmark: Benchmark, clips: Sequence[ExpectedClip]) -> None:
    """Write the clips with their digests, as a small file that stands for a split.

    Raises:
        ValueError: if the name ends in neither .json nor .csv, by which it is read again.
    """
    path = Path(path)
    if path.suffix not in (".json", ".csv"):
        raise ValueError(f"a list of clips is .json or .csv; got {path}.")
    rows = [{name: getattr(clip, name) for name in _COLUMNS} for clip in clips]
    if path.suffix == ".csv":
        text = io.StringIO()
        table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_text_atomically(path, text.getvalue())
        return
    head = json.dumps({"format": CLIPS_FORMAT, "benchmark": benchmark.name})[:-1]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    write_text_atomically(path, f'{head}, "clips": [\n{lines}\n]}}\n')


def base_clips(split: Split) -> dict[str, str]:
    """Case by "SOURCE/CLIP_ID" of a split; the source stands before the name where there are several.

    Raises:
        SplitError: if two clips would be one case.
    """
    several = len(split.sources) > 1
    cases = {
        f"{clip.source}/{clip.clip_id}": case_name(
            f"{clip.source}-{clip.clip_id}" if several else clip.clip_id
        )
        for clip in split.clips
    }
    twice = [case for case, count in Counter(cases.values()).items() if count > 1]
    if twice:
        names = [name for name, case in cases.items() if case == twice[0]]
        raise SplitError(f"clips {' and '.join(names)} would both be case {twice[0]!r}. Rename one.")
    return cases


def _of_selection(benchmark: Benchmark, file: Path, split: Split) -> tuple[ExpectedClip, ...]:
    folder = file.parent / "poses"
    found = []
    for clip, case in zip(split.clips, base_clips(split).values(), strict=True):
        for variant in benchmark.variants:
            place = f"{clip.source}/{clip.clip_id}/{variant}"
            path = folder / f"{place}.json"
            if not path.is_file() and folder.is_dir():
                raise SplitError(
                    f"{file} names {clip.source}/{clip.clip_id}, and there is no {path}. {benchmark.name} drives each clip "
                    f"along {', '.join(benchmark.variants)}: make the split by `merope data select` from clips with poses."
                )
            poses = _command(benchmark, path) if path.is_file() else None
            found.append(
                _clip(
                    benchmark,
                    f"{case}/{variant}",
                    poses,
                    group=clip.cluster,
                    also=(place, f"{clip.clip_id}/{variant}"),
                )
            )
    return tuple(found)


def _of_clips(benchmark: Benchmark, folder: Path) -> tuple[ExpectedClip, ...]:
    if benchmark.variants != ("original",):
        raise SplitError(
            f"{folder} is a folder of clips, and {benchmark.name} drives each along {', '.join(benchmark.variants)}. Give "
            "the folder that `merope data select` wrote (split.json and poses/)."
        )
    names = clip_ids(folder)
    cases = Counter(case_name(name) for name in names)
    if twice := [case for case, count in cases.items() if count > 1]:
        raise SplitError(f"{cases[twice[0]]} clips of {folder} would be case {twice[0]!r}. Rename them.")
    return tuple(
        _clip(
            benchmark,
            f"{case_name(name)}/original",
            _command(benchmark, folder / name / "poses.json"),
            lens=read_lens(path) if (path := folder / name / "lens.json").is_file() else None,
            also=(name, f"{name}/original"),
        )
        for name in names
    )


def _of_list(
    benchmark: Benchmark, file: Path, entries: Sequence[Mapping[str, Any]]
) -> tuple[ExpectedClip, ...]:
    clips = []
    for number, entry in enumerate(entries):
        name, digest, frames = entry.get("clip_id"), entry.get("digest") or None, entry.get("num_frames")
        if not isinstance(name, str) or not name.strip():
            raise SplitError(f"{file}: entry {number} has no clip_id.")
        if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise SplitError(
                f"{file}: digest of {name} is {digest!r:.40}; it is 16 hexadecimal digits (`merope benchmark clips`)."
            )
        if frames in (None, ""):
            frames = benchmark.num_frames
        if not _COUNT.fullmatch(str(frames)):
            raise SplitError(f"{file}: num_frames of {name} is {frames!r:.40} and no count of frames.")
        case, _, variant = name.rpartition("/")
        full = case and variant in benchmark.variants
        names = [name] if full else [f"{case_name(name)}/{each}" for each in benchmark.variants]
        if digest is not None and len(names) > 1:
            raise SplitError(
                f"{file}: {name} has one digest and stands for {len(names)} clips, {', '.join(names)}; list each."
            )
        clips += [
            ExpectedClip(
                clip_id=each,
                num_frames=int(frames),
                digest=digest,
                group=str(entry.get("group") or "all"),
                also=() if full or len(names) > 1 else (name,),
            )
            for each in names
        ]
    twice = [name for name, count in Counter(clip.clip_id for clip in clips).items() if count > 1]
    if twice:
        raise SplitError(f"{file} names {twice[0]} more than once. Every clip counts once.")
    if not clips:
        raise SplitError(f"{file} names no clips.")
    return tuple(clips)


def _rows(file: Path, text: str) -> list[Mapping[str, Any]]:
    """The entries of a table, or of a name a line."""
    if file.suffix.lower() != ".csv":
        return [{"clip_id": line.strip()} for line in text.splitlines() if line.strip()]
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = table.fieldnames or ()
        rows: list[Mapping[str, Any]] = list(table)
    except csv.Error as error:
        raise SplitError(f"{file} is no table that can be read: line {table.line_num}: {error}.") from None
    if "clip_id" not in names:
        raise SplitError(f"{file} needs a first line of names with clip_id, such as {','.join(_COLUMNS)}.")
    return rows


def _entries(file: Path, content: Any, benchmark: Benchmark) -> list[Mapping[str, Any]]:
    """The entries of a JSON file."""
    if isinstance(content, dict):
        if content.get("format") != CLIPS_FORMAT:
            raise SplitError(
                f"{file} is no split: {content.get('format')!r:.40} is none of {SPLIT_FORMAT!r} (`merope data select`) and "
                f"{CLIPS_FORMAT!r} (`merope benchmark clips`)."
            )
        if content.get("benchmark", benchmark.name) != benchmark.name:
            raise SplitError(f"{file} lists the clips of {content['benchmark']}, not of {benchmark.name}.")
        content = content.get("clips")
    if not isinstance(content, list):
        raise SplitError(f"{file} must hold a list of clips.")
    entries = [{"clip_id": entry} if isinstance(entry, str) else entry for entry in content]
    if wrong := next((entry for entry in entries if not isinstance(entry, dict)), None):
        raise SplitError(f"{file}: {wrong!r:.60} is neither a name nor an object with clip_id.")
    return entries


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SplitError(f"{file} is no split: it is not UTF-8 text ({error}).") from None


def _json(file: Path, text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise SplitError(f"{file} is no split: it is not JSON ({error}).") from None


def _command(benchmark: Benchmark, path: Path) -> Poses:
    try:
        return read_command(
            path,
            format="merope",
            num_frames=benchmark.num_frames,
            fps=benchmark.fps,
            unit=benchmark.assumed_unit,
            wanted_unit=benchmark.unit,
        ).poses
    except MeropeError as error:
        raise SplitError(f"a path of {benchmark.name} cannot be driven: {error}") from error


def _clip(
    benchmark: Benchmark,
    name: str,
    poses: Poses | None,
    *,
    also: tuple[str, ...],
    group: str = "all",
    lens: CameraModel | None = None,
) -> ExpectedClip:
    return ExpectedClip(
        clip_id=name,
        num_frames=benchmark.num_frames,
        digest=None if poses is None else digest_of_command(poses),
        group=group,
        commanded=poses,
        lens=lens,
        also=tuple(other for other in also if other != name),
    )
