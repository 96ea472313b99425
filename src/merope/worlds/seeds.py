"""Random numbers of worlds and trajectories: one stream per seed and purpose."""

import numpy as np

HELD_OUT_SEED = 1_000_000
"""Seed of the first held-out world; training worlds count from 0."""


def seeded(seed: int, *stream: int) -> np.random.Generator:
    """The generator of ``seed`` for one purpose, named by the numbers of ``stream``.

    Raises:
        ValueError: if ``seed`` is negative, which NumPy's generators do not take.
    """
    if seed < 0:
        raise ValueError(f"seed must be >= 0; got {seed}.")
    return np.random.default_rng([int(seed), *stream])
