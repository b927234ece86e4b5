"""Gaussian error linear unit, exact or by tanh."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class GeluParams(BlockParams):
    """Parameters of ``layer/gelu``."""

    approximate: Literal["none", "tanh"] = field("none", help="none: by erf; tanh: the form that GPT-2 uses")


def lower(ctx: LowerContext, params: GeluParams, x: Value) -> Value:
    """``y = x Phi(x)``, Phi the normal distribution function, or its approximation by tanh.

    That is ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``.

    Args:
        ctx: unused.
        params: see :class:`GeluParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    return ops.gelu(x, params.approximate)


GELU = Layer(
    id="layer/gelu@1",
    title="GELU",
    summary="x times the normal distribution function of x, exact (erf) or approximate (tanh).",
    params=GeluParams,
    source="Hendrycks and Gimpel, Gaussian Error Linear Units (GELUs), 2016, section 2, "
    "https://arxiv.org/abs/1606.08415",
    lower=lower,
)
