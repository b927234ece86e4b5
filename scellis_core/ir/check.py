"""The verifier, and the digest that does not change with names."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

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


def _encode(item: Any) -> bytes:
    """Typed bytes: NaN, -0.0, and 1 against 1.0 stay apart; every NaN is the same."""
    if isinstance(item, bool):
        return b"b" + bytes([item])
    if isinstance(item, int):
        return b"i" + str(item).encode() + b";"
    if isinstance(item, float):
        return b"f" + struct.pack("<d", math.nan if math.isnan(item) else item)
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
    hasher.update(_encode(({name: number[v] for name, v in graph.outputs.items()}, graph.draws)))
    return hasher.hexdigest()
