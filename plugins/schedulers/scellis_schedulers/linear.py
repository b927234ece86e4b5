"""Linear."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class LinearParams(BlockParams):
    """Parameters of ``training/scheduler/linear``."""

    start: float = field(1.0, gt=0.0, help="factor at the first update")
    end: float = field(0.0, ge=0.0, help="factor after the last of steps")
    steps: int | None = field(None, gt=0, unit="steps", help="updates over which it goes; the run where left out")


def factor(step: int, params: LinearParams, ctx: ScheduleContext) -> float:
    """``start + (end - start) min(step / steps, 1)``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`LinearParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        The factor.
    """
    share = min(step / (params.steps or max(1, ctx.total_steps)), 1.0)
    return params.start + (params.end - params.start) * share


LINEAR = Scheduler(
    id="training/scheduler/linear@1",
    title="Linear",
    summary="From one factor to another along a line.",
    params=LinearParams,
    source="torch.optim.lr_scheduler.LinearLR, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LinearLR.html",
    factor=factor,
)
