"""One position of a sequence."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class SelectTokenParams(BlockParams):
    """Parameters of ``layer/select_token``."""

    position: int = field(0, unit="tokens", help="which, from 0; negative from the end")


def lower(ctx: LowerContext, params: SelectTokenParams, x: Value) -> Value:
    """``y[b] = x[b, position]``.

    Args:
        ctx: for errors.
        params: see :class:`SelectTokenParams`.
        x: [batch, tokens, ...].

    Returns:
        [batch, ...].
    """
    if x.ndim < 3 or not -x.shape[1] <= params.position < x.shape[1]:
        ctx.fail(f"an input of shape [batch, tokens, ...] with a position {params.position}", str(x.type))
    at = params.position % x.shape[1]
    rest = x.shape[2:]
    taken = ops.slice(x, (0, at, *(0 for _ in rest)), (x.shape[0], at + 1, *rest))
    return ops.reshape(taken, (x.shape[0], *rest))


SELECT_TOKEN = Layer(
    id="layer/select_token@1",
    title="Select token",
    summary="One position of a sequence.",
    params=SelectTokenParams,
    source="numpy.take, https://numpy.org/doc/stable/reference/generated/numpy.take.html",
    lower=lower,
)
