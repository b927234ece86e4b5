"""Reading a graph for grouping: what is computed, what is only an index, and how each result is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from scellis_core.ir import DTYPES, Graph, Node, Value
from scellis_core.lower.index import Shape
from scellis_core.lower.views import (
    CHEAP,
    COSTLY,
    Kind,
    Pattern,
    Relation,
    base_of,
    cols_of,
    compose,
    is_alias,
    kind_of,
    pattern_of,
    restride,
    rows_of,
    strided_view,
    view_relations,
)

REPEAT_COST = 24
"""A pointwise result used by several kernels is repeated in each up to this cost (additions count 1), where it
reads one tensor of its own size; reading and writing 4 bytes takes a GPU about as long as 60 such steps."""

PHILOX_COST = 20

EPILOGUES = frozenset({"matmul", "conv2d", "conv2d_grad_input", "conv2d_grad_weight"})
"""Families whose kernels can apply an expression to each result before they store it."""

Read = tuple[Value, Relation]


@dataclass
class Operand:
    """What a kernel family binds for one operand: ``base[offset + sum(i[k] * strides[k])]``."""

    base: Value
    offset: int
    strides: Shape


@dataclass
class Analysis:
    """Facts about one graph.

    Attributes:
        kinds: class of each node.
        position: place of each node in the graph.
        forced: nodes that are only an index (or repeated everywhere), whose result is kept all the same.
        virtual: pointwise nodes repeated in every consumer.
        reads: for each computed node, the tensors that it reads and how.
        uses: for each tensor, the computed nodes that read it and how.
        escapes: tensors that must be in memory whatever the grouping, with the reason.
        stores: tensor -> stores of it; ``copies``: stores of what is a persistent tensor or input itself.
        operands: what each family node binds.
        patterns: of reductions, and of row values computed from them.
        wants: for elements computed from such row values, the pattern they came by.
        tails: elements computed from the result of a product alone (with operands of its shape or less): what its
            kernel could apply before it stores.
    """

    graph: Graph
    fuse: bool
    kinds: dict[Node, Kind] = field(default_factory=dict["Node", "Kind"])
    position: dict[Node, int] = field(default_factory=dict["Node", int])
    forced: set[Node] = field(default_factory=set["Node"])
    virtual: set[Node] = field(default_factory=set["Node"])
    reads: dict[Node, list[Read]] = field(default_factory=dict["Node", "list[Read]"])
    uses: dict[Value, list[tuple[Node, Relation]]] = field(default_factory=dict)
    escapes: dict[Value, str] = field(default_factory=dict["Value", str])
    stores: dict[Value, list[Node]] = field(default_factory=dict["Value", "list[Node]"])
    copies: list[Node] = field(default_factory=list["Node"])
    operands: dict[Node, tuple[Operand, ...]] = field(default_factory=dict)
    patterns: dict[Node, Pattern] = field(default_factory=dict["Node", "Pattern"])
    wants: dict[Node, Pattern] = field(default_factory=dict["Node", "Pattern"])
    tails: dict[Node, Node] = field(default_factory=dict["Node", "Node"])
    _sources: dict[Node, list[Read]] = field(default_factory=dict["Node", "list[Read]"])
    _cost: dict[Node, int] = field(default_factory=dict["Node", int])

    def computed(self, node: Node) -> bool:
        """Whether a kernel computes the node's result as such."""
        return node in self.reads

    def cost(self, node: Node) -> int:
        """Steps to evaluate a computed node, with the repeated nodes behind it."""
        return _step_cost(node) + sum(self._cost.get(v.node, 0) for v in node.inputs if v.node not in self.reads)

    def sources(self, value: Value) -> list[Read]:
        """The tensors behind a value and how it reads them."""
        found = self._sources.get(value.node)
        return [(value, "same")] if found is None else found


def analyse(graph: Graph, *, fuse: bool, bindings: int = 8) -> Analysis:
    """Classify the nodes of a graph and collect who reads what.

    Args:
        graph: verified.
        fuse: whether nodes may share kernels.
        bindings: storage buffers of a kernel; index functions that would read more are kept in memory.
    """
    a = Analysis(graph, fuse)
    for k, node in enumerate(graph.nodes):
        a.kinds[node] = kind_of(node)
        a.position[node] = k
    _roots(a)
    fan_out = _fan_out(a)
    while more := _collect(a, fan_out, bindings):
        a = Analysis(graph, fuse, a.kinds, a.position, a.forced | more)
        _roots(a)
    _find_tails(a)
    return a


