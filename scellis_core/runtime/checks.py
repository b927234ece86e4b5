"""What a step program must be before a device sees it: within the device's limits, and consistent in itself."""

from __future__ import annotations

from scellis_core.errors import DeviceError
from scellis_core.lower.program import Clear, Copy, Dispatch, Kernel, Limits, Range, StepProgram

_NEED = {
    "enable f16": ("shader-f16", "precision: { policy: f32 }"),
    "subgroup": ("subgroup", "compiling the run for this device"),
}
"""Text in a kernel -> (the feature it needs, what to do without it)."""

_COMPARED = (
    "max_storage_buffer_binding_size",
    "max_buffer_size",
    "max_storage_buffers_per_shader_stage",
    "max_compute_invocations_per_workgroup",
    "max_compute_workgroup_size_x",
    "max_compute_workgroup_storage_size",
    "max_compute_workgroups_per_dimension",
)


def check_limits(program: StepProgram, limits: Limits, device: str) -> None:
    """Refuse a program that was made for more than a device allows.

    Raises:
        DeviceError: naming the limit and both numbers, or the missing feature and what to do.
    """
    where = f"device {device}"
    for name in _COMPARED:
        needed, has = getattr(program.limits, name), getattr(limits, name)
        if needed > has:
            raise DeviceError(where, f"{name} of at least {needed}", str(has), "compiling the run for this device")
    needed, has = program.limits.min_storage_buffer_offset_alignment, limits.min_storage_buffer_offset_alignment
    if has > needed:
        raise DeviceError(
            where,
            f"min_storage_buffer_offset_alignment of at most {needed}",
            str(has),
            "compiling the run for this device",
        )
    for kernel in program.kernels.values():
        for text, (feature, remedy) in _NEED.items():
            if text in kernel.wgsl and feature not in limits.features:
                raise DeviceError(where, f"the feature {feature} (kernel {kernel.key})", "a device without it", remedy)
    for buffer in program.buffers.values():
        if buffer.size > limits.max_buffer_size:
            raise DeviceError(
                f"buffer {buffer.name}",
                f"at most {limits.max_buffer_size} bytes (max_buffer_size of {device})",
                str(buffer.size),
                "a smaller batch_size or model",
            )
        if buffer.size <= 0 or buffer.size % 4:
            raise DeviceError(f"buffer {buffer.name}", "a positive multiple of 4 bytes", str(buffer.size))


def check_dispatch(program: StepProgram, command: Dispatch, limits: Limits) -> Kernel:
    """The kernel of a dispatch, once its bindings and grid are right.

    Raises:
        DeviceError: naming the kernel; the compiler made a wrong program.
    """
    where = f"kernel {command.kernel}"
    kernel = program.kernels.get(command.kernel)
    if kernel is None:
        raise DeviceError(where, "a kernel of this program", "none of that name")
    if len(command.binds) != len(kernel.bindings):
        raise DeviceError(where, f"{len(kernel.bindings)} bindings", str(len(command.binds)))
    access: dict[str, str] = {}
    for binding, bind in zip(kernel.bindings, command.binds, strict=True):
        check_range(program, bind, where)
        if access.setdefault(bind.buffer, binding.access) != binding.access:
            raise DeviceError(
                where, f"one kind of access to buffer {bind.buffer}", "read and read_write in one dispatch"
            )
        cap = limits.max_storage_buffer_binding_size
        if bind.size > cap:
            raise DeviceError(where, f"bindings of at most {cap} bytes", f"{binding.name} of {bind.size}")
        if bind.offset % limits.min_storage_buffer_offset_alignment:
            least = limits.min_storage_buffer_offset_alignment
            raise DeviceError(where, f"offsets that are multiples of {least}", f"{binding.name} at {bind.offset}")
    if kernel.uses_scalars and "scalars" not in program.buffers:
        raise DeviceError(where, "a buffer named scalars", "none")
    top = limits.max_compute_workgroups_per_dimension
    if not all(0 < n <= top for n in command.grid):
        raise DeviceError(where, f"a grid of 1 to {top} workgroups a dimension", str(list(command.grid)))
    return kernel


def check_copy(program: StepProgram, command: Copy | Clear, where: str) -> None:
    """Refuse a copy or clear that WebGPU does not allow.

    Raises:
        DeviceError: the compiler made a wrong program.
    """
    for part in (command.src, command.dst) if isinstance(command, Copy) else (command.dst,):
        check_range(program, part, where)
        if part.offset % 4 or part.size % 4:
            raise DeviceError(where, "offsets and sizes that are multiples of 4", f"{part.offset} and {part.size}")
    if isinstance(command, Copy):
        if command.src.buffer == command.dst.buffer:
            raise DeviceError(where, "two buffers in a copy", f"{command.src.buffer} onto itself")
        if command.src.size != command.dst.size:
            raise DeviceError(where, "one size in a copy", f"{command.src.size} and {command.dst.size}")


def check_range(program: StepProgram, part: Range, where: str) -> None:
    """Refuse a range outside its buffer.

    Raises:
        DeviceError: the compiler made a wrong program.
    """
    buffer = program.buffers.get(part.buffer)
    if buffer is None:
        raise DeviceError(where, "a buffer of this program", repr(part.buffer))
    if part.offset < 0 or part.size <= 0 or part.offset + part.size > buffer.size:
        got = f"{part.size} bytes at {part.offset}"
        raise DeviceError(where, f"a range inside buffer {part.buffer} of {buffer.size} bytes", got)
