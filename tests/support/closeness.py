"""How close is close enough, where one number for all entries would not say it."""

from torch import Tensor


def assert_as_accurate(
    ours: Tensor, *, plain: Tensor, exact: Tensor, factor: float = 2.0, largest_factor: float | None = None
) -> None:
    """Our error is at most ``factor`` times that of plain torch in the same precision, against float64.

    Held to on average and for the largest error, where ``largest_factor`` may allow more.
    """
    our_error = (ours.double() - exact.double()).abs()
    plain_error = (plain.double() - exact.double()).abs()
    limits = (
        ("largest", Tensor.max, factor if largest_factor is None else largest_factor),
        ("mean", Tensor.mean, factor),
    )
    for name, reduce, limit in limits:
        got, allowed = reduce(our_error).item(), limit * reduce(plain_error).item()
        assert got <= allowed, f"{name} error {got:.3g}; {limit} x that of plain torch is {allowed:.3g}"