def _collect(a: Analysis, fan_out: tuple[dict[Value, int], dict[Value, int]], bindings: int) -> set[Node]:
    """Fill in who reads what; returns nodes that must be kept in memory for a kernel to keep the limit, if any."""
    for node in a.graph.nodes:
        kind = a.kinds[node]
        if kind in ("buffer", "store"):
            continue
        reads = _reads(a, node)
        if len(reads) > bindings - 2 and kind != "family":
            if more := _too_many(a, node, bindings):
                return more
        if node not in a.forced and (
            (kind in ("free", "view") and (a.fuse or node.op not in ("take", "pick", "philox")))
            or (kind == "pointwise" and a.fuse and _repeated(a, node, reads, *fan_out))
        ):
            a._sources[node] = reads
            if kind == "pointwise":
                a.virtual.add(node)
            continue
        a.reads[node] = reads
        for value, relation in reads:
            a.uses.setdefault(value, []).append((node, relation))
        _find_patterns(a, node)
    return set()


def _too_many(a: Analysis, node: Node, bindings: int) -> set[Node]:
    """What to keep so that one node reads few enough tensors: its widest operands, or itself where it is a view."""
    virtual = a.kinds[node] == "view" and node not in a.forced
    room = bindings - 2 if virtual else bindings - 1
    tensors = {value for value, _ in _reads(a, node)}
    if len(tensors) <= room:
        return set()
    wide = {v.node: len({t for t, _ in a._sources[v.node]}) for v in node.inputs if v.node in a._sources}
    widest = max(wide, key=wide.__getitem__, default=None)
    if widest is not None and wide[widest] > 1:
        return {base_of(widest.outputs[0]).node} if is_alias(widest) else {widest}
    return {node} if virtual else set()


def _find_patterns(a: Analysis, node: Node) -> None:
    """Note what a computed node has to do with the rows of a reduction."""
    kind = a.kinds[node]
    if kind == "reduce":
        pattern = pattern_of(node)
        if cols_of(pattern) > 1:
            a.patterns[node] = pattern
    elif kind == "pointwise":
        for value, relation in a.reads[node]:
            pattern = a.patterns.get(value.node)
            if relation == "same" and pattern and rows_of(pattern) == node.outputs[0].type.numel:
                a.patterns[node] = pattern
            elif relation != "same" and pattern and relation == ("rows", pattern):
                a.wants[node] = pattern
            elif relation == "same" and value.node in a.wants:
                a.wants[node] = a.wants[value.node]


def _find_tails(a: Analysis) -> None:
    """Follow elements that read a product's result, each the only reader of what it reads."""
    if not a.fuse:
        return
    for node in a.reads:
        if a.kinds[node] != "pointwise":
            continue
        for value, relation in a.reads[node]:
            if relation != "same" or value in a.escapes or len(a.uses[value]) != 1:
                continue
            source = value.node if value.node.op in EPILOGUES else a.tails.get(value.node)
            if source is not None and a.position[source] >= a.position.get(a.tails.get(node, source), -1):
                a.tails[node] = source


def _fan_out(a: Analysis) -> tuple[dict[Value, int], dict[Value, int]]:
    """How many nodes read each value: directly, and through views and what is likely repeated."""
    direct: dict[Value, int] = {}
    for node in a.graph.nodes:
        for value in dict.fromkeys(node.inputs):
            direct[value] = direct.get(value, 0) + 1
    single = _single_source(a, direct)
    counts: dict[Value, int] = {}
    for node in reversed(a.graph.nodes):
        weight = 1
        if a.kinds[node] == "view" and node not in a.forced:
            weight = counts.get(node.outputs[0], 0)
        elif node in single:
            weight = max(counts.get(node.outputs[0], 0), 1)
        for value in dict.fromkeys(node.inputs):
            counts[value] = counts.get(value, 0) + weight
    return direct, counts


