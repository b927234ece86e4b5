"""Linear warm-up, then half a cosine."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, RecordError, ScheduleContext, Scheduler, field


class WarmupCosineParams(BlockParams):
    """Parameters of ``training/scheduler/warmup_cosine``."""

    warmup_steps: int = field(ge=0, unit="steps", help="updates over which the learning rate rises")
    min_ratio: float = field(0.0, ge=0.0, le=1.0, help="factor at the end of the run")


def factor(step: int, params: WarmupCosineParams, ctx: ScheduleContext) -> float:
    """``(step + 1) / warmup`` while ``step < warmup``, then a cosine from 1 to ``min_ratio``.

    Numbers of updates are as in ``training/scheduler/cosine``. With W warm-up updates of T, update W - 1 and
    update W have factor 1, and the factor reaches ``min_ratio`` just after update T - 1.

    Args:
        step: number of the update, from 0.
        params: see :class:`WarmupCosineParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        A factor from 0 (excluded, in warm-up) to 1.

    Raises:
        RecordError: if the warm-up is not shorter than the run.
    """
    warmup, total = params.warmup_steps, ctx.total_steps
    if warmup >= total:
        raise RecordError(
            "scheduler.warmup_steps",
            f"fewer than the run's {total} updates",
            str(warmup),
            f"{max(total // 10, 0)}, or more epochs",
        )
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)
    return params.min_ratio + (1.0 - params.min_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))


WARMUP_COSINE = Scheduler(
    id="training/scheduler/warmup_cosine@1",
    title="Warm-up and cosine",
    summary="Rises linearly over the first updates, then falls along half a cosine to the end of the run.",
    params=WarmupCosineParams,
    source="Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2 (gradual warm-up), "
    "https://arxiv.org/abs/1706.02677; Loshchilov and Hutter, SGDR, 2017, eq. 5, "
    "https://arxiv.org/abs/1608.03983",
    deviation="the first update has factor 1 / warmup_steps, not 0, so that no update is lost",
    factor=factor,
)
