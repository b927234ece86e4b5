"""One number a channel: the mean or greatest over all positions."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class GlobalPoolParams(BlockParams):
    """Parameters of ``layer/global_pool``."""

    mode: Literal["mean", "max"] = field("mean", help="mean or greatest over all positions")


def lower(ctx: LowerContext, params: GlobalPoolParams, x: Value) -> Value:
    """``y[b, c] = mean or max of x[b, c, ...]``; the greatest's gradient goes in equal parts to those that tie.

    Args:
        ctx: for errors.
        params: see :class:`GlobalPoolParams`.
        x: f32[batch, channels, ...].

    Returns:
        f32[batch, channels].
    """
    if x.ndim < 3:
        ctx.fail("an input of shape [batch, channels, ...]", str(x.type))
    axes = tuple(range(2, x.ndim))
    return ops.mean(x, axes=axes) if params.mode == "mean" else ops.reduce_max(x, axes=axes)


GLOBAL_POOL = Layer(
    id="layer/global_pool@1",
    title="Global pooling",
    summary="Mean or greatest of each channel over all positions.",
    params=GlobalPoolParams,
    source="Lin, Chen and Yan, Network In Network, 2014, section 3.2, https://arxiv.org/abs/1312.4400",
    lower=lower,
)
