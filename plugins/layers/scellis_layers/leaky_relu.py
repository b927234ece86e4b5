"""Leaky ReLU."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class LeakyReluParams(BlockParams):
    """Parameters of ``layer/leaky_relu``."""

    slope: float = field(0.01, ge=0.0, help="factor of negative inputs")


def lower(ctx: LowerContext, params: LeakyReluParams, x: Value) -> Value:
    """``y = x`` where ``x > 0``, ``slope x`` elsewhere; gradient ``slope`` at 0.

    Args:
        ctx: unused.
        params: see :class:`LeakyReluParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.select(x > 0.0, x, x * params.slope)


LEAKY_RELU = Layer(
    id="layer/leaky_relu@1",
    title="Leaky ReLU",
    summary="x where positive, a small slope times x elsewhere.",
    params=LeakyReluParams,
    source="Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models, 2013, section 2, "
    "https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf",
    lower=lower,
)
