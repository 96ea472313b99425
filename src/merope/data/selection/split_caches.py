"""`ClipsOfSplit`: the clips of latent caches that a split names, with its clusters, without encoding anything again."""

from jaxtyping import Float
from torch import Tensor

from merope.data.caches.cached_clip import CachedClip, CacheError
from merope.data.caches.latent_cache import LatentCaches
from merope.data.selection.splits import Split
from merope.geometry.poses import Poses


class ClipsOfSplit:
    """Some clips of several caches, in their order, with the attributes of `LatentCaches`.

    The clusters are the split's, so that those of a later `merope data prototypes` take the place of what was encoded. A
    clip's own ``cluster`` stays what it was.

    Raises:
        CacheError: if the split names none of the clips.
    """

    def __init__(self, clips: LatentCaches, split: Split) -> None:
        found = [split.cluster_of(*key) for key in zip(clips.sources, clips.clip_ids, strict=True)]
        self._clips = clips
        self._numbers = [number for number, cluster in enumerate(found) if cluster is not None]
        if not self._numbers:
            raise CacheError(
                f"none of the {len(clips)} clips of these caches is in the split {split.name!r}; its first is "
                f"{_first(split)}, theirs {clips.sources[0]}/{clips.clip_ids[0]}. Is it of the same sources?"
            )
        self.sources = [clips.sources[number] for number in self._numbers]
        # As `LatentCache` names them: clusters of two sources count apart.
        self.clusters = [f"{clips.sources[number]}/{found[number]}" for number in self._numbers]
        self.clip_ids = [clips.clip_ids[number] for number in self._numbers]
        self.up_worlds = [clips.up_worlds[number] for number in self._numbers]
        self.caches, self.description = clips.caches, clips.description

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> CachedClip:
        """Clip by number, as `LatentCaches`."""
        return self._clips[self._numbers[index]]

    def poses(self, index: int) -> Poses:
        """As `LatentCaches.poses`."""
        return self._clips.poses(self._numbers[index])

    @property
    def empty_text(self) -> Float[Tensor, "words dim"]:
        """As `LatentCaches.empty_text`."""
        return self._clips.empty_text


def _first(split: Split) -> str:
    return f"{split.clips[0].source}/{split.clips[0].clip_id}" if split.clips else "none"
