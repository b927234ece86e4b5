"""A learned token put before a sequence."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class ClassTokenParams(BlockParams):
    """Parameters of ``layer/class_token``."""

    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")


def lower(ctx: LowerContext, params: ClassTokenParams, x: Value) -> Value:
    """``y[b] = [weight, x[b, 0], x[b, 1], ...]``.

    Args:
        ctx: where the parameter is declared: ``weight`` f32[1, width].
        params: see :class:`ClassTokenParams`.
        x: f32[batch, tokens, width].

    Returns:
        f32[batch, tokens + 1, width].
    """
    if x.ndim != 3:
        ctx.fail("an input of shape [batch, tokens, width]", str(x.type))
    batch, _, width = x.shape
    weight = ctx.param("weight", (1, width), Init("normal", params.init_std))
    return ops.concat([ops.broadcast(ops.reshape(weight, (1, 1, width)), (batch, 1, width)), x], axis=1)


CLASS_TOKEN = Layer(
    id="layer/class_token@1",
    title="Class token",
    summary="Puts one learned token before a sequence, for what is said of the whole.",
    params=ClassTokenParams,
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, equation 1, https://arxiv.org/abs/2010.11929",
    lower=lower,
)
