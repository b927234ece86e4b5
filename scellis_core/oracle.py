"""The float64 interpreter: the living definition of every op, in NumPy.

Floats of every dtype are computed in float64; integers are int64 wrapped to 32 bits after each op; predicates
are bool. Results follow IEEE (infinities and NaN are values, not warnings).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scellis_core.errors import DataError, IRError, nearest
from scellis_core.ir import FLOATS, Attr, Graph, Node, Type, Value, op_def
from scellis_core.ops.random import SCALARS

Array = NDArray[Any]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    tensors: MutableMapping[str, Array],
    scalars: Mapping[str, float | int],
) -> dict[str, Array]:
    """Run a graph.

    Args:
        graph: nodes are run in order, each as its op's oracle defines.
        inputs: arrays for ``load``, by name.
        tensors: arrays for ``param`` and ``state``, by name; a ``store`` writes into the array that is there
            where it is float64, int64 or bool, as the tensor needs, and puts a new one in its place otherwise.
        scalars: numbers for ``scalar`` and for random draws (``rng.counter_lo``, ``rng.<stream>.key0`` ...).

    Returns:
        The graph's outputs by name: float64, int64 or bool.

    Raises:
        DataError: if an array is missing or has another shape, or an index is out of range.
        IRError: if an op has no oracle.
    """
    last: dict[Value, int] = {}
    for position, node in enumerate(graph.nodes):
        for value in node.inputs:
            last[value] = position
    kept = set(graph.outputs.values())
    values: dict[Value, Array] = {}
    with np.errstate(all="ignore"):
        for position, node in enumerate(graph.nodes):
            if node.op == "store":
                _store(tensors, str(node.attrs["name"]), values[node.inputs[0]])
            else:
                results = _run(node, [values[v] for v in node.inputs], inputs, tensors, scalars)
                for value, array in zip(node.outputs, results, strict=True):
                    if value in last or value in kept:
                        values[value] = array
            for value in set(node.inputs):
                if last[value] == position and value not in kept:
                    del values[value]
    return {name: np.array(values[value]) for name, value in graph.outputs.items()}


def run_op(op: str, arrays: Sequence[Array], attrs: Mapping[str, Attr], types: Sequence[Type]) -> list[Array]:
    """One op's oracle on arrays.

    Args:
        op: name.
        arrays: float64, int64 or bool operands.
        attrs: all attributes.
        types: of the results, for wrapping integers.

    Raises:
        IRError: if the op has no oracle.
        DataError: if an index is out of range.
    """
    oracle = op_def(op).oracle
    if oracle is None:
        raise IRError(f"op {op}", "an oracle", "none")
    with np.errstate(all="ignore"):
        found = oracle(arrays, dict(attrs))
    return [_wrap(np.asarray(array), type.dtype) for array, type in zip(found, types, strict=True)]


def hold(array: Any, type: Type, where: str) -> Array:
    """An array as the oracle holds a tensor of that type: float64, int64 or bool; always a copy.

    Raises:
        DataError: if the shape is another, or the numbers do not fit the dtype.
    """
    found = np.asarray(array)
    if found.shape != type.shape:
        raise DataError(where, f"shape {list(type.shape)}", f"{list(found.shape)}")
    if type.dtype in FLOATS:
        return np.array(found, np.float64)
    if type.dtype == "bool":
        return np.array(found, np.bool_)
    if found.dtype.kind not in "iub":
        raise DataError(where, f"integers for {type}", f"NumPy dtype {found.dtype}")
    whole = np.array(found, np.int64)
    low, high = (-(2**31), 2**31 - 1) if type.dtype == "i32" else (0, 2**32 - 1)
    if whole.size and (whole.min() < low or whole.max() > high):
        raise DataError(where, f"numbers from {low} to {high} for {type}", f"{whole.min()} to {whole.max()}")
    return whole


def _wrap(array: Array, dtype: str) -> Array:
    if dtype == "i32":
        return ((array.astype(np.int64) + 2**31) & 0xFFFFFFFF) - 2**31
    if dtype == "u32":
        return array.astype(np.int64) & 0xFFFFFFFF
    return array


def _bound(where: str, name: str, type: Type, arrays: Mapping[str, Any]) -> Array:
    if name not in arrays:
        raise DataError(where, f"a value for {name}", "none", nearest(name, arrays))
    return hold(arrays[name], type, f"{where} {name}")


def _run(
    node: Node,
    operands: list[Array],
    inputs: Mapping[str, Any],
    tensors: Mapping[str, Array],
    scalars: Mapping[str, float | int],
) -> list[Array]:
    op, types = node.op, [v.type for v in node.outputs]
    if op in ("load", "param", "state", "scalar"):
        source: Mapping[str, Any] = inputs if op == "load" else scalars if op == "scalar" else tensors
        operands = [_bound(op, str(node.attrs["name"]), types[0], source)]
    elif op == "philox":
        names = [name.format(stream=node.attrs["stream"]) for name in SCALARS]
        operands = [_bound("philox", name, Type("u32", ()), scalars) for name in names]
    try:
        return run_op(op, operands, node.attrs, types)
    except DataError as error:
        if not node.path or error.where.startswith(node.path):
            raise
        raise DataError(f"{node.path}: {error.where}", error.expected, error.got, error.hint) from error


def _store(tensors: MutableMapping[str, Array], name: str, array: Array) -> None:
    target = tensors.get(name)
    if target is not None and target.shape == array.shape and target.dtype == array.dtype:
        target[...] = array
    else:
        tensors[name] = np.array(array)
