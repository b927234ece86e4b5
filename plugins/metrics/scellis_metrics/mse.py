"""Mean squared error as a metric."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, LowerContext, Metric, Value, ops


class MseParams(BlockParams):
    """``metric/mse`` has no parameters."""


def mse(ctx: LowerContext, params: MseParams, output: Value, target: Value) -> dict[str, Value]:
    """Mean of ``(output - target)^2`` over all elements of the split.

    Args:
        ctx: for errors.
        params: none.
        output: f32[batch, ...].
        target: f32, shaped as the output.

    Returns:
        ``total`` and ``weight`` (elements), f32[].
    """
    if output.type != target.type:
        ctx.fail(f"a target of the output's type, {output.type}", str(target.type), "metric/accuracy for classes")
    total = ops.reduce_sum(ops.square(output - target))
    return {"total": total, "weight": ctx.graph.const(float(output.type.numel))}


MSE = Metric(
    id="metric/mse@1",
    title="Mean squared error",
    summary="Mean of squared differences over all elements.",
    params=MseParams,
    source="scikit-learn, mean_squared_error, "
    "https://scikit-learn.org/stable/modules/model_evaluation.html#mean-squared-error",
    fn=mse,
    finalize="ratio",
)
