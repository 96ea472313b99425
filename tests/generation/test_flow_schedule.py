"""Time shifts act on every scheduler that has one, and schedulers that would leave noise or are no flow are refused."""

import diffusers
import pytest
import torch

from merope.adapters.flow import shifted
from merope.generation.flow_schedule import noise_levels, require_flow_scheduler, with_flow_shift

FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("UniPCMultistepScheduler", FLOW),
        ("DPMSolverMultistepScheduler", FLOW),
        ("DPMSolverMultistepScheduler", {**FLOW, "algorithm_type": "sde-dpmsolver++"}),
        ("DPMSolverSinglestepScheduler", {**FLOW, "lower_order_final": True}),
        ("FlowMatchEulerDiscreteScheduler", {}),
        ("FlowMatchHeunDiscreteScheduler", {}),
        ("FlowMatchLCMScheduler", {}),
    ],
)
def test_a_time_shift_acts(name, options):
    scheduler = getattr(diffusers, name)(**options)
    levels = {}
    for shift in (1.0, 3.0, 8.0):
        other = with_flow_shift(scheduler, shift)
        other.set_timesteps(6)
        require_flow_scheduler(other)
        assert type(other) is type(scheduler)
        levels[shift] = torch.tensor(noise_levels(other))
        assert len(levels[shift]) == len(other.timesteps) + 1
    middle = len(levels[1.0]) // 2
    assert levels[1.0][middle] + 0.1 < levels[3.0][middle] < levels[8.0][middle] - 0.05
    # The noisiest half: the end of some schedules is shifted twice.
    torch.testing.assert_close(levels[3.0][:middle], shifted(levels[1.0][:middle], 3.0), rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (diffusers.DDIMScheduler(), "cannot be set on DDIMScheduler, which has no time shift"),
        (
            diffusers.UniPCMultistepScheduler(),
            r"no effect on UniPCMultistepScheduler without use_flow_sigmas",
        ),
        (
            diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
            r"with use_dynamic_shifting=True.*from_config",
        ),
    ],
)
def test_a_time_shift_that_would_do_nothing_is_refused(scheduler, message):
    with pytest.raises(ValueError, match=message):
        with_flow_shift(scheduler, 3.0)


@pytest.mark.parametrize("shift", [0.0, -1.0, float("nan")])
def test_a_time_shift_is_positive(shift):
    with pytest.raises(ValueError, match="flow_shift must be > 0"):
        with_flow_shift(diffusers.FlowMatchEulerDiscreteScheduler(), shift)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (diffusers.DDIMScheduler(), "DDIMScheduler is not"),
        (diffusers.EulerDiscreteScheduler(), "EulerDiscreteScheduler is not"),
        (diffusers.UniPCMultistepScheduler(use_flow_sigmas=True), "UniPCMultistepScheduler is not"),
        (diffusers.DEISMultistepScheduler(**FLOW), r"ends at a noise level of 0\.\d+, which would stay"),
    ],
)
def test_schedulers_that_do_not_serve_are_refused(scheduler, message):
    scheduler.set_timesteps(4)
    with pytest.raises(ValueError, match=message + r".* Use FlowMatchEulerDiscreteScheduler"):
        require_flow_scheduler(scheduler)
