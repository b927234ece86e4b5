"""Scaled dot-product attention over several heads: the part of attention that has no weights."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Graph, Layer, LowerContext, Port, Value, field, ops

MASKED = -30000.0
"""Score of a pair that may not attend: finite (WGSL has no infinities), within f16, and exp of it is 0."""


class AttentionParams(BlockParams):
    """Parameters of ``layer/attention``."""

    heads: int = field(gt=0, help="parts that the width of the queries is split into")
    kv_heads: int | None = field(
        None, gt=0, help="heads of keys and values, each serving as many queries' heads; heads where left out"
    )
    causal: bool = field(False, help="a position attends to itself and earlier ones only")
    window: int | None = field(
        None, gt=0, unit="tokens", help="a position attends to this many, itself included; on both sides unless causal"
    )
    alibi: bool = field(False, help="lower scores by distance, with a slope for each head")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="probability that an attention weight is set to zero")

    def problem(self) -> str | None:
        """Heads of keys divide those of queries."""
        if self.kv_heads and self.heads % self.kv_heads:
            return f"kv_heads {self.kv_heads} must divide heads {self.heads}"
        return None


def _split(x: Value, heads: int) -> Value:
    batch, tokens, width = x.shape
    return ops.permute(ops.reshape(x, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))


def _shared(x: Value, heads: int, kv_heads: int) -> Value:
    """Keys or values split by head, each repeated for the queries' heads that it serves."""
    split = _split(x, kv_heads)
    if heads == kv_heads:
        return split
    batch, _, tokens, each = split.shape
    times = heads // kv_heads
    spread = ops.broadcast(
        ops.reshape(split, (batch, kv_heads, 1, tokens, each)), (batch, kv_heads, times, tokens, each)
    )
    return ops.reshape(spread, (batch, heads, tokens, each))


def _slopes(graph: Graph, heads: int) -> Value:
    """ALiBi's slopes f32[heads, 1, 1]: 2^(-8 k / n) for the n heads up to a power of two, the odd ones of 2 n after."""
    whole = 1 << (heads.bit_length() - 1)
    exponents = [-8.0 * (i + 1) / whole for i in range(whole)]
    exponents += [-4.0 * (2 * i + 1) / whole for i in range(heads - whole)]
    return ops.concat([ops.const(graph, 2.0**e, shape=(1, 1, 1)) for e in exponents], axis=0)


def lower(ctx: LowerContext, params: AttentionParams, q: Value, k: Value, v: Value, mask: Value | None = None) -> Value:
    """``y = softmax(q k^T / sqrt(width of a head) - slope distance) v`` for each head; ``slope`` with ALiBi only.

    Args:
        ctx: its ``dropout`` stream gives the draws for dropout.
        params: see :class:`AttentionParams`.
        q: f32[batch, queries, width].
        k: f32[batch, keys, width of kv_heads heads].
        v: as ``k``.
        mask: [batch, keys] of any dtype; 0 hides a key, anything else keeps it. A row with every key hidden
            attends to all of them evenly.

    Returns:
        f32[batch, queries, width].
    """
    heads, kv_heads = params.heads, params.kv_heads or params.heads
    if q.ndim != 3 or k.ndim != 3 or k.shape != v.shape or q.shape[0] != k.shape[0]:
        ctx.fail("q [batch, queries, width], k and v [batch, keys, width]", f"q {q.type}, k {k.type}, v {v.type}")
    batch, queries, width = q.shape
    keys = k.shape[1]
    if width % heads:
        ctx.fail(f"a width that {heads} heads divide", f"width {width}", "another number of heads")
    if k.shape[2] * heads != width * kv_heads:
        ctx.fail(f"keys of width {width // heads * kv_heads} for {kv_heads} heads", f"k {k.type}, q {q.type}")
    scores = ops.matmul(_split(q, heads), _shared(k, heads, kv_heads), transpose_b=True)
    scores = scores * (1.0 / math.sqrt(width // heads))
    if params.causal or params.window or params.alibi:
        # Row i of the queries is position i + keys - queries: the last query sees every key.
        row = ops.iota(ctx.graph, (queries, keys), axis=0) + (keys - queries)
        column = ops.iota(ctx.graph, (queries, keys), axis=1)
        behind = row - column
        if params.alibi:
            scores = scores - _slopes(ctx.graph, heads) * ops.cast(ops.max(behind, -behind), "f32")
        if params.causal:
            scores = ops.select(behind >= 0, scores, MASKED)
        if params.window:
            scores = ops.select(behind < params.window, scores, MASKED)
            if not params.causal:
                scores = ops.select(-behind < params.window, scores, MASKED)
    if mask is not None:
        if mask.shape != (batch, keys):
            ctx.fail(f"a mask of shape [{batch}, {keys}]", str(mask.type))
        keep = mask if mask.dtype == "bool" else ops.ne(mask, 0)
        scores = ops.select(ops.reshape(keep, (batch, 1, 1, keys)), scores, MASKED)
    weights = ops.softmax(scores, axis=3)
    if ctx.training and params.dropout > 0.0:
        kept = ctx.uniform(weights.shape, "dropout") >= params.dropout
        weights = ops.select(kept, weights * (1.0 / (1.0 - params.dropout)), 0.0)
    mixed = ops.matmul(weights, _shared(v, heads, kv_heads))
    return ops.reshape(ops.permute(mixed, (0, 2, 1, 3)), (batch, queries, width))


ATTENTION = Layer(
    id="layer/attention@1",
    title="Attention core",
    summary="Scaled dot-product attention by head: grouped queries, causal, window and padding masks, ALiBi.",
    params=AttentionParams,
    source="Vaswani et al., Attention Is All You Need, 2017, eq. 1, https://arxiv.org/abs/1706.03762; kv_heads: "
    "Ainslie et al., GQA, 2023, section 2.2, https://arxiv.org/abs/2305.13245; window: Beltagy, Peters and Cohan, "
    "Longformer, 2020, section 3.1, https://arxiv.org/abs/2004.05150; alibi: Press, Smith and Lewis, Train Short, "
    "Test Long, 2021, section 3, https://arxiv.org/abs/2108.12409",
    deviation=f"masked scores are {MASKED:g}, not minus infinity: a fully masked row is even, not NaN",
    ports=(Port("q"), Port("k"), Port("v"), Port("mask", optional=True)),
    lower=lower,
)
