"""Learning rate along half a cosine."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class CosineParams(BlockParams):
    """Parameters of ``training/scheduler/cosine``."""

    min_ratio: float = field(0.0, ge=0.0, le=1.0, help="factor at the end of the run")


def factor(step: int, params: CosineParams, ctx: ScheduleContext) -> float:
    """``min + (1 - min) (1 + cos(pi step / total)) / 2``.

    ``step`` counts applied and skipped updates alike, from 0, and ``total`` is the number of updates in the
    run (batches of an epoch divided by grad_accumulation, rounded up, times epochs): update 0 has factor 1,
    and the factor reaches ``min_ratio`` just after the last update.

    Args:
        step: number of the update, from 0.
        params: see :class:`CosineParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        A factor from ``min_ratio`` to 1.
    """
    progress = min(step / max(1, ctx.total_steps), 1.0)
    return params.min_ratio + (1.0 - params.min_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))


COSINE = Scheduler(
    id="training/scheduler/cosine@1",
    title="Cosine",
    summary="From the full learning rate to a share of it along half a cosine over the run.",
    params=CosineParams,
    source="Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017, eq. 5, "
    "https://arxiv.org/abs/1608.03983",
    deviation="no restarts; the horizon is the run",
    factor=factor,
)
