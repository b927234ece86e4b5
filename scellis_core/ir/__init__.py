"""Typed SSA: values, nodes, graphs, the builder, the verifier, text, and the rename-invariant digest.

A :class:`Graph` is a list of nodes in execution order. A node's op is looked up in :data:`OPS`, which the
modules of :mod:`scellis_core.ops` fill. Graphs are built by calling ops on values (``a + b``,
``ops.matmul(a, b)``); Python numbers become constants and operands are broadcast explicitly.

Besides ordinary ops there are leaves and effects:

* ``load``: a batch input, by name. ``param``: a trainable tensor, by path. ``state``: any other persistent
  tensor, by name (running statistics, gradients, optimizer state, whole slabs). ``scalar``: a number the host
  writes every step. ``const``: a splat of one number. ``iota``: an index ramp.
* ``store``: writes a value to a persistent tensor, in program order.
"""

from scellis_core.ir.check import digest, verify
from scellis_core.ir.graph import (
    OPS,
    Cotangent,
    Graph,
    Node,
    OpDef,
    Operand,
    Value,
    broadcast_shapes,
    copy_node,
    op_def,
    register,
)
from scellis_core.ir.text import parse_graph, parse_graphs, print_graph
from scellis_core.ir.types import (
    DTYPES,
    FLOATS,
    INTS,
    Attr,
    Family,
    Leaf,
    Lowering,
    Pointwise,
    Reduce,
    Tolerance,
    Type,
    View,
)

__all__ = [
    "DTYPES",
    "FLOATS",
    "INTS",
    "OPS",
    "Attr",
    "Cotangent",
    "Family",
    "Graph",
    "Leaf",
    "Lowering",
    "Node",
    "OpDef",
    "Operand",
    "Pointwise",
    "Reduce",
    "Tolerance",
    "Type",
    "Value",
    "View",
    "broadcast_shapes",
    "copy_node",
    "digest",
    "op_def",
    "parse_graph",
    "parse_graphs",
    "print_graph",
    "register",
    "verify",
]
