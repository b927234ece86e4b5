"""Layer normalisation over the last dimension."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class LayerNormParams(BlockParams):
    """Parameters of ``layer/layer_norm``."""

    eps: float = field(1e-5, gt=0.0, help="added to the variance")
    affine: bool = field(True, help="scale by a learned weight")
    bias: bool = field(True, help="add a learned bias, where affine")


def lower(ctx: LowerContext, params: LayerNormParams, x: Value) -> Value:
    """``y = (x - mean) / sqrt(var + eps) * weight + bias`` with the biased variance of the last dimension.

    Args:
        ctx: where parameters are declared: ``weight`` (ones) and ``bias`` (zeros), f32[width].
        params: see :class:`LayerNormParams`.
        x: f32[batch, ..., width].

    Returns:
        As ``x``.
    """
    if x.ndim < 2:
        ctx.fail("an input of shape [batch, ..., width]", str(x.type))
    last = (x.ndim - 1,)
    centred = x - ops.mean(x, axes=last, keepdims=True)
    variance = ops.mean(ops.square(centred), axes=last, keepdims=True)
    y = centred * ops.rsqrt(variance + params.eps)
    if params.affine:
        y = y * ctx.param("weight", (x.shape[-1],), Init("ones"))
        if params.bias:
            y = y + ctx.param("bias", (x.shape[-1],), Init("zeros"))
    return y


LAYER_NORM = Layer(
    id="layer/layer_norm@1",
    title="Layer normalisation",
    summary="Normalises the last dimension to mean 0 and variance 1, then scales and shifts.",
    params=LayerNormParams,
    source="Ba, Kiros and Hinton, Layer Normalization, 2016, eq. 4, https://arxiv.org/abs/1607.06450; "
    "numbers as torch.nn.LayerNorm",
    deviation="only the last dimension is normalised",
    lower=lower,
)