def _single_source(a: Analysis, direct: dict[Value, int]) -> set[Node]:
    """Pointwise nodes that cheap steps lead to from one tensor of their size, smaller ones aside."""
    found: dict[Node, tuple[Value | None, int]] = {}
    for node in a.graph.nodes:
        if a.kinds[node] != "pointwise" or node in a.forced:
            continue
        numel, cost = node.outputs[0].type.numel, _step_cost(node)
        sources: set[Value] = set()
        for value in node.inputs:
            base = base_of(value)
            inner = base.node
            if inner in found:
                source, more = found[inner]
                cost += more
                if source is not None:
                    sources.add(source)
            elif a.kinds[inner] == "free":
                cost += PHILOX_COST * (inner.op == "philox")
            elif inner.op != "broadcast" or inner.inputs[0].type.numel * 8 > numel:
                sources.add(base)
        fresh = any(v.node.op in EPILOGUES and direct[v] == 1 for v in node.inputs)
        if len(sources) <= 1 and cost <= REPEAT_COST and not fresh:
            found[node] = (next(iter(sources), None), cost)
    return set(found)


def _step_cost(node: Node) -> int:
    return 8 if node.op in COSTLY else 1


def _roots(a: Analysis) -> None:
    """Force what outputs, stores and families need in memory."""

    def keep(value: Value, why: str) -> Value:
        base = base_of(value)
        if a.kinds[base.node] not in ("buffer", "reduce", "family"):
            a.forced.add(base.node)
        if a.kinds[base.node] != "buffer":
            a.escapes.setdefault(base, why)
        return base

    for name, value in a.graph.outputs.items():
        keep(value, f"output {name}")
    for node in a.graph.nodes:
        kind = a.kinds[node]
        if kind == "store":
            base = keep(node.inputs[0], f"store {node.attrs['name']}")
            if a.kinds[base.node] == "buffer":
                a.copies.append(node)
            else:
                a.stores.setdefault(base, []).append(node)
        elif kind == "family":
            a.operands[node] = tuple([_operand(a, node, v, keep) for v in node.inputs])


def _operand(a: Analysis, node: Node, value: Value, keep: object) -> Operand:
    """Resolve a family's operand; only products take strides."""
    view = strided_view(value, a.forced.__contains__) if node.op == "matmul" else None
    base = keep(value if view is None else view.base, node.op)  # type: ignore[operator]
    if view is not None:
        return Operand(base, view.offset, view.strides)
    return Operand(base, 0, restride(base.shape, _rows(base.shape), value.shape) or ())


def _rows(shape: Shape) -> Shape:
    out = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        out[k] = out[k + 1] * shape[k + 1]
    return tuple(out)


def _reads(a: Analysis, node: Node) -> list[Read]:
    """Tensors that a node reads, through views and repeated nodes, each pair once."""
    kind = a.kinds[node]
    found: dict[Read, None] = {}
    if kind == "family":
        return list(dict.fromkeys((o.base, "other") for o in a.operands[node]))
    if kind == "view":
        for value, outer in view_relations(node):
            for source, inner in a.sources(value):
                found[source, compose(outer, inner)] = None
    elif kind != "free":
        for value in node.inputs:
            for read in a.sources(value):
                found[read] = None
    return list(found)


def _repeated(a: Analysis, node: Node, reads: list[Read], direct: dict[Value, int], counts: dict[Value, int]) -> bool:
    """Whether every consumer computes the node anew: it is cheaper than keeping it, or a kernel of its own."""
    out = node.outputs[0]
    cost = _step_cost(node) + sum(
        a._cost.get(v.node, PHILOX_COST * (v.node.op == "philox")) for v in node.inputs if v.node not in a.reads
    )
    if not reads:
        a._cost[node] = cost
        return True
    distinct = {value for value, _ in reads}
    if node.op in CHEAP and len(distinct) == 1 and cost <= REPEAT_COST:
        a._cost[node] = cost
        return True
    if counts.get(out, 0) < 2 or cost > REPEAT_COST:
        return False
    if any(v.node.op in EPILOGUES and direct[v] == 1 and relation == "same" for v, relation in reads):
        return False
    if out.type.numel == 1:
        small = len(distinct) == 1
    else:
        large = [(v, r) for v, r in reads if v.type.numel * 8 > out.type.numel]
        small = (
            len({v for v, _ in large}) == 1
            and all(relation == "same" and DTYPES[v.dtype] <= DTYPES[out.dtype] for v, relation in large)
            and len(distinct) <= 4
        )
    if small:
        a._cost[node] = cost
    return small
