"""Step."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class StepParams(BlockParams):
    """Parameters of ``training/scheduler/step``."""

    every: int = field(30, gt=0, unit="steps", help="updates or epochs between falls")
    by: Literal["step", "epoch"] = field("epoch", help="whether every counts updates or epochs")
    gamma: float = field(0.1, gt=0.0, help="factor of each fall")


def factor(step: int, params: StepParams, ctx: ScheduleContext) -> float:
    """``gamma^floor(n / every)`` with n updates or epochs done.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`StepParams`.
        ctx: ``steps_per_epoch``.

    Returns:
        The factor.
    """
    done = step if params.by == "step" else step // ctx.steps_per_epoch
    return params.gamma ** (done // params.every)


STEP = Scheduler(
    id="training/scheduler/step@1",
    title="Step",
    summary="Times gamma every so many updates or epochs.",
    params=StepParams,
    source="torch.optim.lr_scheduler.StepLR, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.StepLR.html",
    factor=factor,
)
