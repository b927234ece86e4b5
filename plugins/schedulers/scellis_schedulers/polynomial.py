"""Polynomial."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class PolynomialParams(BlockParams):
    """Parameters of ``training/scheduler/polynomial``."""

    power: float = field(1.0, gt=0.0, help="exponent; 1 is a line")
    end: float = field(0.0, ge=0.0, lt=1.0, help="factor at the end")
    steps: int | None = field(None, gt=0, unit="steps", help="updates over which it falls; the run where left out")


def factor(step: int, params: PolynomialParams, ctx: ScheduleContext) -> float:
    """``end + (1 - end) (1 - min(step / steps, 1))^power``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`PolynomialParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        The factor.
    """
    share = min(step / (params.steps or max(1, ctx.total_steps)), 1.0)
    return params.end + (1.0 - params.end) * (1.0 - share) ** params.power


POLYNOMIAL = Scheduler(
    id="training/scheduler/polynomial@1",
    title="Polynomial",
    summary="Falls to an end along a power of what is left.",
    params=PolynomialParams,
    source="torch.optim.lr_scheduler.PolynomialLR, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.PolynomialLR.html",
    factor=factor,
)
