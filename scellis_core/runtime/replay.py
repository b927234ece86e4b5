"""Replaying a sequence: its commands as a flat list of C handles, walked once a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scellis_core.errors import DeviceError
from scellis_core.lower.program import Clear, Copy, Dispatch
from scellis_core.runtime.native import QUERIES, DeviceGoneError, Native, ffi, lib
from scellis_core.runtime.staging import Slot

Step = tuple[Any, ...]
"""A dispatch: (pipeline, bind group, x, y, z); a copy or clear: (C function, its arguments after the encoder ...)."""

_NULL = ffi.NULL
_QUERIES = 4096
"""Timestamps a query set may hold."""


@dataclass(frozen=True)
class Timing:
    """What one dispatch took.

    Attributes:
        kernel: its key.
        op, path: what it computes, for people.
        ns: nanoseconds on the device.
    """

    kernel: str
    op: str
    path: str
    ns: int


@dataclass(frozen=True)
class Recorded:
    """A command and its handles."""

    command: Dispatch | Copy | Clear
    step: Step


def describe(command: Dispatch | Copy | Clear) -> str:
    """A command for an error message."""
    if isinstance(command, Dispatch):
        tail = f" ({command.op} at {command.path})" if command.path else f" ({command.op})" if command.op else ""
        return f"kernel {command.kernel}{tail}"
    if isinstance(command, Copy):
        return f"copy of {command.src.buffer} to {command.dst.buffer}"
    return f"clear of {command.dst.buffer}"


def copy_step(src: Any, src_offset: int, dst: Any, dst_offset: int, size: int) -> Step:
    """The step of a copy."""
    return (lib.wgpuCommandEncoderCopyBufferToBuffer, src, src_offset, dst, dst_offset, size)


def clear_step(dst: Any, offset: int, size: int) -> Step:
    """The step of a clear."""
    return (lib.wgpuCommandEncoderClearBuffer, dst, offset, size)


class Replay:
    """A sequence made ready.

    Args:
        native: the device.
        where: the sequence, for errors.
        recorded: its commands in order.
    """

    def __init__(self, native: Native, where: str, recorded: Sequence[Recorded]) -> None:
        self._native, self._where, self._recorded = native, where, recorded
        self._passes = _passes(recorded)

    def submit(self) -> int:
        """Encode everything and send it; returns the index of the submission.

        Raises:
            DeviceError: naming the kernel where the driver refuses one.
        """
        native = self._native
        encoder = native.encoder()
        try:
            for passes in self._passes:
                passes(encoder)
        except BaseException:
            native.drop(encoder)
            raise
        try:
            return native.submit(self._where, encoder)
        except DeviceGoneError:
            raise
        except DeviceError as error:
            raise self._blame(error) from error

    def _blame(self, error: DeviceError) -> DeviceError:
        """The same error at the first command that the driver refuses when alone."""
        for recorded in self._recorded:
            encoder = self._native.encoder()
            _passes([recorded])[0](encoder)
            where = f"{self._where}: {describe(recorded.command)}"
            try:
                self._native.check(where, encoder)
            except DeviceError as found:
                return found
        return error

    def profile(self, period: float) -> list[Timing]:
        """Run once with a compute pass and two timestamps for each dispatch."""
        dispatches = [r.command for r in self._recorded if isinstance(r.command, Dispatch)]
        ticks: list[int] = []
        batch: list[Recorded] = []
        room = _QUERIES // 2
        for recorded in self._recorded:
            batch.append(recorded)
            room -= isinstance(recorded.command, Dispatch)
            if room == 0:
                ticks += self._timed(batch)
                batch, room = [], _QUERIES // 2
        if batch:
            ticks += self._timed(batch)
        return [Timing(d.kernel, d.op, d.path, round(n * period)) for d, n in zip(dispatches, ticks, strict=True)]

    def _timed(self, batch: Sequence[Recorded]) -> list[int]:
        native, where = self._native, f"{self._where}: timestamps"
        count = 2 * sum(isinstance(r.command, Dispatch) for r in batch)
        made: list[Callable[[], None]] = []
        try:
            queries = native.query_set(max(count, 2))
            made.append(lambda: native.release("query set", queries))
            resolved = native.buffer("timestamps", max(8 * count, 256), QUERIES)
            made.append(lambda: native.destroy_buffer(resolved))
            slot = Slot(native, "timestamps.staging", max(8 * count, 256))
            made.append(slot.close)
            encoder, at = native.encoder(), 0
            for recorded in batch:
                if isinstance(recorded.command, Dispatch):
                    writes = ffi.new("WGPUPassTimestampWrites *", {"querySet": queries})
                    writes.beginningOfPassWriteIndex, writes.endOfPassWriteIndex = at, at + 1
                    what = ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": writes})
                    _encode_pass(encoder, [recorded.step], what)
                    at += 2
                else:
                    _encode_other(encoder, recorded.step)
            if count:
                lib.wgpuCommandEncoderResolveQuerySet(encoder, queries, 0, count, resolved, 0)
            native.wait(native.submit(where, encoder))
            if not count:
                return []
            slot.begin(where, [(resolved, 0, 8 * count)])
            stamps = slot.finish(where).view(np.uint64).astype(np.int64).reshape(-1, 2)
            return [int(n) for n in stamps[:, 1] - stamps[:, 0]]
        finally:
            for undo in reversed(made):
                undo()


def _passes(recorded: Sequence[Recorded]) -> list[Callable[[Any], None]]:
    """Functions that encode the commands: one compute pass for each run of dispatches."""
    found: list[Callable[[Any], None]] = []
    run: list[tuple[Any, Any, int, int, int]] = []
    pipeline = group = None
    for item in recorded:
        if isinstance(item.command, Dispatch):
            new_pipeline, new_group, x, y, z = item.step
            run.append(
                (
                    new_pipeline if new_pipeline is not pipeline else None,
                    new_group if new_group is not group else None,
                    x, y, z,
                )
            )  # fmt: skip
            pipeline, group = new_pipeline, new_group
            continue
        if run:
            found.append(_pass_encoder(run))
            run, pipeline, group = [], None, None
        found.append(_other_encoder(item.step))
    if run:
        found.append(_pass_encoder(run))
    return found


def _pass_encoder(run: Sequence[Step]) -> Callable[[Any], None]:
    return lambda encoder: _encode_pass(encoder, run, _NULL)


def _other_encoder(step: Step) -> Callable[[Any], None]:
    return lambda encoder: _encode_other(encoder, step)


def _encode_pass(encoder: Any, run: Sequence[Step], descriptor: Any) -> None:
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_group = lib.wgpuComputePassEncoderSetBindGroup
    dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    null = _NULL
    work = lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
    try:
        for pipeline, group, x, y, z in run:
            if pipeline is not None:
                set_pipeline(work, pipeline)
            if group is not None:
                set_group(work, 0, group, 0, null)
            dispatch(work, x, y, z)
        lib.wgpuComputePassEncoderEnd(work)
    finally:
        lib.wgpuComputePassEncoderRelease(work)


def _encode_other(encoder: Any, step: Step) -> None:
    function, *arguments = step
    function(encoder, *arguments)
