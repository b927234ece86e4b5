"""Bytes back from the device: a ring of staging buffers, each lent to one readback at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scellis_core.errors import DeviceError
from scellis_core.runtime.native import STAGING, Native, ffi, lib
from scellis_core.runtime.words import driver_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

Part = tuple[Any, int, int]
"""(buffer handle, offset, bytes) to copy out; the last two multiples of 4."""

PIECE = 4 * 1024 * 1024
"""Bytes of a staging buffer where the program lists none."""


@ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
def _mapped(status: int, message: Any, data: Any, _: Any) -> None:
    slot: Slot = ffi.from_handle(data)
    slot.status = int(status)
    if status != lib.WGPUMapAsyncStatus_Success and message.data and 0 < message.length < 1 << 20:
        slot.message = ffi.string(message.data, message.length).decode(errors="replace")


class Slot:
    """One staging buffer.

    Attributes:
        status: of its mapping: None while under way, else as wgpu-native gives it.
        message: what the driver said where the mapping failed.
    """

    def __init__(self, native: Native, label: str, size: int) -> None:
        self.native, self.size = native, size
        self.buffer = native.buffer(label, size, STAGING)
        self.status: int | None = None
        self.message = ""
        self._index = 0
        self._used = 0
        self._self = ffi.new_handle(self)
        self._info = ffi.new(
            "WGPUBufferMapCallbackInfo *",
            {"mode": lib.WGPUCallbackMode_AllowProcessEvents, "callback": _mapped, "userdata1": self._self},
        )

    def begin(self, where: str, parts: Sequence[Part]) -> None:
        """Send copies of the parts, one after the other, and ask for the mapping."""
        native, at = self.native, 0
        encoder = native.encoder()
        for buffer, offset, size in parts:
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer, offset, self.buffer, at, size)
            at += size
        self._index = native.submit(where, encoder)
        self.status, self.message, self._used = None, "", at
        native.call(where, lib.wgpuBufferMapAsync, self.buffer, lib.WGPUMapMode_Read, 0, at, self._info[0])

    def finish(self, where: str) -> NDArray[np.uint8]:
        """Wait for the copies of :meth:`begin`; their bytes, owned by the caller."""
        native = self.native
        native.alive(where, self.buffer)
        if self.status is None:
            native.wait(self._index)
        if self.status is None:
            native.wait()
        if self.status != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError(
                where, "bytes from the device", driver_words(self.message) or "no answer", "`scellis resume`"
            )
        pointer = native.call(where, lib.wgpuBufferGetConstMappedRange, self.buffer, 0, self._used)
        found = np.frombuffer(ffi.buffer(pointer, self._used), np.uint8).copy()
        lib.wgpuBufferUnmap(self.buffer)
        return found

    def close(self) -> None:
        """Free the buffer."""
        self.native.destroy_buffer(self.buffer)


class Pending:
    """A readback under way; the ring may finish it early to have its buffer back.

    Attributes:
        slot: the staging buffer that was lent.
    """

    def __init__(self, ring: Ring, slot: Slot, where: str) -> None:
        self.slot = slot
        self._ring, self._where = ring, where
        self._bytes: NDArray[np.uint8] | None = None

    def bytes(self) -> NDArray[np.uint8]:
        """Wait, once; the copied bytes."""
        if self._bytes is None:
            self._bytes = self.slot.finish(self._where)
            self._ring.give_back(self)
        return self._bytes


class Ring:
    """Staging buffers.

    Args:
        native: the device.
        size: bytes of all of them; 0 where the program lists none: then they are made when first needed.
        count: how many.
        allocated: called with the bytes of each buffer made.
    """

    def __init__(self, native: Native, size: int, count: int, allocated: Callable[[int], None]) -> None:
        self._native, self._count, self._allocated = native, count, allocated
        self._free: list[Slot] = []
        self._lent: deque[Pending] = deque()
        self._made = 0
        self.piece = size // count // 4 * 4 if size else PIECE
        if size:
            self._free = [self._make(self.piece) for _ in range(count - 1)]
            self._free.append(self._make(size - self.piece * (count - 1)))

    def _make(self, size: int) -> Slot:
        slot = Slot(self._native, f"staging.{self._made}", size)
        self._made += 1
        self._allocated(size)
        return slot

    def start(self, where: str, parts: Sequence[Part]) -> Pending:
        """Begin to read parts that fit one piece; where every buffer is lent, the oldest readback is finished first."""
        if not self._free and self._made < self._count:
            self._free.append(self._make(self.piece))
        if not self._free:
            self._lent[0].bytes()
        slot = self._free.pop()
        try:
            slot.begin(where, parts)
        except BaseException:
            self._free.append(slot)
            raise
        pending = Pending(self, slot, where)
        self._lent.append(pending)
        return pending

    def give_back(self, pending: Pending) -> None:
        """A readback is done with its buffer."""
        self._lent.remove(pending)
        self._free.append(pending.slot)

    def fetch(self, where: str, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Read a range of any size, piece by piece, the next on its way while one is copied."""
        out = np.empty(size, np.uint8)
        ahead: deque[tuple[int, Pending]] = deque()
        for start in range(0, size, self.piece):
            part = min(self.piece, size - start)
            ahead.append((start, self.start(where, [(buffer, offset + start, part)])))
            if len(ahead) == 2:
                _land(out, *ahead.popleft())
        while ahead:
            _land(out, *ahead.popleft())
        return out

    def close(self) -> None:
        """Free every buffer; results not fetched yet are lost."""
        slots = [*self._free, *(p.slot for p in self._lent)]
        self._free.clear()
        self._lent.clear()
        for slot in slots:
            slot.close()


def _land(out: NDArray[np.uint8], start: int, pending: Pending) -> None:
    found = pending.bytes()
    out[start : start + len(found)] = found
