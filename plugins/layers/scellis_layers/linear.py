"""Fully connected layer."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class LinearParams(BlockParams):
    """Parameters of ``layer/linear``."""

    features: int = field(gt=0, unit="elements", help="width of the output")
    bias: bool = field(True, help="add a learned bias")
    init: Literal["fan_in", "he", "normal", "zeros"] = field(
        "fan_in",
        help="fan_in: uniform within 1/sqrt(in), as PyTorch; he: normal, sqrt(2/in); normal: init_std",
    )
    init_std: float = field(0.02, ge=0.0, help="standard deviation where init is normal")


def lower(ctx: LowerContext, params: LinearParams, x: Value) -> Value:
    """``y = x W^T + b``.

    Args:
        ctx: where parameters are declared: ``weight`` f32[features, in], ``bias`` f32[features].
        params: see :class:`LinearParams`.
        x: f32[batch, ..., in].

    Returns:
        f32[batch, ..., features].
    """
    if x.ndim < 2:
        ctx.fail("an input of shape [batch, ..., in]", str(x.type))
    width = x.shape[-1]
    bound = 1.0 / math.sqrt(width)
    weight_init, bias_init = Init("zeros"), Init("zeros")
    if params.init == "fan_in":
        weight_init, bias_init = Init("uniform", bound), Init("uniform", bound)
    elif params.init == "he":
        weight_init = Init("normal", math.sqrt(2.0 / width))
    elif params.init == "normal":
        weight_init = Init("normal", params.init_std)
    y = ops.matmul(x, ctx.param("weight", (params.features, width), weight_init), transpose_b=True)
    if params.bias:
        y = y + ctx.param("bias", (params.features,), bias_init)
    return y


LINEAR = Layer(
    id="layer/linear@1",
    title="Linear",
    summary="Fully connected layer: y = x W^T + b, weight stored [out, in].",
    params=LinearParams,
    source="torch.nn.Linear, https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html; he: He, "
    "Zhang, Ren and Sun, Delving Deep into Rectifiers, 2015, eq. 10, https://arxiv.org/abs/1502.01852",
    lower=lower,
)
