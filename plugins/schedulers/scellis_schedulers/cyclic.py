"""Cyclic."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class CyclicParams(BlockParams):
    """Parameters of ``training/scheduler/cyclic``."""

    low: float = field(0.1, ge=0.0, lt=1.0, help="factor at the bottom")
    rise: int = field(2000, gt=0, unit="steps", help="updates from bottom to top")
    fall: int | None = field(None, gt=0, unit="steps", help="updates from top to bottom; rise where left out")
    mode: Literal["triangular", "triangular2", "exp_range"] = field(
        "triangular", help="triangular2: each top half as high above the bottom; exp_range: times gamma^step"
    )
    gamma: float = field(1.0, gt=0.0, le=1.0, help="factor of each update in exp_range")


def factor(step: int, params: CyclicParams, ctx: ScheduleContext) -> float:
    """``low + (1 - low) scale h``, with h from 0 to 1 and back over ``rise + fall`` updates.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`CyclicParams`.
        ctx: not looked at.

    Returns:
        The factor.
    """
    length = params.rise + (params.fall or params.rise)
    cycle, within = divmod(step, length)
    height = within / params.rise if within <= params.rise else (length - within) / (length - params.rise)
    scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": params.gamma**step}[params.mode]
    return params.low + (1.0 - params.low) * scale * height


CYCLIC = Scheduler(
    id="training/scheduler/cyclic@1",
    title="Cyclic",
    summary="Up and down between two factors along lines.",
    params=CyclicParams,
    source="Smith, Cyclical Learning Rates for Training Neural Networks, 2017, section 3, https://arxiv.org/abs/1506.01186",
    factor=factor,
)
