"""Typed SSA: values, nodes, graphs, the builder, the verifier and the rename-invariant digest.

A :class:`Graph` is a list of nodes in execution order. A node's op is looked up in :data:`OPS`, which the
modules of :mod:`scellis_core.ops` fill. Graphs are built by calling ops on values (``a + b``,
``ops.matmul(a, b)``); Python numbers become constants and operands are broadcast explicitly.

Besides ordinary ops there are leaves and effects:

* ``load``: a batch input, by name. ``param``: a trainable tensor, by path. ``state``: any other persistent
  tensor, by name (running statistics, gradients, optimizer state, whole slabs). ``scalar``: a number the host
  writes every step. ``const``: a splat of one number. ``iota``: an index ramp.
* ``store``: writes a value to a persistent tensor, in program order.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from scellis_core.errors import IRError, nearest

DTYPES: dict[str, int] = {"f32": 4, "f16": 2, "i32": 4, "u32": 4, "bool": 4, "f64": 8}
"""Element sizes in bytes. ``bool`` is stored as u32; f64 exists on the oracle only."""

FLOATS = ("f16", "f32", "f64")

Attr = bool | int | float | str | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """A tensor type, printed ``f32[32, 128]``; a scalar is ``f32[]``."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * DTYPES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Value:
    """One SSA value: output ``index`` of ``node``. Arithmetic on it emits nodes into its graph."""

    __slots__ = ("index", "name", "node", "type")

    def __init__(self, node: Node, index: int, type: Type, name: str = "") -> None:
        self.node = node
        self.index = index
        self.type = type
        self.name = name

    @property
    def graph(self) -> Graph:
        return self.node.graph

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"

    # Arithmetic. Comparisons give bool values; == and != keep identity semantics (use ops.eq / ops.ne).
    def __add__(self, other: Operand) -> Value:
        return self.graph.binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.binary("div", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self.graph.binary("pow", self, other)

    def __neg__(self) -> Value:
        return self.graph.emit("neg", [self])[0]

    def __abs__(self) -> Value:
        return self.graph.emit("abs", [self])[0]

    def __lt__(self, other: Operand) -> Value:
        return self.graph.binary("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.graph.binary("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.graph.binary("lt", other, self)

    def __ge__(self, other: Operand) -> Value:
        return self.graph.binary("le", other, self)

    def __and__(self, other: Operand) -> Value:
        return self.graph.binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.graph.binary("or", self, other)

    def __bool__(self) -> bool:
        raise IRError(
            f"value {self!r}", "a Python condition on Python values", "a tensor value", "ops.select(condition, a, b)"
        )


Operand = Value | int | float | bool


class Node:
    """One operation: ``outputs = op(inputs, **attrs)``; ``path`` says which block it came from."""

    __slots__ = ("attrs", "graph", "inputs", "op", "outputs", "path")

    def __init__(self, graph: Graph, op: str, inputs: Sequence[Value], attrs: dict[str, Attr], path: str) -> None:
        self.graph = graph
        self.op = op
        self.inputs = list(inputs)
        self.attrs = attrs
        self.path = path
        self.outputs: list[Value] = []

    def __repr__(self) -> str:
        return f"<{self.op} {self.path}>"


@dataclass(frozen=True)
class Pointwise:
    """Lowering of an elementwise op: a WGSL scalar expression with ``{0}``, ``{1}`` .. for the operands.

    Operands are already parenthesised or named, so the expression needs no guard of its own. ``needs`` names
    helper functions of :mod:`scellis_core.lower.prelude` that the expression calls. ``f16`` and ``i32`` give
    another expression for such operands where WGSL wants one. Predicates yield WGSL ``bool``.
    """

    expr: str
    needs: tuple[str, ...] = ()
    by_dtype: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Lowering of an op that only re-indexes its input(s); ``kind`` names the index rule in lower/."""

    kind: str


@dataclass(frozen=True)
class Reduce:
    """Lowering of a reduction over ``axes``: ``combine`` is ``sum``, ``max``, ``min``, ``argmax`` ..."""

    combine: str


@dataclass(frozen=True)
class Family:
    """Lowering by a kernel family of its own in lower/ (``matmul``, ``conv2d``, ``scatter_add`` ...)."""

    name: str


@dataclass(frozen=True)
class Leaf:
    """No kernel: a buffer, a constant or an index."""


Lowering = Pointwise | View | Reduce | Family | Leaf


@dataclass(frozen=True)
class Tolerance:
    """How far a device's result may be from the float64 oracle: ``|d| <= atol + rtol * |oracle|``."""

    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass(frozen=True)
class OpDef:
    """One op and its facets, side by side.

    Attributes:
        name: as printed.
        summary: one line.
        infer: ``(input types, attrs) -> output types``; raises IRError on misuse.
        oracle: ``(NumPy arrays, attrs) -> NumPy arrays`` in float64 (imports NumPy when called).
        lower: lowering as data.
        vjp: ``(node, output cotangents) -> input cotangents``; a cotangent is None where none flows. None as a
            whole means not differentiable (integer or boolean result, random bits).
        tolerance: for f32 (f16 tolerance is derived from the format's epsilon).
        attrs: names of allowed attributes.
        sample: ``(rng) -> list of (input arrays, attrs)`` with random legal cases for the op tests; optional.
    """

    name: str
    summary: str
    infer: Callable[[Sequence[Type], dict[str, Attr]], Sequence[Type]]
    oracle: Callable[..., Any] | None
    lower: Lowering
    vjp: Callable[[Node, Sequence[Value | None]], Sequence[Value | None]] | None = None
    tolerance: Tolerance = Tolerance()
    attrs: tuple[str, ...] = ()
    sample: Callable[..., Any] | None = None
    effect: bool = False


OPS: dict[str, OpDef] = {}
"""Every op by name; filled by importing :mod:`scellis_core.ops`."""


def register(op: OpDef) -> OpDef:
    """Add an op to :data:`OPS`.

    Raises:
        IRError: if the name is taken.
    """
    if op.name in OPS and OPS[op.name] is not op:
        raise IRError(f"op {op.name}", "a new name", "one that is registered already", "another name")
    OPS[op.name] = op
    return op


def op_def(name: str) -> OpDef:
    """Return the definition of an op, or raise IRError naming the nearest."""
    if name not in OPS:
        raise IRError(f"op {name}", "a known op", repr(name), nearest(name, OPS))
    return OPS[name]


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's rule for two shapes; raises IRError where it does not hold."""
    out: list[int] = []
    for i in range(max(len(a), len(b))):
        x = a[len(a) - 1 - i] if i < len(a) else 1
        y = b[len(b) - 1 - i] if i < len(b) else 1
        if x != y and 1 not in (x, y):
            raise IRError(
                "broadcast", f"shapes that align from the right, {list(a)}", f"{list(b)}", "reshape one of them"
            )
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


class Graph:
    """Nodes in execution order, and the names of what leaves it.

    Attributes:
        name: what it computes, such as ``micro`` or ``apply``.
        nodes: in execution order.
        outputs: values read by the host, by name.
        draws: random blocks (of four u32 each) reserved so far; the stride of the run's counter.
        path: the block path given to nodes emitted now (see :meth:`at`).
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.outputs: dict[str, Value] = {}
        self.draws = 0
        self.path = ""

    # -- building ---------------------------------------------------------------------------------------------
    def emit(self, op: str, inputs: Sequence[Value], **attrs: Attr) -> list[Value]:
        """Append a node after checking its operands; returns its outputs.

        Raises:
            IRError: if the op is unknown, an attribute is not its, an operand is another graph's, or the types
                are wrong; ``where`` is the block path and op.
        """
        where = f"{self.path or self.name}: {op}"
        definition = op_def(op)
        for key in attrs:
            if key not in definition.attrs:
                raise IRError(where, "an attribute of the op", key, nearest(key, definition.attrs))
        for value in inputs:
            if value.node.graph is not self:
                raise IRError(where, f"operands of graph {self.name}", f"one of graph {value.graph.name}")
        node = Node(self, op, inputs, attrs, self.path)
        try:
            types = definition.infer([v.type for v in inputs], attrs)
        except IRError as error:
            raise type(error)(where, error.expected, error.got, error.hint) from error
        node.outputs = [Value(node, i, t) for i, t in enumerate(types)]
        self.nodes.append(node)
        return node.outputs

    def const(self, number: float | int | bool, dtype: str = "f32", shape: tuple[int, ...] = ()) -> Value:
        """A splat of one number."""
        return self.emit("const", [], value=number, dtype=dtype, shape=shape)[0]

    def load(self, name: str, type: Type) -> Value:
        """A batch input."""
        return self.emit("load", [], name=name, dtype=type.dtype, shape=type.shape)[0]

    def param(self, name: str, type: Type) -> Value:
        """A trainable tensor by path. Reading one path twice gives the same value (tied weights)."""
        return self._leaf("param", name, type)

    def state(self, name: str, type: Type) -> Value:
        """A persistent tensor that is not trained."""
        return self._leaf("state", name, type)

    def scalar(self, name: str, dtype: str = "f32") -> Value:
        """A number that the host writes before every step."""
        return self._leaf("scalar", name, Type(dtype, ()))

    def store(self, name: str, value: Value) -> None:
        """Write a value to the persistent tensor ``name``."""
        self.emit("store", [value], name=name)

    def output(self, name: str, value: Value) -> None:
        """Name a value that the host may read."""
        self.outputs[name] = value

    def reserve(self, numbers: int) -> int:
        """Reserve random numbers (u32); returns the offset in blocks of four."""
        offset = self.draws
        self.draws += (numbers + 3) // 4
        return offset

    def binary(self, op: str, a: Operand, b: Operand) -> Value:
        """Emit a two-operand pointwise op: numbers become constants, shapes are broadcast."""
        x, y = self.lift(a, b)
        shape = broadcast_shapes(x.shape, y.shape)
        return self.emit(op, [self.broadcast(x, shape), self.broadcast(y, shape)])[0]

    def lift(self, *operands: Operand) -> list[Value]:
        """Turn Python numbers among the operands into constants of the others' dtype."""
        dtype = next((o.dtype for o in operands if isinstance(o, Value)), "f32")
        return [o if isinstance(o, Value) else self.const(o, dtype) for o in operands]

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        """The value as seen at ``shape``; itself where it has that shape already."""
        if value.shape == shape:
            return value
        return self.emit("broadcast", [value], shape=shape)[0]

    def at(self, path: str) -> _PathScope:
        """A context in which emitted nodes carry ``path``."""
        return _PathScope(self, path)

    def _leaf(self, op: str, name: str, type: Type) -> Value:
        for node in self.nodes:
            if node.op == op and node.attrs["name"] == name:
                if node.outputs[0].type != type:
                    raise IRError(f"{op} {name}", str(node.outputs[0].type), str(type))
                return node.outputs[0]
        return self.emit(op, [], name=name, dtype=type.dtype, shape=type.shape)[0]

    # -- reading ----------------------------------------------------------------------------------------------
    def values(self) -> Iterator[Value]:
        """Every value, in order."""
        for node in self.nodes:
            yield from node.outputs

    def users(self) -> dict[Value, list[Node]]:
        """For each value, the nodes that read it (a node that reads it twice is listed once)."""
        found: dict[Value, list[Node]] = {v: [] for v in self.values()}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found[value].append(node)
        return found

    def leaves(self, op: str) -> dict[str, Value]:
        """Leaves of one kind (``load``, ``param``, ``state``, ``scalar``) by name, in order of first use."""
        return {str(n.attrs["name"]): n.outputs[0] for n in self.nodes if n.op == op}

    def stores(self) -> list[Node]:
        """The ``store`` nodes, in order."""
        return [n for n in self.nodes if n.op == "store"]

    def prune(self) -> Graph:
        """Drop nodes that nothing reads (stores and outputs are roots); returns this graph."""
        keep: set[Node] = {v.node for v in self.outputs.values()}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node in keep or op_def(node.op).effect:
                kept.append(node)
                keep.update(v.node for v in node.inputs)
        self.nodes = kept[::-1]
        return self


class _PathScope:
    def __init__(self, graph: Graph, path: str) -> None:
        self._graph, self._path, self._before = graph, path, ""

    def __enter__(self) -> None:
        self._before, self._graph.path = self._graph.path, self._path

    def __exit__(self, *exc: object) -> None:
        self._graph.path = self._before


def copy_node(node: Node, into: Graph, mapping: dict[Value, Value]) -> list[Value]:
    """Emit the same node into another graph (or again into the same), operands mapped; extends ``mapping``."""
    with into.at(node.path):
        outputs = into.emit(node.op, [mapping[v] for v in node.inputs], **node.attrs)
    for old, new in zip(node.outputs, outputs, strict=True):
        mapping[old] = new
    return outputs


def verify(graph: Graph) -> None:
    """Check a whole graph: known ops, operands defined before use, types as inferred, stores well-typed.

    Raises:
        IRError: at the first fault, naming graph, node and what was wrong.
    """
    seen: set[Value] = set()
    written: dict[str, Type] = {}
    for number, node in enumerate(graph.nodes):
        where = f"{graph.name} node {number} {node.op}" + (f" ({node.path})" if node.path else "")
        definition = op_def(node.op)
        for value in node.inputs:
            if value not in seen:
                raise IRError(where, "operands defined by an earlier node", repr(value), "topological order")
        types = list(definition.infer([v.type for v in node.inputs], node.attrs))
        found = [v.type for v in node.outputs]
        if types != found:
            raise IRError(where, f"output types {[str(t) for t in types]}", f"{[str(t) for t in found]}")
        seen.update(node.outputs)
        if node.op in ("param", "state", "store"):
            name = str(node.attrs["name"])
            type = node.inputs[0].type if node.op == "store" else node.outputs[0].type
            if written.setdefault(name, type) != type:
                raise IRError(where, f"{name} of type {written[name]}", str(type))
    for name, value in graph.outputs.items():
        if value not in seen:
            raise IRError(f"{graph.name} output {name}", "a value of this graph", repr(value))


def _encode(item: Any) -> bytes:
    """Typed bytes: NaN, -0.0, and 1 against 1.0 stay apart."""
    if isinstance(item, bool):
        return b"b" + bytes([item])
    if isinstance(item, int):
        return b"i" + str(item).encode() + b";"
    if isinstance(item, float):
        return b"f" + struct.pack("<d", item)
    if isinstance(item, str):
        raw = item.encode()
        return b"s" + str(len(raw)).encode() + b":" + raw
    if isinstance(item, bytes):
        return b"y" + str(len(item)).encode() + b":" + item
    if item is None:
        return b"n"
    if isinstance(item, (tuple, list)):
        return b"(" + b"".join(_encode(x) for x in item) + b")"
    if isinstance(item, dict):
        return b"{" + b"".join(_encode(k) + _encode(item[k]) for k in sorted(item)) + b"}"
    raise IRError("digest", "bool, int, float, str, bytes, None, tuple or dict", type(item).__name__)


def digest(graph: Graph) -> str:
    """SHA-256 over ops, attributes, types and wiring: value names and block paths do not count."""
    number: dict[Value, int] = {}
    hasher = hashlib.sha256()
    for node in graph.nodes:
        row = (
            node.op,
            [number[v] for v in node.inputs],
            dict(node.attrs),
            [(v.type.dtype, v.type.shape) for v in node.outputs],
        )
        hasher.update(_encode(row))
        for value in node.outputs:
            number[value] = len(number)
    hasher.update(_encode({name: number[v] for name, v in graph.outputs.items()}))
    return hasher.hexdigest()
