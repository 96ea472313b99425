"""Donors for lateral-conflict training (paper, C.3): history from a neighbouring lane in the place of that of the path.

The target video and the command stay as they are; the model learns to use history that was seen from beside its path.
"""

from dataclasses import replace

import numpy as np

from merope.data.history.hits import Hits
from merope.data.history.index import HistoryIndex
from merope.data.history.nearby import fill, matches
from merope.data.history.paths import QueryPath
from merope.data.history.search import Search

NEIGHBOURING_LANE = Search(k=1, lateral=(2.0, 6.0), max_angle_deg=20.0)
"""Frames 2 to 6 m to the side (lanes are about 3.5 m wide) that look the same way."""
# More clips than there are.
_ALL = 1 << 40


def donors(
    index: HistoryIndex,
    path: QueryPath,
    search: Search = NEIGHBOURING_LANE,
    *,
    min_share: float = 0.5,
    seed: int = 0,
) -> Hits:
    """For each pose a frame of a clip that drove beside the path: one clip for the whole path.

    Of the clips that have a frame within the bounds of ``search`` for at least ``min_share`` of the poses one is drawn; the
    draw depends on ``seed`` and the names of these clips alone. Each pose gets that clip's best frames, at most
    ``search.max_per_clip`` and ``search.k``. Poses for which it has none have none, and so have all if no clip will do.

    Raises:
        ValueError: if ``search`` has no lateral bounds, or ``min_share`` is no share above 0.
        TrajectoryError: if the path does not move, so that nothing is to its side.
        HistoryError: as `HistoryIndex.query`.
    """
    if search.lateral is None:
        raise ValueError(f"search must have lateral bounds, such as {NEIGHBOURING_LANE.lateral} metres.")
    if not 0 < min_share <= 1:
        raise ValueError(f"min_share must be above 0 and at most 1; got {min_share:g}.")
    found = list(matches(index, path, replace(search, k=_ALL)))
    result = Hits.none(len(path), search.k, index)
    served = [np.unique(np.stack([each.whole_clip, each.query]), axis=1)[0] for each, _ in found]
    clips, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *served]), return_counts=True)
    # Clips are numbered in the order of their names.
    fitting = clips[counts >= min_share * len(path)]
    if len(fitting) == 0:
        return result
    chosen = fitting[np.random.default_rng(seed).integers(len(fitting))]
    for each, overlap in found:
        places = np.flatnonzero(each.whole_clip == chosen)
        part = each[places]
        kept = np.arange(len(part)) - np.searchsorted(part.query, part.query) < search.k
        fill(result, path, part[kept], overlap[places][kept])
    return result
