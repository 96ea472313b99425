"""``merope benchmark cases``: the manifest that makes the videos of a benchmark."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from merope.cli.benchmark.naming import named_benchmark
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.clips.clip import Clip
    from merope.evaluation.benchmarks.benchmark import Benchmark


def cases(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    *,
    split: Path,
    clips: tuple[Path, ...],
    out: Path,
    prompt: str | None = None,
) -> None:
    """Write the manifest for `merope generate`: each clip of a split with its prompt, lens, given frames and trajectories.

    Paths in the manifest are relative to its folder. Videos then have the names that the benchmark expects.

    Args:
        name: The benchmark; `merope benchmark list` has them.
        split: The folder that `merope data select` wrote; for PanShot the folder of clips.
        clips: Folders of clips, as `merope data convert` writes them, in which the clips of the split are.
        out: File that is written, one case a line (.jsonl).
        prompt: What the videos show, in place of each clip's own caption.
    """
    from merope.files import write_text_atomically

    benchmark = named_benchmark(name)
    if benchmark.name.startswith("worlds-"):
        raise UsageError(
            f"the videos of {name} need no manifest: `merope benchmark held-out` makes and scores them."
        )
    base = out.resolve().parent
    lines = [json.dumps(_case(each, clips, base, benchmark, prompt)) for each in _wanted(split)]
    write_text_atomically(out, "\n".join(lines) + "\n")
    made = len(lines) * len(benchmark.variants)
    print(f"{len(lines)} cases, {made} clips, written to {out}")
    if made != benchmark.num_clips:
        print(f"{name} has {benchmark.num_clips} clips: a run of these is not comparable with others of it")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A clip of the split, by its name in the folders of clips."""

    clip_id: str
    source: str | None
    """None where the split is the folder of clips itself."""
    case: str
    poses: Path | None
    """Folder with a file for each trajectory; None where the clip's own poses are driven along."""


def _wanted(split: Path) -> list[_Wanted]:
    from merope.data.clips.folder import clip_ids
    from merope.data.selection.splits import read_split
    from merope.evaluation.benchmarks.split_files import base_clips, case_name

    file = split / "split.json" if split.is_dir() else split
    if split.is_dir() and not file.is_file():
        return [
            _Wanted(clip_id=name, source=None, case=case_name(name), poses=None) for name in clip_ids(split)
        ]
    if split.exists() and file.name != "split.json":
        raise UsageError(
            f"--split {split} has no poses to drive along: give the folder that `merope data select` wrote, or of clips."
        )
    listed = read_split(file)
    return [
        _Wanted(
            clip_id=clip.clip_id,
            source=clip.source,
            case=case,
            poses=file.parent / "poses" / clip.source / clip.clip_id,
        )
        for clip, case in zip(listed.clips, base_clips(listed).values(), strict=True)
    ]


def _case(
    wanted: _Wanted, folders: tuple[Path, ...], base: Path, benchmark: "Benchmark", prompt: str | None
) -> dict[str, Any]:
    """The entry of a manifest.

    Raises:
        MeropeError: if the clip is in none of the folders or in several, or has no trajectory, lens file or prompt.
    """
    from merope.errors import MeropeError

    def relative(path: Path) -> str:
        return Path(os.path.relpath(path.resolve(), base)).as_posix()

    place, clip = _found(wanted, folders)
    words = prompt or clip.caption
    if not words:
        raise MeropeError(f"clip {wanted.clip_id} has no caption; say what the videos show (--prompt).")
    case: dict[str, Any] = {"id": wanted.case, "prompt": words}
    if benchmark.prefix_frames:
        frames = place / "frames"
        case["prefix"] = relative(frames if frames.is_dir() else place / "video.mp4")
    if not (place / "lens.json").is_file():
        raise MeropeError(f"{place} has no lens.json; write the clips by `merope data convert`.")
    case["lens"] = relative(place / "lens.json")
    case["trajectories"] = {}
    for variant in benchmark.variants:
        path = place / "poses.json" if wanted.poses is None else wanted.poses / f"{variant}.json"
        if not path.is_file():
            raise MeropeError(f"{path} is not there: clip {wanted.clip_id} has no trajectory {variant!r}.")
        drive: dict[str, Any] = {"poses": relative(path), "format": "merope"}
        if benchmark.assumed_unit is not None:
            drive["unit"] = benchmark.assumed_unit
        if clip.up_world is not None:
            drive["up_world"] = list(clip.up_world)
        case["trajectories"][variant] = drive
    return case


def _found(wanted: _Wanted, folders: tuple[Path, ...]) -> "tuple[Path, Clip]":
    from merope.data.clips.folder import read_clip
    from merope.errors import MeropeError

    places = [folder / wanted.clip_id for folder in folders]
    found = [(place, read_clip(place)) for place in places if (place / "poses.json").is_file()]
    fitting = [(place, clip) for place, clip in found if wanted.source in (None, clip.source)]
    if len(fitting) == 1:
        return fitting[0]
    named = wanted.clip_id if wanted.source is None else f"{wanted.source}/{wanted.clip_id}"
    raise MeropeError(
        f"clip {named} must be in exactly one of the folders {', '.join(map(str, folders))} (--clips); it is in "
        f"{len(fitting)}. Windows must have been cut when the clips were written (merope data convert --frames), and taken "
        "whole by the selection (merope data select --whole)."
    )
