"""Rotary positions: each head's pairs of elements turned by an angle that grows with the position."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class RotaryParams(BlockParams):
    """Parameters of ``layer/rotary``."""

    heads: int = field(gt=0, help="parts that the width is split into")
    base: float = field(10000.0, gt=1.0, help="ratio of the slowest turn to the fastest")


def lower(ctx: LowerContext, params: RotaryParams, x: Value) -> Value:
    """Within a head of width ``d``, elements i and i + d / 2 are a pair, turned by ``t / base^(2 i / d)`` radians.

    Args:
        ctx: for errors.
        params: see :class:`RotaryParams`.
        x: f32[batch, tokens, width]: queries or keys.

    Returns:
        As ``x``.
    """
    if x.ndim != 3 or x.shape[2] % (2 * params.heads):
        ctx.fail(f"[batch, tokens, a width that {params.heads} heads of even width divide]", str(x.type))
    batch, tokens, width = x.shape
    half = width // params.heads // 2
    parts = ops.reshape(x, (batch, tokens, params.heads, 2, half))
    shape = (tokens, 1, half)
    position = ops.cast(ops.iota(ctx.graph, shape, axis=0), "f32")
    turn = ops.exp(ops.cast(ops.iota(ctx.graph, shape, axis=2), "f32") * (-math.log(params.base) / half))
    sine, cosine = ops.sin(position * turn), ops.cos(position * turn)
    one, two = (
        ops.reshape(
            ops.slice(parts, (0, 0, 0, k, 0), (batch, tokens, params.heads, k + 1, half)),
            (*x.shape[:2], params.heads, half),
        )
        for k in (0, 1)
    )
    turned = (one * cosine - two * sine, two * cosine + one * sine)
    both = ops.concat([ops.reshape(v, (batch, tokens, params.heads, 1, half)) for v in turned], axis=3)
    return ops.reshape(both, x.shape)


ROTARY = Layer(
    id="layer/rotary@1",
    title="Rotary positions",
    summary="Turns pairs of elements of queries and keys by angles that grow with the position.",
    params=RotaryParams,
    source="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021, equation 34, "
    "https://arxiv.org/abs/2104.09864",
    deviation="a pair is (i, i + d / 2), as in Llama's published weights, rather than (2 i, 2 i + 1)",
    lower=lower,
)
