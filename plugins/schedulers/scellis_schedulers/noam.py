"""Noam."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class NoamParams(BlockParams):
    """Parameters of ``training/scheduler/noam``."""

    warmup_steps: int = field(gt=0, unit="steps", help="updates over which the learning rate rises")
    width: int = field(gt=0, unit="elements", help="width of the model")


def factor(step: int, params: NoamParams, ctx: ScheduleContext) -> float:
    """``width^-0.5 min(n^-0.5, n warmup^-1.5)`` with ``n = step + 1``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`NoamParams`.
        ctx: not looked at.

    Returns:
        The factor.
    """
    n = step + 1
    return params.width**-0.5 * min(n**-0.5, n * params.warmup_steps**-1.5)


NOAM = Scheduler(
    id="training/scheduler/noam@1",
    title="Noam",
    summary="The schedule of the first transformer.",
    params=NoamParams,
    source="Vaswani et al., Attention Is All You Need, 2017, equation 3, https://arxiv.org/abs/1706.03762",
    deviation="the optimizer's lr multiplies it: the paper's is lr 1",
    factor=factor,
)
