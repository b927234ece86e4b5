"""Stochastic depth: whole examples of a branch set to zero in training."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class DropPathParams(BlockParams):
    """Parameters of ``layer/drop_path``."""

    rate: float = field(0.1, ge=0.0, lt=1.0, help="probability that an example's branch is set to zero")


def lower(ctx: LowerContext, params: DropPathParams, x: Value) -> Value:
    """``y = x / (1 - rate)`` for an example whose uniform draw is at least ``rate``, else 0.

    ``y = x`` outside training.

    Args:
        ctx: its ``dropout`` stream gives one draw an example.
        params: see :class:`DropPathParams`.
        x: f32[batch, ...]: the branch, before it is added to the residual stream.

    Returns:
        As ``x``.
    """
    if not ctx.training or params.rate == 0.0:
        return x
    keep = ctx.uniform((x.shape[0], *(1 for _ in x.shape[1:])), "dropout") >= params.rate
    return ops.select(ops.broadcast(keep, x.shape), x * (1.0 / (1.0 - params.rate)), 0.0)


DROP_PATH = Layer(
    id="layer/drop_path@1",
    title="Stochastic depth",
    summary="Sets a branch to zero for whole examples at random in training and scales the others up.",
    params=DropPathParams,
    source="Huang, Sun, Liu, Sedra and Weinberger, Deep Networks with Stochastic Depth, 2016, section 3, "
    "https://arxiv.org/abs/1603.09382",
    deviation="by example rather than by batch, and scaled in training rather than at evaluation",
    lower=lower,
)
