"""Damage without a plan: files cut at any byte, flipped bits, bytes overwritten, put in, taken out or doubled."""

import numpy as np


def damaged(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The kind of damage, and the bytes after it."""
    kind = str(
        rng.choice(["cut", "cut", "bit", "bit", "bit", "bits", "bytes", "put in", "taken out", "doubled"])
    )
    size = len(content)
    at = int(rng.integers(size))
    span = int(min(size - at, 1 + rng.geometric(0.2)))
    if kind == "cut":
        return kind, content[:at]
    if kind in ("bit", "bits"):
        changed = bytearray(content)
        for place in [at] if kind == "bit" else rng.integers(size, size=5).tolist():
            changed[place] ^= 1 << int(rng.integers(8))
        return kind, bytes(changed)
    if kind == "bytes":
        return kind, content[:at] + rng.bytes(span) + content[at + span :]
    if kind == "put in":
        return kind, content[:at] + rng.bytes(span) + content[at:]
    if kind == "taken out":
        return kind, content[:at] + content[at + span :]
    return kind, content[: at + span] + content[at:]
