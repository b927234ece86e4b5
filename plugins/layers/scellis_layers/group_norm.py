"""Group normalisation."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class GroupNormParams(BlockParams):
    """Parameters of ``layer/group_norm``."""

    groups: int = field(gt=0, help="parts that channels are split into; must divide them")
    eps: float = field(1e-5, gt=0.0, help="added to the variance")
    affine: bool = field(True, help="scale by a learned weight and add a learned bias, by channel")


def lower(ctx: LowerContext, params: GroupNormParams, x: Value) -> Value:
    """``y = (x - mean) / sqrt(var + eps) * weight + bias``, statistics over each group of channels of an example.

    Args:
        ctx: where ``weight`` (ones) and ``bias`` (zeros), f32[channels], are declared.
        params: see :class:`GroupNormParams`.
        x: f32[batch, channels, ...].

    Returns:
        As ``x``.
    """
    if x.ndim < 2 or x.shape[1] % params.groups:
        ctx.fail(f"an input of shape [batch, channels that {params.groups} groups divide, ...]", str(x.type))
    batch, channels = x.shape[:2]
    grouped = ops.reshape(x, (batch, params.groups, x.type.numel // (batch * params.groups)))
    centred = grouped - ops.mean(grouped, axes=(2,), keepdims=True)
    variance = ops.mean(ops.square(centred), axes=(2,), keepdims=True)
    y = ops.reshape(centred * ops.rsqrt(variance + params.eps), x.shape)
    if params.affine:
        spread = (1, channels, *(1 for _ in x.shape[2:]))
        y = y * ops.reshape(ctx.param("weight", (channels,), Init("ones")), spread)
        y = y + ops.reshape(ctx.param("bias", (channels,), Init("zeros")), spread)
    return y


GROUP_NORM = Layer(
    id="layer/group_norm@1",
    title="Group normalisation",
    summary="Normalises groups of channels of each example; independent of the batch.",
    params=GroupNormParams,
    source="Wu and He, Group Normalization, 2018, equation 7, https://arxiv.org/abs/1803.08494; numbers as "
    "torch.nn.GroupNorm",
    lower=lower,
)
