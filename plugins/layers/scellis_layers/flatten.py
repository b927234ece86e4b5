"""Dimensions merged into one."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class FlattenParams(BlockParams):
    """Parameters of ``layer/flatten``."""

    start: int = field(1, ge=1, help="first axis that is merged; the batch is axis 0")


def lower(ctx: LowerContext, params: FlattenParams, x: Value) -> Value:
    """Merge the axes from ``start`` on, row-major.

    Args:
        ctx: for errors.
        params: see :class:`FlattenParams`.
        x: [batch, ...] of any dtype; an input without further axes becomes [batch, 1].

    Returns:
        [batch, ..., product of the merged sizes].
    """
    if params.start > x.ndim:
        ctx.fail(f"an input of at least {params.start} axes", str(x.type), "start: 1")
    shape = (*x.shape[: params.start], math.prod(x.shape[params.start :]))
    return x if shape == x.shape else ops.reshape(x, shape)


FLATTEN = Layer(
    id="layer/flatten@1",
    title="Flatten",
    summary="Merges all axes from one on into a single one.",
    params=FlattenParams,
    source="torch.nn.Flatten, https://docs.pytorch.org/docs/stable/generated/torch.nn.Flatten.html",
    lower=lower,
)
