"""Padding of the spatial sides of an input."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class PadParams(BlockParams):
    """Parameters of ``layer/pad``."""

    sides: tuple[tuple[int, int], ...] = field(
        min_length=1, unit="elements", help="(before, after) of each dimension after the first two, in order"
    )
    mode: Literal["constant", "replicate", "reflect"] = field(
        "constant", help="constant: a value; replicate: the edge; reflect: mirrored, the edge left out"
    )
    value: float = field(0.0, help="what is put there in mode constant")

    def problem(self) -> str | None:
        """Amounts are not negative."""
        return "sides must be 0 or greater" if min(n for side in self.sides for n in side) < 0 else None


def _edges(x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    size = x.shape[axis]

    def at(index: int) -> Value:
        starts, stops = [0] * x.ndim, list(x.shape)
        starts[axis], stops[axis] = index, index + 1
        return ops.slice(x, starts, stops)

    first = [0 if mode == "replicate" else before - i for i in range(before)]
    last = [size - 1 if mode == "replicate" else size - 2 - i for i in range(after)]
    return ops.concat([*(at(i) for i in first), x, *(at(i) for i in last)], axis=axis)


def lower(ctx: LowerContext, params: PadParams, x: Value) -> Value:
    """The input with its sides grown.

    Args:
        ctx: for errors.
        params: see :class:`PadParams`.
        x: f32[batch, channels, ...].

    Returns:
        f32[batch, channels, ...], each side grown by its amounts.
    """
    if x.ndim != 2 + len(params.sides):
        ctx.fail(f"an input of {2 + len(params.sides)} dimensions for {len(params.sides)} sides", str(x.type))
    if params.mode == "constant":
        low, high = zip(*params.sides, strict=True)
        return ops.pad(x, (0, 0, *low), (0, 0, *high), params.value)
    for axis, (before, after) in enumerate(params.sides, 2):
        if params.mode == "reflect" and max(before, after) >= x.shape[axis]:
            ctx.fail(f"amounts below the side {x.shape[axis]} in mode reflect", f"{max(before, after)}")
        if before or after:
            x = _edges(x, axis, before, after, params.mode)
    return x


PAD = Layer(
    id="layer/pad@1",
    title="Pad",
    summary="Grows the spatial sides by a constant, the edge, or its mirror image.",
    params=PadParams,
    source="torch.nn.functional.pad, https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html",
    deviation="sides are listed first to last; PyTorch lists them last to first",
    lower=lower,
)
