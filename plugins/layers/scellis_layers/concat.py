"""Inputs joined along one axis."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Port, Value, field, ops


class ConcatParams(BlockParams):
    """Parameters of ``layer/concat``."""

    axis: int = field(-1, help="axis along which inputs are joined, the batch being axis 0; negative from the end")


def lower(ctx: LowerContext, params: ConcatParams, x: tuple[Value, ...]) -> Value:
    """Join inputs that agree in every other axis.

    Args:
        ctx: for errors.
        params: see :class:`ConcatParams`.
        x: values of one dtype, [batch, ...].

    Returns:
        As the inputs, with the sizes along ``axis`` added up.
    """
    rank = x[0].ndim
    axis = params.axis + rank if params.axis < 0 else params.axis
    if not 0 < axis < rank:
        ctx.fail(f"an axis of {x[0].type} other than the batch's", f"axis {params.axis}", "axis: -1")
    for value in x[1:]:
        same = value.ndim == rank and all(
            a == b for i, (a, b) in enumerate(zip(value.shape, x[0].shape, strict=True)) if i != axis
        )
        if not same or value.dtype != x[0].dtype:
            ctx.fail(f"inputs that agree with {x[0].type} but in axis {axis}", str(value.type))
    return x[0] if len(x) == 1 else ops.concat(list(x), axis=axis)


CONCAT = Layer(
    id="layer/concat@1",
    title="Concatenate",
    summary="Joins inputs along one axis.",
    params=ConcatParams,
    source="torch.cat, https://docs.pytorch.org/docs/stable/generated/torch.cat.html",
    ports=(Port("x", variadic=True),),
    lower=lower,
)
