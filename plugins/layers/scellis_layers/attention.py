"""Scaled dot-product attention over several heads: the part of attention that has no weights."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Layer, LowerContext, Port, Value, field, ops

MASKED = -30000.0
"""Score of a pair that may not attend: finite (WGSL has no infinities), within f16, and exp of it is 0."""


class AttentionParams(BlockParams):
    """Parameters of ``layer/attention``."""

    heads: int = field(gt=0, unit="elements", help="parts that the width is split into")
    causal: bool = field(False, help="a position attends to itself and earlier ones only")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="probability that an attention weight is set to zero")


def _split(x: Value, heads: int) -> Value:
    batch, tokens, width = x.shape
    return ops.permute(ops.reshape(x, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))


def lower(ctx: LowerContext, params: AttentionParams, q: Value, k: Value, v: Value, mask: Value | None = None) -> Value:
    """``y = softmax(q k^T / sqrt(width of a head)) v`` for each head.

    Args:
        ctx: its ``dropout`` stream gives the draws for dropout.
        params: see :class:`AttentionParams`.
        q: f32[batch, queries, width].
        k: f32[batch, keys, width].
        v: f32[batch, keys, width].
        mask: [batch, keys] of any dtype; 0 hides a key, anything else keeps it. A row with every key hidden
            attends to all of them evenly.

    Returns:
        f32[batch, queries, width].
    """
    if q.ndim != 3 or k.ndim != 3 or k.shape != v.shape or q.shape[::2] != k.shape[::2]:
        ctx.fail("q [batch, queries, width], k and v [batch, keys, width]", f"q {q.type}, k {k.type}, v {v.type}")
    batch, queries, width = q.shape
    keys = k.shape[1]
    if width % params.heads:
        ctx.fail(f"a width that {params.heads} heads divide", f"width {width}", "another number of heads")
    scores = ops.matmul(_split(q, params.heads), _split(k, params.heads), transpose_b=True)
    scores = scores * (1.0 / math.sqrt(width // params.heads))
    if params.causal:
        # Row i of the queries is position i + keys - queries: the last query sees every key.
        row = ops.iota(ctx.graph, (queries, keys), axis=0)
        column = ops.iota(ctx.graph, (queries, keys), axis=1)
        scores = ops.select(column <= row + (keys - queries), scores, MASKED)
    if mask is not None:
        if mask.shape != (batch, keys):
            ctx.fail(f"a mask of shape [{batch}, {keys}]", str(mask.type))
        keep = mask if mask.dtype == "bool" else ops.ne(mask, 0)
        scores = ops.select(ops.reshape(keep, (batch, 1, 1, keys)), scores, MASKED)
    weights = ops.softmax(scores, axis=3)
    if ctx.training and params.dropout > 0.0:
        kept = ctx.uniform(weights.shape, "dropout") >= params.dropout
        weights = ops.select(kept, weights * (1.0 / (1.0 - params.dropout)), 0.0)
    mixed = ops.matmul(weights, _split(v, params.heads))
    return ops.reshape(ops.permute(mixed, (0, 2, 1, 3)), (batch, queries, width))


ATTENTION = Layer(
    id="layer/attention@1",
    title="Attention core",
    summary="Scaled dot-product attention by head, causal or not, with an optional padding mask.",
    params=AttentionParams,
    source="Vaswani et al., Attention Is All You Need, 2017, eq. 1, https://arxiv.org/abs/1706.03762",
    deviation=f"masked scores are {MASKED:g}, not minus infinity: a fully masked row is even, not NaN",
    ports=(Port("q"), Port("k"), Port("v"), Port("mask", optional=True)),
    lower=lower,
)
