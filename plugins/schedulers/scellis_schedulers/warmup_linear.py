"""Warm-up, then linear."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, RecordError, ScheduleContext, Scheduler, field


class WarmupLinearParams(BlockParams):
    """Parameters of ``training/scheduler/warmup_linear``."""

    warmup_steps: int = field(gt=0, unit="steps", help="updates over which the learning rate rises")
    min_ratio: float = field(0.0, ge=0.0, le=1.0, help="factor just after the last update")


def factor(step: int, params: WarmupLinearParams, ctx: ScheduleContext) -> float:
    """``(step + 1) / warmup``, then a line from 1 to ``min_ratio``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`WarmupLinearParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        The factor.

    Raises:
        RecordError: if the warm-up is not shorter than the run
    """
    warmup, total = params.warmup_steps, ctx.total_steps
    if warmup >= total:
        got, hint = str(warmup), f"{max(total // 10, 1)}, or more epochs"
        raise RecordError("scheduler.warmup_steps", f"fewer than the run's {total} updates", got, hint)
    if step < warmup:
        return (step + 1) / warmup
    share = min((step - warmup) / (total - warmup), 1.0)
    return params.min_ratio + (1.0 - params.min_ratio) * (1.0 - share)


WARMUP_LINEAR = Scheduler(
    id="training/scheduler/warmup_linear@1",
    title="Warm-up, then linear",
    summary="Rises linearly, then falls linearly to the end of the run.",
    params=WarmupLinearParams,
    source="Devlin, Chang, Lee and Toutanova, BERT, 2018, appendix A.2, https://arxiv.org/abs/1810.04805",
    deviation="the first update has factor 1 / warmup_steps, not 0, so that no update is lost",
    factor=factor,
)
