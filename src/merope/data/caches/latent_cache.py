"""Clips encoded once: normalised latents, text and cameras in safetensors shards under one manifest.

A cache is a folder. ``encoding.json`` says what made it, each ``shard-...`` folder holds whole clips, and ``manifest.json``,
written last, lists every shard with its size and hash. The format is docs/data.md. Several processes write disjoint
shards; an interrupted encoding goes on where it stopped; reading maps the shards into memory and touches one clip.
"""

import bisect
import hashlib
import itertools
import json
import math
import re
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.data.caches.cached_clip import CachedClip, CacheDescription, CacheError, CacheWarning
from merope.data.caches.listing import (
    LISTING,
    MEND,
    listed_row,
    read_description,
    shard_listings,
    written_clips,
)
from merope.data.foreign_files.strict_json import parse_json
from merope.files import atomic_folder, atomic_path, write_text_atomically
from merope.geometry.gravity import Up, unit_up
from merope.geometry.poses import Poses

SHARD_BYTES = 256 * 2**20
"""A shard is closed when the next clip would make it larger; a clip that is larger by itself has one of its own."""

# Shards that stay open in one process; opening one reads its header alone.
_OPEN_SHARDS = 64
_FORMAT, _VERSION = "merope-latent-cache", 1
_MANIFEST, _ENCODING, _EMPTY = "manifest.json", "encoding.json", "empty-text.safetensors"
_LATENTS = "latents.safetensors"
# Normalised latents have a deviation near 1 in every channel.
_STD_RANGE = (0.3, 3.0)
_SHARD = re.compile(r"shard-[0-9a-f]{16}")


class LatentCacheWriter:
    """Adds clips to a cache; leaving the ``with`` block writes the last shard.

    Any number of writers, in any number of processes, may write to one folder, each its own clips. `contains` tells which
    were written before; clips of an unfinished shard are lost with their process. `finish_cache` makes the
    whole readable.

    Raises:
        CheckpointMismatch: if the folder holds a cache that was made otherwise.
    """

    def __init__(
        self,
        folder: str | Path,
        description: CacheDescription,
        *,
        empty_text: Float[Tensor, "words dim"],
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.folder, self.description, self.shard_bytes = Path(folder), description, shard_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        described = self.folder / _ENCODING
        if described.exists():
            read_description(described).require_same(description, here=str(folder), there="the new clips")
        else:
            with atomic_path(self.folder / _EMPTY) as temporary:
                save_file({"text": empty_text.cpu().contiguous()}, str(temporary))
            write_text_atomically(described, json.dumps(description.to_dict(), indent=1) + "\n")
        self._written = written_clips(self.folder)
        self._held: list[CachedClip] = []
        self._held_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Also after an error: the clips that are held are whole.
        self.flush()

    def contains(self, source: str, clip_id: str) -> bool:
        """Whether this clip is in the cache already."""
        return (source, clip_id) in self._written

    def add(self, clip: CachedClip) -> None:
        """Take a clip; it is on disk when its shard is full.

        Raises:
            ValueError: if the clip is there already, has another shape than the cache, or a number that is not finite.
        """
        name = f"{clip.source}/{clip.clip_id}"
        if (clip.source, clip.clip_id) in self._written:
            raise ValueError(f"clip {name} is in {self.folder} already.")
        expected = self.description.latent_shape
        for part, value in (("mean", clip.mean), ("logvar", clip.logvar)):
            if tuple(value.shape) != expected:
                raise ValueError(
                    f"{part} of clip {name} must have shape {expected}; got {tuple(value.shape)}."
                )
            if not bool(torch.isfinite(value.to(self._dtype)).all()):
                raise ValueError(
                    f"{part} of clip {name} is not finite in {self.description.dtype}: the autoencoder or its "
                    "statistics are broken, or need dtype 'float32'."
                )
        if clip.T_world_cam.shape != (self.description.num_frames, 4, 4):
            raise ValueError(
                f"T_world_cam of clip {name} must have one matrix for each of {self.description.num_frames} frames; "
                f"got {list(clip.T_world_cam.shape)}."
            )
        if (clip.lens.height, clip.lens.width) != (self.description.height, self.description.width):
            raise ValueError(
                f"lens of clip {name} is for {clip.lens.height} x {clip.lens.width} pixels, the cache holds "
                f"{self.description.height} x {self.description.width}. Use CameraModel.resize."
            )
        size = 2 * clip.mean.numel() * self._dtype.itemsize + clip.text.nbytes + clip.T_world_cam.nbytes
        if self._held and self._held_bytes + size > self.shard_bytes:
            self.flush()
        self._held.append(clip)
        self._held_bytes += size
        self._written.add((clip.source, clip.clip_id))

    def flush(self) -> None:
        """Write the clips that are held as one shard."""
        if not self._held:
            return
        clips, self._held, self._held_bytes = self._held, [], 0
        tensors: dict[str, Tensor] = {}
        rows: list[dict[str, Any]] = []
        texts: dict[str, int] = {}
        for index, clip in enumerate(clips):
            # Windows of one video share their caption; its embedding is stored once.
            text = texts.setdefault(clip.caption, len(texts))
            tensors[f"text.{text}"] = _own(clip.text, clip.text.dtype)
            for part in ("mean", "logvar"):
                tensors[f"{index}.{part}"] = _own(getattr(clip, part), self._dtype)
            tensors[f"{index}.T_world_cam"] = _own(clip.T_world_cam, torch.float64)
            rows.append(
                {
                    "clip_id": clip.clip_id,
                    "lens": clip.lens.to_dict(),
                    "fps": clip.fps,
                    "unit": clip.unit,
                    "caption": clip.caption,
                    "source": clip.source,
                    "cluster": clip.cluster,
                    "text": text,
                    # Left out where it is unknown, as in caches from before it was asked.
                    **({} if clip.up_world is None else {"up_world": clip.up_world}),
                }
            )
        means = torch.stack([clip.mean.to("cpu", torch.float64) for clip in clips])
        names = "\n".join(f"{clip.source}/{clip.clip_id}" for clip in clips)
        shard = self.folder / f"shard-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
        with atomic_folder(shard) as temporary:
            save_file(tensors, str(temporary / _LATENTS), metadata={"clips": json.dumps(rows)})
            listing = {
                "bytes": (temporary / _LATENTS).stat().st_size,
                "sha256": _sha256(temporary / _LATENTS),
                "clips": [listed_row(row) for row in rows],
                # Of the cached means, per channel: what the deviation of the whole cache is summed from.
                "sum": means.sum((0, 2, 3, 4)).tolist(),
                "sum_of_squares": means.square().sum((0, 2, 3, 4)).tolist(),
            }
            write_text_atomically(temporary / LISTING, json.dumps(listing) + "\n")

    @property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.description.dtype)


