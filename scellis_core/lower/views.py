"""What a node is to the grouping: classes of ops, how a value is read through views, strided views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from scellis_core.errors import IRError
from scellis_core.ir import Family, Node, Pointwise, Reduce, Value, op_def
from scellis_core.lower.index import Shape, broadcast_dims

Kind = Literal["buffer", "free", "view", "pointwise", "reduce", "family", "store"]

BUFFERS = frozenset({"load", "param", "state"})
FREE = frozenset({"const", "iota", "scalar", "philox"})
VIEWS = frozenset({"broadcast", "reshape", "permute", "slice", "pad", "concat", "take", "pick", "stop_gradient"})
CHEAP = frozenset({"lt", "le", "eq", "ne", "and", "or", "not", "neg", "isfinite"})
"""Ops worth repeating in every consumer rather than keeping their result, where they read one tensor."""

COSTLY = frozenset({"exp", "log", "log1p", "expm1", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "sqrt", "rsqrt"})

Pattern = tuple[tuple[int, bool], ...]
"""Merged axes of a tensor with which of them are reduced (or, read the other way, repeated)."""

Relation = str | tuple[str, Pattern]
"""How a consumer at some position reads a value: ``same`` (equal linear index), ``("rows", pattern)`` (a
value of the kept axes seen by an element of the whole), ``pick`` (an element of the same row), ``other``."""


def kind_of(node: Node) -> Kind:
    """The class of a node's op."""
    op = node.op
    if op in BUFFERS:
        return "buffer"
    if op in FREE:
        return "free"
    if op in VIEWS:
        return "view"
    if op == "store":
        return "store"
    lowering = op_def(op).lower
    if isinstance(lowering, Pointwise):
        return "pointwise"
    if isinstance(lowering, Reduce):
        return "reduce"
    if isinstance(lowering, Family):
        return "family"
    raise IRError(f"{node.path}: {op}", "an op with a lowering", type(lowering).__name__)


def reduce_axes(node: Node) -> Shape:
    """The axes of a reduction, non-negative."""
    axes = node.attrs.get("axes", node.attrs.get("axis"))
    ndim = len(node.inputs[0].shape)
    listed = axes if isinstance(axes, tuple) else (axes,) if isinstance(axes, int) else tuple(range(ndim))
    return tuple(sorted(int(a) % ndim for a in listed))


@lru_cache(maxsize=4096)
def reduce_pattern(shape: Shape, axes: Shape) -> Pattern:
    """Merged axes of ``shape`` with which are reduced; ones are left out."""
    out: list[tuple[int, bool]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        reduced = axis in axes
        if out and out[-1][1] == reduced:
            out[-1] = (out[-1][0] * size, reduced)
        else:
            out.append((size, reduced))
    return tuple(out)


def pattern_of(node: Node) -> Pattern:
    """The pattern of a reduction node."""
    return reduce_pattern(node.inputs[0].shape, reduce_axes(node))


def rows_of(pattern: Pattern) -> int:
    """How many results a reduction of that pattern has."""
    return prod(n for n, reduced in pattern if not reduced)


def cols_of(pattern: Pattern) -> int:
    """How many elements go into each result."""
    return prod(n for n, reduced in pattern if reduced)


def compose(outer: Relation, inner: Relation) -> Relation:
    """The relation through two steps."""
    if outer == "same":
        return inner
    if inner == "same":
        return outer
    return "other"


def view_relations(node: Node) -> list[tuple[Value, Relation]]:
    """How a view reads each of its operands."""
    op, inputs = node.op, node.inputs
    if op in ("reshape", "stop_gradient"):
        return [(inputs[0], "same")]
    if op == "broadcast":
        source, target = inputs[0].shape, node.outputs[0].shape
        dims, kept = broadcast_dims(source, target)
        if all(kept):
            return [(inputs[0], "same")]
        return [(inputs[0], ("rows", tuple([(n, not k) for n, k in zip(dims, kept, strict=True)])))]
    if op == "pick":
        return [(inputs[0], "pick"), (inputs[1], "same")]
    return [(v, "other") for v in inputs]


def is_alias(node: Node) -> bool:
    """Whether a node's result has its operand's bytes in the same order."""
    if node.op in ("reshape", "stop_gradient"):
        return True
    return node.op == "broadcast" and node.inputs[0].type.numel == node.outputs[0].type.numel


def base_of(value: Value) -> Value:
    """The value whose bytes ``value`` has: itself, or what a chain of reshapes began with."""
    while is_alias(value.node):
        value = value.node.inputs[0]
    return value


@dataclass(frozen=True)
class Strided:
    """A value as strides over another: element ``i`` is ``base[offset + sum(i[k] * strides[k])]``."""

    base: Value
    offset: int
    strides: tuple[int, ...]


def contiguous(shape: Shape) -> tuple[int, ...]:
    """Row-major strides."""
    out = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        out[k] = out[k + 1] * shape[k + 1]
    return tuple(out)


def restride(shape: Shape, strides: Shape, target: Shape) -> tuple[int, ...] | None:
    """Strides of ``target`` over the same elements in the same order, or None where they need a copy."""
    runs: list[tuple[int, int]] = []  # (size, stride), merged where one stride steps through both axes
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    out: list[int] = []
    for size in reversed(target):
        if size == 1:
            out.append(0)
            continue
        if not runs:
            return None
        have, stride = runs.pop()
        if have % size:
            return None
        out.append(stride)
        if have != size:
            runs.append((have // size, stride * size))
    return tuple(reversed(out))


def strided_view(value: Value, stop: Callable[[Node], bool] | None = None) -> Strided | None:
    """Resolve a chain of permute, reshape, slice and broadcast to strides over the value it began with.

    Args:
        value: what an operand reads.
        stop: nodes whose results are kept in memory though they are views.

    Returns:
        The strides, or None where a reshape cuts across a stride (then a copy is needed).
    """
    node = value.node
    if kind_of(node) != "view" or node.op in ("pad", "concat", "take", "pick") or (stop and stop(node)):
        return Strided(value, 0, contiguous(value.shape))
    inner = strided_view(node.inputs[0], stop)
    if inner is None:
        return None
    source = node.inputs[0].shape
    strides, offset = inner.strides, inner.offset
    if node.op == "permute":
        return Strided(inner.base, offset, tuple([strides[int(p)] for p in _ints(node.attrs["perm"])]))
    if node.op == "broadcast":
        lead = len(value.shape) - len(source)
        kept = [0 if source[k] != value.shape[lead + k] else strides[k] for k in range(len(source))]
        return Strided(inner.base, offset, (0,) * lead + tuple(kept))
    if node.op == "slice":
        starts, steps = slice_attrs(node)
        offset += sum(s * n for s, n in zip(starts, strides, strict=True))
        return Strided(inner.base, offset, tuple([s * n for s, n in zip(steps, strides, strict=True)]))
    found = restride(source, strides, value.shape)
    return None if found is None else Strided(inner.base, offset, found)


def slice_attrs(node: Node) -> tuple[Shape, Shape]:
    """(starts, steps) of a slice, non-negative starts."""
    shape = node.inputs[0].shape
    starts = tuple([s + n if s < 0 else s for s, n in zip(_ints(node.attrs["starts"]), shape, strict=True)])
    steps = node.attrs.get("steps")
    return starts, _ints(steps) if isinstance(steps, tuple) else (1,) * len(shape)


def _ints(attr: object) -> Shape:
    if isinstance(attr, tuple):
        return tuple([int(x) for x in attr])
    raise IRError("attribute", "a tuple of integers", repr(attr))
