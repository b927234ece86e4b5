"""Table of learned vectors, one for each token id."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class EmbeddingParams(BlockParams):
    """Parameters of ``layer/embedding``."""

    vocab_size: int = field(gt=0, unit="elements", help="rows of the table; ids run from 0 to vocab_size - 1")
    width: int = field(gt=0, unit="elements", help="length of each vector")
    init_std: float = field(1.0, ge=0.0, help="standard deviation of the initial normal draws")


def lower(ctx: LowerContext, params: EmbeddingParams, x: Value) -> Value:
    """``y = weight[x]``.

    Args:
        ctx: where the parameter is declared: ``weight`` f32[vocab_size, width].
        params: see :class:`EmbeddingParams`.
        x: i32[batch, ...]; ids below vocab_size (the host refuses others where the data states its limit).

    Returns:
        f32[batch, ..., width].
    """
    if x.dtype not in ("i32", "u32"):
        ctx.fail("token ids of dtype i32", str(x.type), "data whose x holds integers, such as data/text")
    weight = ctx.param("weight", (params.vocab_size, params.width), Init("normal", params.init_std))
    return ops.take(weight, x)


EMBEDDING = Layer(
    id="layer/embedding@1",
    title="Embedding",
    summary="Table of learned vectors looked up by token id.",
    params=EmbeddingParams,
    source="torch.nn.Embedding, https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
    deviation="no padding_idx, max_norm or sparse gradients",
    lower=lower,
)