def finish_cache(folder: str | Path, *, skipped: Sequence[dict[str, str]] = ()) -> "LatentCache":
    """Write the manifest over all shards in the folder and open the cache; it may be called again after more clips.

    Clips are in the order of source and clip id, however many processes wrote them. ``skipped`` are clips that could not
    be encoded, as objects with "source", "clip_id" and "reason".

    Raises:
        CacheError: if the folder holds no clips, or one clip twice.
    """
    folder = Path(folder)
    listings = list(shard_listings(folder))
    names = [(row["source"], row["clip_id"]) for listing in listings for row in listing["clips"]]
    if not names:
        raise CacheError(f"{folder} holds no encoded clips.")
    twice = sorted(name for name, group in itertools.groupby(sorted(names)) if len(list(group)) > 1)
    if twice:
        raise CacheError(
            f"{folder} holds the clip {'/'.join(twice[0])} twice (and {len(twice) - 1} more so). Two processes had the same "
            "rank: delete the folder and encode again."
        )
    description = read_description(folder / _ENCODING)
    values = len(names) * math.prod(description.latent_shape[1:])
    total = torch.tensor([listing.pop("sum") for listing in listings], dtype=torch.float64).sum(0) / values
    squares = torch.tensor([listing.pop("sum_of_squares") for listing in listings], dtype=torch.float64).sum(
        0
    )
    deviation = (squares / values - total.square()).clamp_min(0).sqrt()
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "encoding": description.to_dict(),
        "count": len(names),
        "channel_std": [round(value, 6) for value in deviation.tolist()],
        "skipped": sorted(skipped, key=lambda row: (row["source"], row["clip_id"])),
        "shards": listings,
        "empty_text_sha256": _sha256(folder / _EMPTY),
    }
    write_text_atomically(folder / _MANIFEST, json.dumps(manifest) + "\n")
    return LatentCache(folder)


def is_latent_cache(folder: str | Path) -> bool:
    """Whether a folder is a cache of latents, finished or not."""
    manifest = Path(folder) / _MANIFEST
    if (Path(folder) / _ENCODING).exists():
        return True
    # A manifest may be of something else; of a cache it begins with its format.
    if not manifest.is_file():
        return False
    with manifest.open("rb") as file:
        return _FORMAT.encode() in file.read(200)


