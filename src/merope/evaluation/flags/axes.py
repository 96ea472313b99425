"""Wrong camera axes and mirrored worlds, which the paper's driving metrics cannot see on a straight road.

Eq. 37 lets the scale be negative and Eq. 41 ignores the sign of a direction. A path left in OpenGL camera axes on a
straight road therefore scores perfectly on rot, tr and AUC, and so does the mirror image of a straight road.
"""

from merope.evaluation.flags.readings import Reading

# Another reading is suspected where the estimate is off by more than this per frame (of a CamMC term between 0 and
# about 3.5) and the reading takes away at least three quarters of the error.
MIN_CAMMC_PER_FRAME = 0.1
MAX_CAMMC_RATIO = 0.25
# Of the many readings without a name one may fit by chance: nine tenths.
MAX_CAMMC_RATIO_UNNAMED = 0.1


def misread(reading: Reading, *, cammc_as_given: float, num_frames: int) -> dict[str, str]:
    """``axes_suspected`` or ``mirrored``, where ``reading`` fits far better than the estimate as given.

    Neither where the best reading is the same path driven the other way: that is ``reversed``.
    """
    if cammc_as_given < MIN_CAMMC_PER_FRAME * num_frames or reading.kind == "reversed":
        return {}
    ratio = MAX_CAMMC_RATIO if reading.common else MAX_CAMMC_RATIO_UNNAMED
    if reading.cammc > ratio * cammc_as_given:
        return {}
    words = f"the estimate looks like {reading.words}: read so, CamMC falls from {cammc_as_given:.3g} to {reading.cammc:.3g}"
    if reading.kind == "mirrored":
        return {"mirrored": f"{words}. Either the video turns left for right, or {reading.way_out}"}
    if reading.constant_turn_deg is not None:
        words += "; R_gt^T R_est is that same turn in every frame"
    else:
        words += "; on a path without turns, motion in the opposite direction looks the same"
    return {"axes_suspected": f"{words}. To mend it, {reading.way_out}"}
