"""A part of an index of frames on disk: columns as ``.npy`` files, which appear together and are opened without being read.

Rows are frames, sorted by world, so that each world is a range of rows. Positions are float64: float32 steps are half a
metre where comma2k19 drives.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from merope.cameras import CameraModel
from merope.data.foreign_files.strict_json import parse_json
from merope.errors import MeropeError
from merope.files import atomic_folder

FORMAT = "merope-history-1"
_ABOUT = "shard.json"
_FOLDER = re.compile(r"shard-\d{6}")
_WINDOW = re.compile(r"@\d+$")
# Columns of numbers: type, and shape behind the rows.
_ROW_COLUMNS = {
    "center_world": ("<f8", (3,)),
    "rotation_xyzw": ("<f8", (4,)),
    "clip": ("<i4", ()),
    "frame": ("<i4", ()),
    "time": ("<f8", ()),
}
_CLIP_NUMBERS = {"clip_lens": ("<i4", ()), "clip_data_set": ("<i4", ())}
_CLIP_TEXTS = ("source", "clip_id", "whole_clip", "traversal")


class HistoryError(MeropeError):
    """An index of frames cannot be used, or a question to it makes no sense; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClipRows:
    """The frames of one clip that go into an index. Lengths are in metres.

    Raises:
        HistoryError: if a name is empty or holds a NUL.
    """

    source: str
    clip_id: str
    """Name within the source; "ID@00049" is a window of the clip ID, and both are the same clip to a query."""
    world: str
    """What the poses are relative to; clips are comparable only within one world."""
    traversal: str
    """The drive that the clip is of; clips of several cameras, or scenes of one drive, share it."""
    lens: CameraModel
    data_set: int | None
    """Which of the shard's data sets decodes its frames; None where there are only poses."""
    center_world: Float[np.ndarray, "frame 3"]
    rotation_xyzw: Float[np.ndarray, "frame 4"]
    """From camera to world, scalar last."""
    frame: Int[np.ndarray, "frame"]
    time: Float[np.ndarray, "frame"]
    """Seconds; NaN where unknown."""

    def __post_init__(self) -> None:
        for name in ("source", "clip_id", "world", "traversal"):
            value = getattr(self, name)
            if not value or "\0" in value:
                raise HistoryError(f"{name} of a clip must be a text that is not empty; got {value!r}.")


def whole_clip(source: str, clip_id: str) -> str:
    """What a clip and all its windows ("ID@00049") are together."""
    return f"{source}/{_WINDOW.sub('', clip_id)}"


def shard_folders(root: Path) -> list[Path]:
    """The folders of shards in an index, oldest first."""
    return sorted(path for path in root.glob("shard-*") if _FOLDER.fullmatch(path.name))


