"""GEGLU."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class GegluParams(BlockParams):
    """Parameters of ``layer/geglu``."""

    approximate: Literal["none", "tanh"] = field("none", help="none: by erf; tanh: the form that GPT-2 uses")


def lower(ctx: LowerContext, params: GegluParams, x: Value) -> Value:
    """``y = value gelu(gate)`` with ``value`` the first half of the last dimension and ``gate`` the second.

    Args:
        ctx: for errors.
        params: see :class:`GegluParams`.
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
    return value * ops.gelu(gate, params.approximate)


GEGLU = Layer(
    id="layer/geglu@1",
    title="GEGLU",
    summary="One half of the width, gated by the GELU of the other half.",
    params=GegluParams,
    source="Shazeer, GLU Variants Improve Transformer, 2020, equation 5, https://arxiv.org/abs/2002.05202",
    deviation="the halving alone: the two products of the paper are a linear layer of twice the width before it",
    lower=lower,
)
