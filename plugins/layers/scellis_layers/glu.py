"""GLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops
from scellis_layers._gates import halves


class GluParams(BlockParams):
    """``layer/glu`` has no parameters."""


def lower(ctx: LowerContext, params: GluParams, x: Value) -> Value:
    """``y = value sigmoid(gate)`` with ``value`` the first half of the last dimension and ``gate`` the second.

    Args:
        ctx: for errors.
        params: none.
        x: f32[batch, ..., 2 width].

    Returns:
        f32[batch, ..., width].
    """
    value, gate = halves(ctx, x)
    return value * ops.sigmoid(gate)


GLU = Layer(
    id="layer/glu@1",
    title="GLU",
    summary="One half of the width, gated by the sigmoid of the other half.",
    params=GluParams,
    source="Dauphin, Fan, Auli and Grangier, Language Modeling with Gated Convolutional Networks, 2017, equation 1, "
    "https://arxiv.org/abs/1612.08083",
    lower=lower,
)
