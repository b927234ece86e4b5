"""Random zeroing of elements in training."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class DropoutParams(BlockParams):
    """Parameters of ``layer/dropout``."""

    rate: float = field(0.1, ge=0.0, lt=1.0, help="probability that an element is set to zero")


def lower(ctx: LowerContext, params: DropoutParams, x: Value) -> Value:
    """``y = x / (1 - rate)`` where a uniform draw is at least ``rate``, else 0; ``y = x`` outside training.

    Args:
        ctx: its ``dropout`` stream gives one draw an element.
        params: see :class:`DropoutParams`.
        x: f32[...].

    Returns:
        As ``x``.
    """
    if not ctx.training or params.rate == 0.0:
        return x
    keep = ctx.uniform(x.shape, "dropout") >= params.rate
    return ops.select(keep, x * (1.0 / (1.0 - params.rate)), 0.0)


DROPOUT = Layer(
    id="layer/dropout@1",
    title="Dropout",
    summary="Sets elements to zero at random in training and scales the others up.",
    params=DropoutParams,
    source="Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, Dropout: A Simple Way to Prevent "
    "Neural Networks from Overfitting, 2014, section 4, https://jmlr.org/papers/v15/srivastava14a.html",
    deviation="scaled in training (inverted dropout) rather than at evaluation",
    lower=lower,
)
