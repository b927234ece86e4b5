"""One block of a transformer: attention and feed-forward, each with a norm and a residual connection."""

from __future__ import annotations

from typing import Any, Literal

from scellis_core.plugin import BlockParams, Compose, Layer, Port, Ref, field


class TransformerBlockParams(BlockParams):
    """Parameters of ``layer/transformer_block``."""

    width: int = field(gt=0, unit="elements", help="width of the residual stream")
    heads: int = field(gt=0, help="attention heads; must divide width")
    kv_heads: int | None = field(None, gt=0, help="heads of keys and values (grouped queries); heads where left out")
    hidden: int | None = field(
        None, gt=0, unit="elements", help="width inside the feed-forward; 4 width where left out"
    )
    norm_first: bool = field(True, help="norm before each branch (pre-norm) rather than after each sum (post-norm)")
    norm: Literal["layer_norm", "rms_norm"] = field("layer_norm", help="which norm")
    eps: float = field(1e-5, gt=0.0, help="epsilon of the norms")
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "swiglu"] = field(
        "gelu", help="of the feed-forward; swiglu: silu(gate) up, with a layer more"
    )
    causal: bool = field(False, help="a position attends to itself and earlier ones only")
    window: int | None = field(None, gt=0, unit="tokens", help="as in layer/attention")
    rotary: bool = field(False, help="turn queries and keys by position, as layer/rotary")
    rotary_base: float = field(10000.0, gt=1.0, help="base of layer/rotary")
    alibi: bool = field(False, help="as in layer/attention")
    bias: bool = field(True, help="learned biases in the linear layers")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate in attention and after each branch")
    drop_path: float = field(0.0, ge=0.0, lt=1.0, help="rate of layer/drop_path on each branch")
    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")
    residual_std: float | None = field(
        None, ge=0.0, help="the same for layers that end a branch; init_std where left out"
    )

    def problem(self) -> str | None:
        """Heads must divide the width, and heads of keys those of queries."""
        if self.kv_heads and self.heads % self.kv_heads:
            return f"kv_heads {self.kv_heads} must divide heads {self.heads}"
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def _feed_forward(g: Compose, params: TransformerBlockParams, x: Ref) -> Ref:
    start: dict[str, Any] = {"bias": params.bias, "init": "normal", "init_std": params.init_std}
    hidden = {**start, "features": params.hidden or 4 * params.width}
    last = params.init_std if params.residual_std is None else params.residual_std
    if params.activation == "swiglu":
        gate = g.add("act", "layer/silu@1", g.add("gate", "layer/linear@1", x, params=hidden))
        h = g.add("product", "layer/multiply@1", gate, g.add("up", "layer/linear@1", x, params=hidden))
    else:
        h = g.add("up", "layer/linear@1", x, params=hidden)
        tanh = {"approximate": "tanh"} if params.activation == "gelu_tanh" else {}
        h = g.add("act", f"layer/{params.activation.removesuffix('_tanh')}@1", h, params=tanh)
    return g.add("down", "layer/linear@1", h, params={**start, "features": params.width, "init_std": last})


def compose(g: Compose, params: TransformerBlockParams, x: Ref, mask: Ref | None = None) -> Ref:
    """Pre-norm: ``h = x + attn(norm1(x))``, ``y = h + mlp(norm2(h))``; post-norm: ``norm1(x + attn(x))`` and so on.

    Args:
        g: builder; adds ``norm1``, ``attn``, ``add1``, ``norm2``, ``mlp.{up,act,down}`` (``gate`` and ``product`` with
            swiglu), ``add2``, and ``drop1``, ``drop2``, ``path1``, ``path2`` where their rates are above 0.
        params: see :class:`TransformerBlockParams`.
        x: f32[batch, tokens, width].
        mask: [batch, tokens]; 0 hides a position as key.

    Returns:
        As ``x``.
    """
    attention = params.model_dump(
        include={"width", "heads", "kv_heads", "causal", "window", "rotary", "rotary_base", "alibi", "bias", "dropout"}
    ) | {"init": "normal", "init_std": params.init_std, "out_init_std": params.residual_std}

    def norm(name: str, h: Ref) -> Ref:
        return g.add(name, f"layer/{params.norm}@1", h, params={"eps": params.eps})

    def ended(number: int, branch: Ref) -> Ref:
        if params.dropout > 0.0:
            branch = g.add(f"drop{number}", "layer/dropout@1", branch, params={"rate": params.dropout})
        if params.drop_path > 0.0:
            branch = g.add(f"path{number}", "layer/drop_path@1", branch, params={"rate": params.drop_path})
        return branch

    def attend(h: Ref) -> Ref:
        return ended(1, g.add("attn", "layer/multi_head_attention@1", h, params=attention, mask=mask))

    mlp = g.scope("mlp")
    if params.norm_first:
        h = g.add("add1", "layer/add@1", x, attend(norm("norm1", x)))
        return g.add("add2", "layer/add@1", h, ended(2, _feed_forward(mlp, params, norm("norm2", h))))
    h = norm("norm1", g.add("add1", "layer/add@1", x, attend(x)))
    return norm("norm2", g.add("add2", "layer/add@1", h, ended(2, _feed_forward(mlp, params, h))))


TRANSFORMER_BLOCK = Layer(
    id="layer/transformer_block@1",
    title="Transformer block",
    summary="Attention and feed-forward with norms and residual connections, pre-norm or post-norm.",
    params=TransformerBlockParams,
    source="Vaswani et al., Attention Is All You Need, 2017, section 3.1, https://arxiv.org/abs/1706.03762; pre-norm: "
    "Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, https://arxiv.org/abs/2002.04745",
    deviation="q, k and v are separate layers, so that adapters reach each by path",
    ports=(Port("x"), Port("mask", optional=True)),
    compose=compose,
)
