"""Runs a graph group by group on a device, and on the ops' NumPy oracles, to compare the two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from kernel_runner import TYPES, WEBGPU, run

from scellis_core import ops
from scellis_core.ir import Graph, Value, op_def, verify
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import group_graph
from scellis_core.lower.program import Limits
from scellis_core.lower.views import base_of
from scellis_core.lower.wgsl import ScalarTable

Arrays = dict[str, np.ndarray]
assert ops


def oracle(graph: Graph, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs and stored tensors (as ``store:<name>``) by the ops' oracles."""
    found: dict[Value, np.ndarray] = {}
    out: Arrays = {}
    current = dict(arrays)
    for node in graph.nodes:
        definition = op_def(node.op)
        if node.op in ("load", "param", "state", "scalar"):
            given = [np.asarray(current[str(node.attrs["name"])])]
        else:
            given = [found[v] for v in node.inputs]
        wide = [g.astype(np.float64) if g.dtype.kind == "f" else g for g in given]
        assert definition.oracle is not None
        results = definition.oracle(wide, node.attrs)
        for value, array in zip(node.outputs, results, strict=True):
            found[value] = np.asarray(array)
        if node.op == "store":
            current[str(node.attrs["name"])] = given[0]
            out[f"store:{node.attrs['name']}"] = given[0]
    return out | {name: found[v] for name, v in graph.outputs.items()}


def on_device(
    graph: Graph,
    arrays: Mapping[str, np.ndarray],
    *,
    fuse: bool = True,
    limits: Limits = WEBGPU,
    quad: bool | None = None,
) -> Arrays:
    """The same from the generated kernels."""
    verify(graph)
    tensors: dict[str, np.ndarray] = {}
    values: dict[Value, np.ndarray] = {}
    scalars = ScalarTable()
    names: dict[str, object] = {}
    for node in graph.nodes:
        if node.op in ("load", "param", "state"):
            type = node.outputs[0].type
            array = np.asarray(arrays[str(node.attrs["name"])])
            tensors[str(node.attrs["name"])] = array.astype(TYPES.get(type.dtype, np.uint32)).reshape(type.shape)
        elif node.op == "scalar":
            names[str(node.attrs["name"])] = arrays[str(node.attrs["name"])]
    groups = group_graph(graph, limits, fuse=fuse)

    def read(value: Value) -> np.ndarray:
        if value.node.op in ("load", "param", "state"):
            return tensors[str(value.node.attrs["name"])]
        return values[value]

    for group in groups:
        calls = emit_group(group, limits, scalars, quad=quad)
        operands: Arrays = {f"in{k}": read(v) for k, v in enumerate(group.inputs)}
        outputs = group.outputs or [v for v, _ in group.stores]
        stored = dict(group.stores)
        bound = {key for call in calls for key in call.operands}
        for k, value in enumerate(outputs):
            kind = np.dtype(TYPES.get(value.dtype, np.uint32))
            name = stored.get(value)
            old = tensors.get(name) if name is not None else None
            operands[f"out{k}"] = old if old is not None else np.full(value.shape, 77, kind)
        table = {n: v for n, v in names.items() if n in scalars.slots}
        got = run(calls, {k: v for k, v in operands.items() if k in bound}, limits, scalars=_block(scalars, table))
        for k, value in enumerate(outputs):
            array = got[f"out{k}"].reshape(value.shape)
            if value in stored:
                tensors[stored[value]] = array
            if group.kind != "copy":
                values[value] = array
    out = {f"store:{n.attrs['name']}": tensors[str(n.attrs["name"])] for n in graph.stores()}
    for name, value in graph.outputs.items():
        out[name] = read(base_of(value)).reshape(value.shape)
    return out


def _block(scalars: ScalarTable, given: Mapping[str, object]) -> np.ndarray:
    block = np.zeros(ScalarTable.CAPACITY, np.uint32)
    for name, (dtype, offset) in scalars.layout().items():
        if name in given:
            block[offset // 4] = np.asarray(given[name]).astype(TYPES[dtype]).view(np.uint32)
    return block


def compare(
    graph: Graph, arrays: Mapping[str, np.ndarray], rtol: float = 1e-4, atol: float = 1e-5, **how: object
) -> None:
    """Assert that the device agrees with the oracle on every output and store."""
    want = oracle(graph, arrays)
    got = on_device(graph, arrays, **how)  # type: ignore[arg-type]
    assert set(want) == set(got)
    for name, array in want.items():
        np.testing.assert_allclose(
            np.asarray(got[name], np.float64), np.asarray(array, np.float64), rtol, atol, err_msg=name
        )
