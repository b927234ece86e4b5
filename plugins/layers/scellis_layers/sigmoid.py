"""Logistic function."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class SigmoidParams(BlockParams):
    """``layer/sigmoid`` has no parameters."""


def lower(ctx: LowerContext, params: SigmoidParams, x: Value) -> Value:
    """``y = 1 / (1 + exp(-x))``.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.sigmoid(x)


SIGMOID = Layer(
    id="layer/sigmoid@1",
    title="Sigmoid",
    summary="1 / (1 + exp(-x)).",
    params=SigmoidParams,
    source="torch.nn.Sigmoid, https://docs.pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html",
    lower=lower,
)
