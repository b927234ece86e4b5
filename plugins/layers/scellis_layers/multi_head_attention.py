"""Multi-head attention: four linear layers around the attention core."""

from __future__ import annotations

from typing import Any, Literal

from scellis_core.plugin import BlockParams, Compose, Layer, Port, Ref, field


class MultiHeadAttentionParams(BlockParams):
    """Parameters of ``layer/multi_head_attention``."""

    width: int = field(gt=0, unit="elements", help="width of queries, keys, values and the output")
    heads: int = field(gt=0, help="parts that the width is split into; must divide it")
    kv_heads: int | None = field(None, gt=0, help="heads of keys and values (grouped queries); heads where left out")
    causal: bool = field(False, help="a position attends to itself and earlier ones only")
    window: int | None = field(None, gt=0, unit="tokens", help="as in layer/attention")
    alibi: bool = field(False, help="as in layer/attention")
    rotary: bool = field(False, help="turn queries and keys by position, as layer/rotary")
    rotary_base: float = field(10000.0, gt=1.0, help="base of layer/rotary")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="probability that an attention weight is set to zero")
    bias: bool = field(True, help="add learned biases in the four linear layers")
    init: Literal["fan_in", "he", "normal", "zeros"] = field("fan_in", help="as in layer/linear")
    init_std: float = field(0.02, ge=0.0, help="standard deviation where init is normal")
    out_init_std: float | None = field(None, ge=0.0, help="the same for the output layer; init_std where left out")

    def problem(self) -> str | None:
        """Heads must divide the width, and heads of keys those of queries."""
        if self.kv_heads and self.heads % self.kv_heads:
            return f"kv_heads {self.kv_heads} must divide heads {self.heads}"
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def compose(
    g: Compose, params: MultiHeadAttentionParams, x: Ref, source: Ref | None = None, mask: Ref | None = None
) -> Ref:
    """``o(attention(q(x), k(source), v(source)))``, with ``q`` and ``k`` turned where rotary.

    Args:
        g: builder; adds ``q``, ``k``, ``v``, ``core``, ``o``, and ``q_turn`` and ``k_turn`` where rotary.
        params: see :class:`MultiHeadAttentionParams`.
        x: f32[batch, queries, in].
        source: f32[batch, keys, in]: where keys and values come from; ``x`` where unconnected.
        mask: [batch, keys]; 0 hides a key.

    Returns:
        f32[batch, queries, width].
    """
    linear: dict[str, Any] = {
        "features": params.width,
        "bias": params.bias,
        "init": params.init,
        "init_std": params.init_std,
    }
    keys = x if source is None else source
    kv_heads = params.kv_heads or params.heads
    narrow = {**linear, "features": params.width // params.heads * kv_heads}
    q = g.add("q", "layer/linear@1", x, params=linear)
    k = g.add("k", "layer/linear@1", keys, params=narrow)
    v = g.add("v", "layer/linear@1", keys, params=narrow)
    if params.rotary:
        q = g.add("q_turn", "layer/rotary@1", q, params={"heads": params.heads, "base": params.rotary_base})
        k = g.add("k_turn", "layer/rotary@1", k, params={"heads": kv_heads, "base": params.rotary_base})
    core = params.model_dump(include={"heads", "kv_heads", "causal", "window", "alibi", "dropout"})
    mixed = g.add("core", "layer/attention@1", q, k, v, params=core, mask=mask)
    out_std = params.init_std if params.out_init_std is None else params.out_init_std
    return g.add("o", "layer/linear@1", mixed, params={**linear, "init_std": out_std})


MULTI_HEAD_ATTENTION = Layer(
    id="layer/multi_head_attention@1",
    title="Multi-head attention",
    summary="Linear q, k and v, attention by head, linear output; grouped queries, masks, rotary positions, ALiBi.",
    params=MultiHeadAttentionParams,
    source="Vaswani et al., Attention Is All You Need, 2017, section 3.2.2, https://arxiv.org/abs/1706.03762",
    deviation="q, k and v are separate layers, so that adapters reach each by path",
    ports=(Port("x"), Port("source", optional=True), Port("mask", optional=True)),
    compose=compose,
)
