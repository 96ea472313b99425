"""Commands and estimates that do not move, or that end where they began: what is undefined there."""

from merope.geometry.poses import Poses

# A command whose ends lie closer than this share of its length has no chord to divide by (Eq. 40)...
_MIN_CHORD_SHARE = 1e-6
# ...and neither has one in metres that ends within a centimetre of its start: a parked car's pose noise.
_MIN_CHORD_METRES = 0.01


def chord_problem(commanded: Poses) -> str | None:
    """Why tr% (Eq. 40) is undefined for this command, as the end of a sentence; None where it is defined."""
    chord = float((commanded.center_world[-1] - commanded.center_world[0]).norm())
    unit = "m" if commanded.unit == "m" else f"({commanded.unit} units)"
    path_length = commanded.path_length
    if chord <= _MIN_CHORD_SHARE * path_length:
        return f"ends where it began (chord {chord:.3g} {unit}, path {path_length:.3g} {unit})"
    if commanded.unit == "m" and chord < _MIN_CHORD_METRES:
        return f"stands still (chord {chord:.3g} m, less than {_MIN_CHORD_METRES} m)"
    return None


def stands(commanded: Poses) -> bool:
    """Whether no commanded centre leaves the first: below a centimetre for metres, else below rounding."""
    reach = float((commanded.center_world - commanded.center_world[0]).norm(dim=-1).max())
    return reach < (_MIN_CHORD_METRES if commanded.unit == "m" else 1e-9)
