"""PReLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class PreluParams(BlockParams):
    """Parameters of ``layer/prelu``."""

    by_channel: bool = field(False, help="a slope for each channel (axis 1) rather than one for all")
    start: float = field(0.25, help="initial slope")


def lower(ctx: LowerContext, params: PreluParams, x: Value) -> Value:
    """``y = x`` where ``x > 0``, ``weight x`` elsewhere.

    Args:
        ctx: where ``weight`` f32[1] or f32[channels] is declared.
        params: see :class:`PreluParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    channels = 1
    if params.by_channel:
        if x.ndim < 2:
            ctx.fail("an input of shape [batch, channels, ...]", str(x.type))
        channels = x.shape[1]
    weight = ctx.param("weight", (channels,), Init("constant", params.start))
    spread = (1, channels, *(1 for _ in x.shape[2:])) if params.by_channel else (1,) * x.ndim
    return ops.select(x > 0.0, x, x * ops.reshape(weight, spread))


PRELU = Layer(
    id="layer/prelu@1",
    title="PReLU",
    summary="x where positive, a learned slope times x elsewhere.",
    params=PreluParams,
    source="He, Zhang, Ren and Sun, Delving Deep into Rectifiers, 2015, equation 1, https://arxiv.org/abs/1502.01852",
    lower=lower,
)
