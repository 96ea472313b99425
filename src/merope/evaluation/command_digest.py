"""A short name for a commanded trajectory, by which two runs show that they followed the same one."""

from hashlib import sha256

from merope.geometry.poses import Poses

# Tenths of a millimetre, and 0.006 degrees: far more than float64 rounding, less than any other command.
_DECIMALS = 4


def digest_of_command(commanded: Poses) -> str:
    """16 hexadecimal digits of the SHA-256 of the poses relative to the first frame, rounded to four decimals.

    The same path in another world frame has the same digest; in another unit it has another. So may a path that went
    through a file of few digits: an entry near a rounding edge falls to the other side.
    """
    relative = commanded.rebase_to_first()
    # + 0.0 makes of -0.0, which rounding leaves behind, the 0.0 that it equals.
    rounded = relative.T_world_cam[:, :3].contiguous().numpy().round(_DECIMALS) + 0.0
    return sha256(rounded.astype("<f8").tobytes()).hexdigest()[:16]
