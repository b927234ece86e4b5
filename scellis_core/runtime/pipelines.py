"""Kernels to pipelines, dispatches to bind groups: each made once and shared by every sequence."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from scellis_core.lower.program import Dispatch, Kernel, Range, StepProgram
from scellis_core.runtime.native import Native

_LEAST = {
    "f32": 4, "i32": 4, "u32": 4, "f16": 4,
    "vec4<f32>": 16, "vec4<i32>": 16, "vec4<u32>": 16, "vec4<f16>": 8,
}  # fmt: skip
"""Bytes that a binding of this element type holds at least: stated in the layout, so that dispatches aren't checked."""

Signature = tuple[tuple[str, int], ...]


class Pipelines:
    """Pipelines, layouts and bind groups of a program on a device."""

    def __init__(self, native: Native, program: StepProgram, buffers: dict[str, Any]) -> None:
        self._native, self._program, self._buffers = native, program, buffers
        self._layouts: dict[Signature, tuple[Any, Any]] = {}
        self._pipelines: dict[str, Any] = {}
        self._groups: dict[tuple[Signature, tuple[Range, ...]], Any] = {}

    def compile(self, keys: Iterable[str]) -> None:
        """Compile the kernels that are not yet compiled, several at once: the C calls hold no Python lock.

        Raises:
            DeviceError: naming the kernel, with the driver's words.
        """
        kernels = [self._program.kernels[key] for key in dict.fromkeys(keys) if key not in self._pipelines]
        work = [(kernel.key, kernel.wgsl, self._layout(kernel)[1]) for kernel in kernels]
        threads = min(len(work), os.cpu_count() or 1, 16)
        if threads < 2:
            for key, code, layout in work:
                self._pipelines[key] = self._native.pipeline(key, code, layout)
            return
        with ThreadPoolExecutor(threads, "scellis-compile") as pool:
            running = [(key, pool.submit(self._native.pipeline, key, code, layout)) for key, code, layout in work]
            try:
                for key, future in running:
                    self._pipelines[key] = future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                for key, future in running:
                    if (
                        key not in self._pipelines
                        and future.done()
                        and not future.cancelled()
                        and not future.exception()
                    ):
                        self._pipelines[key] = future.result()
                raise

    def pipeline(self, key: str) -> Any:
        """The handle of a compiled kernel."""
        return self._pipelines[key]

    def group(self, kernel: Kernel, command: Dispatch) -> Any:
        """The bind group of a dispatch."""
        signature = self._signature(kernel)
        key = (signature, command.binds)
        if key not in self._groups:
            parts = [(self._buffers[bind.buffer], bind.offset, -(-bind.size // 4) * 4) for bind in command.binds]
            if kernel.uses_scalars:
                parts.append((self._buffers["scalars"], 0, self._program.buffers["scalars"].size))
            self._groups[key] = self._native.bind_group(kernel.key, self._layout(kernel)[0], parts)
        return self._groups[key]

    def _signature(self, kernel: Kernel) -> Signature:
        kinds = tuple((binding.access, _LEAST.get(binding.elem, 0)) for binding in kernel.bindings)
        return (*kinds, ("uniform", self._program.buffers["scalars"].size)) if kernel.uses_scalars else kinds

    def _layout(self, kernel: Kernel) -> tuple[Any, Any]:
        signature = self._signature(kernel)
        if signature not in self._layouts:
            self._layouts[signature] = self._native.layout(signature)
        return self._layouts[signature]

    def close(self) -> None:
        """Release everything."""
        release = self._native.release
        for group in self._groups.values():
            release("bind group", group)
        for pipeline in self._pipelines.values():
            release("pipeline", pipeline)
        for layout, outer in self._layouts.values():
            release("pipeline layout", outer)
            release("layout", layout)
        self._groups.clear()
        self._pipelines.clear()
        self._layouts.clear()
