"""Cross-entropy of class indices."""

from __future__ import annotations

from collections.abc import Sequence

from scellis_core.plugin import BlockParams, Loss, LossTerm, LowerContext, Value, field, ops


class CrossEntropyParams(BlockParams):
    """Parameters of ``training/loss/cross_entropy``."""

    label_smoothing: float = field(0.0, ge=0.0, le=1.0, help="share of the target spread evenly over all classes")
    class_weights: tuple[float, ...] | None = field(
        None, max_length=4096, help="one factor a class; even where left out"
    )
    ignore_index: int = field(-100, help="targets equal to this count for nothing")

    def problem(self) -> str | None:
        """Weights must not be negative."""
        if self.class_weights is not None and min(self.class_weights, default=0.0) < 0.0:
            return "class_weights must be 0 or greater"
        return None


def _table(index: Value, weights: Sequence[float], start: int = 0) -> Value | float:
    """``weights[index - start]`` as a tree of selects, equal neighbours merged."""
    if all(w == weights[0] for w in weights):
        return float(weights[0])
    half = len(weights) // 2
    low, high = _table(index, weights[:half], start), _table(index, weights[half:], start + half)
    return ops.select(index < start + half, low, high)


def cross_entropy(ctx: LowerContext, params: CrossEntropyParams, output: Value, target: Value) -> LossTerm:
    """``-w_y log softmax(output)_y``, smoothed, over the sum of ``w_y``: PyTorch's mean, exactly.

    With smoothing e and C classes an example's part is
    ``(1 - e) w_y (-logp_y) + e / C * sum_c w_c (-logp_c)``; the weight is ``w_y`` (1 without class weights).
    Where every target is ignored, total and weight are both 0: the core then takes the loss as 0 and skips
    the update, where PyTorch gives NaN.

    Args:
        ctx: for errors.
        params: see :class:`CrossEntropyParams`.
        output: f32[..., classes]; unnormalised log-probabilities (nats).
        target: i32[...]; class of each, or ``ignore_index``.

    Returns:
        Total and weight.
    """
    if output.ndim < 2 or target.shape != output.shape[:-1]:
        ctx.fail(
            "targets shaped as the output without its last axis (classes)",
            f"output {output.type}, target {target.type}",
        )
    if target.dtype not in ("i32", "u32"):
        ctx.fail("class indices of dtype i32", str(target.type), "training/loss/mse for targets that are numbers")
    axis, classes = output.ndim - 1, output.shape[-1]
    weights = params.class_weights
    if weights is not None and len(weights) != classes:
        ctx.fail(f"{classes} class_weights, one a class", f"{len(weights)}")
    counted = ops.ne(target, params.ignore_index)
    index = ops.select(counted, target, 0)
    lse = ops.logsumexp(output, axis=axis)
    loss = lse - ops.pick(output, index)
    weight = ops.select(counted, 1.0 if weights is None else _table(index, weights), 0.0)
    smoothing = params.label_smoothing
    if weights is None and smoothing == 0.0:
        total = ops.select(counted, loss, 0.0)
    elif smoothing == 0.0:
        total = loss * weight
    else:
        if weights is None:
            mean, even = ops.mean(output, axes=(axis,)), 1.0
        else:
            every = _table(ops.iota(ctx.graph, output.shape, axis=axis), weights)
            mean, even = (
                ops.reduce_sum(output * every, axes=(axis,)) * (1.0 / classes),
                sum(weights) / classes,
            )
        smooth = lse * even - mean
        total = loss * weight * (1.0 - smoothing) + ops.select(counted, smooth * smoothing, 0.0)
    return LossTerm(ops.reduce_sum(total), ops.reduce_sum(weight))


CROSS_ENTROPY = Loss(
    id="training/loss/cross_entropy@1",
    title="Cross-entropy",
    summary="Negative log-likelihood of class indices under a softmax, with smoothing, weights and an ignored index.",
    params=CrossEntropyParams,
    source="Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, Rethinking the Inception Architecture, 2016, "
    "section 7, https://arxiv.org/abs/1512.00567; reduction as torch.nn.CrossEntropyLoss",
    deviation="classes are the last axis (PyTorch: axis 1); nothing but ignored targets gives 0, not NaN",
    fn=cross_entropy,
    metrics=("metric/accuracy@1",),
)
