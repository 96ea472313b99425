"""Matches between pairs of frames joined into tracks: one scene point each, seen at most once a frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from merope.evaluation.estimators.features.two_view import RaySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracks:
    """Observations of scene points: number n is of track ``track_of[n]`` in frame ``view_of[n]`` along ray n."""

    view_of: Int[Tensor, "obs"]
    track_of: Int[Tensor, "obs"]
    rays: RaySet
    num_views: int
    num_tracks: int

    def __post_init__(self) -> None:
        pairs = self.view_of * max(self.num_tracks, 1) + self.track_of
        if len(torch.unique(pairs)) != len(pairs):
            raise ValueError("a track must be seen at most once a frame; split it, or drop one observation.")

    def table(self) -> Int[Tensor, "view track"]:
        """The observation of each track in each frame, -1 where there is none."""
        table = torch.full((self.num_views, self.num_tracks), -1, dtype=torch.int64)
        table[self.view_of, self.track_of] = torch.arange(len(self.view_of))
        return table


def join_matches(rays: Sequence[RaySet], matches: Mapping[tuple[int, int], Int[Tensor, "match 2"]]) -> Tracks:
    """Tracks out of pairwise matches, ``matches[a, b]`` rows of (feature of frame a, feature of frame b).

    Matches are taken in the order given; one that would put two features of a frame into one track is left out, since
    one of the two joins that lead there is wrong and the earlier one (the nearer pair, as callers order them) is more
    often right.
    """
    starts = np.concatenate([[0], np.cumsum([len(found) for found in rays])]).astype(int)
    parent = list(range(int(starts[-1])))
    frames_of: dict[int, set[int]] = {}

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for (a, b), rows in matches.items():
        for left, right in rows.tolist():
            first, second = root(int(starts[a]) + left), root(int(starts[b]) + right)
            if first == second:
                continue
            mine, theirs = frames_of.get(first, {a}), frames_of.get(second, {b})
            if mine & theirs:
                continue
            parent[second] = first
            frames_of.pop(second, None)
            frames_of[first] = mine | theirs
    members: dict[int, list[int]] = {}
    for node in range(len(parent)):
        members.setdefault(root(node), []).append(node)
    chosen = [nodes for nodes in members.values() if len(nodes) > 1]
    nodes = torch.tensor([node for track in chosen for node in track], dtype=torch.int64)
    lengths = torch.tensor([len(track) for track in chosen], dtype=torch.int64)
    views = torch.searchsorted(torch.from_numpy(starts), nodes, right=True) - 1
    everything = RaySet(
        dirs_cam=torch.cat([found.dirs_cam for found in rays]),
        angle_per_px=torch.cat([found.angle_per_px for found in rays]),
    )
    return Tracks(
        view_of=views,
        track_of=torch.arange(len(chosen)).repeat_interleave(lengths),
        rays=everything[nodes],
        num_views=len(rays),
        num_tracks=len(chosen),
    )
