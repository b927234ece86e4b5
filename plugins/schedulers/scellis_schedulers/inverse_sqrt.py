"""Inverse square root."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class InverseSqrtParams(BlockParams):
    """Parameters of ``training/scheduler/inverse_sqrt``."""

    warmup_steps: int = field(gt=0, unit="steps", help="updates over which the learning rate rises")


def factor(step: int, params: InverseSqrtParams, ctx: ScheduleContext) -> float:
    """``min((step + 1) / warmup, sqrt(warmup / (step + 1)))``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`InverseSqrtParams`.
        ctx: not looked at.

    Returns:
        The factor.
    """
    return min((step + 1) / params.warmup_steps, math.sqrt(params.warmup_steps / (step + 1)))


INVERSE_SQRT = Scheduler(
    id="training/scheduler/inverse_sqrt@1",
    title="Inverse square root",
    summary="Rises linearly, then falls with the root of the update's number.",
    params=InverseSqrtParams,
    source="Raffel et al., Exploring the Limits of Transfer Learning (T5), 2020, section 3.1.2, https://arxiv.org/abs/1910.10683",
    deviation="rises linearly in the warm-up, where T5 stays constant; the factor is 1 at its end",
    factor=factor,
)
