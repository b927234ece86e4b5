"""Gaussian error linear unit, exact or by tanh."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class GeluParams(BlockParams):
    """Parameters of ``layer/gelu``."""

    approximate: Literal["none", "tanh"] = field("none", help="none: by erf; tanh: the form that GPT-2 uses")


def lower(ctx: LowerContext, params: GeluParams, x: Value) -> Value:
    """``y = x Phi(x)``, Phi the normal distribution function, or its tanh approximation.

    Args:
        ctx: unused.
        params: see :class:`GeluParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    if params.approximate == "tanh":
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1.0 + ops.tanh(inner))
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


GELU = Layer(
    id="layer/gelu@1",
    title="GELU",
    summary="x times the normal distribution function of x, exact (erf) or approximate (tanh).",
    params=GeluParams,
    source="Hendrycks and Gimpel, Gaussian Error Linear Units (GELUs), 2016, section 2, "
    "https://arxiv.org/abs/1606.08415",
    lower=lower,
)
