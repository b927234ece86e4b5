"""One cycle."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class OneCycleParams(BlockParams):
    """Parameters of ``training/scheduler/one_cycle``."""

    rise: float = field(0.3, gt=0.0, lt=1.0, help="share of the run that rises")
    start_div: float = field(25.0, gt=1.0, help="the first factor is 1 over this")
    end_div: float = field(1e4, gt=1.0, help="the last factor is the first over this")
    shape: Literal["cosine", "linear"] = field("cosine", help="along half cosines or lines")


def factor(step: int, params: OneCycleParams, ctx: ScheduleContext) -> float:
    """From ``1 / start_div`` to 1 over the first share of the run, then to ``1 / (start_div end_div)`` at its end.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`OneCycleParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        The factor.
    """
    first, last = 1.0 / params.start_div, 1.0 / (params.start_div * params.end_div)
    top, end = params.rise * ctx.total_steps - 1.0, ctx.total_steps - 1.0
    low, high, share = (first, 1.0, step / top) if step <= top else (1.0, last, (step - top) / max(end - top, 1e-9))
    if params.shape == "linear":
        return low + (high - low) * share
    return high + (low - high) * 0.5 * (1.0 + math.cos(math.pi * share))


ONE_CYCLE = Scheduler(
    id="training/scheduler/one_cycle@1",
    title="One cycle",
    summary="Rises to the full rate and falls far below the start, once.",
    params=OneCycleParams,
    source="Smith and Topin, Super-Convergence, 2017, section 3, https://arxiv.org/abs/1708.07120",
    deviation="the learning rate alone; the momentum stays (torch.optim.lr_scheduler.OneCycleLR can move it too)",
    factor=factor,
)
