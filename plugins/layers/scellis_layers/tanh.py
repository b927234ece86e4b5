"""Hyperbolic tangent."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class TanhParams(BlockParams):
    """``layer/tanh`` has no parameters."""


def lower(ctx: LowerContext, params: TanhParams, x: Value) -> Value:
    """``y = tanh(x)``.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.tanh(x)


TANH = Layer(
    id="layer/tanh@1",
    title="Tanh",
    summary="tanh(x).",
    params=TanhParams,
    source="torch.nn.Tanh, https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanh.html",
    lower=lower,
)
