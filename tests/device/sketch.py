"""Step programs written by hand, small enough to read, for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from scellis_core.lower.program import (
    ALIGN,
    Buffer,
    BufferKind,
    Clear,
    Copy,
    Dispatch,
    Kernel,
    Limits,
    Range,
    Sequence,
    StepProgram,
    Tensor,
)
from scellis_core.lower.wgsl import Mem, Module, ScalarTable

SIZES = {"f32": 4, "f16": 2, "i32": 4, "u32": 4, "bool": 4}
Body = Callable[[Module, str, Mem, Mem], str]


class Sketch:
    """A step program under construction; one buffer a tensor unless ``buffer`` names another."""

    def __init__(self, limits: Limits, staging: int = 0, readbacks: int = 1) -> None:
        self.limits = limits
        self.table = ScalarTable()
        self.program = StepProgram(limits)
        self.program.meta["readbacks"] = readbacks
        if staging:
            self.program.buffers["staging"] = Buffer("staging", staging, "staging")

    def tensor(
        self, name: str, shape: tuple[int, ...], dtype: str = "f32", kind: BufferKind = "param", buffer: str = ""
    ) -> Range:
        """Add a tensor, and its buffer; in a shared ``buffer`` it goes to the end."""
        nbytes = int(np.prod(shape)) * SIZES[dtype]
        home = buffer or f"b.{name}"
        at = self.program.buffers[home].size if home in self.program.buffers else 0
        size = at + -(-nbytes // ALIGN) * ALIGN
        self.program.buffers[home] = Buffer(home, size, kind)
        found = Range(home, at, nbytes)
        self.program.tensors[name] = Tensor(name, dtype, shape, found)
        return found

    def windows(self, mem: Mem, name: str) -> list[Range]:
        """The ranges that bind a tensor of the program to a kernel's tensor."""
        whole = self.program.tensors[name].range
        size = -(-whole.size // 4) * 4
        per = mem.window_elems * SIZES[mem.dtype]
        return [Range(whole.buffer, whole.offset + w * per, min(per, size - w * per)) for w in range(mem.windows)]

    def map(self, name: str, src: str, dst: str, body: Body, size: int = 64) -> Dispatch:
        """A dispatch that computes each element of ``dst``; ``body(module, index, x, y)`` is one statement."""
        module = Module(name, self.limits, scalars=self.table)
        a, b = self.program.tensors[src], self.program.tensors[dst]
        count = int(np.prod(b.shape))
        x = module.tensor("x", a.dtype, int(np.prod(a.shape)), "read")
        y = module.tensor("y", b.dtype, count, "read_write")
        gi, grid = module.linear(count, size)
        kernel = module.build(f"  if ({gi} < {count}u) {{ {body(module, gi, x, y)} }}")
        return self.dispatch(kernel, (*self.windows(x, src), *self.windows(y, dst)), grid)

    def dispatch(self, kernel: Kernel, binds: Iterable[Range], grid: tuple[int, int, int]) -> Dispatch:
        """Add the kernel; its dispatch."""
        return Dispatch(self.program.add_kernel(kernel), tuple(binds), grid, kernel.name, "")

    def sequence(
        self,
        name: str,
        commands: Iterable[Dispatch | Copy | Clear],
        inputs: dict[str, str] | None = None,
        outputs: dict[str, str] | None = None,
    ) -> StepProgram:
        """Add a sequence, and the scalars block where a kernel so far uses it; the program."""
        self.program.sequences[name] = Sequence(name, list(commands), inputs or {}, outputs or {})
        if self.table.slots:
            self.program.scalars = self.table.layout()
            self.program.buffers["scalars"] = Buffer("scalars", 4 * ScalarTable.CAPACITY, "scalars")
        return self.program


def times(factor: str) -> Body:
    """``y = x * factor``."""
    return lambda module, i, x, y: y.store(i, f"{x.load(i)} * {factor}")


def plus(addend: str) -> Body:
    """``y = x + addend``."""
    return lambda module, i, x, y: y.store(i, f"{x.load(i)} + {addend}")


def doubled(limits: Limits, count: int = 1000, **how: int) -> StepProgram:
    """One sequence ``run``: input x, output y = 2 x."""
    sketch = Sketch(limits, **how)
    sketch.tensor("x", (count,), kind="input")
    sketch.tensor("y", (count,), kind="slot")
    return sketch.sequence("run", [sketch.map("double", "x", "y", times("2.0f"))], {"x": "x"}, {"y": "y"})
