"""GEGLU."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops
from scellis_layers._gates import halves


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
    value, gate = halves(ctx, x)
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
