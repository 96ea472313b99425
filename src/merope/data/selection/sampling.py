"""`BalancedSampler`: which clips a training step takes, uniform over clusters (paper, 4.1), a pure function of the step."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

# Streams of the seed: the cut of a cluster in two, its passes, the rounds over clusters, the order in a batch.
_CUT, _PASS, _ROUND, _ORDER = 0x5A1, 0x5A2, 0x5A3, 0x5A4


class BalancedSampler:
    """Draws global batches: every cluster equally often, and within a cluster every clip equally often.

    Draws are numbered through the run: batch ``step`` of ``size`` takes draws ``step * size`` to
    ``(step + 1) * size - 1``. They go round the clusters, each round in an order of its own, so after any number
    of draws no two clusters differ by more than one (per source, where weights are given). The r-th draw of a cluster
    of m clips is the (r mod m)-th clip of its pass r div m, and each pass is another order of all m. Nothing is
    remembered between calls: the stream is the same for every number of processes, each of which takes its slice
    of the batch, and a run resumes at any step with the same ``size``.

    No clip comes again before its cluster is used up. A cluster is cut in two halves once, and each pass shuffles
    the halves one after the other, so that even across two passes any m div 2 + 1 draws in a row are different
    clips: a batch repeats a clip only where it takes more than that from one cluster. With one cluster this is plain
    shuffling.

    ``weights`` shares draws out over ``sources`` in proportion, off by one draw at most between two sources and by one
    more for each further source, and each source's draws over its own clusters. Without them each cluster counts as
    one, whatever its source. One batch costs O(size), and O(m) when a cluster starts a new pass.

    Raises:
        ValueError: if there are no clips, lengths differ, or weights do not name exactly the sources.
    """

    def __init__(
        self,
        clusters: Sequence[str],
        seed: int,
        *,
        sources: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if len(clusters) == 0:
            raise ValueError("clusters must name the cluster of at least one clip; got none.")
        if seed < 0:
            raise ValueError(f"seed must be >= 0; got {seed}.")
        self.seed = seed
        groups = self._groups(clusters, sources, weights)
        members: dict[tuple[str, str], list[int]] = {}
        for index, cluster in enumerate(clusters):
            members.setdefault((groups[index], cluster), []).append(index)
        labels = sorted(members)
        self._halves = [self._cut(number, members[label]) for number, label in enumerate(labels)]
        # Sorted: equal weights give one stream, whatever the order they are named in.
        self._share = dict(sorted(weights.items())) if weights is not None else {"": 1.0}
        self._of_source = {
            source: np.array([number for number, label in enumerate(labels) if label[0] == source])
            for source in self._share
        }
        self._passes: dict[int, tuple[int, np.ndarray]] = {}
        self._rounds: dict[str, tuple[int, np.ndarray]] = {}

    @property
    def num_clusters(self) -> int:
        """Clusters that draws go round."""
        return len(self._halves)

    def batch(self, step: int, size: int) -> list[int]:
        """Clip numbers of the global batch of a step, in an order that is drawn too: any way of slicing it is fair.

        Raises:
            ValueError: if ``step`` is negative or ``size`` not positive.
        """
        if step < 0 or size < 1:
            raise ValueError(f"step must be >= 0 and size >= 1; got {step} and {size}.")
        chosen = [self._draw(number) for number in range(step * size, (step + 1) * size)]
        order = np.random.default_rng([self.seed, _ORDER, step]).permutation(size)
        return [chosen[place] for place in order]

    @staticmethod
    def _groups(
        clusters: Sequence[str], sources: Sequence[str] | None, weights: Mapping[str, float] | None
    ) -> Sequence[str]:
        """The source of every clip, or one name for all where sources carry no weight."""
        if weights is None:
            return [""] * len(clusters)
        if sources is None or len(sources) != len(clusters):
            raise ValueError(
                f"sources must name the source of each of {len(clusters)} clips where weights are given; got "
                f"{'none' if sources is None else len(sources)}."
            )
        if set(sources) != set(weights):
            raise ValueError(
                f"weights (--source-weights) must name exactly the sources {', '.join(sorted(set(sources)))}; got "
                f"{', '.join(sorted(weights)) or 'none'}."
            )
        if not all(np.isfinite(weight) and weight > 0 for weight in weights.values()):
            raise ValueError(
                f"weights must be positive; got {dict(weights)}. Leave a source's clips out instead."
            )
        return sources

    def _cut(self, number: int, clips: list[int]) -> tuple[np.ndarray, np.ndarray]:
        shuffled = np.random.default_rng([self.seed, _CUT, number]).permutation(clips)
        half = (len(clips) + 1) // 2
        return shuffled[:half], shuffled[half:]

    def _draw(self, number: int) -> int:
        source, number = self._source_of(number)
        clusters = self._of_source[source]
        turn, place = divmod(number, len(clusters))
        if self._rounds.get(source, (-1,))[0] != turn:
            stream = [self.seed, _ROUND, list(self._share).index(source), turn]
            self._rounds[source] = turn, np.random.default_rng(stream).permutation(clusters)
        return self._clip(int(self._rounds[source][1][place]), turn)

    def _source_of(self, number: int) -> tuple[str, int]:
        """The source of a draw, and how many draws that source had before."""
        names = list(self._share)
        # Fractions, so that a count is exact at any step.
        exact = [Fraction(self._share[name]) for name in names]
        for place, name in enumerate(names[:-1]):
            share = exact[place] / sum(exact[place:])
            before = int(number * share)
            if int((number + 1) * share) > before:
                return name, before
            number -= before
        return names[-1], number

    def _clip(self, cluster: int, draw: int) -> int:
        halves = self._halves[cluster]
        turn, place = divmod(draw, len(halves[0]) + len(halves[1]))
        if self._passes.get(cluster, (-1,))[0] != turn:
            rng = np.random.default_rng([self.seed, _PASS, cluster, turn])
            self._passes[cluster] = turn, np.concatenate([rng.permutation(half) for half in halves])
        return int(self._passes[cluster][1][place])
