"""Writing one WGSL kernel: bindings (windowed where a tensor passes the binding cap), scalars, grids.

Every kernel family reaches memory through :class:`Mem` only, so that the binding cap, the f16 feature and the
access mode are settled in one place. Rules that both naga and Tint accept, kept by all families: no early
``return`` before a barrier, one ``let`` an op rather than deep nesting, no pointers to storage as arguments,
every identifier prefixed so that it can't meet a WGSL keyword, no NaN or infinity as a constant.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from scellis_core.errors import DeviceError
from scellis_core.ir import DTYPES
from scellis_core.lower.program import ALIGN, Access, Binding, Kernel, Limits

WGSL_TYPES = {"f32": "f32", "f16": "f16", "i32": "i32", "u32": "u32", "bool": "u32"}


def workgroup_bytes(declarations: str) -> int:
    """Bytes of ``var<workgroup>`` arrays, one a line, of 4-byte elements or ``vec4`` of them."""
    total = 0
    for line in declarations.splitlines():
        count = math.prod(int(n) for n in re.findall(r", (\d+)>", line))
        total += count * (16 if "vec4<" in line else 4)
    return total


def f32_literal(value: float, dtype: str = "f32") -> str:
    """A WGSL literal for a finite number of that dtype.

    Raises:
        DeviceError: for NaN and infinities, which WGSL refuses as constants.
    """
    if dtype in ("i32", "u32"):
        return f"{int(value)}{'u' if dtype == 'u32' else 'i'}"
    if dtype == "bool":
        return "true" if value else "false"
    if math.isnan(value) or math.isinf(value):
        raise DeviceError("WGSL constant", "a finite number", str(value), "a run-time scalar")
    return f"{float(value)!r}{'h' if dtype == 'f16' else 'f'}"


class ScalarTable:
    """Slots of the scalars block, handed out by name; one table for a whole step program."""

    CAPACITY = 256

    def __init__(self) -> None:
        self.slots: dict[str, tuple[str, int]] = {}

    def slot(self, name: str, dtype: str) -> int:
        """The 4-byte slot of a scalar, assigned at first use."""
        if name not in self.slots:
            if len(self.slots) == self.CAPACITY:
                raise DeviceError("scalars block", f"at most {self.CAPACITY} scalars", f"one more, {name}")
            self.slots[name] = (dtype, len(self.slots))
        return self.slots[name][1]

    def layout(self) -> dict[str, tuple[str, int]]:
        """Name -> (dtype, byte offset), as a step program states it."""
        return {name: (dtype, 4 * slot) for name, (dtype, slot) in self.slots.items()}


@dataclass
class Mem:
    """One tensor (or part of one) as a kernel sees it.

    Attributes:
        name: prefix of its bindings and accessors.
        dtype: element dtype of the tensor.
        numel: elements visible.
        access: as declared.
        vec: 1, or 4 where the kernel also reads or writes whole vec4s (numel and every base offset are then
            multiples of 4; only for f32, f16, u32, i32).
        windows: how many bindings it takes.
    """

    name: str
    dtype: str
    numel: int
    access: Access
    vec: int
    windows: int
    window_elems: int

    @property
    def scalar_type(self) -> str:
        """WGSL type of one element."""
        return WGSL_TYPES[self.dtype]

    def load(self, index: str) -> str:
        """Expression: element ``index`` (u32 expression). A bool tensor yields WGSL bool."""
        if self.vec == 4:
            one = f"ld_{self.name}({index})"
        else:
            one = f"{self.name}[{index}]" if self.windows == 1 else f"ld_{self.name}({index})"
        return f"({one} != 0u)" if self.dtype == "bool" else one

    def load4(self, index4: str) -> str:
        """Expression: the vec4 at elements ``4 * index4 ..``; needs ``vec=4``."""
        return f"{self.name}[{index4}]" if self.windows == 1 else f"ld4_{self.name}({index4})"

    def store(self, index: str, value: str) -> str:
        """Statement: write one element; needs ``vec=1``. A bool tensor takes WGSL bool."""
        value = f"select(0u, 1u, {value})" if self.dtype == "bool" else value
        return f"{self.name}[{index}] = {value};" if self.windows == 1 else f"st_{self.name}({index}, {value});"

    def store4(self, index4: str, value: str) -> str:
        """Statement: write one vec4; needs ``vec=4``."""
        return f"{self.name}[{index4}] = {value};" if self.windows == 1 else f"st4_{self.name}({index4}, {value});"

    def functions(self) -> str:
        """The accessor functions this tensor needs."""
        t, n = self.scalar_type, self.name
        elem = t if self.vec == 1 else f"vec4<{t}>"
        names = [n] if self.windows == 1 else [f"{n}_{w}" for w in range(self.windows)]
        per = self.window_elems // self.vec
        out: list[str] = []
        if self.windows > 1:
            suffix = "" if self.vec == 1 else "4"
            lines = [f"fn ld{suffix}_{n}(i: u32) -> {elem} {{"]
            for w, b in enumerate(names[:-1]):
                base = f" - {w * per}u" if w else ""
                lines.append(f"  if (i < {(w + 1) * per}u) {{ return {b}[i{base}]; }}")
            lines.append(f"  return {names[-1]}[i - {(self.windows - 1) * per}u];\n}}")
            out.append("\n".join(lines))
            if self.access == "read_write":
                lines = [f"fn st{suffix}_{n}(i: u32, v: {elem}) {{"]
                for w, b in enumerate(names):
                    base = f" - {w * per}u" if w else ""
                    head = f"if (i < {(w + 1) * per}u) {{" if w < self.windows - 1 else "{"
                    lines.append(f"  {'else ' if w else ''}{head} {b}[i{base}] = v; }}")
                lines.append("}")
                out.append("\n".join(lines))
        if self.vec == 4:
            source = f"{n}[i / 4u]" if self.windows == 1 else f"ld4_{n}(i / 4u)"
            out.append(f"fn ld_{n}(i: u32) -> {t} {{ let v = {source}; return v[i % 4u]; }}")
        return "\n".join(out)


@dataclass
class Module:
    """A kernel being written.

    Args:
        name: kernel name for people (``matmul_64x128``); the label carries it with a digest.
        limits: of the device it is for.

    Example:
        >>> m = Module("double", Limits())
        >>> x = m.tensor("x", "f32", 1000, "read")
        >>> y = m.tensor("y", "f32", 1000, "read_write")
        >>> gid, grid = m.linear(1000)
        >>> kernel = m.build(f"if ({gid} < 1000u) {{ {y.store(gid, x.load(gid) + ' * 2.0')} }}")
    """

    name: str
    limits: Limits
    mems: list[Mem] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    workgroup: tuple[int, int, int] = (64, 1, 1)
    header: list[str] = field(default_factory=list)
    scalars: ScalarTable = field(default_factory=lambda: ScalarTable())
    uses_scalars: bool = False

    def window_elems(self, dtype: str) -> int:
        """Elements of one binding window: the cap rounded down to the alignment."""
        cap = self.limits.max_storage_buffer_binding_size
        return cap // ALIGN * ALIGN // DTYPES[dtype]

    def tensor(self, name: str, dtype: str, numel: int, access: Access, vec: int = 1) -> Mem:
        """Declare a tensor; it takes one binding, or one for each window of the binding cap.

        Raises:
            DeviceError: if the stage's storage-buffer limit is passed.
        """
        per = self.window_elems(dtype)
        windows = max(1, -(-numel // per))
        mem = Mem(name, dtype, numel, access, vec, windows, per)
        self.mems.append(mem)
        used = sum(m.windows for m in self.mems)
        if used > self.limits.max_storage_buffers_per_shader_stage:
            raise DeviceError(
                f"kernel {self.name}",
                f"at most {self.limits.max_storage_buffers_per_shader_stage} storage bindings of "
                f"{self.limits.max_storage_buffer_binding_size} bytes",
                f"{used} (tensor {name} of {numel * DTYPES[dtype]} bytes takes {windows})",
                "a device with larger limits, or smaller tensors",
            )
        return mem

    def scalar(self, name: str, dtype: str = "f32") -> str:
        """Expression for a number that the host writes every step."""
        self.uses_scalars = True
        raw = f"scalar_at({self.scalars.slot(name, dtype)}u)"
        return raw if dtype == "u32" else f"bitcast<{dtype}>({raw})"

    def add_function(self, text: str) -> None:
        """Add a helper function once."""
        if text not in self.functions:
            self.functions.append(text)

    def linear(self, invocations: int, size: int = 256) -> tuple[str, tuple[int, int, int]]:
        """Set a 1-D workgroup and return (global index expression, grid) for that many invocations.

        The grid spills into y where x would pass the device's limit; the body guards the tail.
        """
        size = min(size, self.limits.max_compute_invocations_per_workgroup)
        self.workgroup = (size, 1, 1)
        groups, grid = self.groups(-(-invocations // size))
        self.header.append(f"let gi = {groups} * {size}u + lid.x;")
        return "gi", grid

    def groups(self, count: int) -> tuple[str, tuple[int, int, int]]:
        """(flat workgroup index expression, grid) for ``count`` workgroups; guard ``index < count`` if y > 1."""
        top = self.limits.max_compute_workgroups_per_dimension
        if count <= top:
            return "wid.x", (max(count, 1), 1, 1)
        y = -(-count // top)
        if y > top:
            raise DeviceError(f"kernel {self.name}", f"at most {top * top} workgroups", str(count))
        x = -(-count // y)
        return f"(wid.x + wid.y * {x}u)", (x, y, 1)

    def build(self, body: str, shared: str = "") -> Kernel:
        """Finish: ``shared`` holds ``var<workgroup>`` declarations, ``body`` the entry point's statements.

        The entry point sees ``wid: vec3<u32>`` (workgroup id), ``lid: vec3<u32>`` (local id) and ``li: u32``
        (flat local index).

        Raises:
            DeviceError: if the declarations pass the device's workgroup memory.
        """
        used, most = workgroup_bytes(shared), self.limits.max_compute_workgroup_storage_size
        if used > most:
            raise DeviceError(
                f"kernel {self.name}", f"at most {most} bytes of workgroup memory", str(used), "smaller rows or tiles"
            )
        bindings: list[Binding] = []
        lines: list[str] = []
        if any(m.dtype == "f16" for m in self.mems) or "f16" in body:
            lines.append("enable f16;")
        for mem in self.mems:
            elem = mem.scalar_type if mem.vec == 1 else f"vec4<{mem.scalar_type}>"
            for w in range(mem.windows):
                name = mem.name if mem.windows == 1 else f"{mem.name}_{w}"
                lines.append(f"@group(0) @binding({len(bindings)}) var<storage, {mem.access}> {name}: array<{elem}>;")
                bindings.append(Binding(name, elem, mem.access))
        if self.uses_scalars:
            lines.append(f"struct Scalars {{ v: array<vec4<u32>, {ScalarTable.CAPACITY // 4}> }}")
            lines.append(f"@group(0) @binding({len(bindings)}) var<uniform> scalars_block: Scalars;")
            lines.append("fn scalar_at(i: u32) -> u32 { return scalars_block.v[i / 4u][i % 4u]; }")
        lines += [text for mem in self.mems if (text := mem.functions())]
        lines += self.functions
        if shared:
            lines.append(shared)
        x, y, z = self.workgroup
        lines.append(f"@compute @workgroup_size({x}, {y}, {z})")
        lines.append(
            "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>,"
            " @builtin(local_invocation_index) li: u32) {"
        )
        lines += [f"  {h}" for h in self.header]
        lines.append(body)
        lines.append("}")
        return Kernel(self.name, "\n".join(lines) + "\n", tuple(bindings), self.workgroup, self.uses_scalars)
