# pyright: basic
"""A step program on a device: buffers and pipelines made once, sequences replayed through wgpu-native's C functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native import ffi, lib

from scellis_core.errors import DataError, DeviceError, nearest
from scellis_core.lower.program import Clear, Copy, Dispatch, Range, StepProgram, Tensor
from scellis_core.runtime.device import Device

_NUMPY = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "u32": np.uint32, "bool": np.uint32}
_CHUNK = 64 << 20


class Readback:
    """Outputs on their way to the host."""

    def __init__(self, executor: GpuExecutor, tensors: dict[str, Tensor], staging: Any, promise: Any) -> None:
        self._executor, self._tensors, self._staging, self._promise = executor, tensors, staging, promise
        self._found: dict[str, Any] | None = None

    def result(self) -> dict[str, Any]:
        """Wait, once; outputs by name."""
        if self._found is None:
            self._executor.guard(self._promise.sync_wait)
            data = np.frombuffer(self._staging.read_mapped(), np.uint8).copy()
            self._staging.unmap()
            self._executor.recycle(self._staging)
            self._found, at = {}, 0
            for name, tensor in self._tensors.items():
                self._found[name] = _decode(data[at : at + tensor.range.size], tensor)
                at += -(-tensor.range.size // 4) * 4
        return self._found


class GpuExecutor:
    """Runs the sequences of a step program.

    Raises:
        DeviceError: if the program was made for more than the device allows, or a kernel does not compile.
    """

    def __init__(self, program: StepProgram, device: Device) -> None:
        self.program, self.device = program, device
        self._handle = device.handle
        self._queue = self._handle.queue
        self._check_limits()
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self._buffers: dict[str, Any] = {}
        self._allocated = 0
        for buffer in program.buffers.values():
            if buffer.kind == "scalars":
                self._buffers[buffer.name] = self._create(buffer.name, buffer.size, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)
            elif buffer.kind == "staging":
                continue
            else:
                self._buffers[buffer.name] = self._create(buffer.name, buffer.size, usage)
        self._staging: list[Any] = []
        self._lent = 0
        self._ring = int(program.meta.get("readbacks", 1))
        self._pipelines: dict[str, Any] = {}
        self._replays: dict[str, Callable[[], None]] = {}
        self._keep: list[Any] = []
        self._block = np.zeros(program.buffers["scalars"].size // 4, np.uint32) if "scalars" in program.buffers else None
        self._last = b""

    # -- making -----------------------------------------------------------------------------------------------
    def _check_limits(self) -> None:
        has = self.device.limits
        for name, needed in self.program.limits.to_json().items():
            if name in ("features", "min_storage_buffer_offset_alignment"):
                continue
            if needed > getattr(has, name):
                raise DeviceError(
                    f"device {self.device.info.name}", f"{name} of at least {needed}", str(getattr(has, name)),
                    "compiling the run for this device's limits",
                )  # fmt: skip

    def guard(self, call: Callable[..., Any], *args: Any, where: str = "", **kwargs: Any) -> Any:
        """Call into wgpu; its errors become ours, with the place and the driver's first lines."""
        where = where or f"device {self.device.info.name}"
        try:
            return call(*args, **kwargs)
        except wgpu.GPUOutOfMemoryError as error:
            raise DeviceError(where, "memory for the plan", _words(error), "a smaller batch_size; see `scellis plan`") from error
        except wgpu.GPUError as error:
            raise DeviceError(where, "a call that the driver accepts", _words(error)) from error
        except RuntimeError as error:
            if "lost" in str(error).lower():
                raise DeviceError(where, "a device that is still there", _words(error), "`scellis resume`") from error
            raise

    def _create(self, label: str, size: int, usage: int) -> Any:
        buffer = self.guard(self._handle.create_buffer, label=label, size=size, usage=usage, where=f"buffer {label} of {size} bytes")
        self._allocated += size
        return buffer

    def _pipeline(self, key: str) -> Any:
        if key not in self._pipelines:
            kernel = self.program.kernels[key]
            module = self.guard(self._handle.create_shader_module, label=key, code=kernel.wgsl, where=f"kernel {key}")
            self._pipelines[key] = self.guard(
                self._handle.create_compute_pipeline, label=key, layout="auto",
                compute={"module": module, "entry_point": "main"}, where=f"kernel {key}",
            )  # fmt: skip
        return self._pipelines[key]

    def _bind_group(self, command: Dispatch, layout: Any) -> Any:
        kernel = self.program.kernels[command.kernel]
        access: dict[str, str] = {}
        cap = self.device.limits.max_storage_buffer_binding_size
        entries: list[Any] = []
        for i, (binding, bind) in enumerate(zip(kernel.bindings, command.binds, strict=True)):
            if access.setdefault(bind.buffer, binding.access) != binding.access:
                raise DeviceError(f"kernel {command.kernel}", f"one access to buffer {bind.buffer}", "read and read_write in one dispatch")
            if bind.size > cap:
                raise DeviceError(f"kernel {command.kernel}", f"bindings of at most {cap} bytes", f"{binding.name} of {bind.size}")
            entries.append({"binding": i, "resource": {"buffer": self._buffers[bind.buffer], "offset": bind.offset, "size": bind.size}})
        if kernel.uses_scalars:
            block = self._buffers["scalars"]
            entries.append({"binding": len(entries), "resource": {"buffer": block, "offset": 0, "size": block.size}})
        return self.guard(self._handle.create_bind_group, label=command.kernel, layout=layout, entries=entries, where=f"kernel {command.kernel}")

    def prepare(self, sequence: str) -> Callable[[], None]:
        """Compile a sequence's pipelines and make its bind groups; returns what replays it."""
        if sequence not in self._replays:
            if sequence not in self.program.sequences:
                raise DeviceError("sequence", f"one of {', '.join(self.program.sequences)}", sequence, nearest(sequence, self.program.sequences))
            self._replays[sequence] = self._record(sequence)
        return self._replays[sequence]

    def _record(self, sequence: str) -> Callable[[], None]:
        steps: list[tuple[Any, ...]] = []
        passes: list[tuple[str, list[Any]]] = []
        layouts: dict[str, Any] = {}
        for command in self.program.sequences[sequence].commands:
            if isinstance(command, Dispatch):
                pipeline = self._pipeline(command.kernel)
                layout = layouts.setdefault(command.kernel, None) or pipeline.get_bind_group_layout(0)
                layouts[command.kernel] = layout
                group = self._bind_group(command, layout)
                self._keep += [pipeline, group]
                if not passes or passes[-1][0] != "compute":
                    passes.append(("compute", []))
                passes[-1][1].append((pipeline._internal, group._internal, *command.grid))
            elif isinstance(command, Copy):
                passes.append(("copy", [self._raw(command.src), command.src.offset, self._raw(command.dst), command.dst.offset, command.src.size]))
            elif isinstance(command, Clear):
                passes.append(("clear", [self._raw(command.dst), command.dst.offset, command.dst.size]))
        del steps
        return self._replay(passes)

    def _raw(self, range_: Range) -> Any:
        return self._buffers[range_.buffer]._internal

    def _replay(self, passes: list[tuple[str, list[Any]]]) -> Callable[[], None]:
        device, queue = self._handle._internal, self._queue._internal
        null = ffi.NULL
        slot = ffi.new("WGPUCommandBuffer[1]")
        set_pipeline, set_group, dispatch = (
            lib.wgpuComputePassEncoderSetPipeline,
            lib.wgpuComputePassEncoderSetBindGroup,
            lib.wgpuComputePassEncoderDispatchWorkgroups,
        )

        def replay() -> None:
            encoder = lib.wgpuDeviceCreateCommandEncoder(device, null)
            for kind, items in passes:
                if kind == "compute":
                    work = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
                    current = None
                    for pipeline, group, x, y, z in items:
                        if pipeline is not current:
                            set_pipeline(work, pipeline)
                            current = pipeline
                        set_group(work, 0, group, 0, null)
                        dispatch(work, x, y, z)
                    lib.wgpuComputePassEncoderEnd(work)
                    lib.wgpuComputePassEncoderRelease(work)
                elif kind == "copy":
                    lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, *items)
                else:
                    lib.wgpuCommandEncoderClearBuffer(encoder, *items)
            slot[0] = lib.wgpuCommandEncoderFinish(encoder, null)
            lib.wgpuQueueSubmit(queue, 1, slot)
            lib.wgpuCommandBufferRelease(slot[0])
            lib.wgpuCommandEncoderRelease(encoder)

        return replay

    # -- running ----------------------------------------------------------------------------------------------
    def run(self, sequence: str, inputs: Mapping[str, Any], scalars: Mapping[str, float | int]) -> None:
        """Send a sequence to the device; returns before it has finished."""
        replay = self.prepare(sequence)
        for name, tensor in self.program.sequences[sequence].inputs.items():
            if name not in inputs:
                raise DataError(f"sequence {sequence}", f"an input {name!r}", f"inputs {sorted(inputs)}")
            self.write(tensor, inputs[name])
        if self._block is not None:
            self._write_scalars(scalars)
        self.guard(replay, where=f"sequence {sequence}")

    def _write_scalars(self, scalars: Mapping[str, float | int]) -> None:
        block = self._block
        floats = block.view(np.float32)
        for name, (dtype, offset) in self.program.scalars.items():
            if name not in scalars:
                continue
            if dtype == "f32":
                floats[offset // 4] = scalars[name]
            else:
                block[offset // 4] = int(scalars[name]) & 0xFFFFFFFF
        raw = block.tobytes()
        if raw != self._last:
            self._queue.write_buffer(self._buffers["scalars"], 0, raw)
            self._last = raw

    def _tensor(self, name: str) -> Tensor:
        if name not in self.program.tensors:
            raise DataError("tensor", "a tensor of this program", repr(name), nearest(name, self.program.tensors))
        return self.program.tensors[name]

    def write(self, tensor: str, array: Any) -> None:
        """Set a tensor."""
        target = self._tensor(tensor)
        data = _encode(np.asarray(array), target)
        self.guard(self._queue.write_buffer, self._buffers[target.range.buffer], target.range.offset, data, where=f"tensor {tensor}")

    def read(self, tensor: str) -> Any:
        """A tensor's value."""
        target = self._tensor(tensor)
        return _decode(self._fetch(target.range), target)

    def _fetch(self, where: Range) -> Any:
        size = -(-where.size // 4) * 4
        out = np.empty(size, np.uint8)
        piece = self._piece()
        for start in range(0, size, piece):
            part = min(piece, size - start)
            staging = self._lend()
            self._copy_out([(where.buffer, where.offset + start, part)], staging)
            self.guard(staging.map_async("READ_NOSYNC").sync_wait)
            out[start : start + part] = np.frombuffer(staging.read_mapped(0, part), np.uint8)
            staging.unmap()
            self.recycle(staging)
        return out[: where.size]

    def _piece(self) -> int:
        return self.program.buffers["staging"].size // self._ring

    def _lend(self) -> Any:
        if self._staging:
            return self._staging.pop()
        if self._lent == self._ring:
            raise DeviceError("readback", f"at most {self._ring} under way", "one more", "waiting for an earlier result")
        self._lent += 1
        return self._create("staging", self._piece(), wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)

    def recycle(self, staging: Any) -> None:
        """Take a staging buffer back."""
        self._staging.append(staging)

    def _copy_out(self, parts: list[tuple[str, int, int]], staging: Any) -> None:
        encoder = self._handle.create_command_encoder(label="readback")
        at = 0
        for buffer, offset, size in parts:
            encoder.copy_buffer_to_buffer(self._buffers[buffer], offset, staging, at, size)
            at += size
        self._queue.submit([encoder.finish()])

    def start_readback(self, sequence: str) -> Readback:
        """Begin to fetch the outputs of the sequence that ran last."""
        outputs = self.program.sequences[sequence].outputs
        tensors = {name: self.program.tensors[t] for name, t in outputs.items()}
        staging = self._lend()
        self._copy_out([(t.range.buffer, t.range.offset, -(-t.range.size // 4) * 4) for t in tensors.values()], staging)
        return Readback(self, tensors, staging, staging.map_async("READ_NOSYNC"))

    def outputs(self, sequence: str) -> dict[str, Any]:
        """Outputs of the sequence that ran last."""
        return self.start_readback(sequence).result()

    def sync(self) -> None:
        """Wait until the device is idle."""
        first = next(b for b in self.program.buffers.values() if b.kind not in ("scalars", "staging"))
        self._fetch(Range(first.name, 0, 4))

    def allocated_bytes(self) -> int:
        """Bytes of all buffers made on the device."""
        return self._allocated

    def close(self) -> None:
        """Free buffers and the device."""
        for buffer in [*self._buffers.values(), *self._staging]:
            buffer.destroy()
        self._buffers.clear()
        self._staging.clear()
        self._replays.clear()
        self._keep.clear()
        self._pipelines.clear()
        self.device.close()

    def describe(self) -> dict[str, Any]:
        """Adapter, driver, limits."""
        return self.device.describe()


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:4])[:600]


def _encode(array: Any, tensor: Tensor) -> Any:
    if tuple(array.shape) != tensor.shape:
        raise DataError(f"tensor {tensor.name}", f"shape {list(tensor.shape)}", f"{list(array.shape)}")
    if tensor.dtype in ("i32", "u32") and array.dtype.kind in "iu" and array.dtype.itemsize > 4 and array.size:
        info = np.iinfo(_NUMPY[tensor.dtype])
        if array.min() < info.min or array.max() > info.max:
            raise DataError(f"tensor {tensor.name}", f"numbers from {info.min} to {info.max}", f"{array.min()} to {array.max()}")
    return np.ascontiguousarray(array, _NUMPY[tensor.dtype])


def _decode(raw: Any, tensor: Tensor) -> Any:
    found = raw.view(_NUMPY[tensor.dtype]).reshape(tensor.shape)
    return found != 0 if tensor.dtype == "bool" else found
