"""`select`: the few trajectories that an evaluation drives, spread over all geometries there are (paper, 4.1)."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float32, Int64

from merope.data.selection.prototypes.clusters import k_means
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses

Variant = Callable[[Poses], Poses]
"""Another drive made of one, such as its turn to the left."""


def select(
    paths: Float32[np.ndarray, "prototype point 3"], *, count: int = 128, seed: int = 0
) -> Int64[np.ndarray, "count"]:
    """Numbers of ``count`` of these prototypes that cover the geometries among them.

    k-means in metres with ``count`` groups; of each group the prototype nearest to its mean, the largest group first.
    Prototypes are no two within the threshold, so a common motion counts no more than a rare one and the groups divide
    the space of motions, not the traffic. The medoid of a group is like others around it; taking the farthest from
    those chosen before would cover as well and begin with the oddest.

    Raises:
        ValueError: if ``count`` is below 1.
        TrajectoryError: if there are fewer different prototypes than that.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1; got {count}.")
    if len(paths) >= count:
        values = paths.reshape(len(paths), -1).copy()
        chosen = k_means(values, num_groups=count, seed=seed).medoids
        if len(chosen) == count:
            return chosen
    raise TrajectoryError(
        f"there are {len(paths)} prototypes that move, and {count} are wanted. Give more clips, ask for fewer (--count), or "
        "take a smaller distance between prototypes (--threshold)."
    )


def with_variants(poses: Poses, variants: Mapping[str, Variant]) -> dict[str, Poses]:
    """A chosen drive under the name "original", and each variant of it under its own.

    Raises:
        ValueError: if a variant is called "original".
        TrajectoryError: naming the variant that cannot be made of this drive.
    """
    if "original" in variants:
        raise ValueError('variants must have names of their own; "original" is the drive itself.')
    made = {"original": poses}
    for name, variant in variants.items():
        try:
            made[name] = variant(poses)
        except (TrajectoryError, ValueError) as error:
            raise TrajectoryError(f"variant {name!r}: {error}") from error
    return made
