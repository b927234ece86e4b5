"""Instance normalisation."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class InstanceNormParams(BlockParams):
    """Parameters of ``layer/instance_norm``."""

    eps: float = field(1e-5, gt=0.0, help="added to the variance")
    affine: bool = field(False, help="scale by a learned weight and add a learned bias, by channel")


def lower(ctx: LowerContext, params: InstanceNormParams, x: Value) -> Value:
    """``y = (x - mean) / sqrt(var + eps)``, statistics over each channel of an example.

    Args:
        ctx: where ``weight`` (ones) and ``bias`` (zeros), f32[channels], are declared where affine.
        params: see :class:`InstanceNormParams`.
        x: f32[batch, channels, ...] with more than one value a channel.

    Returns:
        As ``x``.
    """
    if x.ndim < 3 or x.type.numel // (x.shape[0] * x.shape[1]) < 2:
        ctx.fail("an input of shape [batch, channels, ...] with more than one value a channel", str(x.type))
    axes = tuple(range(2, x.ndim))
    centred = x - ops.mean(x, axes=axes, keepdims=True)
    y = centred * ops.rsqrt(ops.mean(ops.square(centred), axes=axes, keepdims=True) + params.eps)
    if params.affine:
        spread = (1, x.shape[1], *(1 for _ in axes))
        y = y * ops.reshape(ctx.param("weight", (x.shape[1],), Init("ones")), spread)
        y = y + ops.reshape(ctx.param("bias", (x.shape[1],), Init("zeros")), spread)
    return y


INSTANCE_NORM = Layer(
    id="layer/instance_norm@1",
    title="Instance normalisation",
    summary="Normalises each channel of each example over its positions.",
    params=InstanceNormParams,
    source="Ulyanov, Vedaldi and Lempitsky, Instance Normalization, 2016, equation 1, "
    "https://arxiv.org/abs/1607.08022; numbers as torch.nn.InstanceNorm2d",
    deviation="no running statistics, which torch.nn.InstanceNorm2d keeps on request",
    lower=lower,
)
