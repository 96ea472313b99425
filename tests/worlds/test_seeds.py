"""Seeds: what every seeded entry refuses, and that purposes do not share numbers."""

import pytest

from merope.worlds import build_world, drive, free_motion, random_drive
from merope.worlds.seeds import seeded

ENTRIES = {
    "build_world": build_world,
    "drive": lambda seed: drive("curve", seed=seed, num_frames=5, fps=10.0),
    "random_drive": lambda seed: random_drive(seed, 5, 10.0),
    "free_motion": lambda seed: free_motion("pan", seed=seed, num_frames=5, fps=10.0),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_negative_seed_is_refused_by_name(entry):
    with pytest.raises(ValueError, match=r"^seed must be >= 0; got -3\.$"):
        ENTRIES[entry](-3)


def test_purposes_of_one_seed_draw_other_numbers():
    assert seeded(4, 1).random() == seeded(4, 1).random()
    assert (
        len({seeded(seed, *stream).random() for seed in (0, 4) for stream in ((), (1,), (2,), (1, 2))}) == 8
    )
