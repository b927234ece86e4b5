"""Multi-step."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, ScheduleContext, Scheduler, field


class MultistepParams(BlockParams):
    """Parameters of ``training/scheduler/multistep``."""

    milestones: tuple[int, ...] = field(min_length=1, unit="steps", help="updates or epochs at which it falls, rising")
    by: Literal["step", "epoch"] = field("epoch", help="whether milestones count updates or epochs")
    gamma: float = field(0.1, gt=0.0, help="factor of each fall")

    def problem(self) -> str | None:
        """Milestones rise."""
        if list(self.milestones) != sorted(set(self.milestones)) or self.milestones[0] < 1:
            return f"milestones must rise from 1 or more, not {list(self.milestones)}"
        return None


def factor(step: int, params: MultistepParams, ctx: ScheduleContext) -> float:
    """``gamma^(milestones reached)``.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`MultistepParams`.
        ctx: ``steps_per_epoch``.

    Returns:
        The factor.
    """
    done = step if params.by == "step" else step // ctx.steps_per_epoch
    return params.gamma ** sum(m <= done for m in params.milestones)


MULTISTEP = Scheduler(
    id="training/scheduler/multistep@1",
    title="Multi-step",
    summary="Times gamma at given updates or epochs.",
    params=MultistepParams,
    source="torch.optim.lr_scheduler.MultiStepLR, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiStepLR.html",
    factor=factor,
)
