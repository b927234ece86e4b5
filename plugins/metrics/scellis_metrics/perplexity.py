"""Exponential of the mean cross-entropy."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, LowerContext, Metric, Value, field, ops


class PerplexityParams(BlockParams):
    """Parameters of ``metric/perplexity``."""

    ignore_index: int = field(-100, help="targets equal to this count for nothing")


def perplexity(ctx: LowerContext, params: PerplexityParams, output: Value, target: Value) -> dict[str, Value]:
    """``exp(mean of -log softmax(output)_target)`` over all counted tokens of the split.

    Args:
        ctx: for errors.
        params: see :class:`PerplexityParams`.
        output: f32[..., classes]; unnormalised log-probabilities (nats).
        target: i32[...].

    Returns:
        ``total`` (nats) and ``weight`` (tokens), f32[].
    """
    if output.ndim < 2 or target.shape != output.shape[:-1] or target.dtype not in ("i32", "u32"):
        ctx.fail(
            "class indices shaped as the output without its last axis",
            f"output {output.type}, target {target.type}",
        )
    counted = ops.ne(target, params.ignore_index)
    picked = ops.pick(output, ops.select(counted, target, 0))
    nats = ops.logsumexp(output, axis=output.ndim - 1) - picked
    return {
        "total": ops.reduce_sum(ops.select(counted, nats, 0.0)),
        "weight": ops.reduce_sum(ops.select(counted, 1.0, 0.0)),
    }


PERPLEXITY = Metric(
    id="metric/perplexity@1",
    title="Perplexity",
    summary="Exponential of the mean negative log-likelihood of a token.",
    params=PerplexityParams,
    source="Jelinek, Mercer, Bahl and Baker, Perplexity: a Measure of the Difficulty of Speech Recognition "
    "Tasks, 1977, https://doi.org/10.1121/1.2016299",
    fn=perplexity,
    finalize="exp_ratio",
)
