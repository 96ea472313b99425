"""JSON that holds no NaN and no infinity, which the format has no words for."""

import json
import math
from typing import Any


def finite_json(content: Any) -> str:
    """JSON text without NaN and infinity.

    Raises:
        ValueError: naming the place of the first such number.
    """
    try:
        return json.dumps(content, indent=2, allow_nan=False)
    except ValueError:
        place = place_of_nan(content)
        if place is None:
            raise
        raise ValueError(
            f"results must hold finite numbers, and {place} is not one. An undefined value is None, with a reason."
        ) from None


def place_of_nan(content: Any, place: str = "") -> str | None:
    """Where in JSON content the first number stands that is NaN or infinite; None where all are finite."""
    if isinstance(content, float):
        return None if math.isfinite(content) else place.lstrip(".")
    if isinstance(content, dict):
        parts = [(f"{place}.{name}", value) for name, value in content.items()]
    elif isinstance(content, list | tuple):
        parts = [(f"{place}[{index}]", value) for index, value in enumerate(content)]
    else:
        return None
    found = (place_of_nan(value, name) for name, value in parts)
    return next((name for name in found if name is not None), None)
