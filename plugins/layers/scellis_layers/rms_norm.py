"""Root-mean-square normalisation over the last dimension."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class RmsNormParams(BlockParams):
    """Parameters of ``layer/rms_norm``."""

    eps: float = field(1e-6, gt=0.0, help="added to the mean square")
    affine: bool = field(True, help="scale by a learned weight")


def lower(ctx: LowerContext, params: RmsNormParams, x: Value) -> Value:
    """``y = x / sqrt(mean(x^2) + eps) * weight`` over the last dimension.

    Args:
        ctx: where the parameter is declared: ``weight`` (ones), f32[width].
        params: see :class:`RmsNormParams`.
        x: f32[batch, ..., width].

    Returns:
        As ``x``.
    """
    if x.ndim < 2:
        ctx.fail("an input of shape [batch, ..., width]", str(x.type))
    y = x * ops.rsqrt(ops.mean(ops.square(x), axes=(x.ndim - 1,), keepdims=True) + params.eps)
    if params.affine:
        y = y * ctx.param("weight", (x.shape[-1],), Init("ones"))
    return y


RMS_NORM = Layer(
    id="layer/rms_norm@1",
    title="RMS normalisation",
    summary="Divides the last dimension by its root mean square, then scales.",
    params=RmsNormParams,
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, eq. 4, https://arxiv.org/abs/1910.07467",
    deviation="eps is added inside the root (as torch.nn.RMSNorm and Llama); the paper has none",
    lower=lower,
)
