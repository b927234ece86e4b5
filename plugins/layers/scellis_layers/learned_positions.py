"""Learned absolute positions, added to a sequence."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class LearnedPositionsParams(BlockParams):
    """Parameters of ``layer/learned_positions``."""

    length: int = field(gt=0, unit="tokens", help="longest sequence")
    init_std: float = field(0.02, ge=0.0, help="standard deviation of the initial normal draws")


def lower(ctx: LowerContext, params: LearnedPositionsParams, x: Value) -> Value:
    """``y[b, t] = x[b, t] + weight[t]``.

    Args:
        ctx: where the parameter is declared: ``weight`` f32[length, width].
        params: see :class:`LearnedPositionsParams`.
        x: f32[batch, tokens, width] with tokens <= length.

    Returns:
        f32[batch, tokens, width].
    """
    if x.ndim != 3 or x.shape[1] > params.length:
        ctx.fail(
            f"an input of shape [batch, at most {params.length} tokens, width]",
            str(x.type),
            "a larger length",
        )
    tokens, width = x.shape[1], x.shape[2]
    weight = ctx.param("weight", (params.length, width), Init("normal", params.init_std))
    if tokens < params.length:
        weight = ops.slice(weight, starts=(0, 0), stops=(tokens, width))
    return x + weight


LEARNED_POSITIONS = Layer(
    id="layer/learned_positions@1",
    title="Learned positions",
    summary="Adds a learned vector for each position of a sequence.",
    params=LearnedPositionsParams,
    source="Radford, Wu, Child, Luan, Amodei and Sutskever, Language Models are Unsupervised Multitask "
    "Learners, 2019, section 2.3 (wpe), https://github.com/openai/gpt-2",
    lower=lower,
)
