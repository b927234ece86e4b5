"""GLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


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
    width = x.shape[-1]
    if x.ndim < 2 or width % 2:
        ctx.fail("an input of shape [batch, ..., an even width]", str(x.type))
    low, high = (0,) * x.ndim, x.shape
    half = width // 2
    value = ops.slice(x, low, (*high[:-1], half))
    gate = ops.slice(x, (*low[:-1], half), high)
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
