"""Share of right classes."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, LowerContext, Metric, Value, field, ops


class AccuracyParams(BlockParams):
    """Parameters of ``metric/accuracy``."""

    ignore_index: int = field(-100, help="targets equal to this count for nothing")


def accuracy(ctx: LowerContext, params: AccuracyParams, output: Value, target: Value) -> dict[str, Value]:
    """How often the largest output is the target's class; the first of equal outputs counts.

    Args:
        ctx: for errors.
        params: see :class:`AccuracyParams`.
        output: f32[..., classes].
        target: i32[...].

    Returns:
        ``total`` (right ones) and ``weight`` (counted ones), f32[].
    """
    if output.ndim < 2 or target.shape != output.shape[:-1] or target.dtype not in ("i32", "u32"):
        ctx.fail(
            "class indices shaped as the output without its last axis",
            f"output {output.type}, target {target.type}",
            "metric/mse for targets that are numbers",
        )
    counted = ops.ne(target, params.ignore_index)
    right = ops.eq(ops.argmax(output, axis=output.ndim - 1), target) & counted
    return {
        "total": ops.reduce_sum(ops.select(right, 1.0, 0.0)),
        "weight": ops.reduce_sum(ops.select(counted, 1.0, 0.0)),
    }


ACCURACY = Metric(
    id="metric/accuracy@1",
    title="Accuracy",
    summary="Share of examples (or tokens) whose largest output is the right class.",
    params=AccuracyParams,
    source="scikit-learn, accuracy_score, https://scikit-learn.org/stable/modules/model_evaluation.html#accuracy-score",
    fn=accuracy,
    finalize="ratio",
    higher_is_better=True,
)
