"""`find_flags`: every flag of one clip, by name and in words."""

from collections.abc import Sequence

from merope.evaluation.estimators.base import Recovered, Scale
from merope.evaluation.flags.axes import MIN_CAMMC_PER_FRAME, misread
from merope.evaluation.flags.readings import best_reading
from merope.evaluation.flags.registration import missing_poses
from merope.evaluation.flags.scale import wrong_scale
from merope.evaluation.flags.standing import chord_problem, stands
from merope.evaluation.flags.time_offset import find_time_offset
from merope.evaluation.metrics.paper import Aligned, cammc, is_static, least_squares_scale
from merope.evaluation.protocol import FLAGS
from merope.geometry.poses import Poses


def find_flags(
    commanded: Poses,
    estimated: Poses,
    aligned: Aligned,
    *,
    recovered: Recovered | None = None,
    scale: Scale = "metric",
    nan_rows: Sequence[int] = (),
) -> dict[str, str]:
    """What the metrics of a clip cannot see, from flag name (`merope.evaluation.protocol.FLAGS`) to words.

    ``aligned`` holds both trajectories relative to their first frame. ``recovered`` says which frames were registered,
    ``nan_rows`` which of the others had a row that was not finite, ``scale`` whether centres are metric.

    Where command or estimate stand still, motion has no direction, and only that is said: of an estimate, where the
    command moves.
    """
    flags = missing_poses(recovered, nan_rows)
    problem = chord_problem(commanded)
    if problem:
        flags["static_commanded"] = (
            f"the command {problem}: tr is undefined, left out of its mean and counted"
        )
    if stands(commanded):
        return flags
    if is_static(aligned.center_hat_rel, vanishing=aligned.vanishing):
        flags["static_estimate"] = FLAGS["static_estimate"]
        return flags
    if scale == "metric" and stands(estimated):
        flags["static_estimate"] = (
            "the recovered camera stands still but for noise: no centre is a centimetre from the first; s* and what "
            "rests on it are ratios of noise"
        )
        return flags
    s_star = least_squares_scale(aligned)
    if s_star <= 0:
        flags["reversed"] = (
            f"s* = {s_star:.4g}: {FLAGS['reversed']}. Look at CamMC, TransErr and the oriented AUC, and at what the "
            "video shows; where axes are suspected too, mend those first"
        )
    given = cammc(aligned)
    if given >= MIN_CAMMC_PER_FRAME * len(aligned):
        reading = best_reading(commanded, estimated, aligned)
        found = misread(reading, cammc_as_given=given, num_frames=len(aligned))
        if found:
            return flags | found
    if s_star <= 0:
        return flags
    offset = find_time_offset(commanded, aligned)
    if offset is not None:
        flags["time_offset"] = offset.words
        # Moments that differ also change s*; at the shift that fits, the factor is what the estimate has.
        s_star = offset.scale
    if scale == "metric":
        words = wrong_scale(aligned, s_star)
        if words is not None:
            flags["scaled"] = words
    return flags
