"""How close is close enough, where one number for all entries would not say it."""

from torch import Tensor


def assert_as_accurate(ours: Tensor, *, plain: Tensor, exact: Tensor, factor: float = 2.0) -> None:
    """Our error is at most ``factor`` times that of plain torch in the same precision, against float64."""
    our_error = (ours.double() - exact.double()).abs()
    plain_error = (plain.double() - exact.double()).abs()
    for name, reduce in (("largest", Tensor.max), ("mean", Tensor.mean)):
        got, allowed = reduce(our_error).item(), factor * reduce(plain_error).item()
        assert got <= allowed, f"{name} error {got:.3g}; {factor} x that of plain torch is {allowed:.3g}"
