"""What runs a step program: the protocol, and its float64 form on the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from scellis_core import oracle
from scellis_core.errors import DataError
from scellis_core.ir import DTYPES, Graph
from scellis_core.lower.program import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scellis_core.compile import Compiled


class Pending(Protocol):
    """A readback under way."""

    def result(self) -> dict[str, NDArray[Any]]:
        """Wait for it; outputs by name."""
        ...


class Executor(Protocol):
    """A device with a step program on it. GPU and oracle offer the same."""

    def write(self, tensor: str, array: NDArray[Any]) -> None:
        """Set a persistent tensor; DataError where shape or range is wrong."""
        ...

    def read(self, tensor: str) -> NDArray[Any]:
        """A persistent tensor's value."""
        ...

    def run(self, sequence: str, inputs: Mapping[str, NDArray[Any]], scalars: Mapping[str, float | int]) -> None:
        """Run a sequence; returns before the device has finished."""
        ...

    def outputs(self, sequence: str) -> dict[str, NDArray[Any]]:
        """The outputs of the sequence that ran last, waiting for them."""
        ...

    def start_readback(self, sequence: str) -> Pending:
        """Begin to fetch the outputs of the sequence that ran last."""
        ...

    def sync(self) -> None:
        """Wait until the device is idle."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...

    def describe(self) -> dict[str, Any]:
        """Device, driver and limits, for people and provenance."""
        ...


class _Done:
    def __init__(self, outputs: dict[str, NDArray[Any]]) -> None:
        self._outputs = outputs

    def result(self) -> dict[str, NDArray[Any]]:
        return self._outputs


class OracleExecutor:
    """Runs the L1 graphs in float64 with NumPy.

    Persistent floats are float64 throughout, so a run is not rounded to f32 between steps; checkpoints of an
    oracle run hold float64 too, so that it resumes to the same bits, and an export rounds to f32. Buffers are flat
    arrays and tensors views of them, so slabs and the tensors inside share memory as on a device.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._graphs: dict[str, Graph] = compiled.graphs
        self._program = compiled.program
        self._flat: dict[tuple[str, str], NDArray[Any]] = {}
        self._tensors: dict[str, NDArray[Any]] = {}
        for tensor in self._program.tensors.values():
            if self._program.buffers[tensor.range.buffer].kind in ("param", "grad", "optimizer", "state"):
                self._tensors[tensor.name] = self._view(tensor)
        self._outputs: dict[str, dict[str, NDArray[Any]]] = {}

    def _view(self, tensor: Tensor) -> NDArray[Any]:
        dtype = np.float64 if tensor.dtype.startswith("f") else np.int64
        key = (tensor.range.buffer, np.dtype(dtype).name)
        size = DTYPES[tensor.dtype]
        if key not in self._flat:
            self._flat[key] = np.zeros(self._program.buffers[tensor.range.buffer].size // size, dtype)
        start = tensor.range.offset // size
        count = int(np.prod(tensor.shape, dtype=np.int64))
        return self._flat[key][start : start + count].reshape(tensor.shape)

    def write(self, tensor: str, array: NDArray[Any]) -> None:
        """Set a persistent tensor."""
        target = self._tensors[tensor]
        if tuple(np.shape(array)) != target.shape:
            raise DataError(f"tensor {tensor}", f"shape {list(target.shape)}", f"{list(np.shape(array))}")
        target[...] = array

    def read(self, tensor: str) -> NDArray[Any]:
        """A copy of a persistent tensor, float64 or int64."""
        return self._tensors[tensor].copy()

    def run(self, sequence: str, inputs: Mapping[str, NDArray[Any]], scalars: Mapping[str, float | int]) -> None:
        """Evaluate the sequence's L1 graph."""
        outputs = oracle.evaluate(self._graphs[sequence], inputs, self._tensors, scalars)
        self._outputs[sequence] = {name: np.array(value) for name, value in outputs.items()}

    def outputs(self, sequence: str) -> dict[str, NDArray[Any]]:
        """Outputs of the last run of the sequence."""
        return self._outputs[sequence]

    def start_readback(self, sequence: str) -> Pending:
        """Outputs are there at once."""
        return _Done(self._outputs[sequence])

    def sync(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Drop the arrays."""
        self._tensors.clear()
        self._flat.clear()

    def describe(self) -> dict[str, Any]:
        """What this is."""
        return {"adapter": "oracle", "backend": "NumPy float64", "driver": np.__version__, "type": "oracle"}
