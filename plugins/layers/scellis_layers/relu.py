"""Rectified linear unit."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class ReluParams(BlockParams):
    """``layer/relu`` has no parameters."""


def lower(ctx: LowerContext, params: ReluParams, x: Value) -> Value:
    """``y = max(x, 0)``, gradient 0 at 0; a NaN stays one.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.relu(x)


RELU = Layer(
    id="layer/relu@1",
    title="ReLU",
    summary="max(x, 0).",
    params=ReluParams,
    source="Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, 2010, "
    "https://www.cs.toronto.edu/~hinton/absps/reluICML.pdf",
    lower=lower,
)
