"""What a kernel family hands back: kernels with the names of the tensors they bind, and epilogues they take in.

A family never sees buffers. It returns :class:`Call` objects whose ``operands`` are keys (``a``, ``b``, ``out``,
a scratch key, or a name that an epilogue chose); the caller maps each key to a byte range and asks
:meth:`Call.binds` for the bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scellis_core.errors import DeviceError
from scellis_core.lower.program import ALIGN, Dispatch, Kernel, Limits, Range
from scellis_core.lower.wgsl import Module

Scratch = tuple[str, str, int]
"""(key, dtype, elements) of a buffer whose contents live from one call of a family to the next."""


@dataclass(frozen=True)
class Call:
    """One dispatch of a kernel, with operand keys in place of buffers.

    Attributes:
        kernel: what to run.
        operands: for each tensor of the kernel in order, its key.
        windows: for each operand, how many consecutive bindings it takes (more than 1 past the binding cap).
        grid: workgroups.
        scratch: buffers that the family's calls share, listed on the call that first uses them.
        writes: the keys that this call writes.
        op: what it computes, for people.
        spans: for each operand, the bytes of it that are bound (offset, size), or None for all; empty for all of all.
    """

    kernel: Kernel
    operands: tuple[str, ...]
    windows: tuple[int, ...]
    grid: tuple[int, int, int]
    scratch: tuple[Scratch, ...] = ()
    writes: tuple[str, ...] = ("out",)
    op: str = ""
    spans: tuple[tuple[int, int] | None, ...] = ()

    def binds(self, ranges: Mapping[str, Range], limits: Limits) -> tuple[Range, ...]:
        """One range for each binding, given the byte range of each operand.

        Raises:
            DeviceError: if an operand has no range.
        """
        out: list[Range] = []
        spans = self.spans or (None,) * len(self.operands)
        for key, windows, span in zip(self.operands, self.windows, spans, strict=True):
            if key not in ranges:
                raise DeviceError(f"kernel {self.kernel.name}", f"a buffer for operand {key}", "none")
            whole = ranges[key]
            if span is not None:
                whole = Range(whole.buffer, whole.offset + span[0], span[1])
            out += expand(whole, windows, limits)
        return tuple(out)

    def dispatch(self, ranges: Mapping[str, Range], limits: Limits, path: str = "") -> Dispatch:
        """The command for a step program that holds this call's kernel."""
        return Dispatch(self.kernel.key, self.binds(ranges, limits), self.grid, self.op or self.kernel.name, path)


def finish(
    module: Module,
    body: str,
    grid: tuple[int, int, int],
    *,
    shared: str = "",
    scratch: Sequence[Scratch] = (),
    keys: Mapping[str, str] | None = None,
    op: str = "",
) -> Call:
    """Build a module's kernel into a :class:`Call`; operand keys are tensor names unless ``keys`` renames some."""
    kernel = module.build(body, shared)
    rename = keys or {}
    return Call(
        kernel,
        tuple(rename.get(m.name, m.name) for m in module.mems),
        tuple(m.windows for m in module.mems),
        grid,
        tuple(scratch),
        tuple(rename.get(m.name, m.name) for m in module.mems if m.access == "read_write"),
        op,
    )


def expand(whole: Range, windows: int, limits: Limits) -> list[Range]:
    """Cut a range into binding windows; sizes are rounded up to whole 4-byte words."""
    size = -(-whole.size // 4) * 4
    if windows == 1:
        return [Range(whole.buffer, whole.offset, size)]
    cap = limits.max_storage_buffer_binding_size // ALIGN * ALIGN
    starts = [w * cap for w in range(windows)]
    return [Range(whole.buffer, whole.offset + start, min(cap, size - start)) for start in starts]


Emit = Callable[[Module, str, str, str, str], tuple[list[str], str]]
"""``(module, batch, row, col, acc) -> (statements, value expression)``; all arguments but the module are names or
expressions: u32 indices into the logical ``[batch, rows, columns]`` result, and the accumulated f32 value."""


@dataclass(frozen=True)
class Epilogue:
    """WGSL applied to each element of a matmul or convolution before it is stored.

    Attributes:
        emit: gives the value for one element; its statements get a scope of their own.
        declare: declares further tensors on the module (bias, residual ...), called once before ``emit``; their
            names are the operand keys. ``a``, ``b``, ``out`` and names that begin with ``ws`` are taken.
        vector: as ``emit`` for four consecutive columns at once (``acc`` is vec4<f32>, ``col`` the first of them,
            a multiple of 4); used where the column count is a multiple of 4. Optional.
        name: for the kernel's name.
    """

    emit: Emit
    declare: Callable[[Module], None] | None = None
    vector: Emit | None = None
    name: str = "ep"
