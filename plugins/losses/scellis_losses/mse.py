"""Mean squared error."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Loss, LossTerm, LowerContext, Value, ops


class MseParams(BlockParams):
    """``training/loss/mse`` has no parameters."""


def mse(ctx: LowerContext, params: MseParams, output: Value, target: Value) -> LossTerm:
    """``sum (output - target)^2`` over the number of elements.

    Args:
        ctx: for errors.
        params: none.
        output: f32[batch, ...].
        target: f32, shaped as the output; nothing is broadcast.

    Returns:
        Total and weight (elements).
    """
    if output.type != target.type:
        ctx.fail(
            f"a target of the output's type, {output.type}",
            str(target.type),
            "targets of the output's shape ([examples, 1] for one number each), or training/loss/cross_entropy for "
            "class indices",
        )
    total = ops.reduce_sum(ops.square(output - target))
    return LossTerm(total, ctx.graph.const(float(output.type.numel)))


MSE = Loss(
    id="training/loss/mse@1",
    title="Mean squared error",
    summary="Mean of squared differences over all elements.",
    params=MseParams,
    source="Gauss, Theoria combinationis observationum, 1823; numbers as torch.nn.MSELoss, "
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html",
    deviation="shapes must be equal; PyTorch broadcasts with a warning",
    fn=mse,
    metrics=("metric/mse@1",),
)
