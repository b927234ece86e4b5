"""Batch normalisation by channel."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class BatchNormParams(BlockParams):
    """Parameters of ``layer/batch_norm``."""

    eps: float = field(1e-5, gt=0.0, help="added to the variance")
    momentum: float = field(0.1, ge=0.0, le=1.0, help="share of the batch's statistics in the running ones")
    affine: bool = field(True, help="scale by a learned weight and add a learned bias")


def lower(ctx: LowerContext, params: BatchNormParams, x: Value) -> Value:
    """Normalise each channel by the batch's statistics in training, by the running ones otherwise.

    In training ``y = (x - mean) / sqrt(var + eps) * weight + bias`` with the biased variance, and
    ``running = (1 - momentum) * running + momentum * batch`` where the variance is the unbiased one.

    Args:
        ctx: where ``weight`` (ones), ``bias`` (zeros), and the states ``running_mean`` (zeros) and
            ``running_var`` (ones) are declared, all f32[channels].
        params: see :class:`BatchNormParams`.
        x: f32[batch, channels, ...].

    Returns:
        As ``x``.
    """
    if x.ndim < 2:
        ctx.fail("an input of shape [batch, channels, ...]", str(x.type))
    channels = x.shape[1]
    spread = (1, channels, *(1 for _ in x.shape[2:]))
    running_mean = ctx.state("running_mean", (channels,), Init("zeros"))
    running_var = ctx.state("running_var", (channels,), Init("ones"))
    if ctx.training:
        axes = (0, *range(2, x.ndim))
        count = x.type.numel // channels
        if count < 2:
            ctx.fail(
                "more than one value a channel in training",
                f"a batch of {x.type}",
                "a batch_size that does not leave a last batch of one example",
            )
        mean = ops.mean(x, axes=axes, keepdims=True)
        centred = x - mean
        variance = ops.mean(ops.square(centred), axes=axes, keepdims=True)
        keep, take = 1.0 - params.momentum, params.momentum
        ctx.update_state("running_mean", running_mean * keep + ops.reshape(mean, (channels,)) * take)
        unbiased = ops.reshape(variance, (channels,)) * (count / (count - 1))
        ctx.update_state("running_var", running_var * keep + unbiased * take)
    else:
        centred = x - ops.reshape(running_mean, spread)
        variance = ops.reshape(running_var, spread)
    y = centred * ops.rsqrt(variance + params.eps)
    if params.affine:
        y = y * ops.reshape(ctx.param("weight", (channels,), Init("ones")), spread)
        y = y + ops.reshape(ctx.param("bias", (channels,), Init("zeros")), spread)
    return y


BATCH_NORM = Layer(
    id="layer/batch_norm@1",
    title="Batch normalisation",
    summary="Normalises each channel over the batch; keeps running statistics for evaluation.",
    params=BatchNormParams,
    source="Ioffe and Szegedy, Batch Normalization, 2015, algorithm 1, https://arxiv.org/abs/1502.03167; "
    "running statistics as torch.nn.BatchNorm2d (momentum is the new batch's share, unbiased variance)",
    deviation="running statistics are exponential, as PyTorch's; the paper averages over a pass after training",
    lower=lower,
)
