"""What is wrong with a cache of latents: damaged shards and the clips in them, numbers that are not finite, odd poses."""

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError

from merope.data.caches.cached_clip import CacheError, CacheWarning
from merope.data.caches.latent_cache import LatentCache
from merope.data.caches.listing import LISTING, read_description
from merope.data.checks.checking import CheckConfig, ClipCheck, check_poses
from merope.errors import CheckpointMismatch

_BROKEN = (CacheError, SafetensorError, OSError, KeyError, TypeError, ValueError)


class CacheChecker:
    """A finished cache, also a damaged one, that is checked shard by shard.

    Raises:
        FileNotFoundError: if the cache is not finished.
        CacheError: if its manifest is damaged.
    """

    def __init__(self, folder: str | Path, config: CheckConfig, *, place: str) -> None:
        self.folder, self.config, self.place = Path(folder), config, place
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.cache = LatentCache(folder, damaged=True)
        self.notes = [
            str(one.message) if issubclass(one.category, CacheWarning) else f"{place}: {one.message}"
            for one in caught
        ]
        self.notes += self._own_notes()

    def shards(self) -> list[tuple[str, list[int]]]:
        """Folder and clip numbers of each shard."""
        return self.cache.shards

    def check_shard(self, shard: int, numbers: list[int]) -> list[ClipCheck]:
        """What is found of these clips of a shard. Damage is told of each: by the hash nobody knows whom it hit."""
        damage = self.cache.damage(shard, deep=not self.config.quick)
        if damage is None:
            return [self._check(number) for number in numbers]
        reason = f"its shard {self.cache.shards[shard][0]} {damage}"
        return [self._named(number).with_finding("corrupt", reason) for number in numbers]

    def _named(self, number: int) -> ClipCheck:
        cache = self.cache
        source = cache.sources[number]
        return ClipCheck(
            place=self.place,
            source=source,
            clip_id=cache.clip_ids[number],
            cluster=cache.clusters[number].removeprefix(f"{source}/"),
        )

    def _check(self, number: int) -> ClipCheck:
        named = self._named(number)
        content, problem, fps = None, None, 1.0
        try:
            # Poses of a cache have no times, which is all that a rate is needed for.
            poses = self.cache.poses(number)
            if not self.config.quick:
                clip = self.cache[number]
                content, fps = hashlib.sha256(), clip.fps
                expected = self.cache.description.latent_shape
                for part, value in (("mean", clip.mean), ("logvar", clip.logvar), ("text", clip.text)):
                    if part != "text" and tuple(value.shape) != expected:
                        problem = f"its {part} has the shape {tuple(value.shape)} and not {expected}"
                    if not bool(torch.isfinite(value).all()):
                        problem = f"its {part} is not finite"
                    if part != "text":
                        content.update(value.numpy().tobytes())
        except _BROKEN as error:
            return named.with_finding("corrupt", str(error))
        found = check_poses(
            poses,
            self.config,
            fps=fps,
            place=self.place,
            source=named.source,
            clip_id=named.clip_id,
            cluster=named.cluster,
            content_sha256=None if content is None else content.hexdigest(),
        )
        if len(poses) != self.cache.description.num_frames:
            problem = f"it has {len(poses)} poses and not {self.cache.description.num_frames}"
        return found if problem is None else found.with_finding("corrupt", problem)

    def problems(self) -> Iterator[str]:
        """What is wrong with the cache as a whole, beside its clips."""
        if what := self.cache.text_damage():
            yield f"{self.place}: the embedding of the empty prompt {what}"
        else:
            try:
                text = self.cache.empty_text
                if not bool(torch.isfinite(text).all()):
                    yield f"{self.place}: the embedding of the empty prompt is not finite"
            except CacheError as error:
                yield str(error)
        try:
            described = read_description(self.folder / "encoding.json")
            described.require_same(
                self.cache.description, here=f"{self.place}/encoding.json", there="manifest.json"
            )
        except (CacheError, CheckpointMismatch) as error:
            yield str(error)

    def _own_notes(self) -> list[str]:
        notes = []
        if skipped := self.cache.skipped:
            first = skipped[0]
            notes.append(
                f"{self.place}: {len(skipped)} clips were left out when it was encoded, such as "
                f"{first['source']}/{first['clip_id']}: {first['reason']}"
            )
        listed = {name for name, _ in self.cache.shards}
        there = {path.parent.name for path in self.folder.glob(f"shard-*/{LISTING}")}
        if more := len(there - listed):
            notes.append(
                f"{self.place}: {more} shards are not in the manifest; `merope data encode` is at work, or was stopped"
            )
        return notes
