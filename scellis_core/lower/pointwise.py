"""Pointwise kernels: every output of a group over one space of elements, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from scellis_core.ir import DTYPES, Node, Value
from scellis_core.lower.call import Call, finish
from scellis_core.lower.expr import Evaluator
from scellis_core.lower.group import Group
from scellis_core.lower.index import Code, Position, constant, lane, linear, without_unused
from scellis_core.lower.program import ALIGN, Limits
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
    """The tensors of one kernel: declared once, wide where every access is.

    Attributes:
        part: (first element, count) of the element space that the kernel covers.
        parts: tensors over that space, of which only the part is bound.
    """

    module: Module
    group: Group
    binding: Binding
    wide: Callable[[Value], bool]
    part: tuple[int, int] = (0, 0)
    parts: frozenset[Value] = frozenset()
    mems: dict[Value, Mem] = field(default_factory=dict[Value, Mem])
    outs: dict[Value, Mem] = field(default_factory=dict[Value, Mem])
    spans: dict[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])

    def declare(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Declare inputs and outputs; aliased ones once."""
        group = self.group
        by_key = {f"in{k}": v for k, v in enumerate(group.inputs)}
        results = group.outputs or [v for v, _ in group.stores]
        shared = {by_key[i]: o for o, i in self.binding.alias.items()}
        for key, value in by_key.items():
            if value in inputs and value not in shared:
                self.mems[value] = self._tensor(key, value, write=key in self.binding.read_write)
        for k, value in enumerate(results):
            if value in outputs:
                self.outs[value] = self._tensor(f"out{k}", value, write=True)
        for read, key in shared.items():
            value = results[int(key[3:])]
            if value in outputs:
                self.mems[read] = self.outs[value]
            elif read in inputs:
                self.mems[read] = self._tensor(key, read, write=True)

    def _tensor(self, key: str, value: Value, *, write: bool) -> Mem:
        numel = value.type.numel
        if value in self.parts:
            start, numel = self.part
            size = DTYPES[value.dtype]
            self.spans[key] = (start * size, numel * size)
        return self.module.tensor(
            key, value.dtype, numel, "read_write" if write else "read", 4 if self.wide(value) else 1
        )

    def bound(self, call: Call) -> Call:
        """The call with the parts that it binds."""
        if not self.spans:
            return call
        return replace(call, spans=tuple([self.spans.get(key) for key in call.operands]))


def kernel_name(group: Group) -> str:
    """A name for people: ``pw_mul_add`` and so on."""
    prefix = {"pointwise": "pw", "reduce": "red", "copy": "copy", "family": "fam"}[group.kind]
    names = [n.op for n in group.nodes if n.op not in ("const",)]
    return "_".join([prefix, *names[:4]]) + (f"_{len(names)}" if len(names) > 4 else "")


def over_cap(group: Group, outputs: Sequence[Value], limits: Limits) -> bool:
    """Whether a tensor that elements read or write at their own index passes one binding."""
    cap = limits.max_storage_buffer_binding_size // ALIGN * ALIGN
    return any(v.type.nbytes > cap for v in (*group.aligned, *outputs))


def pointwise_calls(group: Group, limits: Limits, scalars: ScalarTable, binding: Binding) -> list[Call]:
    """Every output of a pointwise (or copy) group; a dispatch for each part of a space that passes a binding."""
    outputs = group.outputs or [v for v, _ in group.stores]
    numel = outputs[0].type.numel
    if [n.op for n in group.nodes] == ["concat"] and len(group.inputs) >= limits.max_storage_buffers_per_shader_stage:
        return _concat_calls(group, limits, scalars, binding)
    if not over_cap(group, outputs, limits):
        return [_part(group, limits, scalars, binding, outputs, (0, numel), frozenset())]
    step = limits.max_storage_buffer_binding_size // 4 // 1024 * 1024
    parts = frozenset([*group.aligned, *outputs])
    return [
        _part(group, limits, scalars, binding, outputs, (start, min(step, numel - start)), parts)
        for start in range(0, numel, step)
    ]


