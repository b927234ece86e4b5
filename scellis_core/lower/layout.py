"""Where persistent tensors live: slabs of 256-byte aligned ranges, packed up to the binding cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scellis_core.errors import DeviceError
from scellis_core.ir import DTYPES, Type
from scellis_core.lower.program import ALIGN, Buffer, BufferKind, Limits, Range, StepProgram, Tensor


def align(nbytes: int) -> int:
    """The next multiple of the tensor alignment."""
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True)
class Slab:
    """Tensors packed into one buffer: ``offsets`` in bytes by name, ``size`` in bytes."""

    offsets: Mapping[str, int]
    size: int


@dataclass(frozen=True)
class Chunk:
    """A part of a slab that one binding holds: ``start`` and ``size`` in bytes."""

    slab: int
    start: int
    size: int


def pack(tensors: Mapping[str, Type], limits: Limits) -> list[Slab]:
    """Pack tensors in order into slabs of at most one binding each; a larger tensor gets a slab of its own.

    Raises:
        DeviceError: if a tensor is larger than the device's largest buffer.
    """
    cap = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) // ALIGN * ALIGN
    slabs: list[Slab] = []
    offsets: dict[str, int] = {}
    used = 0
    for name, type in tensors.items():
        size = align(type.nbytes)
        if size > limits.max_buffer_size:
            raise DeviceError(
                f"tensor {name}",
                f"at most {limits.max_buffer_size} bytes (the device's max-buffer-size)",
                f"{type.nbytes}",
                "a smaller model, or a device with larger buffers",
            )
        if offsets and used + size > cap:
            slabs.append(Slab(offsets, used))
            offsets, used = {}, 0
        offsets[name] = used
        used += size
    if offsets:
        slabs.append(Slab(offsets, used))
    return slabs


def chunks(slabs: Sequence[Slab], limits: Limits) -> list[Chunk]:
    """Split slabs at the binding cap, so that an update kernel binds each part at once."""
    cap = limits.max_storage_buffer_binding_size // ALIGN * ALIGN
    return [
        Chunk(k, start, min(cap, slab.size - start))
        for k, slab in enumerate(slabs)
        for start in range(0, slab.size, cap)
    ]


def place_slabs(
    program: StepProgram,
    kind: BufferKind,
    prefix: str,
    slabs: Sequence[Slab],
    types: Mapping[str, Type],
    tensor_prefix: str,
) -> None:
    """Create one buffer a slab, ``<prefix>.<k>``, and name the tensors in them ``<tensor_prefix><name>``."""
    for k, slab in enumerate(slabs):
        buffer = f"{prefix}.{k}"
        program.buffers[buffer] = Buffer(buffer, slab.size, kind)
        for name, offset in slab.offsets.items():
            type = types[name]
            full = tensor_prefix + name
            program.tensors[full] = Tensor(full, type.dtype, type.shape, Range(buffer, offset, type.nbytes))


def place_chunks(program: StepProgram, prefix: str, parts: Sequence[Chunk], dtype: str = "f32") -> list[str]:
    """Name the parts of slabs ``slab:<prefix>.<slab>@<start>`` as flat tensors; returns the names in order."""
    names: list[str] = []
    for part in parts:
        name = f"slab:{prefix}.{part.slab}@{part.start}"
        shape = (part.size // DTYPES[dtype],)
        program.tensors[name] = Tensor(name, dtype, shape, Range(f"{prefix}.{part.slab}", part.start, part.size))
        names.append(name)
    return names
