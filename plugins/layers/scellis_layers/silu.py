"""Sigmoid linear unit (swish)."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, ops


class SiluParams(BlockParams):
    """``layer/silu`` has no parameters."""


def lower(ctx: LowerContext, params: SiluParams, x: Value) -> Value:
    """``y = x / (1 + exp(-x))``.

    Args:
        ctx: unused.
        params: none.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.silu(x)


SILU = Layer(
    id="layer/silu@1",
    title="SiLU",
    summary="x / (1 + exp(-x)).",
    params=SiluParams,
    source="Hendrycks and Gimpel, 2016, https://arxiv.org/abs/1606.08415; swish: Ramachandran, Zoph and Le, "
    "2017, eq. 1, https://arxiv.org/abs/1710.05941",
    lower=lower,
)
