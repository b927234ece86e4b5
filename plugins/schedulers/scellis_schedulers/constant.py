"""Unchanging learning rate."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler


class ConstantParams(BlockParams):
    """``training/scheduler/constant`` has no parameters."""


def factor(step: int, params: ConstantParams, ctx: ScheduleContext) -> float:
    """1 at every update.

    Args:
        step: number of the update, from 0.
        params: none.
        ctx: unused.

    Returns:
        1.0.
    """
    return 1.0


CONSTANT = Scheduler(
    id="training/scheduler/constant@1",
    title="Constant",
    summary="The optimizer's learning rate at every update.",
    params=ConstantParams,
    source="Robbins and Monro, A Stochastic Approximation Method, 1951, section 2 (fixed steps), "
    "https://doi.org/10.1214/aoms/1177729586",
    deviation="steps do not shrink",
    factor=factor,
)
