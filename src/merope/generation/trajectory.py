"""Whether a trajectory can command a video."""

from merope.adapters.spec import VideoSpec
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses

# A step longer than this between neighbouring frames is a jump or another unit, not driving.
_LONGEST_STEP = 20.0


def check_command(poses: Poses, spec: VideoSpec) -> None:
    """Raise `TrajectoryError` if a trajectory cannot command this model; the message says how to mend it."""
    if len(poses) != spec.num_frames:
        raise TrajectoryError(
            f"the trajectory has {len(poses)} poses and the model makes {spec.num_frames} frames. Choose a window with "
            f"--start, or resample with Poses.resample({spec.num_frames})."
        )
    if poses.unit != "m":
        raise TrajectoryError(
            f"the trajectory's unit is {poses.unit!r} and the model takes metres. Multiply it by its scale first "
            "(Poses.scaled) and say unit='m'."
        )
    require_steps(poses, spec.fps)


def require_steps(poses: Poses, fps: float) -> None:
    """Raise `TrajectoryError` where poses in metres jump, or are in another unit than they say."""
    if poses.unit != "m" or len(poses) < 2:
        return
    longest = float(poses.step_lengths.max())
    if longest > _LONGEST_STEP:
        raise TrajectoryError(
            f"neighbouring poses are up to {longest:.1f} m apart, {longest * fps:.0f} m/s at {fps:g} frames/s. "
            "Is the file in centimetres, or does it jump? Scale it with --scale, or choose another --start."
        )
