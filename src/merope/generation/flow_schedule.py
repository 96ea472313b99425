"""Flow schedulers: which of diffusers' serve, and how a time shift is set on each."""

from typing import Any

import torch

# A schedule that ends here or below has no visible noise left; the usual end is exactly 0.
_CLEAN = 5e-3


def require_flow_scheduler(scheduler: Any) -> None:
    """Check a scheduler whose timesteps are set: noise levels of a flow, velocity predicted, and no noise left at the end.

    Raises:
        ValueError: naming what it is not, and one that serves.
    """
    name = type(scheduler).__name__
    serves = (
        "Use FlowMatchEulerDiscreteScheduler, or UniPCMultistepScheduler with use_flow_sigmas=True and "
        "prediction_type='flow_prediction'."
    )
    levels = getattr(scheduler, "sigmas", None)
    predicts = scheduler.config.get("prediction_type", "flow_prediction")
    if levels is None or float(levels[0]) > 1 or predicts != "flow_prediction":
        raise ValueError(
            f"scheduler must be a flow scheduler, with noise levels between 0 and 1; {name} is not, as it is set. {serves}"
        )
    if float(levels[-1]) > _CLEAN:
        raise ValueError(
            f"scheduler must end without noise; {name} ends at a noise level of {float(levels[-1]):.3f}, which would stay "
            f"in the video. {serves}"
        )


def with_flow_shift(scheduler: Any, shift: float) -> Any:
    """A new scheduler of the same class and configuration with another time shift of Wan, s' = k s / (1 + (k - 1) s).

    The field is ``shift`` in diffusers' flow matching schedulers and ``flow_shift``, beside ``use_flow_sigmas``, in the
    others (UniPC, DPM++).

    Raises:
        ValueError: if ``shift`` is not positive, or the scheduler has no such field, or one that it does not read.
    """
    # Written so that NaN fails too.
    if not shift > 0:
        raise ValueError(f"flow_shift must be > 0; got {shift}. 1 leaves the noise levels as they are.")
    config, name = scheduler.config, type(scheduler).__name__
    field = next((field for field in ("flow_shift", "shift") if field in config), None)
    if field is None:
        raise ValueError(
            f"flow_shift cannot be set on {name}, which has no time shift. Use UniPCMultistepScheduler with "
            "use_flow_sigmas=True, or FlowMatchEulerDiscreteScheduler."
        )
    if field == "flow_shift" and not config.get("use_flow_sigmas", False):
        raise ValueError(
            f"flow_shift has no effect on {name} without use_flow_sigmas=True. Make the scheduler so: "
            f"{name}.from_config(pipe.scheduler.config, use_flow_sigmas=True, prediction_type='flow_prediction')."
        )
    if config.get("use_dynamic_shifting", False):
        raise ValueError(
            f"flow_shift has no effect on {name} with use_dynamic_shifting=True, which takes its own from the video's size. "
            f"Make the scheduler with {name}.from_config(pipe.scheduler.config, use_dynamic_shifting=False)."
        )
    return type(scheduler).from_config(config, **{field: shift})


def noise_levels(scheduler: Any) -> list[float]:
    """The noise level of every call of the model, and the one that is reached at the end."""
    levels = torch.as_tensor(scheduler.sigmas, dtype=torch.float64, device="cpu")
    return levels[: len(scheduler.timesteps) + 1].tolist()
