"""SwiGLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops
from scellis_layers._gates import halves


class SwigluParams(BlockParams):
    """``layer/swiglu`` has no parameters."""


def lower(ctx: LowerContext, params: SwigluParams, x: Value) -> Value:
    """``y = value silu(gate)`` with ``value`` the first half of the last dimension and ``gate`` the second.

    Args:
        ctx: for errors.
        params: none.
        x: f32[batch, ..., 2 width].

    Returns:
        f32[batch, ..., width].
    """
    value, gate = halves(ctx, x)
    return value * ops.silu(gate)


SWIGLU = Layer(
    id="layer/swiglu@1",
    title="SwiGLU",
    summary="One half of the width, gated by the SiLU of the other half.",
    params=SwigluParams,
    source="Shazeer, GLU Variants Improve Transformer, 2020, equation 5 (beta 1), https://arxiv.org/abs/2002.05202",
    deviation="the halving alone: the two products of the paper are a linear layer of twice the width before it",
    lower=lower,
)