def write_shard(root: Path, clips: Sequence[ClipRows], data_sets: Sequence[dict[str, Any]]) -> Path:
    """Add a shard with these clips to the index in ``root``, which is made where it is missing.

    ``data_sets`` are what decodes the frames: "reader", "root" and "options" of `open_dataset`.
    """
    if not clips:
        raise ValueError("clips must not be empty: a shard holds at least one.")
    there = shard_folders(root)
    number = 0 if not there else int(there[-1].name.removeprefix("shard-")) + 1
    # Stable, so that within a world clips keep their order: of equally good frames the first one wins.
    clips = sorted(clips, key=lambda clip: clip.world)
    counts = [len(clip.frame) for clip in clips]
    lenses: dict[str, int] = {}
    of_lens = [lenses.setdefault(json.dumps(clip.lens.to_dict()), len(lenses)) for clip in clips]
    worlds = sorted({clip.world for clip in clips})
    starts = np.searchsorted(np.asarray([clip.world for clip in clips]), np.asarray(worlds))
    first_rows = np.concatenate([[0], np.cumsum(counts)])
    columns: dict[str, np.ndarray] = {
        **{
            name: np.concatenate([getattr(clip, name) for clip in clips]).astype(kind)
            for name, (kind, _) in _ROW_COLUMNS.items()
            if name != "clip"
        },
        "clip": np.repeat(np.arange(len(clips), dtype="<i4"), counts),
        "source": _texts([clip.source for clip in clips]),
        "clip_id": _texts([clip.clip_id for clip in clips]),
        "whole_clip": _texts([whole_clip(clip.source, clip.clip_id) for clip in clips]),
        "traversal": _texts([clip.traversal for clip in clips]),
        "clip_lens": np.asarray(of_lens, dtype="<i4"),
        "clip_data_set": np.asarray(
            [-1 if clip.data_set is None else clip.data_set for clip in clips], dtype="<i4"
        ),
        "lens": _texts(list(lenses)),
        "world": _texts(worlds),
        "world_start": np.append(first_rows[starts], first_rows[-1]).astype("<i8"),
    }
    about = {
        "format": FORMAT,
        "unit": "m",
        "rows": int(first_rows[-1]),
        "clips": len(clips),
        "worlds": len(worlds),
        "lenses": len(lenses),
        "data_sets": list(data_sets),
    }
    folder = root / f"shard-{number:06d}"
    with atomic_folder(folder) as unfinished:
        for name, values in columns.items():
            np.save(unfinished / f"{name}.npy", values, allow_pickle=False)
        (unfinished / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return folder


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """A shard whose columns are mapped into memory: what is not looked at is not read."""

    folder: Path
    columns: dict[str, np.ndarray]
    data_sets: tuple[dict[str, Any], ...]

    @classmethod
    def open(cls, folder: Path) -> "Shard":
        """The shard in a folder.

        Raises:
            HistoryError: if a file is missing, cut short, or not what `write_shard` writes.
        """
        try:
            about = parse_json((folder / _ABOUT).read_text(encoding="utf-8"))
            if about["format"] != FORMAT or about["unit"] != "m":
                raise ValueError(f"{_ABOUT} is of another format")
            sizes = {name: int(about[name]) for name in ("rows", "clips", "worlds", "lenses")}
            columns = {
                **{name: _mapped(folder, name, sizes["rows"], kind) for name, kind in _ROW_COLUMNS.items()},
                **{name: _mapped(folder, name, sizes["clips"], kind) for name, kind in _CLIP_NUMBERS.items()},
                **{name: _mapped(folder, name, sizes["clips"], ("S", ())) for name in _CLIP_TEXTS},
                "lens": _mapped(folder, "lens", sizes["lenses"], ("S", ())),
                "world": _mapped(folder, "world", sizes["worlds"], ("S", ())),
                "world_start": _mapped(folder, "world_start", sizes["worlds"] + 1, ("<i8", ())),
            }
            data_sets = tuple(
                {"reader": str(each["reader"]), "root": str(each["root"]), "options": dict(each["options"])}
                for each in about["data_sets"]
            )
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise HistoryError(
                f"{folder} is a damaged part of an index ({error!s:.150}). Delete it and index its clips again."
            ) from None
        return cls(folder=folder, columns=columns, data_sets=data_sets)

    def __reduce__(self) -> tuple[Any, ...]:
        # Data workers open it for themselves.
        return Shard.open, (self.folder,)

    @property
    def num_rows(self) -> int:
        """Frames in it."""
        return len(self.columns["clip"])

    @property
    def num_clips(self) -> int:
        """Clips in it."""
        return len(self.columns["clip_id"])

    @cached_property
    def worlds(self) -> dict[str, range]:
        """The rows of each world."""
        bounds = self.columns["world_start"].tolist()
        names = [name.decode("utf-8") for name in self.columns["world"].tolist()]
        return {name: range(*bounds[number : number + 2]) for number, name in enumerate(names)}

    def world_of(self, clip: int) -> str:
        """The world of a clip."""
        row = np.searchsorted(self.columns["clip"], clip)
        number = int(np.searchsorted(self.columns["world_start"], row, side="right")) - 1
        return bytes(self.columns["world"][number]).decode("utf-8")

    def text(self, name: str, clip: int) -> str:
        """ "source", "clip_id" or "traversal" of a clip."""
        return bytes(self.columns[name][clip]).decode("utf-8")

    def lens(self, number: int) -> CameraModel:
        """The lens with this number.

        Raises:
            HistoryError: if it cannot be read.
        """
        try:
            return CameraModel.from_dict(json.loads(bytes(self.columns["lens"][number])))
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise HistoryError(
                f"{self.folder}/lens.npy is damaged: {error}. Index its clips again."
            ) from None


def _texts(values: Sequence[str]) -> np.ndarray:
    return np.asarray([value.encode("utf-8") for value in values])


def _mapped(folder: Path, name: str, count: int, kind: tuple[str, tuple[int, ...]]) -> np.ndarray:
    values = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    fits = values.dtype.kind == "S" if kind[0] == "S" else values.dtype == np.dtype(kind[0])
    if values.shape != (count, *kind[1]) or not fits:
        raise ValueError(f"{name}.npy is {values.dtype} {list(values.shape)}")
    # The plain array over the same map: NumPy's memmap class costs more at every use than small queries do.
    return np.asarray(values)
