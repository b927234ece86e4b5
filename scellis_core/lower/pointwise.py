"""Pointwise kernels: every output of a group over one space of elements, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scellis_core.ir import Value
from scellis_core.lower.call import Call, finish
from scellis_core.lower.expr import Evaluator
from scellis_core.lower.group import Group
from scellis_core.lower.index import Code, Position, lane, linear
from scellis_core.lower.program import Limits
from scellis_core.lower.wgsl import Mem, Module, ScalarTable

QUAD_FROM = 1 << 15
"""Elements from which a thread takes four: below, more threads are worth more than wide accesses."""

QUAD_DTYPES = frozenset({"f32", "f16", "i32", "u32", "bool"})


@dataclass
class Binding:
    """How a group's tensors are bound.

    Attributes:
        alias: out key -> in key that is the same memory.
        read_write: in keys that must be bound read_write (their buffer is written elsewhere in the dispatch).
        quad: None to choose, else whether threads take four elements.
    """

    alias: Mapping[str, str] = field(default_factory=dict[str, str])
    read_write: frozenset[str] = frozenset()
    quad: bool | None = None


@dataclass
class Tensors:
    """The tensors of one kernel: declared once, wide where every access is."""

    module: Module
    group: Group
    binding: Binding
    wide: Callable[[Value], bool]
    mems: dict[Value, Mem] = field(default_factory=dict[Value, Mem])
    outs: dict[Value, Mem] = field(default_factory=dict[Value, Mem])
    keys: dict[str, str] = field(default_factory=dict[str, str])
    writes: list[str] = field(default_factory=list[str])

    def declare(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Declare inputs and outputs; aliased ones once."""
        group = self.group
        by_key = {f"in{k}": v for k, v in enumerate(group.inputs)}
        shared = {by_key[i]: o for o, i in self.binding.alias.items()}
        for key, value in by_key.items():
            if value in inputs and value not in shared:
                access = "read_write" if key in self.binding.read_write else "read"
                vec = 4 if self.wide(value) else 1
                self.mems[value] = self.module.tensor(key, value.dtype, value.type.numel, access, vec)
        for k, value in enumerate(group.outputs):
            if value in outputs:
                vec = 4 if self.wide(value) else 1
                key = f"out{k}"
                self.outs[value] = self.module.tensor(key, value.dtype, value.type.numel, "read_write", vec)
                self.writes.append(key)
        for read, key in shared.items():
            value = group.outputs[int(key[3:])]
            if value in outputs:
                self.mems[read] = self.outs[value]
            elif read in inputs:
                self.mems[read] = self.module.tensor(key, read.dtype, read.type.numel, "read_write", 1)


def kernel_name(group: Group) -> str:
    """A name for people: ``pw_mul_add`` and so on."""
    prefix = {"pointwise": "pw", "reduce": "red", "copy": "copy", "family": "fam"}[group.kind]
    names = [n.op for n in group.nodes if n.op not in ("const",)]
    return "_".join([prefix, *names[:4]]) + (f"_{len(names)}" if len(names) > 4 else "")


def pointwise_calls(group: Group, limits: Limits, scalars: ScalarTable, binding: Binding) -> list[Call]:
    """One dispatch that computes every output of a pointwise (or copy) group."""
    outputs = group.outputs or [v for v, _ in group.stores]
    numel = outputs[0].type.numel
    quad = binding.quad
    if quad is None:
        quad = numel >= QUAD_FROM
    quad = quad and numel % 4 == 0 and all(v.dtype in QUAD_DTYPES for v in outputs)
    narrow: set[Value] = set()
    while True:
        module = Module(kernel_name(group), limits, scalars=scalars)

        def wide(value: Value, quad: bool = quad) -> bool:
            return quad and value not in narrow and value.type.numel % 4 == 0

        tensors = Tensors(module, group, binding, wide)
        if group.kind == "copy":
            value = outputs[0]
            vec = 4 if quad else 1
            tensors.mems[value] = module.tensor("in0", value.dtype, numel, "read", vec)
            tensors.outs[value] = module.tensor("out0", value.dtype, numel, "read_write", vec)
        else:
            tensors.declare(group.inputs, outputs)
        code = Code()
        evaluator = Evaluator(module, code, tensors.mems)
        threads = numel // 4 if quad else numel
        gi, grid = module.linear(threads)
        root = code.index(gi, threads, 0)
        roots = [linear(lane(root, k), numel) for k in range(4)] if quad else [linear(root, numel)]
        results = _results(group, evaluator, outputs, roots)
        missed = {v for v in evaluator.scalar_reads if tensors.mems[v].vec == 4}
        if missed:
            narrow |= missed
            for value in missed:
                narrow |= {o for o in outputs if tensors.outs.get(o) is tensors.mems[value]}
            if narrow & set(outputs):
                quad, narrow = False, set()
            continue
        break
    for value, texts in zip(outputs, results, strict=True):
        mem = tensors.outs[value]
        code.line(store_quad(mem, gi, texts) if quad else mem.store(gi, texts[0]))
    body = f"  if ({gi} < {threads}u) {{\n{code.text('    ')}\n  }}"
    return [finish(module, body, grid, op=group.title)]


def store_quad(mem: Mem, index: str, texts: Sequence[str]) -> str:
    """Statement that writes four neighbours."""
    if mem.dtype == "bool":
        texts = [f"select(0u, 1u, {t})" for t in texts]
    return mem.store4(index, f"vec4<{mem.scalar_type}>({', '.join(texts)})")


def _results(
    group: Group, evaluator: Evaluator, outputs: Sequence[Value], roots: Sequence[Position]
) -> list[list[str]]:
    """Every output at every root, all evaluated before any is written."""
    texts: dict[Value, list[str]] = {v: [] for v in outputs}
    for root in roots:
        for node in group.nodes:
            if group.levels.get(node) in ("element", "row"):
                for value in node.outputs:
                    evaluator.at(value, root)
        for value in outputs:
            texts[value].append(evaluator.at(value, root)[0])
    return [texts[v] for v in outputs]
