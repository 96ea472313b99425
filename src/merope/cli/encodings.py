"""``merope encodings``: the camera encodings there are, what they claim, need and cost."""

from json import dumps
from typing import Any


def encodings(*, json: bool = False) -> None:
    """List the camera encodings: what each claims, where it works, what it needs, what it costs.

    A, B and C are the claims of Table 1: metric relative pose, factors per token, norms kept; `merope diagnose claims`
    measures them. Cost is how often keys (and values) are transformed: once per token, or once more for every query
    camera on the channels that are named.

    Args:
        json: Print one JSON object instead of a table.
    """
    from merope.encodings.registry import ENCODINGS

    found = {name: described(kind()) for name, kind in ENCODINGS.items()}
    print(dumps(found, indent=2) if json else table(found))


def described(encoding: Any) -> dict[str, Any]:
    """What is known of an encoding at its defaults, as JSON values."""
    from dataclasses import asdict

    from merope.cameras.scenes import random_drive
    from merope.encodings.base import FeatureEncoding
    from merope.encodings.pairwise import without_warnings

    operator = without_warnings(encoding).operator(random_drive(views=2, grid=(1, 2)))
    grouped = sum(band.width for band in operator.bands if band.grouped)
    facts = encoding.facts
    return {
        "title": facts.title,
        "source": facts.source,
        "claims": asdict(encoding.claims),
        "acts_on": encoding.acts_on,
        "placement": facts.placement,
        "needs": [word for word in ("lens", "depth", "scale") if getattr(facts, f"needs_{word}")],
        "head_dim": encoding.head_dim,
        "grouped_channels": grouped,
        "added_features": encoding.num_features if isinstance(encoding, FeatureEncoding) else 0,
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """The list as text."""
    lines = [("encoding", "A B C", "acts on", "works in", "needs", "cost")]
    for name, entry in found.items():
        claims = " ".join("Y" if holds else "N" for holds in entry["claims"].values())
        needs = ", ".join(entry["needs"]) or "-"
        lines.append((name, claims, entry["acts_on"], entry["placement"], needs, _cost(entry)))
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    rows = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    sources = [f"{name:<{widths[0]}}  {entry['title']}: {entry['source']}" for name, entry in found.items()]
    words = (
        "A metric relative pose, B factors per token, C keeps norms: as claimed; `merope diagnose claims` measures.\n"
        "needs: lens, the camera's intrinsics; depth, a predicted depth per token; scale, one number of units per metre."
    )
    return "\n".join([*rows, "", *sources, "", words])


def _cost(entry: dict[str, Any]) -> str:
    if entry["placement"] == "none":
        return "none"
    if entry["grouped_channels"]:
        return f"per token and query camera on {entry['grouped_channels']} of {entry['head_dim']} channels"
    if entry["added_features"]:
        return f"per token, and a learned map of {entry['added_features']} numbers"
    return "per token"
