"""A step program on a device: buffers and pipelines made once, sequences replayed, tensors written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scellis_core.errors import DataError, DeviceError, nearest
from scellis_core.lower.program import Copy, Dispatch, Range, Sequence, StepProgram, Tensor
from scellis_core.runtime.arrays import NUMPY, decode, encode, scalar_bytes
from scellis_core.runtime.checks import check_copy, check_dispatch, check_limits, check_range
from scellis_core.runtime.device import Device
from scellis_core.runtime.native import STORAGE, UNIFORM, live_objects
from scellis_core.runtime.pipelines import Pipelines
from scellis_core.runtime.replay import Recorded, Replay, Timing, clear_step, copy_step
from scellis_core.runtime.staging import Pending, Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 64 * 1024 * 1024
"""Bytes uploaded at once: the driver keeps a copy of what is under way."""


class Readback:
    """Outputs on their way to the host."""

    def __init__(self, tensors: Mapping[str, Tensor], pending: Pending | NDArray[np.uint8]) -> None:
        self._tensors, self._pending = tensors, pending
        self._found: dict[str, NDArray[Any]] | None = None

    def result(self) -> dict[str, NDArray[Any]]:
        """Wait, the first time; the outputs by name.

        Raises:
            DeviceError: if the device was lost or closed meanwhile.
        """
        if self._found is None:
            raw = self._pending.bytes() if isinstance(self._pending, Pending) else self._pending
            self._found, at = {}, 0
            for name, tensor in self._tensors.items():
                size = _words(tensor.range.size)
                self._found[name] = decode(raw[at : at + size], tensor)
                at += size
        return self._found


class GpuExecutor:
    """Runs the sequences of a step program; one thread at a time.

    Args:
        program: compiled for this device's limits or smaller ones.
        device: an open device.
        keep_device: leave the device open at :meth:`close`; else the executor owns it.

    Raises:
        DeviceError: if the program was made for more than the device allows, or its memory has no room.
    """

    def __init__(self, program: StepProgram, device: Device, *, keep_device: bool = False) -> None:
        self.program, self.device = program, device
        self._native = device.native
        self._keep_device = keep_device
        self._closed = False
        self._allocated = 0
        self._buffers: dict[str, Any] = {}
        self._replays: dict[str, Replay] = {}
        self._scalars = bytearray(program.buffers["scalars"].size) if "scalars" in program.buffers else bytearray()
        self._given: set[str] = set()
        self._sent: bytes | None = None
        self._last = ""
        self._ring: Ring | None = None
        self._pipelines = Pipelines(self._native, program, self._buffers)
        check_limits(program, device.limits, device.info.name)
        for tensor in program.tensors.values():
            _check_tensor(program, tensor)
        try:
            self._allocate()
        except BaseException:
            self._free()
            raise

    # -- making -----------------------------------------------------------------------------------------------
    def _allocate(self) -> None:
        staging = 0
        for buffer in self.program.buffers.values():
            if buffer.kind == "staging":
                staging += buffer.size
                continue
            usage = UNIFORM if buffer.kind == "scalars" else STORAGE
            self._buffers[buffer.name] = self._native.buffer(buffer.name, buffer.size, usage)
            self._count(buffer.size)
        self._ring = Ring(self._native, staging, int(self.program.meta.get("readbacks", 1)), self._count)

    def _count(self, size: int) -> None:
        self._allocated += size

    def prepare(self, *sequences: str) -> None:
        """Compile the pipelines of these sequences (all, where none is named) and make their bind groups.

        :meth:`run` does so for a sequence that is not prepared.

        Raises:
            DeviceError: if a kernel does not compile, or a command is wrong; it names the kernel.
        """
        self._open()
        names = sequences or tuple(self.program.sequences)
        commands = [c for name in names for c in self._sequence(name).commands if isinstance(c, Dispatch)]
        for command in commands:
            check_dispatch(self.program, command, self.device.limits)
        self._pipelines.compile(command.kernel for command in commands)
        for name in names:
            if name not in self._replays:
                self._replays[name] = self._record(self._sequence(name))

    def _record(self, sequence: Sequence) -> Replay:
        where, buffers = f"sequence {sequence.name}", self._buffers
        recorded: list[Recorded] = []
        for command in sequence.commands:
            if isinstance(command, Dispatch):
                kernel = self.program.kernels[command.kernel]
                group = self._pipelines.group(kernel, command)
                step = (self._pipelines.pipeline(command.kernel), group, *command.grid)
            elif isinstance(command, Copy):
                check_copy(self.program, command, where)
                src, dst = command.src, command.dst
                step = copy_step(buffers[src.buffer], src.offset, buffers[dst.buffer], dst.offset, dst.size)
            else:
                check_copy(self.program, command, where)
                step = clear_step(buffers[command.dst.buffer], command.dst.offset, command.dst.size)
            recorded.append(Recorded(command, step))
        return Replay(self._native, where, recorded)

    def _sequence(self, name: str) -> Sequence:
        found = self.program.sequences.get(name)
        if found is None:
            raise DeviceError(
                "sequence", "a sequence of this program", repr(name), nearest(name, self.program.sequences)
            )
        return found

    def _open(self) -> Ring:
        if self._closed or self._ring is None:
            raise DeviceError("executor", "an open executor", "one that was closed")
        return self._ring

    # -- running ----------------------------------------------------------------------------------------------
    def run(
        self,
        sequence: str,
        inputs: Mapping[str, Any] | None = None,
        scalars: Mapping[str, float | int] | None = None,
    ) -> None:
        """Send a sequence to the device; returns before it has finished.

        Args:
            sequence: its name.
            inputs: an array for each of the sequence's inputs; others are not looked at.
            scalars: new values; the others keep theirs from earlier runs.

        Raises:
            DataError: for a missing input or one of another shape, an unknown scalar, a scalar never given.
            DeviceError: for an unknown sequence, and for what the driver refuses.
        """
        self._feed(sequence, inputs or {}, scalars or {})
        self._replays[sequence].submit()
        self._last = sequence

    def profile(
        self,
        sequence: str,
        inputs: Mapping[str, Any] | None = None,
        scalars: Mapping[str, float | int] | None = None,
    ) -> list[Timing]:
        """Run a sequence once with a compute pass of its own for each dispatch; what each took on the device.

        Raises:
            DeviceError: if the device has no timestamps; else as :meth:`run`.
        """
        self._open()
        if "timestamp-query" not in self.device.features:
            name = self.device.info.name
            raise DeviceError(
                f"device {name}", "the feature timestamp-query", "a device without it", "timing whole runs"
            )
        self._feed(sequence, inputs or {}, scalars or {})
        timings = self._replays[sequence].profile(self._native.timestamp_period())
        self._last = sequence
        return timings

    def _feed(self, name: str, inputs: Mapping[str, Any], scalars: Mapping[str, float | int]) -> None:
        self._open()
        if name not in self._replays:
            self.prepare(name)
        for given, tensor in self.program.sequences[name].inputs.items():
            if given not in inputs:
                raise DataError(f"sequence {name}", f"an input {given!r}", f"inputs {sorted(inputs)}")
            self._upload(f"input {given}", self._tensor(tensor), inputs[given])
        self._write_scalars(name, scalars)

    def _write_scalars(self, sequence: str, scalars: Mapping[str, float | int]) -> None:
        table, block = self.program.scalars, self._scalars
        for name, value in scalars.items():
            if name not in table:
                raise DataError("scalars", "a scalar of this program", repr(name), nearest(name, table))
            dtype, offset = table[name]
            block[offset : offset + 4] = scalar_bytes(name, dtype, value)
            self._given.add(name)
        if not block:
            return
        if len(self._given) < len(table) and self._uses_scalars(sequence):
            missing = next(name for name in table if name not in self._given)
            raise DataError(f"sequence {sequence}", f"a scalar {missing!r}", f"scalars {sorted(self._given)}")
        now = bytes(block)
        if now != self._sent:
            self._sent = now
            self._native.write("scalars", self._buffers["scalars"], 0, now)

    def _uses_scalars(self, sequence: str) -> bool:
        kernels = self.program.kernels
        commands = self.program.sequences[sequence].commands
        return any(isinstance(c, Dispatch) and kernels[c.kernel].uses_scalars for c in commands)

    # -- tensors ----------------------------------------------------------------------------------------------
    def _tensor(self, name: str) -> Tensor:
        found = self.program.tensors.get(name)
        if found is None:
            raise DataError("tensor", "a tensor of this program", repr(name), nearest(name, self.program.tensors))
        return found

    def write(self, tensor: str, array: Any) -> None:
        """Set a tensor, by name.

        Args:
            tensor: its name.
            array: of its shape; integers are checked against the range of the tensor's dtype, floats are rounded.

        Raises:
            DataError: for an unknown name, another shape, or numbers that the dtype does not hold.
            DeviceError: for what the driver refuses.
        """
        self._open()
        self._upload(f"tensor {tensor}", self._tensor(tensor), array)

    def _upload(self, where: str, tensor: Tensor, array: Any) -> None:
        data = encode(array, tensor, where).view(np.uint8)
        native, buffer, offset = self._native, self._buffers[tensor.range.buffer], tensor.range.offset
        if len(data) <= _CHUNK:
            native.write(where, buffer, offset, data)
            return
        for start in range(0, len(data), _CHUNK):
            native.write(where, buffer, offset + start, data[start : start + _CHUNK])
            native.wait(native.flush(where))

    def read(self, tensor: str) -> NDArray[Any]:
        """A tensor's value, after everything sent so far.

        Raises:
            DataError: for an unknown name.
            DeviceError: if the device was lost.
        """
        ring, found = self._open(), self._tensor(tensor)
        part = found.range
        raw = ring.fetch(f"tensor {tensor}", self._buffers[part.buffer], part.offset, _words(part.size))
        return decode(raw, found)

    def start_readback(self, sequence: str) -> Readback:
        """Begin to fetch the outputs of the sequence that ran last; nothing waits until :meth:`Readback.result`.

        ``meta["readbacks"]`` of them may be under way; one more waits for the oldest.

        Raises:
            DeviceError: if another sequence ran since, whose slots may hold the outputs no longer.
        """
        ring, outputs = self._open(), self._sequence(sequence).outputs
        if self._last != sequence:
            got = (
                f"outputs of {sequence} after {self._last}"
                if self._last
                else f"outputs of {sequence}, which has not run"
            )
            raise DeviceError("outputs", "those of the sequence that ran last", got)
        tensors = {name: self._tensor(tensor) for name, tensor in outputs.items()}
        where = f"outputs of {sequence}"
        parts = [(self._buffers[t.range.buffer], t.range.offset, _words(t.range.size)) for t in tensors.values()]
        if not parts:
            return Readback(tensors, np.empty(0, np.uint8))
        if sum(size for _, _, size in parts) > ring.piece:
            return Readback(tensors, np.concatenate([ring.fetch(where, *part) for part in parts]))
        return Readback(tensors, ring.start(where, parts))

    def outputs(self, sequence: str) -> dict[str, NDArray[Any]]:
        """The outputs of the sequence that ran last, waiting for them.

        Raises:
            DeviceError: as :meth:`start_readback`.
        """
        return self.start_readback(sequence).result()

    # -- the whole --------------------------------------------------------------------------------------------
    def sync(self) -> None:
        """Wait until everything sent has run.

        Raises:
            DeviceError: if the device was lost.
        """
        self._open()
        self._native.wait(self._native.flush("device"))

    def allocated_bytes(self) -> int:
        """Bytes of all buffers that this executor made on the device."""
        return self._allocated

    def live_objects(self) -> dict[str, int]:
        """Objects that wgpu-native holds, by kind, over the whole process: for leak tests."""
        return live_objects()

    def close(self) -> None:
        """Free buffers, pipelines and, unless ``keep_device`` was asked for, the device. Once is enough."""
        if not self._closed:
            self._native.wait()
            self._free()
            if not self._keep_device:
                self.device.close()

    def _free(self) -> None:
        self._closed = True
        self._replays.clear()
        self._pipelines.close()
        if self._ring is not None:
            self._ring.close()
        for buffer in self._buffers.values():
            self._native.destroy_buffer(buffer)
        self._buffers.clear()
        self._allocated = 0

    def describe(self) -> dict[str, Any]:
        """Adapter, backend, driver, limits in force and bytes allocated: plain data."""
        return {**self.device.describe(), "allocated_bytes": self._allocated}


def _words(size: int) -> int:
    return -(-size // 4) * 4


def _check_tensor(program: StepProgram, tensor: Tensor) -> None:
    where = f"tensor {tensor.name}"
    if tensor.dtype not in NUMPY:
        raise DeviceError(where, f"a dtype of a device: {', '.join(NUMPY)}", tensor.dtype)
    part = Range(tensor.range.buffer, tensor.range.offset, _words(tensor.range.size))
    check_range(program, part, where)
    if part.offset % 4:
        raise DeviceError(where, "an offset that is a multiple of 4", str(part.offset))
    needed = int(np.prod(tensor.shape, dtype=np.int64)) * np.dtype(NUMPY[tensor.dtype]).itemsize
    if needed > part.size:
        raise DeviceError(where, f"a range of {needed} bytes for shape {list(tensor.shape)}", str(tensor.range.size))
