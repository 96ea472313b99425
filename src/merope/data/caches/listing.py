"""What stands beside the tensors of a cache of latents: the description of its encoding, and the listing of each shard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from merope.data.caches.cached_clip import CacheDescription, CacheError
from merope.data.foreign_files.strict_json import parse_json

LISTING = "clips.json"
"""File of a shard with its size, hash and clips."""
MEND = "Delete that shard's folder and run the same `merope data encode` again: it encodes what is missing."
"""The way out of a damaged shard."""
# What the manifest repeats of each clip, beside "up_world" where it is known.
_ROW = ("clip_id", "source", "cluster")


def shard_listings(folder: Path) -> Iterator[dict[str, Any]]:
    """What each complete shard in the folder lists, by name.

    Raises:
        CacheError: if a listing is damaged.
    """
    for path in sorted(folder.glob(f"shard-*/{LISTING}")):
        try:
            listing = parse_json(path.read_text(encoding="utf-8"))
            clips = [listed_row(row) for row in listing["clips"]]
            rest = {name: listing[name] for name in ("bytes", "sha256", "sum", "sum_of_squares")}
        except (ValueError, TypeError, KeyError) as error:
            raise CacheError(f"{path} is damaged: {error!r}. {MEND}") from error
        yield {"folder": path.parent.name, **rest, "clips": clips}


def written_clips(folder: Path) -> set[tuple[str, str]]:
    """Source and name of every clip in a complete shard."""
    return {(row["source"], row["clip_id"]) for listing in shard_listings(folder) for row in listing["clips"]}


def read_description(path: Path) -> CacheDescription:
    """The description in ``encoding.json``.

    Raises:
        CacheError: if the file is missing, damaged, or of another release.
    """
    try:
        return CacheDescription.from_dict(parse_json(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CacheError(f"{path} describes no cache of latents that this release reads: {error}.") from error


def listed_row(row: dict[str, Any]) -> dict[str, Any]:
    """What the manifest repeats of a clip."""
    up = {"up_world": row["up_world"]} if "up_world" in row else {}
    return {**{name: row[name] for name in _ROW}, **up}
