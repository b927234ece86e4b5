"""An op's sample case as a graph of its own, for tests of every op against the oracle on any executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scellis_core.ir import Attr, Graph, Value, op_def
from scellis_core.ops.base import type_of
from scellis_core.ops.random import SCALARS

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng


@dataclass(frozen=True)
class Case:
    """A graph of one op and what to run it with; its results are the outputs ``out0``, ``out1`` ...

    Attributes:
        operands: the float and integer operands that are loaded, in order.
    """

    graph: Graph
    inputs: dict[str, Array]
    tensors: dict[str, Array]
    scalars: dict[str, float | int]
    operands: tuple[Value, ...]


def case_graph(op: str, arrays: Sequence[Array], attrs: Mapping[str, Attr]) -> Case:
    """The graph of one sample case.

    Args:
        op: name.
        arrays: operands; for a leaf, what is bound to its name.
        attrs: attributes.
    """
    graph = Graph(op)
    case = Case(graph, {}, {}, {}, ())
    given = dict(attrs)
    operands: tuple[Value, ...] = ()
    if op in ("load", "param", "state", "scalar"):
        name = str(given["name"])
        if op == "scalar":
            case.scalars[name] = arrays[0].item()
        else:
            (case.inputs if op == "load" else case.tensors)[name] = arrays[0]
    else:
        operands = tuple(graph.load(f"in{i}", type_of(a)) for i, a in enumerate(arrays))
        case.inputs.update((f"in{i}", a) for i, a in enumerate(arrays))
    if op == "philox":
        keys = (SCALARS[2].format(stream=given["stream"]), SCALARS[3].format(stream=given["stream"]))
        case.scalars.update({SCALARS[0]: 0xFFFFFFF0, SCALARS[1]: 7, keys[0]: 0x12345678, keys[1]: 0x9ABCDEF0})
    outputs = graph.emit(op, operands, **given)
    if op == "store":
        name = str(given["name"])
        case.tensors[name] = arrays[0] * 0
        outputs = [graph.state(name, type_of(arrays[0]))]
    for i, value in enumerate(outputs):
        graph.output(f"out{i}", value)
    return Case(graph, case.inputs, case.tensors, case.scalars, operands)


def sample_cases(op: str, rng: Rng) -> list[Case]:
    """Every sample case of an op as a graph."""
    sample: Any = op_def(op).sample
    return [case_graph(op, arrays, attrs) for arrays, attrs in sample(rng)]
