"""Softplus."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class SoftplusParams(BlockParams):
    """Parameters of ``layer/softplus``."""

    beta: float = field(1.0, gt=0.0, help="sharpness; ReLU as it grows")


def lower(ctx: LowerContext, params: SoftplusParams, x: Value) -> Value:
    """``y = log(1 + exp(beta x)) / beta``, without overflow.

    Args:
        ctx: unused.
        params: see :class:`SoftplusParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.softplus(x * params.beta) * (1.0 / params.beta)


SOFTPLUS = Layer(
    id="layer/softplus@1",
    title="Softplus",
    summary="A smooth ReLU: log(1 + exp(beta x)) / beta.",
    params=SoftplusParams,
    source="Dugas, Bengio, Belisle, Nadeau and Garcia, Incorporating Second-Order Functional Knowledge, 2001, "
    "equation 4, "
    "https://papers.nips.cc/paper/1920-incorporating-second-order-functional-knowledge-for-better-option-pricing",
    deviation="exact everywhere; PyTorch returns x above a threshold of 20, 2e-9 apart",
    lower=lower,
)
