"""Decoder-only transformer in the form of GPT-2."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Compose, InputSpec, Model, Ref, field


class DecoderTransformerParams(BlockParams):
    """Parameters of ``model/decoder_transformer``."""

    vocab_size: int = field(gt=0, unit="tokens", help="token ids run from 0 to vocab_size - 1")
    context: int = field(gt=0, unit="tokens", help="length of a sequence")
    width: int = field(gt=0, unit="elements", help="width of the residual stream")
    layers: int = field(gt=0, help="transformer blocks")
    heads: int = field(gt=0, help="attention heads of a block; must divide width")
    mlp_ratio: int = field(4, gt=0, help="hidden width of the feed-forward part, in multiples of width")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate after embedding, in attention and after each branch")
    tie_head: bool = field(True, help="the output layer shares the embedding's table")
    eps: float = field(1e-5, gt=0.0, help="epsilon of the layer norms")
    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")

    def problem(self) -> str | None:
        """Heads must divide the width."""
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def inputs(params: DecoderTransformerParams) -> dict[str, InputSpec]:
    """Token ids: ``x`` i32[batch, context], below ``vocab_size``."""
    return {"x": InputSpec((params.context,), "i32", limit=params.vocab_size)}


def build(g: Compose, params: DecoderTransformerParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Embedding and positions, pre-norm blocks of attention and feed-forward, a last norm, and the head.

    Weights start as N(0, init_std), those that write to the residual stream as
    N(0, init_std / sqrt(2 layers)).

    Args:
        g: builder; adds ``embed``, ``pos``, ``blocks.<i>.{norm1,attn,add1,norm2,mlp,add2}``, ``norm`` and
            ``head``.
        params: see :class:`DecoderTransformerParams`.
        inputs: ``x``: i32[batch, context].

    Returns:
        ``logits``: f32[batch, context, vocab_size].
    """
    std = params.init_std
    residual_std = std / math.sqrt(2 * params.layers)
    norm = {"eps": params.eps}
    drop = {"rate": params.dropout}

    h = g.add(
        "embed",
        "layer/embedding@1",
        inputs["x"],
        params={"vocab_size": params.vocab_size, "width": params.width, "init_std": std},
    )
    h = g.add("pos", "layer/learned_positions@1", h, params={"length": params.context, "init_std": std})
    if params.dropout > 0.0:
        h = g.add("drop", "layer/dropout@1", h, params=drop)
    for i in range(params.layers):
        block = g.scope(f"blocks.{i}")
        attention = {
            "width": params.width,
            "heads": params.heads,
            "causal": True,
            "dropout": params.dropout,
            "init": "normal",
            "init_std": std,
            "out_init_std": residual_std,
        }
        branch = block.add("norm1", "layer/layer_norm@1", h, params=norm)
        branch = block.add("attn", "layer/multi_head_attention@1", branch, params=attention)
        if params.dropout > 0.0:
            branch = block.add("drop1", "layer/dropout@1", branch, params=drop)
        h = block.add("add1", "layer/add@1", h, branch)

        mlp = block.scope("mlp")
        up = {"features": params.mlp_ratio * params.width, "init": "normal", "init_std": std}
        down = {"features": params.width, "init": "normal", "init_std": residual_std}
        branch = block.add("norm2", "layer/layer_norm@1", h, params=norm)
        branch = mlp.add("up", "layer/linear@1", branch, params=up)
        branch = mlp.add("act", "layer/gelu@1", branch, params={"approximate": "tanh"})
        branch = mlp.add("down", "layer/linear@1", branch, params=down)
        if params.dropout > 0.0:
            branch = block.add("drop2", "layer/dropout@1", branch, params=drop)
        h = block.add("add2", "layer/add@1", h, branch)
    h = g.add("norm", "layer/layer_norm@1", h, params=norm)
    head = {"features": params.vocab_size, "bias": False, "init": "normal", "init_std": std}
    logits = g.add("head", "layer/linear@1", h, params=head)
    if params.tie_head:
        g.tie("head.weight", "embed.weight")
    return {"logits": logits}


DECODER_TRANSFORMER = Model(
    id="model/decoder_transformer@1",
    title="Decoder transformer",
    summary="Decoder-only transformer, pre-norm, learned positions, GELU, tied head: the form of GPT-2.",
    params=DecoderTransformerParams,
    source="Radford, Wu, Child, Luan, Amodei and Sutskever, Language Models are Unsupervised Multitask "
    "Learners, 2019, section 2.3, https://github.com/openai/gpt-2",
    deviation="q, k and v are separate layers rather than one fused projection",
    inputs=inputs,
    build=build,
)
