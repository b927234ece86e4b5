"""Values, nodes, op definitions and the graph with its builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scellis_core.errors import IRError, nearest
from scellis_core.ir.types import FLOATS, Attr, Lowering, Tolerance, Type


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
        """The graph it belongs to."""
        return self.node.graph

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element dtype."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
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
        """``self ** other``; the exponents 1, 2, 3, 0.5, -1 and -0.5 become cheaper and more accurate ops."""
        if isinstance(other, (int, float)) and self.type.dtype in FLOATS:
            if other == 1:
                return self
            if other == 2:
                return self * self
            if other == 3:
                return self * self * self
            unary = {0.5: "sqrt", -1.0: "recip", -0.5: "rsqrt"}.get(float(other))
            if unary:
                return self.graph.emit(unary, [self])[0]
        return self.graph.binary("pow", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self.graph.binary("pow", other, self)

    def __neg__(self) -> Value:
        return self.graph.emit("neg", [self])[0]

    def __abs__(self) -> Value:
        return self.graph.emit("abs", [self])[0]

    def __invert__(self) -> Value:
        return self.graph.emit("not", [self])[0]

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

Cotangent = Value | Callable[[], Value] | None
"""What flows back to one input: a value, a function that emits it (called only where it is wanted), or nothing."""


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
class OpDef:
    """One op and its facets, side by side.

    Attributes:
        name: as printed.
        summary: one line.
        infer: ``(input types, attrs) -> output types``; raises IRError on misuse.
        oracle: ``(NumPy arrays, attrs) -> NumPy arrays`` in float64 and int64 (imports NumPy when called). A leaf
            receives what is bound to its name; ``philox`` receives ``[counter, key]``.
        lower: lowering as data.
        vjp: ``(node, output cotangents) -> input cotangents``. None as a whole means not differentiable, for the
            reason in ``no_vjp``: such an op lets no gradient through.
        no_vjp: why there is no vjp.
        tolerance: for f32 (f16 tolerance is derived from the format's epsilon).
        attrs: names of the attributes, in printed order; a node has all of them.
        defaults: values of the attributes that a caller may leave out.
        sample: ``(numpy Generator) -> list of (input arrays, attrs)``: random legal cases for the op tests.
        effect: whether it acts rather than yields (``store``).
    """

    name: str
    summary: str
    infer: Callable[[Sequence[Type], dict[str, Attr]], Sequence[Type]]
    oracle: Callable[..., Any] | None
    lower: Lowering
    vjp: Callable[[Node, Sequence[Value | None]], Sequence[Cotangent]] | None = None
    no_vjp: str = ""
    tolerance: Tolerance = field(default_factory=Tolerance)
    attrs: tuple[str, ...] = ()
    defaults: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
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
    found = OPS.get(name)
    if found is None:
        raise IRError(f"op {name}", "a known op", repr(name), nearest(name, OPS))
    return found


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's rule for two shapes; raises IRError where it does not hold."""
    if a == b:
        return a
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
        self._leaves: dict[tuple[str, str], Value] = {}
        self._indexed: list[Node] | None = None
        self._count = 0

    # -- building ---------------------------------------------------------------------------------------------
    def emit(self, op: str, inputs: Sequence[Value], **attrs: Attr) -> list[Value]:
        """Append a node after checking its operands; returns its outputs.

        Raises:
            IRError: if the op is unknown, an attribute is not its, an operand is another graph's, or the types
                are wrong; ``where`` is the block path and op.
        """
        definition = OPS.get(op) or op_def(op)
        if attrs or definition.attrs:
            attrs = self._attributes(definition, attrs)
        for value in inputs:
            if value.node.graph is not self:
                raise IRError(
                    self._where(op), f"operands of graph {self.name}", f"one of graph {value.node.graph.name}"
                )
        node = Node(self, op, inputs, attrs, self.path)
        try:
            types = definition.infer([v.type for v in inputs], attrs)
        except IRError as error:
            raise type(error)(self._where(op), error.expected, error.got, error.hint) from error
        node.outputs = [Value(node, i, t) for i, t in enumerate(types)]
        self.nodes.append(node)
        return node.outputs

    def _where(self, op: str) -> str:
        return f"{self.path or self.name}: {op}"

    def _attributes(self, definition: OpDef, given: dict[str, Attr]) -> dict[str, Attr]:
        """All attributes in declared order; defaults filled in."""
        full: dict[str, Attr] = {}
        for key in definition.attrs:
            if key in given:
                full[key] = given[key]
            elif key in definition.defaults:
                full[key] = definition.defaults[key]
            else:
                wanted = ", ".join(definition.attrs)
                raise IRError(self._where(definition.name), f"attributes {wanted}", f"no {key}")
        for key in given:
            if key not in full:
                raise IRError(
                    self._where(definition.name), "an attribute of the op", key, nearest(key, definition.attrs)
                )
        return full

    def const(self, number: float | int | bool, dtype: str = "f32", shape: tuple[int, ...] = ()) -> Value:
        """A splat of one number."""
        if dtype in FLOATS and type(number) is int:
            number = float(number)
        return self.emit("const", [], value=number, dtype=dtype, shape=shape)[0]

    def load(self, name: str, type: Type) -> Value:
        """A batch input. Loading one name twice gives the same value."""
        return self._leaf("load", name, type)

    def param(self, name: str, type: Type) -> Value:
        """A trainable tensor by path. Reading one path twice gives the same value (tied weights)."""
        return self._leaf("param", name, type)

    def state(self, name: str, type: Type) -> Value:
        """A persistent tensor that is not trained, as it is where it is first read."""
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
        if x.type.shape != y.type.shape:
            shape = broadcast_shapes(x.shape, y.shape)
            x, y = self.broadcast(x, shape), self.broadcast(y, shape)
        return self.emit(op, [x, y])[0]

    def lift(self, *operands: Operand) -> list[Value]:
        """Turn Python numbers among the operands into constants of the others' dtype.

        A constant takes the shape of the first value too, so that no broadcast is needed for it.
        """
        like = next((o.type for o in operands if isinstance(o, Value)), Type("f32", ()))
        return [o if isinstance(o, Value) else self.const(o, like.dtype, like.shape) for o in operands]

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        """The value as seen at ``shape``; itself where it has that shape already."""
        if value.shape == shape:
            return value
        return self.emit("broadcast", [value], shape=shape)[0]

    def at(self, path: str) -> _PathScope:
        """A context in which emitted nodes carry ``path``."""
        return _PathScope(self, path)

    def _leaf(self, op: str, name: str, type: Type) -> Value:
        if self._indexed is not self.nodes or self._count > len(self.nodes):
            self._indexed, self._count = self.nodes, 0
            self._leaves.clear()
        for node in self.nodes[self._count :]:
            if node.op in ("load", "param", "state", "scalar"):
                self._leaves.setdefault((node.op, str(node.attrs["name"])), node.outputs[0])
        self._count = len(self.nodes)
        found = self._leaves.get((op, name))
        if found is None:
            return self.emit(op, [], name=name, dtype=type.dtype, shape=type.shape)[0]
        if found.type != type:
            raise IRError(f"{op} {name}", str(found.type), str(type))
        return found

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
        found: dict[str, Value] = {}
        for node in self.nodes:
            if node.op == op:
                found.setdefault(str(node.attrs["name"]), node.outputs[0])
        return found

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
        new.name = old.name
        mapping[old] = new
    return outputs
