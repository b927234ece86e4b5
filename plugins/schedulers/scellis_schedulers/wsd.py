"""Warm-up, stable, decay."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class WsdParams(BlockParams):
    """Parameters of ``training/scheduler/wsd``."""

    warmup_steps: int = field(ge=0, unit="steps", help="updates over which the learning rate rises")
    decay: float = field(0.1, gt=0.0, le=1.0, help="share of the run over which it falls")
    shape: Literal["linear", "cosine", "sqrt"] = field("sqrt", help="of the fall; sqrt: 1 - sqrt(share)")
    min_ratio: float = field(0.0, ge=0.0, le=1.0, help="factor just after the last update")


def factor(step: int, params: WsdParams, ctx: ScheduleContext) -> float:
    """``(step + 1) / warmup``, then 1, then from 1 to ``min_ratio`` over the last ``decay`` of the run.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`WsdParams`.
        ctx: ``total_steps`` of the run.

    Returns:
        The factor.
    """
    if step < params.warmup_steps:
        return (step + 1) / params.warmup_steps
    falling = params.decay * ctx.total_steps
    share = min(max((step - (ctx.total_steps - falling)) / falling, 0.0), 1.0)
    left = {"linear": 1.0 - share, "cosine": 0.5 * (1.0 + math.cos(math.pi * share)), "sqrt": 1.0 - math.sqrt(share)}
    return params.min_ratio + (1.0 - params.min_ratio) * left[params.shape]


WSD = Scheduler(
    id="training/scheduler/wsd@1",
    title="Warm-up, stable, decay",
    summary="Rises, stays, and falls over the last share of the run.",
    params=WsdParams,
    source="Hu et al., MiniCPM, 2024, section 4, https://arxiv.org/abs/2404.06395; shapes of the fall: Haegele et al., "
    "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations, 2024, section 3, "
    "https://arxiv.org/abs/2405.18392",
    deviation="MiniCPM's fall is exponential; the shapes here are those compared by Haegele et al.",
    factor=factor,
)
