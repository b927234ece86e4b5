"""Reverse mode, graph to graph: gradients are ops appended to the graph that they differentiate.

Reads :attr:`OpDef.vjp` only. A cotangent is emitted only where it leads to a value that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from scellis_core.errors import IRError
from scellis_core.ir import FLOATS, Graph, Node, Type, Value, op_def


def gradients(graph: Graph, loss: Value, wrt: Sequence[Value], seed: Value | None = None) -> dict[Value, Value | None]:
    """Append the gradient of ``sum(loss * seed)`` to the graph.

    Nodes appended carry the block path of the node that they differentiate. A value that several nodes read gets
    the sum of their cotangents, the last reader's first, so a parameter that is used twice has one gradient.

    Args:
        graph: the graph of ``loss`` and ``wrt``.
        loss: what is differentiated; f32[] or another float type.
        wrt: values to differentiate by: parameters, inputs or results of nodes.
        seed: the cotangent of ``loss``, of its type; one for a scalar loss where None.

    Returns:
        For each of ``wrt`` its gradient, of the same type, or None where the loss does not depend on it through
        differentiable ops.

    Raises:
        IRError: if a value is of another graph, the loss is no float, or the seed's type is not the loss's.
    """
    _check(graph, loss, wrt, seed)
    active = _dependents(graph, wrt)
    cotangents: dict[Value, Value] = {}
    last = len(graph.nodes)
    before = graph.path
    try:
        if loss in active:
            graph.path = loss.node.path
            cotangents[loss] = seed if seed is not None else graph.const(1.0, loss.dtype)
            for node in reversed(graph.nodes[:last]):
                if any(v in active for v in node.inputs) and any(v in cotangents for v in node.outputs):
                    graph.path = node.path
                    _backward(graph, node, active, cotangents)
    finally:
        graph.path = before
    return {value: cotangents.get(value) for value in wrt}


def _check(graph: Graph, loss: Value, wrt: Sequence[Value], seed: Value | None) -> None:
    for value in (loss, *wrt, *(() if seed is None else (seed,))):
        if value.graph is not graph:
            raise IRError(f"gradients of {graph.name}", "values of this graph", f"{value!r} of {value.graph.name}")
    if loss.dtype not in FLOATS:
        raise IRError(f"gradients of {graph.name}", "a loss of float dtype", str(loss.type), "ops.cast")
    for value in wrt:
        if value.dtype not in FLOATS:
            raise IRError(f"gradients of {graph.name}", "values of float dtype to differentiate by", repr(value))
    wanted = loss.type if seed is not None else Type(loss.dtype, ())
    found = loss.type if seed is None else seed.type
    if wanted != found:
        what = "a scalar loss, or a seed" if seed is None else f"a seed {wanted}"
        raise IRError(f"gradients of {graph.name}", what, str(found), "ops.reduce_sum" if seed is None else "")


def _dependents(graph: Graph, wrt: Sequence[Value]) -> set[Value]:
    """The values through which a gradient can reach ``wrt``, those included."""
    active = set(wrt)
    for node in graph.nodes:
        if node.inputs and op_def(node.op).vjp is not None and not active.isdisjoint(node.inputs):
            active.update(v for v in node.outputs if v.type.dtype in FLOATS)
    return active


def _backward(graph: Graph, node: Node, active: set[Value], cotangents: dict[Value, Value]) -> None:
    """Pass the cotangents of a node's outputs to its inputs."""
    vjp = op_def(node.op).vjp
    if vjp is None:
        return
    found = vjp(node, [cotangents.get(v) for v in node.outputs])
    if len(found) != len(node.inputs):
        raise IRError(f"{node.path}: vjp of {node.op}", f"{len(node.inputs)} cotangents", f"{len(found)}")
    for value, item in zip(node.inputs, found, strict=True):
        if item is None or value not in active:
            continue
        cotangent = item if isinstance(item, Value) else item()
        if cotangent.type != value.type:
            raise IRError(f"{node.path}: vjp of {node.op}", f"a cotangent {value.type}", str(cotangent.type))
        known = cotangents.get(value)
        cotangents[value] = cotangent if known is None else graph.emit("add", [known, cotangent])[0]
