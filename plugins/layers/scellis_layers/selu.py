"""SELU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops

ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
"""The fixed point of the paper's equation 14."""


class SeluParams(BlockParams):
    """``layer/selu`` has no parameters."""


def lower(ctx: LowerContext, params: SeluParams, x: Value) -> Value:
    """``y = scale x`` where ``x > 0``, ``scale alpha (exp(x) - 1)`` elsewhere.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.select(x > 0.0, x, ops.expm1(ops.select(x > 0.0, 0.0, x)) * ALPHA) * SCALE


SELU = Layer(
    id="layer/selu@1",
    title="SELU",
    summary="Scaled ELU whose constants keep mean 0 and variance 1.",
    params=SeluParams,
    source="Klambauer, Unterthiner, Mayr and Hochreiter, Self-Normalizing Neural Networks, 2017, equation 2, "
    "https://arxiv.org/abs/1706.02515",
    lower=lower,
)