def _part(
    group: Group,
    limits: Limits,
    scalars: ScalarTable,
    binding: Binding,
    outputs: Sequence[Value],
    part: tuple[int, int],
    parts: frozenset[Value],
) -> Call:
    """One dispatch, over ``part`` of the space."""
    numel = outputs[0].type.numel
    start, count = part
    quad = count >= QUAD_FROM if binding.quad is None else binding.quad
    quad = quad and count % 4 == 0 and start % 4 == 0 and all(v.dtype in QUAD_DTYPES for v in outputs)
    narrow: set[Value] = set()
    while True:
        module = Module(kernel_name(group), limits, scalars=scalars)
        wide = partial(_is_wide, narrow=frozenset(narrow), parts=parts, quad=quad)
        tensors = Tensors(module, group, binding, wide, part, parts)
        tensors.declare(group.inputs, outputs)
        code = Code()
        evaluator = Evaluator(module, code, tensors.mems)
        width = 4 if quad else 1
        threads = count // width
        gi, grid = module.linear(threads)
        local = code.index(gi, threads, 0)
        root = code.add(constant(start // width), local)
        roots: list[Position] = []
        for k in range(width):
            roots.append(linear(lane(root, k) if quad else root, numel))
            evaluator.local[roots[-1].key] = lane(local, k) if quad else local
        evaluator.parts = set(parts)
        results = _results(group, evaluator, outputs, roots)
        missed = {v for v in evaluator.scalar_reads if tensors.mems[v].vec == 4}
        if not missed:
            break
        narrow |= missed
        if any(tensors.outs[o] is tensors.mems[v] for v in missed for o in outputs):
            quad, narrow = False, set()
    for value, texts in zip(outputs, results, strict=True):
        mem = tensors.outs[value]
        code.line(store_quad(mem, gi, texts) if quad else mem.store(gi, texts[0]))
    text = without_unused(code.text("    ")) if start else code.text("    ")
    body = f"  if ({gi} < {threads}u) {{\n{text}\n  }}"
    return tensors.bound(finish(module, body, grid, op=group.title))


def _concat_calls(group: Group, limits: Limits, scalars: ScalarTable, binding: Binding) -> list[Call]:
    """A concat of more tensors than a kernel may bind: one dispatch an operand."""
    node, out = group.nodes[0], group.outputs[0]
    axis = int(node.attrs["axis"]) % len(out.shape)  # type: ignore[arg-type]
    inner = prod(out.shape[axis + 1 :])
    calls: list[Call] = []
    start = 0
    for value in node.inputs:
        module = Module(kernel_name(group), limits, scalars=scalars)
        tensors = Tensors(module, group, binding, lambda _: False)
        tensors.declare([v for v in group.inputs if v in behind([value], group.inputs)], [out])
        code = Code()
        numel = value.type.numel
        gi, grid = module.linear(numel)
        root = code.index(gi, numel, 0)
        text, _ = Evaluator(module, code, tensors.mems).at(value, linear(root, numel))
        run = value.shape[axis] * inner
        whole = code.mul(code.div(root, run), out.shape[axis] * inner)
        at = code.add(code.add(whole, constant(start * inner)), code.mod(root, run))
        code.line(tensors.outs[out].store(code.scalar(at), text))
        body = f"  if ({gi} < {numel}u) {{\n{code.text('    ')}\n  }}"
        calls.append(finish(module, body, grid, op=group.title))
        start += value.shape[axis]
    return calls


def behind(roots: Sequence[Value], stop: Collection[Value], past: Collection[Node] = ()) -> set[Value]:
    """Those of ``stop`` that ``roots`` are computed from, not looking past the nodes ``past``."""
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in stop:
            found.add(value)
        elif value.node not in past:
            stack += value.node.inputs
    return found


def _is_wide(value: Value, *, narrow: frozenset[Value], parts: frozenset[Value], quad: bool) -> bool:
    return quad and value not in narrow and (value in parts or value.type.numel % 4 == 0)


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
