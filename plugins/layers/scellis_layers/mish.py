"""Mish."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class MishParams(BlockParams):
    """``layer/mish`` has no parameters."""


def lower(ctx: LowerContext, params: MishParams, x: Value) -> Value:
    """``y = x tanh(log(1 + exp(x)))``.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return x * ops.tanh(ops.softplus(x))


MISH = Layer(
    id="layer/mish@1",
    title="Mish",
    summary="x tanh(softplus(x)).",
    params=MishParams,
    source="Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2020, equation 1, https://arxiv.org/abs/1908.08681",
    lower=lower,
)
