"""Hard swish."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class HardswishParams(BlockParams):
    """``layer/hardswish`` has no parameters."""


def lower(ctx: LowerContext, params: HardswishParams, x: Value) -> Value:
    """``y = x min(max(x + 3, 0), 6) / 6``; at -3 and 3 the gradient of the straight part.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.select(x <= -3.0, 0.0, ops.select(x >= 3.0, x, x * (x + 3.0) * (1.0 / 6.0)))


HARDSWISH = Layer(
    id="layer/hardswish@1",
    title="Hard swish",
    summary="x times a piecewise linear sigmoid.",
    params=HardswishParams,
    source="Howard and others, Searching for MobileNetV3, 2019, section 5.2, https://arxiv.org/abs/1905.02244",
    lower=lower,
)
