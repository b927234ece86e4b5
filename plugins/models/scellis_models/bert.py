"""Encoder-only transformer in the form of BERT, with the head of masked language modelling."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Compose, InputSpec, Model, Ref, field


class BertParams(BlockParams):
    """Parameters of ``model/bert``."""

    vocab_size: int = field(gt=0, unit="tokens", help="token ids run from 0 to vocab_size - 1")
    context: int = field(gt=0, unit="tokens", help="length of a sequence")
    width: int = field(gt=0, unit="elements", help="width of the residual stream")
    layers: int = field(gt=0, help="transformer blocks")
    heads: int = field(gt=0, help="attention heads of a block; must divide width")
    hidden: int | None = field(
        None, gt=0, unit="elements", help="width inside the feed-forward; 4 width where left out"
    )
    segments: int = field(0, ge=0, help="kinds of token (sentence A or B); above 0 the model reads an input segments")
    mask: bool = field(False, help="read an input mask [batch, context]; 0 hides a position")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate after embedding, in attention and after each branch")
    eps: float = field(1e-12, gt=0.0, help="epsilon of the norms")
    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")

    def problem(self) -> str | None:
        """Heads divide the width."""
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def inputs(params: BertParams) -> dict[str, InputSpec]:
    """Token ids ``x`` i32[batch, context]; ``segments`` and ``mask`` of the same shape where asked for."""
    found = {"x": InputSpec((params.context,), "i32", limit=params.vocab_size)}
    if params.segments:
        found["segments"] = InputSpec((params.context,), "i32", limit=params.segments)
    if params.mask:
        found["mask"] = InputSpec((params.context,), "i32")
    return found


def build(g: Compose, params: BertParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Sum of token, segment and position vectors, a norm, post-norm blocks; the head transforms and reads the table.

    Args:
        g: builder; adds ``embed``, ``segments``, ``pos``, ``embed_norm``, ``blocks.<i>``,
            ``transform.{dense,act,norm}`` and ``head``.
        params: see :class:`BertParams`.
        inputs: ``x``, and ``segments`` and ``mask`` where asked for.

    Returns:
        ``logits``: f32[batch, context, vocab_size]; ``hidden``: f32[batch, context, width].
    """
    std, norm = params.init_std, {"eps": params.eps}
    table = {"vocab_size": params.vocab_size, "width": params.width, "init_std": std}
    h = g.add("embed", "layer/embedding@1", inputs["x"], params=table)
    if params.segments:
        kinds = g.add(
            "segments", "layer/embedding@1", inputs["segments"], params={**table, "vocab_size": params.segments}
        )
        h = g.add("embed_add", "layer/add@1", h, kinds)
    h = g.add("pos", "layer/learned_positions@1", h, params={"length": params.context, "init_std": std})
    h = g.add("embed_norm", "layer/layer_norm@1", h, params=norm)
    if params.dropout > 0.0:
        h = g.add("drop", "layer/dropout@1", h, params={"rate": params.dropout})
    block = params.model_dump(include={"width", "heads", "hidden", "dropout", "eps", "init_std"}) | {
        "norm_first": False
    }
    for i in range(params.layers):
        h = g.add(f"blocks.{i}", "layer/transformer_block@1", h, params=block, mask=inputs.get("mask"))
    head = g.scope("transform")
    start = {"init": "normal", "init_std": std}
    t = head.add("dense", "layer/linear@1", h, params={"features": params.width, **start})
    t = head.add("norm", "layer/layer_norm@1", head.add("act", "layer/gelu@1", t), params=norm)
    logits = g.add("head", "layer/linear@1", t, params={"features": params.vocab_size, **start})
    g.tie("head.weight", "embed.weight")
    return {"logits": logits, "hidden": h}


BERT = Model(
    id="model/bert@1",
    title="BERT",
    summary="Encoder-only transformer, post-norm, with the head of masked language modelling.",
    params=BertParams,
    source="Devlin, Chang, Lee and Toutanova, BERT, 2018, section 3, https://arxiv.org/abs/1810.04805",
    deviation="the head's bias starts uniform within 1 / sqrt(width) unless init is changed; no pooler and no next-"
    "sentence head: layer/select_token and layer/linear on output hidden make a classifier",
    inputs=inputs,
    build=build,
)
