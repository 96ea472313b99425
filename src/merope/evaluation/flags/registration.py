"""Frames without a pose of their own: not registered by the estimator, or not finite in its file."""

from collections.abc import Sequence

from merope.evaluation.estimators.base import Recovered


def missing_poses(recovered: Recovered | None, nan_rows: Sequence[int] = ()) -> dict[str, str]:
    """``nan_rows`` and ``partial_registration``: which frames, and the rule by which they were filled.

    ``nan_rows`` are indices of frames whose row was not finite; the other unregistered frames had no pose.
    """
    flags: dict[str, str] = {}
    num_frames = None if recovered is None else len(recovered.poses)
    fill = "" if recovered is None else f"; filled: {recovered.fill}"
    if nan_rows:
        share = f"{len(nan_rows)}" + ("" if num_frames is None else f" of {num_frames}")
        flags["nan_rows"] = (
            f"{share} rows of the estimate are not finite (frame{'s' if len(nan_rows) > 1 else ''} "
            f"{_ranges(nan_rows)}){fill}. Find out why the estimator lost them; they count in every figure"
        )
    if recovered is None:
        return flags
    lost = [
        index
        for index, found in enumerate(recovered.registered.tolist())
        if not found and index not in set(nan_rows)
    ]
    if lost:
        num_registered = int(recovered.registered.sum())
        flags["partial_registration"] = (
            f"{num_registered} of {num_frames} frames registered; the others: {recovered.fill}"
        )
    return flags


def _ranges(indices: Sequence[int]) -> str:
    """0-based frames as "3, 7 to 9", at most four stretches."""
    ordered = sorted(indices)
    stretches: list[list[int]] = []
    for index in ordered:
        if stretches and index == stretches[-1][1] + 1:
            stretches[-1][1] = index
        else:
            stretches.append([index, index])
    words = [f"{low}" if low == high else f"{low} to {high}" for low, high in stretches[:4]]
    return ", ".join(words) + (", ..." if len(stretches) > 4 else "")
