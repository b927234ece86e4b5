"""ELU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class EluParams(BlockParams):
    """Parameters of ``layer/elu``."""

    alpha: float = field(1.0, gt=0.0, help="value that very negative inputs approach, negated")


def lower(ctx: LowerContext, params: EluParams, x: Value) -> Value:
    """``y = x`` where ``x > 0``, ``alpha (exp(x) - 1)`` elsewhere.

    Args:
        ctx: unused.
        params: see :class:`EluParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.select(x > 0.0, x, ops.expm1(ops.select(x > 0.0, 0.0, x)) * params.alpha)


ELU = Layer(
    id="layer/elu@1",
    title="ELU",
    summary="x where positive, alpha (exp(x) - 1) elsewhere.",
    params=EluParams,
    source="Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear "
    "Units, 2016, equation 15, https://arxiv.org/abs/1511.07289",
    lower=lower,
)
