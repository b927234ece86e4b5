"""Softmax along one axis."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class SoftmaxParams(BlockParams):
    """Parameters of ``layer/softmax``."""

    axis: int = field(-1, help="axis that sums to 1, counted with the batch as axis 0; negative from the end")


def lower(ctx: LowerContext, params: SoftmaxParams, x: Value) -> Value:
    """``y = exp(x - max x) / sum exp(x - max x)`` along ``axis``.

    Args:
        ctx: for errors.
        params: see :class:`SoftmaxParams`.
        x: f32[batch, ...].

    Returns:
        As ``x``.
    """
    axis = params.axis + x.ndim if params.axis < 0 else params.axis
    if not 0 < axis < x.ndim:
        ctx.fail(f"an axis of {x.type} other than the batch's", f"axis {params.axis}", "axis: -1")
    return ops.softmax(x, axis=axis)


SOFTMAX = Layer(
    id="layer/softmax@1",
    title="Softmax",
    summary="Exponentials along one axis, scaled to sum to 1.",
    params=SoftmaxParams,
    source="Bridle, Probabilistic Interpretation of Feedforward Classification Network Outputs, 1990, "
    "https://doi.org/10.1007/978-3-642-76153-9_28",
    lower=lower,
)