class LatentCache:
    """A finished cache: clips by number, read when asked for.

    Opening reads the manifest and the size of every shard. A channel whose cached means have a deviation outside
    [0.3, 3] warns (`CacheWarning`): latents that are normalised twice, or not at all, look like that. With ``damaged`` sizes
    are left to `damage`, so that one can look at what is left.

    Raises:
        FileNotFoundError: if there is no manifest in the folder.
        CacheError: if the manifest is damaged, or a shard is missing or has another size than it lists.
    """

    def __init__(self, folder: str | Path, *, damaged: bool = False) -> None:
        self.folder = Path(folder)
        path = self.folder / _MANIFEST
        if not path.exists():
            raise FileNotFoundError(
                2,
                "no finished cache of latents here; `merope data encode` writes one and goes on with one",
                str(path),
            )
        try:
            manifest = parse_json(path.read_text(encoding="utf-8"))
            if (manifest["format"], manifest["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"its format is {manifest['format']!r}, version {manifest['version']!r}")
            self.description = CacheDescription.from_dict(manifest["encoding"])
            self.channel_std: list[float] = manifest["channel_std"]
            self.skipped: list[dict[str, str]] = manifest["skipped"]
            self._shards: list[dict[str, Any]] = manifest["shards"]
            # Caches from before it was written have none.
            self._empty_sha256: str | None = manifest.get("empty_text_sha256")
            if outside := [one["folder"] for one in self._shards if not _SHARD.fullmatch(one["folder"])]:
                raise ValueError(f"{outside[0]!r} is no shard of this folder")
            places = sorted(
                (row["source"], row["clip_id"], row["cluster"], shard, index, _up(row))
                for shard, listing in enumerate(self._shards)
                for index, row in enumerate(listing["clips"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CacheError(
                f"{path} describes no cache of latents that this release reads: {error}."
            ) from error
        self.sources: list[str] = [place[0] for place in places]
        self.clip_ids: list[str] = [place[1] for place in places]
        self.clusters: list[str] = [f"{place[0]}/{place[2]}" for place in places]
        self.up_worlds: list[Up | None] = [place[5] for place in places]
        self._places = [place[3:5] for place in places]
        self._open: OrderedDict[int, tuple[Any, list[dict[str, Any]]]] = OrderedDict()
        if not damaged:
            self._check_sizes()
        low, high = _STD_RANGE
        odd = [channel for channel, value in enumerate(self.channel_std) if not low <= value <= high]
        if odd:
            warnings.warn(
                f"{self.folder}: the cached latents have a deviation of {self.channel_std[odd[0]]:.2f} in channel "
                f"{odd[0]} (and outside [{low}, {high}] in {len(odd)} of {len(self.channel_std)}); Wan's are near 1. Are "
                "they normalised twice, or by another autoencoder's statistics?",
                CacheWarning,
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> CachedClip:
        """Clip by number.

        Raises:
            IndexError: if the number is outside the cache.
            CacheError: if its shard cannot be read.
        """
        shard, row = self._places[index]
        file, rows = self._opened(shard)
        entry = rows[row]
        return CachedClip(
            clip_id=entry["clip_id"],
            mean=file.get_tensor(f"{row}.mean").to(torch.float32, copy=True),
            logvar=file.get_tensor(f"{row}.logvar").to(torch.float32, copy=True),
            text=file.get_tensor(f"text.{entry['text']}").to(torch.float32, copy=True),
            T_world_cam=file.get_tensor(f"{row}.T_world_cam").clone(),
            lens=CameraModel.from_dict(entry["lens"]),
            fps=entry["fps"],
            unit=entry["unit"],
            caption=entry["caption"],
            source=entry["source"],
            cluster=entry["cluster"],
            up_world=_up(entry),
        )

    def poses(self, index: int) -> Poses:
        """The cameras of a clip without its latents.

        Raises:
            IndexError: if the number is outside the cache.
            CacheError: if its shard cannot be read.
        """
        shard, row = self._places[index]
        file, rows = self._opened(shard)
        matrices = file.get_tensor(f"{row}.T_world_cam").clone()
        return Poses.from_matrices(matrices, unit=rows[row]["unit"])

    def __getstate__(self) -> dict[str, Any]:
        # Data workers open shards of their own.
        return {**self.__dict__, "_open": OrderedDict()}

    @property
    def empty_text(self) -> Float[Tensor, "words dim"]:
        """Embedding of the empty prompt without padding, float32: what dropped captions are replaced by.

        Raises:
            CacheError: if its file is missing or damaged.
        """
        path = self.folder / _EMPTY
        try:
            with safe_open(str(path), framework="pt") as file:
                return file.get_tensor("text").float()
        except (SafetensorError, OSError) as error:
            raise CacheError(f"{path} cannot be read: {error}. {_ANEW}") from error

    @property
    def shards(self) -> list[tuple[str, list[int]]]:
        """Folder and clip numbers of each shard."""
        numbers: list[list[int]] = [[] for _ in self._shards]
        for number, (shard, _) in enumerate(self._places):
            numbers[shard].append(number)
        return [(row["folder"], clips) for row, clips in zip(self._shards, numbers, strict=True)]

    def damage(self, shard: int, *, deep: bool) -> str | None:
        """Why a shard is not the one that the manifest lists: by its size or, ``deep``, its hash; None if it is."""
        path, listing = self._path(shard), self._shards[shard]
        found = path.stat().st_size if path.is_file() else None
        if found != listing["bytes"]:
            return "is missing" if found is None else f"has {found} bytes and not {listing['bytes']}"
        if deep and _sha256(path) != listing["sha256"]:
            return "has other bytes than the manifest says (SHA-256)"
        return None

    def text_damage(self) -> str | None:
        """The same for the embedding of the empty prompt."""
        path = self.folder / _EMPTY
        if not path.is_file():
            return "is missing"
        if self._empty_sha256 not in (None, _sha256(path)):
            return "has other bytes than the manifest says (SHA-256)"
        return None

    def verify(self, *, progress: bool = False) -> None:
        """Read everything and compare hashes.

        Raises:
            CacheError: naming every shard that differs from the manifest, or the file of the empty prompt.
        """
        bar = tqdm(self._shards, desc="verify", unit="shard", disable=not progress)
        damaged = [row["folder"] for shard, row in enumerate(bar) if self.damage(shard, deep=True)]
        if damaged:
            raise CacheError(f"{self.folder}: damaged: {', '.join(damaged)}. {MEND}")
        if what := self.text_damage():
            raise CacheError(f"{self.folder / _EMPTY} {what}. {_ANEW}")

    def _check_sizes(self) -> None:
        for shard in range(len(self._shards)):
            if what := self.damage(shard, deep=False):
                raise CacheError(f"{self._path(shard)} {what}. {MEND}")

    def _path(self, shard: int) -> Path:
        return self.folder / self._shards[shard]["folder"] / _LATENTS

    def _opened(self, shard: int) -> tuple[Any, list[dict[str, Any]]]:
        # Taken out and put back in single steps: threads that read ahead share this cache.
        opened = self._open.pop(shard, None)
        if opened is None:
            try:
                file = safe_open(str(self._path(shard)), framework="pt")
                rows = json.loads(file.metadata()["clips"])
                listed = [listed_row(row) for row in rows]
                if listed != self._shards[shard]["clips"]:
                    raise ValueError("its clips are not those that the manifest lists")
                opened = file, rows
            except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
                raise CacheError(f"{self._path(shard)} cannot be read: {error}. {MEND}") from error
        self._open[shard] = opened
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return opened


class LatentCaches:
    """Several caches as one, in the order given; the same attributes as one.

    Raises:
        ValueError: if no folder is given.
        CheckpointMismatch: if two of them do not belong together.
        CacheError: if a clip is in two of them.
    """

    def __init__(self, folders: Sequence[str | Path]) -> None:
        if not folders:
            raise ValueError("folders must name at least one cache of latents.")
        self.caches = [LatentCache(folder) for folder in folders]
        first = self.caches[0]
        for other in self.caches[1:]:
            first.description.require_same(
                other.description,
                here=str(first.folder),
                there=str(other.folder),
                apart=("dtype", "windows"),
            )
        self.description = first.description
        self.sources = [name for cache in self.caches for name in cache.sources]
        self.clip_ids = [name for cache in self.caches for name in cache.clip_ids]
        self.clusters = [name for cache in self.caches for name in cache.clusters]
        self.up_worlds = [up for cache in self.caches for up in cache.up_worlds]
        self._ends = list(itertools.accumulate(len(cache) for cache in self.caches))
        if len(set(zip(self.sources, self.clip_ids, strict=True))) < len(self):
            raise CacheError(
                f"a clip of {', '.join(str(folder) for folder in folders)} is in two of these caches; clips are told "
                "apart by source and clip id. Encode with another --source."
            )

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> CachedClip:
        """Clip by number, as `LatentCache`."""
        cache, place = self._place(index)
        return cache[place]

    def poses(self, index: int) -> Poses:
        """As `LatentCache.poses`."""
        cache, place = self._place(index)
        return cache.poses(place)

    def _place(self, index: int) -> tuple[LatentCache, int]:
        """The cache that holds a clip, and its number there."""
        place = range(len(self))[index]
        cache = bisect.bisect_right(self._ends, place)
        return self.caches[cache], place - (self._ends[cache - 1] if cache else 0)

    @property
    def empty_text(self) -> Float[Tensor, "words dim"]:
        """As `LatentCache.empty_text`; all caches share their text encoder."""
        return self.caches[0].empty_text


_ANEW = "Encode into a new folder, which makes it anew."


def _up(row: dict[str, Any]) -> Up | None:
    return unit_up(row["up_world"]) if "up_world" in row else None


def _own(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy: windows of one video may share memory, which safetensors does not write."""
    return value.detach().to("cpu", dtype, copy=True).contiguous()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
