# pyright: basic
"""wgpu-native's C functions as a step program needs them: handles in, handles out, every error one of ours.

The Python objects of wgpu cost several times what the C calls below them cost, so a device is opened through
wgpu and everything after that goes through its ``lib``. A handle made here is freed by :meth:`Native.release`.

What wgpu-native does on a lost device: creating, mapping, writing and finishing an encoder report it, but
*submitting* ends the process. So nothing is submitted whose encoder did not finish without an error. A loss that
only the driver knows of (a reset while work is under way) still ends the process at the next wait; the run is
then found ``interrupted`` and resumes from its checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import wgpu
from wgpu.backends import wgpu_native
from wgpu.backends.wgpu_native import extras
from wgpu.backends.wgpu_native._api import error_handler
from wgpu.backends.wgpu_native._helpers import get_wgpu_instance

from scellis_core.errors import DeviceError
from scellis_core.runtime.words import driver_words

ffi: Any = wgpu_native.ffi
lib: Any = wgpu_native.lib
"""The C functions; their names and arguments are those of webgpu.h."""

STORAGE = int(wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST)
UNIFORM = int(wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)
STAGING = int(wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
QUERIES = int(wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)

_NULL = ffi.NULL
_NO_MEMORY = re.compile(r"out of memory|not enough memory", re.IGNORECASE)
_RELEASE = {
    "buffer": lib.wgpuBufferRelease,
    "layout": lib.wgpuBindGroupLayoutRelease,
    "pipeline layout": lib.wgpuPipelineLayoutRelease,
    "module": lib.wgpuShaderModuleRelease,
    "pipeline": lib.wgpuComputePipelineRelease,
    "bind group": lib.wgpuBindGroupRelease,
    "query set": lib.wgpuQuerySetRelease,
}
_BINDING = {
    "read": lib.WGPUBufferBindingType_ReadOnlyStorage,
    "read_write": lib.WGPUBufferBindingType_Storage,
    "uniform": lib.WGPUBufferBindingType_Uniform,
}
_HUB = (
    "devices",
    "buffers",
    "shaderModules",
    "bindGroupLayouts",
    "pipelineLayouts",
    "computePipelines",
    "bindGroups",
    "commandBuffers",
    "querySets",
)


class DeviceGoneError(DeviceError):
    """The device was lost or closed: no command of ours is to blame."""


class _Quiet(logging.Filter):
    """Keeps wgpu's log lines for our own errors; they reach the terminal only under SCELLIS_DEBUG."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "device was lost" in text:
            self.lost = text
        return bool(os.environ.get("SCELLIS_DEBUG"))


QUIET = _Quiet()
logging.getLogger("wgpu").addFilter(QUIET)


@contextlib.contextmanager
def quiet_loader() -> Iterator[None]:
    """Enumerate without Mesa's device-selection layer, which writes to stderr where there is no display.

    The layer only reorders adapters, and ours are ranked afterwards.
    """
    name = "NODEVICE_SELECT"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def choose_backends() -> None:
    """Leave OpenGL out of the instance, where wgpu has not made one yet: its compute is not enough here."""
    with contextlib.suppress(RuntimeError):
        extras.set_instance_extras(backends=["Vulkan", "Metal", "DX12"])


def live_objects() -> dict[str, int]:
    """How many objects of each kind wgpu-native holds for its users, over all devices of the process."""
    report = ffi.new("WGPUGlobalReport *")
    lib.wgpuGenerateReport(get_wgpu_instance(), report)
    return {name: int(getattr(report.hub, name).numKeptFromUser) for name in _HUB}


def translate(kind: str, message: str, where: str, expected: str = "a call that the driver accepts") -> DeviceError:
    """The error of ours for one of wgpu's.

    Args:
        kind: as wgpu names it: ``Validation``, ``OutOfMemory``, ``Internal`` ...
        message: the driver's words.
        where: for the error, such as ``kernel double#1f..``.
        expected: what should have been there, for errors that are neither loss nor lack of memory.
    """
    words = driver_words(message)
    if "device is lost" in message or "DeviceLost" in message:
        if QUIET.lost:
            words += " | " + driver_words(QUIET.lost)
        return DeviceGoneError(
            where, "a device that is still there", words, "`scellis resume`, after a look at the driver's log"
        )
    if kind == "OutOfMemory" or _NO_MEMORY.search(message):
        return DeviceError(
            where, "room in the device's memory", words, "a smaller batch_size; `scellis plan` prices it"
        )
    return DeviceError(where, expected, words)


class Text:
    """A string for one C call; keep the object until the call has returned."""

    def __init__(self, text: str) -> None:
        raw = text.encode()
        self._data = ffi.new("char[]", raw)
        self.view = ffi.new("WGPUStringView *", {"data": self._data, "length": len(raw)})[0]


