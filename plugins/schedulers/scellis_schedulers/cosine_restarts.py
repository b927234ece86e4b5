"""Cosine with restarts."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class CosineRestartsParams(BlockParams):
    """Parameters of ``training/scheduler/cosine_restarts``."""

    first: int = field(gt=0, unit="steps", help="updates of the first half cosine")
    times: int = field(1, gt=0, help="how many times as long each is as the one before")
    min_ratio: float = field(0.0, ge=0.0, le=1.0, help="factor at the end of each")


def factor(step: int, params: CosineRestartsParams, ctx: ScheduleContext) -> float:
    """``min + (1 - min)(1 + cos(pi i / n)) / 2`` at update i of a half cosine of n.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`CosineRestartsParams`.
        ctx: not looked at.

    Returns:
        The factor.
    """
    length, within = params.first, step
    while within >= length:
        within -= length
        length *= params.times
    return params.min_ratio + (1.0 - params.min_ratio) * 0.5 * (1.0 + math.cos(math.pi * within / length))


COSINE_RESTARTS = Scheduler(
    id="training/scheduler/cosine_restarts@1",
    title="Cosine with restarts",
    summary="Half cosines one after another, each as long as the last times a factor.",
    params=CosineRestartsParams,
    source="Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017, equation 5, https://arxiv.org/abs/1608.03983",
    factor=factor,
)
