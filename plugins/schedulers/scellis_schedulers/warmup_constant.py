"""Warm-up, then constant."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class WarmupConstantParams(BlockParams):
    """Parameters of ``training/scheduler/warmup_constant``."""

    warmup_steps: int = field(gt=0, unit="steps", help="updates over which the learning rate rises")


def factor(step: int, params: WarmupConstantParams, ctx: ScheduleContext) -> float:
    """``min((step + 1) / warmup, 1)``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`WarmupConstantParams`.
        ctx: not looked at.

    Returns:
        The factor.
    """
    return min((step + 1) / params.warmup_steps, 1.0)


WARMUP_CONSTANT = Scheduler(
    id="training/scheduler/warmup_constant@1",
    title="Warm-up, then constant",
    summary="Rises linearly, then stays.",
    params=WarmupConstantParams,
    source="Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2, https://arxiv.org/abs/1706.02677",
    deviation="the first update has factor 1 / warmup_steps, not 0, so that no update is lost",
    factor=factor,
)
