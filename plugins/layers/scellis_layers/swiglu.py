"""SwiGLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


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
    width = x.shape[-1]
    if x.ndim < 2 or width % 2:
        ctx.fail("an input of shape [batch, ..., an even width]", str(x.type))
    low, high = (0,) * x.ndim, x.shape
    half = width // 2
    value = ops.slice(x, low, (*high[:-1], half))
    gate = ops.slice(x, (*low[:-1], half), high)
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
