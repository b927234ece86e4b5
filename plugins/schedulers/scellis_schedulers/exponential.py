"""Exponential."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class ExponentialParams(BlockParams):
    """Parameters of ``training/scheduler/exponential``."""

    gamma: float = field(gt=0.0, help="factor of each update or epoch")
    by: Literal["step", "epoch"] = field("epoch", help="whether it falls at each update or each epoch")


def factor(step: int, params: ExponentialParams, ctx: ScheduleContext) -> float:
    """``gamma^n`` with n updates or epochs done.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`ExponentialParams`.
        ctx: ``steps_per_epoch``.

    Returns:
        The factor.
    """
    done = step if params.by == "step" else step // ctx.steps_per_epoch
    return params.gamma**done


EXPONENTIAL = Scheduler(
    id="training/scheduler/exponential@1",
    title="Exponential",
    summary="Times gamma at each update or epoch.",
    params=ExponentialParams,
    source="torch.optim.lr_scheduler.ExponentialLR, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ExponentialLR.html",
    factor=factor,
)
