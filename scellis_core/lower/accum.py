"""Accumulators of reductions: what a thread keeps, how two are combined, how a workgroup combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scellis_core.ir import Node, Reduce, op_def
from scellis_core.lower.index import Code

LOWEST = {"f32": "(-3.4028234663852886e38f)", "i32": "i32(-2147483648)", "u32": "0u"}
HIGHEST = {"f32": "3.4028234663852886e38f", "i32": "2147483647i", "u32": "4294967295u"}


@dataclass(frozen=True)
class Accumulator:
    """How one reduction accumulates: f16 as f32; ``argmax`` as a value and where it first was.

    Attributes:
        combine: ``sum``, ``max``, ``min`` or ``argmax``.
        source: dtype of the elements.
        result: dtype of the result.
    """

    combine: str
    source: str
    result: str

    @classmethod
    def of(cls, node: Node) -> Accumulator:
        """For a reduction node."""
        lowering = op_def(node.op).lower
        combine = lowering.combine if isinstance(lowering, Reduce) else ""
        return cls(combine, node.inputs[0].dtype, node.outputs[0].dtype)

    @property
    def value_type(self) -> str:
        """WGSL type (and scratch dtype) of the accumulated value."""
        return "f32" if self.source == "f16" else "u32" if self.source == "bool" else self.source

    @property
    def types(self) -> tuple[str, ...]:
        """WGSL types of what a thread keeps."""
        return (self.value_type, "u32") if self.combine == "argmax" else (self.value_type,)

    @property
    def start(self) -> tuple[str, ...]:
        """What a thread that saw no element keeps."""
        if self.combine == "sum":
            return (f"{self.value_type}(0)",)
        if self.combine == "min":
            return (HIGHEST[self.value_type],)
        low = LOWEST[self.value_type]
        return (low, "0u") if self.combine == "argmax" else (low,)

    def lift(self, text: str, index: str) -> tuple[str, ...]:
        """An element as an accumulator."""
        if self.source == "f16":
            text = f"f32({text})"
        elif self.source == "bool":
            text = f"select(0u, 1u, {text})"
        return (text, index) if self.combine == "argmax" else (text,)

    def join(self, code: Code, a: Sequence[str], b: Sequence[str]) -> tuple[str, ...]:
        """Two accumulators as one; ``a`` before ``b``."""
        if self.combine == "sum":
            return (f"{a[0]} + {b[0]}",)
        if self.combine in ("max", "min"):
            return (f"{self.combine}({a[0]}, {b[0]})",)
        later = code.name("t")
        code.line(f"let {later} = ({b[0]} > {a[0]}) || ({b[0]} == {a[0]} && {b[1]} < {a[1]});")
        return (f"select({a[0]}, {b[0]}, {later})", f"select({a[1]}, {b[1]}, {later})")

    def neutral(self, parts: Sequence[str], valid: str) -> tuple[str, ...]:
        """An accumulator that counts only where ``valid``."""
        return tuple([f"select({s}, {p}, {valid})" for s, p in zip(self.start, parts, strict=True)])

    def finish(self, parts: Sequence[str]) -> str:
        """The result."""
        if self.combine == "argmax":
            return f"{self.result}({parts[1]})"
        return f"f16({parts[0]})" if self.result == "f16" else parts[0]


def named(code: Code, parts: Sequence[str]) -> tuple[str, ...]:
    """Name each part of an accumulator."""
    out: list[str] = []
    for part in parts:
        name = code.name("a")
        code.line(f"let {name} = {part};")
        out.append(name)
    return tuple(out)


class Shared:
    """Shared arrays of one kernel, one for each WGSL type and use within a pass.

    Passes alternate between two sets, so that one barrier separates a pass's reads from the next one's writes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.declared: dict[str, str] = {}

    def name(self, type: str, use: int, turn: int) -> str:
        """An array's name, declared at first use."""
        name = f"sh_{type}_{turn % 2}_{use}"
        self.declared[name] = f"var<workgroup> {name}: array<{type}, {self.size}>;"
        return name

    def text(self) -> str:
        """The declarations."""
        return "\n".join(self.declared.values())


def tree(
    code: Code,
    shared: Shared,
    accumulators: Sequence[Accumulator],
    parts: Sequence[Sequence[str]],
    *,
    team: int,
    stride: int,
    lane: str,
    home: str,
    turn: int,
) -> list[tuple[str, ...]]:
    """Combine over ``team`` threads, ``stride`` apart in the workgroup, in a fixed order; all of them get the result.

    Args:
        code: where it is written (a block that every thread of the workgroup runs).
        shared: arrays.
        accumulators: the reductions.
        parts: what each thread has of each.
        team: a power of two.
        stride: distance in local index between neighbours of a team.
        lane: expression: the thread's place in its team.
        home: expression: local index of the team's first thread.
        turn: number of the pass.
    """
    if team == 1:
        return [tuple(p) for p in parts]
    used: dict[str, int] = {}
    arrays: list[tuple[str, ...]] = []
    for accumulator in accumulators:
        mine: list[str] = []
        for type in accumulator.types:
            mine.append(shared.name(type, used.get(type, 0), turn))
            used[type] = used.get(type, 0) + 1
        arrays.append(tuple(mine))
    for names, values in zip(arrays, parts, strict=True):
        for name, value in zip(names, values, strict=True):
            code.line(f"{name}[li] = {value};")
    code.line("workgroupBarrier();")
    left = team
    while left > 1:
        step = 4 if left % 4 == 0 else 2
        left //= step
        code.open(f"if ({lane} < {left}u)", guard=True)
        for accumulator, names in zip(accumulators, arrays, strict=True):
            have = named(code, [f"{name}[li]" for name in names])
            for k in range(1, step):
                other = named(code, [f"{name}[li + {k * left * stride}u]" for name in names])
                have = named(code, accumulator.join(code, have, other))
            for name, value in zip(names, have, strict=True):
                code.line(f"{name}[li] = {value};")
        code.close()
        code.line("workgroupBarrier();")
    return [named(code, [f"{name}[{home}]" for name in names]) for names in arrays]
