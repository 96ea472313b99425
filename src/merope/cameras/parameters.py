"""Lens parameters: a number for all views, or a tensor with one number per view."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Parameter = float | int | Tensor


def to_tensor(parameter: Parameter) -> Tensor:
    """``parameter`` as a tensor; numbers become float64, whatever torch's default dtype."""
    return parameter if isinstance(parameter, Tensor) else torch.tensor(parameter, dtype=torch.float64)


def align(parameter: Parameter, like: Tensor) -> Tensor:
    """``parameter`` in the dtype of ``like``, its [*view] lined up with the front axes of ``like``."""
    value = to_tensor(parameter).to(like)
    return value if value.ndim == 0 else value.reshape(*value.shape, *[1] * (like.ndim - value.ndim))


def per_view(function: Callable[..., float], *parameters: Parameter) -> Tensor:
    """``function`` of every view's numbers, as a float64 tensor [*view] without gradient."""
    values = [to_tensor(p).detach().to("cpu", torch.float64) for p in parameters]
    rows = torch.stack(torch.broadcast_tensors(*values), -1)
    results = [function(*row) for row in rows.reshape(-1, len(values)).tolist()]
    return torch.tensor(results, dtype=torch.float64).reshape(rows.shape[:-1])


def require(name: str, parameter: Parameter, *, above: float = -math.inf, at_most: float = math.inf) -> None:
    """Raises ValueError unless every view's number lies in (above, at_most]."""
    value = to_tensor(parameter)
    if not bool(((value > above) & (value <= at_most)).all()):
        raise ValueError(f"{name} must be above {above:g} and at most {at_most:g}, got {parameter}.")


def within_raster(coordinate: Parameter, size: int) -> bool:
    """Whether every view's coordinate lies on a raster of ``size`` pixels, whichever its origin."""
    value = to_tensor(coordinate)
    return bool(((value >= -0.5) & (value <= size)).all())
