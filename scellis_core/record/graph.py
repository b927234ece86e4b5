"""The graph projection: nodes, references and order of an explicit graph, with its faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scellis_core.errors import nearest
from scellis_core.record.faults import Fault, fault
from scellis_core.record.schema import InputSpec, NodeRef, Schema
from scellis_core.record.sml import Document, Path, Value


@dataclass(frozen=True, slots=True)
class Source:
    """What a node's port or an output reads.

    Args:
        name: a node or an input of the graph.
        port: the output port read, or None for the only one.
        to: the port that it feeds, or None where sources are given by position.
        path: its place in the record.
    """

    name: str
    port: str | None
    to: str | None
    path: Path

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}.{self.port}"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node: its block, what it reads, and its place in the record."""

    name: str
    block: NodeRef
    sources: tuple[Source, ...]
    path: Path


@dataclass(frozen=True, slots=True)
class GraphView:
    """An explicit graph, checked: nodes in an order in which each comes after what it reads."""

    inputs: Mapping[str, InputSpec]
    nodes: Mapping[str, GraphNode]
    outputs: Mapping[str, Source]

    @property
    def order(self) -> list[str]:
        """Names of the nodes, in execution order."""
        return list(self.nodes)


def _source(text: str, to: str | None, path: Path) -> Source:
    name, dot, port = text.partition(".")
    return Source(name, port if dot else None, to, path)


def sources(value: Value, path: Path) -> Iterator[Source | None]:
    """Yield what the value of ``in`` names; None for each part that is not a reference."""
    pairs: list[tuple[Value, str | None, Path]] = [(value, None, path)]
    if isinstance(value, list):
        pairs = [(item, None, (*path, i)) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        pairs = [(item, port, (*path, port)) for port, item in value.items()]
    for item, port, place in pairs:
        yield _source(item, port, place) if isinstance(item, str) and item.count(".") <= 1 else None


def topological(reads: Mapping[str, list[str]]) -> list[str]:
    """Return names so that each comes after those it reads; names in a cycle are left out.

    Args:
        reads: what each name reads; the order of names is kept where it can be.
    """
    done: dict[str, None] = {}
    waiting = {name: {other for other in others if other in reads} for name, others in reads.items()}
    users: dict[str, list[str]] = {name: [] for name in reads}
    for name, others in waiting.items():
        for other in others:
            users[other].append(name)
    position = {name: i for i, name in enumerate(reads)}
    ready = [name for name, others in waiting.items() if not others]
    while ready:
        name = ready.pop(0)
        done[name] = None
        freed: list[str] = []
        for user in users[name]:
            waiting[user].discard(name)
            if not waiting[user]:
                freed.append(user)
        ready = sorted(ready + freed, key=position.__getitem__)
    return list(done)


def _cycle(reads: Mapping[str, list[str]], left: set[str]) -> list[str]:
    """Return one cycle among names that have no order, in the direction of the data, first name repeated."""
    name = next(n for n in reads if n in left)
    seen: list[str] = []
    while name not in seen:
        seen.append(name)
        name = next(other for other in reads[name] if other in left)
    ring = seen[seen.index(name) :][::-1]
    start = ring.index(min(ring, key=list(reads).index))
    ring = ring[start:] + ring[:start]
    return [*ring, ring[0]]


def check_graph(document: Document, data: Mapping[str, Value]) -> list[Fault]:
    """Return the faults of an explicit graph: unknown names, names given twice, cycles, what nothing uses.

    Args:
        document: the document, for places.
        data: the whole record; parts of a wrong type are left to the schema's own errors.
    """
    inputs, graph, outputs = (data.get(key) for key in ("inputs", "graph", "outputs"))
    if not isinstance(graph, dict) or not isinstance(inputs, dict) or not isinstance(outputs, dict):
        return []
    faults: list[Fault] = []
    broken = False
    known = [*inputs, *graph]
    reads: dict[str, list[Source]] = {}
    for name, node in graph.items():
        path: Path = ("graph", name)
        if name in inputs:
            faults.append(fault(document, path, "a name that no input has", f"{name!r} again", f"{name}_1", key=True))
        found = list(sources(node.get("in", []), (*path, "in"))) if isinstance(node, dict) else [None]
        reads[name] = [s for s in found if s is not None]
        broken |= None in found
    found = [s for name, value in outputs.items() for s in sources(value, ("outputs", name))]
    ends = [s for s in found if s is not None]
    broken |= None in found
    for source in [*(s for found in reads.values() for s in found), *ends]:
        if source.name not in known:
            kind = "a node or input of the graph"
            faults.append(fault(document, source.path, kind, repr(source.name), nearest(source.name, known)))
        elif source.name in inputs and source.port is not None:
            faults.append(fault(document, source.path, "an input without a port", repr(str(source)), source.name))
    if faults or broken:
        return faults
    names = {name: [s.name for s in found] for name, found in reads.items()}
    order = topological(names)
    if len(order) < len(names):
        ring = _cycle(names, set(names) - set(order))
        place = next(s.path for s in reads[ring[0]] if s.name == ring[-2])
        return [
            fault(
                document, place, "a graph without cycles", "the cycle " + " -> ".join(ring), "reading another node here"
            )
        ]
    used = {name for found in names.values() for name in found} | {s.name for s in ends}
    for key, group, what in (("graph", graph, "a node"), ("inputs", inputs, "an input")):
        for name in group:
            if name not in used:
                hint = "reading it in a node or output, or removing it"
                faults.append(
                    fault(
                        document,
                        (key, name),
                        f"{what} that a node or output reads",
                        f"{name!r}, which nothing reads",
                        hint,
                        key=True,
                    )
                )
    return faults


def project(schema: Schema) -> GraphView | None:
    """Return the checked graph of a record, or None where its architecture is a model block."""
    if schema.graph is None or schema.inputs is None or schema.outputs is None:
        return None
    nodes: dict[str, GraphNode] = {}
    for name, block in schema.graph.items():
        value: Any = block.sources
        nodes[name] = GraphNode(
            name, block, tuple(s for s in sources(value, ("graph", name, "in")) if s is not None), ("graph", name)
        )
    order = topological({name: [s.name for s in node.sources] for name, node in nodes.items()})
    ends = {name: _source(text, name, ("outputs", name)) for name, text in schema.outputs.items()}
    return GraphView(dict(schema.inputs), {name: nodes[name] for name in order}, ends)
