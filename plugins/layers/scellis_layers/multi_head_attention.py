"""Multi-head attention: four linear layers around the attention core."""

from __future__ import annotations

from typing import Any, Literal

from scellis_core.plugin import BlockParams, Compose, Layer, Port, Ref, field


class MultiHeadAttentionParams(BlockParams):
    """Parameters of ``layer/multi_head_attention``."""

    width: int = field(gt=0, unit="elements", help="width of queries, keys, values and the output")
    heads: int = field(gt=0, unit="elements", help="parts that the width is split into; must divide it")
    causal: bool = field(False, help="a position attends to itself and earlier ones only")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="probability that an attention weight is set to zero")
    bias: bool = field(True, help="add learned biases in the four linear layers")
    init: Literal["fan_in", "he", "normal", "zeros"] = field("fan_in", help="as in layer/linear")
    init_std: float = field(0.02, ge=0.0, help="standard deviation where init is normal")
    out_init_std: float | None = field(None, ge=0.0, help="the same for the output layer; init_std where left out")

    def problem(self) -> str | None:
        """Heads must divide the width."""
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def compose(
    g: Compose, params: MultiHeadAttentionParams, x: Ref, source: Ref | None = None, mask: Ref | None = None
) -> Ref:
    """``o(attention(q(x), k(source), v(source)))``.

    Args:
        g: builder; adds ``q``, ``k``, ``v``, ``core`` and ``o``.
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
    q = g.add("q", "layer/linear@1", x, params=linear)
    k = g.add("k", "layer/linear@1", keys, params=linear)
    v = g.add("v", "layer/linear@1", keys, params=linear)
    core = {"heads": params.heads, "causal": params.causal, "dropout": params.dropout}
    mixed = g.add("core", "layer/attention@1", q, k, v, params=core, mask=mask)
    out_std = params.init_std if params.out_init_std is None else params.out_init_std
    return g.add("o", "layer/linear@1", mixed, params={**linear, "init_std": out_std})


MULTI_HEAD_ATTENTION = Layer(
    id="layer/multi_head_attention@1",
    title="Multi-head attention",
    summary="Linear q, k and v, attention by head, linear output; causal and padding masks.",
    params=MultiHeadAttentionParams,
    source="Vaswani et al., Attention Is All You Need, 2017, section 3.2.2, https://arxiv.org/abs/1706.03762",
    deviation="q, k and v are separate layers, so that adapters reach each by path",
    ports=(Port("x"), Port("source", optional=True), Port("mask", optional=True)),
    compose=compose,
)
