"""Which blocks of a transformer get a camera module: the schedules of Table 5, by name or as a list."""

from collections.abc import Sequence
from typing import Literal

Schedule = Literal["alternate", "every", "peak"] | Sequence[int]

# The blocks of Wan2.2 TI2V-5B where the paper finds over half of the branches' amplitude (C.1, Figure 7).
_PEAK = (11, 13)


def scheduled_blocks(schedule: Schedule, num_blocks: int) -> tuple[int, ...]:
    """Block numbers, counted from 0, that a schedule names (Table 5).

    "alternate" is 1, 3, 5, ... (the paper's 15 of 30), "every" all of them, "peak" blocks 11 and 13; a list names its own.

    Raises:
        ValueError: if the name is unknown, or a block is not there or listed twice.
    """
    if schedule == "alternate":
        if num_blocks < 2:
            raise ValueError(f"schedule 'alternate' names no block of {num_blocks}; use 'every'.")
        return tuple(range(1, num_blocks, 2))
    if schedule == "every":
        return tuple(range(num_blocks))
    if schedule == "peak":
        if num_blocks <= max(_PEAK):
            raise ValueError(
                f"schedule 'peak' names blocks {_PEAK} and there are {num_blocks}; list block numbers of your own."
            )
        return _PEAK
    if isinstance(schedule, str):
        raise ValueError(
            f"schedule must be 'alternate', 'every', 'peak' or a list of block numbers; got {schedule!r}."
        )
    blocks = tuple(int(block) for block in schedule)
    if not blocks or len(set(blocks)) != len(blocks) or any(not 0 <= block < num_blocks for block in blocks):
        raise ValueError(
            f"schedule must list different blocks between 0 and {num_blocks - 1}; got {list(blocks)}."
        )
    return tuple(sorted(blocks))
