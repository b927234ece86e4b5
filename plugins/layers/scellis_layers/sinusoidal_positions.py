"""Fixed sine and cosine positions, added to a sequence."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class SinusoidalPositionsParams(BlockParams):
    """Parameters of ``layer/sinusoidal_positions``."""

    base: float = field(10000.0, gt=1.0, help="ratio of the longest wavelength to the shortest")


def lower(ctx: LowerContext, params: SinusoidalPositionsParams, x: Value) -> Value:
    """``y[b, t, 2 i] = x + sin(t / base^(2 i / width))``, ``y[b, t, 2 i + 1] = x + cos(the same)``.

    Args:
        ctx: for errors.
        params: see :class:`SinusoidalPositionsParams`.
        x: f32[batch, tokens, width], width even.

    Returns:
        As ``x``.
    """
    if x.ndim != 3 or x.shape[2] % 2:
        ctx.fail("an input of shape [batch, tokens, an even width]", str(x.type))
    tokens, width = x.shape[1:]
    shape = (tokens, width // 2)
    position = ops.cast(ops.iota(ctx.graph, shape, axis=0), "f32")
    exponent = ops.cast(ops.iota(ctx.graph, shape, axis=1), "f32") * (-2.0 * math.log(params.base) / width)
    angle = position * ops.exp(exponent)
    table = ops.concat([ops.reshape(f(angle), (*shape, 1)) for f in (ops.sin, ops.cos)], axis=2)
    return x + ops.reshape(table, (tokens, width))


SINUSOIDAL_POSITIONS = Layer(
    id="layer/sinusoidal_positions@1",
    title="Sinusoidal positions",
    summary="Adds fixed sines and cosines of the position; nothing is learned.",
    params=SinusoidalPositionsParams,
    source="Vaswani et al., Attention Is All You Need, 2017, section 3.5, https://arxiv.org/abs/1706.03762",
    lower=lower,
)