class Native:
    """The C handles of an open device.

    Attributes:
        device, queue: C handles.
        closed: set when the device was closed; nothing is sent after that.
    """

    def __init__(self, device: Any) -> None:
        self._owner: Any = device
        self.device = device._internal
        self.queue = device.queue._internal
        self.closed = False
        self._one = ffi.new("WGPUCommandBuffer[1]")
        self._index = ffi.new("WGPUSubmissionIndex *")

    # -- errors -----------------------------------------------------------------------------------------------
    def call(self, where: str, function: Any, *args: Any, expected: str = "a call that the driver accepts") -> Any:
        """Call a C function.

        Raises:
            DeviceError: what it reported, at ``where``.
        """
        self._open(where)
        error_handler.capture("scellis")
        try:
            result = function(*args)
        finally:
            error = error_handler.release("scellis")
        if error is not None:
            raise translate(str(error[0]), error[1], where, expected)
        return result

    def _open(self, where: str) -> None:
        if self.closed:
            raise DeviceGoneError(where, "an open device", "one that was closed")

    def _create(
        self, kind: str, where: str, function: Any, *args: Any, expected: str = "a call that the driver accepts"
    ) -> Any:
        """As :meth:`call`; what a failed call returned (wgpu gives a stand-in) is released."""
        made: list[Any] = []

        def create() -> Any:
            made.append(function(*args))
            return made[0]

        try:
            return self.call(where, create, expected=expected)
        except DeviceError:
            for handle in made:
                if handle != _NULL:
                    _RELEASE[kind](handle)
            raise

    # -- objects ----------------------------------------------------------------------------------------------
    def buffer(self, label: str, size: int, usage: int) -> Any:
        """A buffer of ``size`` bytes, zeros."""
        text = Text(label)
        what = ffi.new("WGPUBufferDescriptor *", {"label": text.view, "usage": usage, "size": size})
        return self._create("buffer", f"buffer {label} of {size} bytes", lib.wgpuDeviceCreateBuffer, self.device, what)

    def destroy_buffer(self, handle: Any) -> None:
        """Give a buffer's memory back now and release the handle."""
        lib.wgpuBufferDestroy(handle)
        lib.wgpuBufferRelease(handle)

    def layout(self, kinds: Sequence[tuple[str, int]]) -> tuple[Any, Any]:
        """(bind group layout, pipeline layout); a binding is (``read``, ``read_write`` or ``uniform``, least bytes)."""
        entries = ffi.new("WGPUBindGroupLayoutEntry[]", len(kinds)) if kinds else _NULL
        for i, (kind, least) in enumerate(kinds):
            entries[i].binding = i
            entries[i].visibility = lib.WGPUShaderStage_Compute
            entries[i].buffer.type = _BINDING[kind]
            entries[i].buffer.minBindingSize = least
        text = Text("scellis")
        what = ffi.new(
            "WGPUBindGroupLayoutDescriptor *", {"label": text.view, "entryCount": len(kinds), "entries": entries}
        )
        layout = self._create("layout", "bind group layout", lib.wgpuDeviceCreateBindGroupLayout, self.device, what)
        one = ffi.new("WGPUBindGroupLayout[1]", [layout])
        outer = ffi.new(
            "WGPUPipelineLayoutDescriptor *", {"label": text.view, "bindGroupLayoutCount": 1, "bindGroupLayouts": one}
        )
        try:
            return layout, self._create(
                "pipeline layout", "pipeline layout", lib.wgpuDeviceCreatePipelineLayout, self.device, outer
            )
        except DeviceError:
            self.release("layout", layout)
            raise

    def pipeline(self, label: str, code: str, layout: Any) -> Any:
        """A compute pipeline from WGSL whose entry point is ``main``.

        wgpu's run-time checks stay: on an H200 matmuls without them were no faster.
        """
        text, source, entry = Text(label), Text(code), Text("main")
        wgsl = ffi.new("WGPUShaderSourceWGSL *", {"code": source.view})
        wgsl.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        what = ffi.new("WGPUShaderModuleDescriptor *", {"label": text.view})
        what.nextInChain = ffi.addressof(wgsl, "chain")
        where, expected = f"kernel {label}", "WGSL that the driver compiles"
        module = self._create("module", where, lib.wgpuDeviceCreateShaderModule, self.device, what, expected=expected)
        try:
            made = ffi.new("WGPUComputePipelineDescriptor *", {"label": text.view, "layout": layout})
            made.compute.module = module
            made.compute.entryPoint = entry.view
            return self._create(
                "pipeline", where, lib.wgpuDeviceCreateComputePipeline, self.device, made, expected=expected
            )
        finally:
            lib.wgpuShaderModuleRelease(module)

    def bind_group(self, label: str, layout: Any, parts: Sequence[tuple[Any, int, int]]) -> Any:
        """A bind group of (buffer, offset, size) for bindings 0.. ."""
        entries = ffi.new("WGPUBindGroupEntry[]", len(parts)) if parts else _NULL
        for i, (buffer, offset, size) in enumerate(parts):
            entry = entries[i]
            entry.binding, entry.buffer, entry.offset, entry.size = i, buffer, offset, size
        text = Text(label)
        what = ffi.new(
            "WGPUBindGroupDescriptor *",
            {"label": text.view, "layout": layout, "entryCount": len(parts), "entries": entries},
        )
        return self._create("bind group", f"kernel {label}", lib.wgpuDeviceCreateBindGroup, self.device, what)

    def query_set(self, count: int) -> Any:
        """Room for that many timestamps."""
        text = Text("timestamps")
        what = ffi.new(
            "WGPUQuerySetDescriptor *", {"label": text.view, "type": lib.WGPUQueryType_Timestamp, "count": count}
        )
        return self._create("query set", "timestamps", lib.wgpuDeviceCreateQuerySet, self.device, what)

    def release(self, kind: str, handle: Any) -> None:
        """Give a handle back; ``kind`` is ``buffer``, ``pipeline``, ``bind group`` ..."""
        _RELEASE[kind](handle)

    # -- work -------------------------------------------------------------------------------------------------
    def write(self, where: str, buffer: Any, offset: int, data: Any) -> None:
        """Queue bytes (a contiguous buffer of a multiple of 4 bytes) for a buffer; they are copied at once."""
        raw = ffi.from_buffer(data)
        self.call(where, lib.wgpuQueueWriteBuffer, self.queue, buffer, offset, raw, len(raw))

    def alive(self, where: str, buffer: Any) -> None:
        """Refuse to go on with a lost device; ``buffer`` is any of its buffers that may be copied to.

        Raises:
            DeviceError: if it is gone.
        """
        self.call(where, lib.wgpuQueueWriteBuffer, self.queue, buffer, 0, self._one, 0)

    def encoder(self) -> Any:
        """A command encoder; :meth:`submit` or :meth:`drop` ends it.

        Raises:
            DeviceGoneError: if the device was closed.
        """
        self._open("device")
        return lib.wgpuDeviceCreateCommandEncoder(self.device, _NULL)

    def drop(self, encoder: Any) -> None:
        """Give up an encoder."""
        lib.wgpuCommandEncoderRelease(encoder)

    def finish(self, where: str, encoder: Any) -> Any:
        """End an encoder; the command buffer, to be sent or released.

        Raises:
            DeviceError: what was wrong with its commands.
        """
        commands = None
        error_handler.capture("scellis")
        try:
            commands = lib.wgpuCommandEncoderFinish(encoder, _NULL)
        finally:
            error = error_handler.release("scellis")
            lib.wgpuCommandEncoderRelease(encoder)
        if error is not None:
            lib.wgpuCommandBufferRelease(commands)
            raise translate(str(error[0]), error[1], where)
        return commands

    def submit(self, where: str, encoder: Any) -> int:
        """End an encoder and send it; nothing is sent where its commands are wrong.

        Returns:
            The index of the submission, for :meth:`wait`.

        Raises:
            DeviceError: what was wrong with its commands.
        """
        commands = self.finish(where, encoder)
        try:
            self._one[0] = commands
            return int(self.call(where, lib.wgpuQueueSubmitForIndex, self.queue, 1, self._one))
        finally:
            lib.wgpuCommandBufferRelease(commands)

    def check(self, where: str, encoder: Any) -> None:
        """End an encoder and send nothing, to learn which of a refused sequence's commands is wrong.

        wgpu-native keeps a command buffer that is never sent, so this is for that purpose only.

        Raises:
            DeviceError: what was wrong with its commands.
        """
        lib.wgpuCommandBufferRelease(self.finish(where, encoder))

    def flush(self, where: str) -> int:
        """Send what was written so far; returns the index of the submission."""
        return self.submit(where, self.encoder())

    def wait(self, index: int | None = None) -> None:
        """Wait for a submission (None: for all), and let the callbacks of finished mappings run."""
        if self.closed:
            return
        if index is None:
            lib.wgpuDevicePoll(self.device, 1, _NULL)
        else:
            self._index[0] = index
            lib.wgpuDevicePoll(self.device, 1, self._index)

    def idle(self) -> bool:
        """Whether everything sent has run."""
        return self.closed or bool(int(lib.wgpuDevicePoll(self.device, 0, _NULL)) & 0xFF)

    def timestamp_period(self) -> float:
        """Nanoseconds a tick."""
        return float(lib.wgpuQueueGetTimestampPeriod(self.queue))

    def close(self) -> None:
        """Destroy the device; handles of its objects may still be released."""
        if not self.closed:
            self.wait()
            self.closed = True
            self._owner.destroy()
            self._owner = None
