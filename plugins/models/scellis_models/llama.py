"""Decoder-only transformer in the form of Llama."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Compose, InputSpec, Model, Ref, field


class LlamaParams(BlockParams):
    """Parameters of ``model/llama``."""

    vocab_size: int = field(gt=0, unit="tokens", help="token ids run from 0 to vocab_size - 1")
    context: int = field(gt=0, unit="tokens", help="length of a sequence")
    width: int = field(gt=0, unit="elements", help="width of the residual stream")
    layers: int = field(gt=0, help="transformer blocks")
    heads: int = field(gt=0, help="attention heads of a block; must divide width")
    kv_heads: int | None = field(None, gt=0, help="heads of keys and values; heads where left out")
    hidden: int | None = field(
        None,
        gt=0,
        unit="elements",
        help="width inside the feed-forward; 8/3 of width, up to a multiple of 8, if left out",
    )
    rotary_base: float = field(10000.0, gt=1.0, help="base of the rotary positions")
    eps: float = field(1e-5, gt=0.0, help="epsilon of the norms")
    tie_head: bool = field(False, help="the output layer shares the embedding's table")
    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")

    def problem(self) -> str | None:
        """Heads divide the width, and heads of keys those of queries."""
        if self.width % self.heads or self.width // self.heads % 2:
            return f"heads {self.heads} must divide width {self.width} into even parts"
        if self.kv_heads and self.heads % self.kv_heads:
            return f"kv_heads {self.kv_heads} must divide heads {self.heads}"
        return None


def inputs(params: LlamaParams) -> dict[str, InputSpec]:
    """Token ids: ``x`` i32[batch, context], below ``vocab_size``."""
    return {"x": InputSpec((params.context,), "i32", limit=params.vocab_size)}


def build(g: Compose, params: LlamaParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Embedding, pre-norm blocks (RMS norm, rotary attention with grouped queries, SwiGLU), a last norm, the head.

    Weights start as N(0, init_std), those that end a branch as N(0, init_std / sqrt(2 layers)). No biases.

    Args:
        g: builder; adds ``embed``, ``blocks.<i>``, ``norm`` and ``head``.
        params: see :class:`LlamaParams`.
        inputs: ``x``: i32[batch, context].

    Returns:
        ``logits``: f32[batch, context, vocab_size].
    """
    std = params.init_std
    table = {"vocab_size": params.vocab_size, "width": params.width, "init_std": std}
    h = g.add("embed", "layer/embedding@1", inputs["x"], params=table)
    block = {
        **params.model_dump(include={"width", "heads", "kv_heads", "rotary_base", "eps"}),
        "hidden": params.hidden or -(-8 * params.width // 3 // 8) * 8,
        "norm": "rms_norm",
        "activation": "swiglu",
        "causal": True,
        "rotary": True,
        "bias": False,
        "init_std": std,
        "residual_std": std / math.sqrt(2 * params.layers),
    }
    for i in range(params.layers):
        h = g.add(f"blocks.{i}", "layer/transformer_block@1", h, params=block)
    h = g.add("norm", "layer/rms_norm@1", h, params={"eps": params.eps})
    head = {"features": params.vocab_size, "bias": False, "init": "normal", "init_std": std}
    logits = g.add("head", "layer/linear@1", h, params=head)
    if params.tie_head:
        g.tie("head.weight", "embed.weight")
    return {"logits": logits}


LLAMA = Model(
    id="model/llama@1",
    title="Llama",
    summary="Decoder-only transformer: RMS norm, rotary positions, grouped queries, SwiGLU, no biases.",
    params=LlamaParams,
    source="Touvron et al., LLaMA, 2023, section 2.2, https://arxiv.org/abs/2302.13971; kv_heads: Touvron et al., "
    "Llama 2, 2023, https://arxiv.org/abs/2307.09288",
    inputs=inputs,
    build=build,
)
