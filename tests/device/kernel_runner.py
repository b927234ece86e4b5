"""Runs the calls of a kernel family on a device: plain wgpu, so that a family is tested without the runtime."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from scellis_core.lower.call import Call
from scellis_core.lower.program import Kernel, Limits, Range

WEBGPU = Limits(features=("shader-f16",))
"""What a tab may count on."""
MIB = WEBGPU.with_(max_storage_buffer_binding_size=1 << 20)
"""Bindings of 1 MiB: tensors above that are windowed."""
TYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "u32": np.uint32, "bool": np.uint32}


@functools.cache
def device(binding: int):
    """A device asked for with WebGPU's default limits and bindings of that many bytes."""
    wgpu = pytest.importorskip("wgpu")
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except RuntimeError as error:
        pytest.skip(f"no adapter: {error}")
    features = {"shader-f16"} & set(adapter.features)
    limits = {
        "max-storage-buffer-binding-size": binding,
        "max-storage-buffers-per-shader-stage": WEBGPU.max_storage_buffers_per_shader_stage,
        "max-compute-workgroup-storage-size": WEBGPU.max_compute_workgroup_storage_size,
        "max-compute-invocations-per-workgroup": WEBGPU.max_compute_invocations_per_workgroup,
    }
    return adapter.request_device_sync(required_features=features, required_limits=limits)


def need_f16(limits: Limits) -> None:
    """Skip where the device has no 16-bit floats."""
    if "shader-f16" not in device(limits.max_storage_buffer_binding_size).features:
        pytest.skip("the adapter has no shader-f16")


@functools.lru_cache(maxsize=2048)
def pipeline(kernel: Kernel, binding: int):
    """A compute pipeline and its bind group layout, which names every declared binding."""
    import wgpu

    dev = device(binding)
    kinds = [
        wgpu.BufferBindingType.storage if b.access == "read_write" else wgpu.BufferBindingType.read_only_storage
        for b in kernel.bindings
    ] + [wgpu.BufferBindingType.uniform] * kernel.uses_scalars
    layout = dev.create_bind_group_layout(
        entries=[
            {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for i, kind in enumerate(kinds)
        ]
    )
    module = dev.create_shader_module(code=kernel.wgsl, label=kernel.key)
    made = dev.create_compute_pipeline(
        layout=dev.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={"module": module, "entry_point": "main"},
    )
    return made, layout


def run(
    calls: Sequence[Call], arrays: Mapping[str, np.ndarray], limits: Limits, scalars: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Upload ``arrays`` by operand key, run the calls in order, and read back every operand that was written.

    ``scalars`` is the scalars block, for kernels that use it.
    """
    import wgpu

    dev = device(limits.max_storage_buffer_binding_size)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    buffers, ranges, made = {}, {}, {}
    for key, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        data += bytes(-len(data) % 4)
        buffers[key] = dev.create_buffer_with_data(data=data, usage=usage)
        ranges[key] = Range(key, 0, array.nbytes)
        made[key] = (array.dtype, array.shape)
    for call in calls:
        for key, dtype, numel in call.scratch:
            kind = np.dtype(TYPES[dtype])
            buffers[key] = dev.create_buffer(size=-(-numel * kind.itemsize // 4) * 4, usage=usage)
            ranges[key] = Range(key, 0, numel * kind.itemsize)
            made[key] = (kind, (numel,))
    encoder = dev.create_command_encoder()
    for call in calls:
        made_pipeline, layout = pipeline(call.kernel, limits.max_storage_buffer_binding_size)
        entries = [
            {"binding": i, "resource": {"buffer": buffers[r.buffer], "offset": r.offset, "size": r.size}}
            for i, r in enumerate(call.binds(ranges, limits))
        ]
        if call.kernel.uses_scalars:
            block = dev.create_buffer_with_data(data=np.asarray(scalars), usage=wgpu.BufferUsage.UNIFORM)
            entries.append({"binding": len(entries), "resource": {"buffer": block, "offset": 0, "size": block.size}})
        group = dev.create_bind_group(layout=layout, entries=entries)
        step = encoder.begin_compute_pass()
        step.set_pipeline(made_pipeline)
        step.set_bind_group(0, group)
        step.dispatch_workgroups(*call.grid)
        step.end()
    dev.queue.submit([encoder.finish()])
    out: dict[str, np.ndarray] = {}
    for key in {k for call in calls for k in call.writes}:
        dtype, shape = made[key]
        raw = np.frombuffer(dev.queue.read_buffer(buffers[key]), dtype=dtype)
        out[key] = raw[: int(np.prod(shape))].reshape(shape).copy()
    return out
