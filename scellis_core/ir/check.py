"""The verifier, and the digest that does not change with names."""

from __future__ import annotations

import hashlib

from scellis_core.errors import IRError
from scellis_core.ir.graph import Graph, Value, op_def
from scellis_core.ir.types import Type


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
        if tuple(node.attrs) != definition.attrs:
            raise IRError(where, f"attributes {list(definition.attrs)}", f"{list(node.attrs)}", "Graph.emit")
        for value in node.inputs:
            if value not in seen:
                raise IRError(where, "operands defined by an earlier node", repr(value), "topological order")
        try:
            types = list(definition.infer([v.type for v in node.inputs], node.attrs))
        except IRError as error:
            raise IRError(where, error.expected, error.got, error.hint) from error
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


def digest(graph: Graph) -> str:
    """SHA-256 over ops, attributes, types and wiring: value names and block paths do not count.

    It is taken over Python's ``repr``, which keeps NaN, -0.0, and 1, 1.0 and True apart and every bit of a float.
    """
    number: dict[Value, int] = {}
    hasher = hashlib.sha256()
    for node in graph.nodes:
        row = (
            node.op,
            [number[v] for v in node.inputs],
            sorted(node.attrs.items()),
            [(v.type.dtype, v.type.shape) for v in node.outputs],
        )
        hasher.update(repr(row).encode())
        for value in node.outputs:
            number[value] = len(number)
    outputs = sorted((name, number[v]) for name, v in graph.outputs.items())
    hasher.update(repr((outputs, graph.draws)).encode())
    return hasher.hexdigest()
