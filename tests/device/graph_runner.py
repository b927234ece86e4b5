"""Runs a graph group by group on a device, and on the oracle, to compare the two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from kernel_runner import TYPES, WEBGPU, run

from scellis_core.ir import Graph, Value, verify
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import group_graph
from scellis_core.lower.program import Limits
from scellis_core.lower.views import base_of
from scellis_core.lower.wgsl import ScalarTable
from scellis_core.oracle import evaluate

Arrays = dict[str, np.ndarray]


def oracle(graph: Graph, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs and stored tensors (as ``store:<name>``) by the float64 interpreter."""
    names = {kind: set(graph.leaves(kind)) for kind in ("load", "param", "state")}
    tensors = {n: _wide(arrays[n]) for n in (*names["param"], *names["state"])}
    for node in graph.stores():
        name = str(node.attrs["name"])
        tensors.setdefault(name, np.zeros(node.inputs[0].shape))
    inputs = {n: _wide(arrays[n]) for n in names["load"]}
    known = {*inputs, *tensors}
    scalars = {n: np.asarray(a).item() for n, a in arrays.items() if n not in known and np.ndim(a) == 0}
    out = evaluate(graph, inputs, tensors, scalars)
    return out | {f"store:{n.attrs['name']}": tensors[str(n.attrs["name"])] for n in graph.stores()}


def _wide(array: np.ndarray) -> np.ndarray:
    kinds = {"f": np.float64, "i": np.int64, "u": np.int64}
    return np.array(array, kinds.get(np.asarray(array).dtype.kind, np.bool_))


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
    for node in graph.nodes:
        if node.op in ("load", "param", "state"):
            type = node.outputs[0].type
            array = np.asarray(arrays[str(node.attrs["name"])])
            tensors[str(node.attrs["name"])] = array.astype(TYPES.get(type.dtype, np.uint32)).reshape(type.shape)
    names = dict(arrays)
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
    out: Arrays = {}
    for node in graph.stores():
        name = str(node.attrs["name"])
        out[f"store:{name}"] = tensors[name].reshape(node.inputs[0].shape)
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
