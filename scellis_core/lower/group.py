"""Kernel groups: the nodes of a graph cut into what one kernel (or one kernel family) computes.

Views, constants, ramps, scalars and random bits are index functions evaluated inside their consumers; they form
no group. What is fused, and why a result is kept in memory, is in every group's ``note``.

Order. Groups are listed in an order to run them in. A leaf (``param``, ``state``) stands for what its tensor holds
at the leaf's place in the graph: groups that read one that stands before a store of the tensor run before the group
that stores it, groups that read one that stands after run later. Only a group that reads a tensor at the very
elements that it writes may read and store it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scellis_core.ir import DTYPES, Graph, Node, Value
from scellis_core.lower.analysis import Analysis, Operand, analyse
from scellis_core.lower.fuse import Draft, Fuser, GroupKind, Level
from scellis_core.lower.program import ALIGN, Limits
from scellis_core.lower.views import Pattern, cols_of, rows_of

SPLIT = "the kernel was split at the device's storage-buffer limit"


@dataclass(eq=False)
class Group:
    """What one kernel computes.

    Attributes:
        kind: ``pointwise`` (every output over one space of elements), ``reduce`` (rows and what is computed from
            them), ``family`` (one node with a generator of its own, and its epilogue), ``copy`` (a store of a
            value that is in memory already: ``in0`` to ``out0``, no outputs).
        nodes: results it computes, in program order (views between them left out).
        body: all nodes that its text evaluates, views included, in program order.
        inputs: tensors that it reads: leaves and other groups' outputs. Operand keys ``in0``, ``in1`` ...
        outputs: values that it writes. Operand keys ``out0``, ``out1`` ...
        stores: outputs that go to a persistent tensor, with its name; the range of ``out<k>`` is the tensor's. For
            a copy, the value read and the tensor.
        aliases: out key -> in key that may be the same memory; where the output is stored to the tensor that the
            input is, it is.
        path: block path of the node that names it.
        note: what was fused and why each output is in memory.
        pattern: for ``reduce``, the merged axes of an element, with which are reduced.
        levels: where each node is evaluated.
        family: the node of a family; ``operands`` what it binds.
    """

    kind: GroupKind
    nodes: list[Node]
    body: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    stores: list[tuple[Value, str]]
    aliases: dict[str, str]
    path: str
    note: str
    pattern: Pattern = ()
    levels: dict[Node, Level] = field(default_factory=dict["Node", "Level"])
    family: Node | None = None
    operands: tuple[Operand, ...] = ()
    aligned: frozenset[Value] = frozenset()

    @property
    def title(self) -> str:
        """Its ops, for people: ``mul+add+tanh``."""
        names = [n.op for n in self.nodes] or ["copy"]
        return "+".join(names[:6]) + (f"+{len(names) - 6}" if len(names) > 6 else "")


def group_graph(graph: Graph, limits: Limits, *, fuse: bool) -> list[Group]:
    """Cut a graph into groups.

    Args:
        graph: verified and pruned.
        limits: of the device; no group binds more buffers than it allows.
        fuse: False for one group an op.

    Returns:
        Groups in an order to run them in.
    """
    analysis = analyse(graph, fuse=fuse, bindings=limits.max_storage_buffers_per_shader_stage)
    builder = _Builder(analysis, limits)
    return [group for draft in Fuser(analysis, limits).run() for group in builder.build(draft)]


def describe_groups(groups: Sequence[Group]) -> str:
    """One line a group: kind, ops, what it reads and writes, what was fused and why its results are kept."""
    lines: list[str] = []
    for k, group in enumerate(groups):
        shape = ""
        if group.kind == "reduce":
            shape = f" rows={rows_of(group.pattern)} of {cols_of(group.pattern)}" if group.pattern else ""
        elif group.outputs:
            shape = f" {group.outputs[0].type.numel}"
        where = f"  ; {group.path}" if group.path else ""
        reads = ", ".join(_name(v) for v in group.inputs)
        writes = ", ".join(_name(v) for v in group.outputs) or ", ".join(name for _, name in group.stores)
        lines.append(f"group {k} {group.kind}{shape}: {group.title}({reads}) -> {writes}{where}")
        lines.append(f"  {group.note}")
    return "\n".join(lines) + ("\n" if lines else "")


def _name(value: Value) -> str:
    node = value.node
    label = str(node.attrs["name"]) if node.op in ("load", "param", "state") else node.op
    return f"{label}:{value.type}"


def _copy(value: Value, name: str) -> Group:
    note = f"copied: {name} is not written by the kernel that computes it"
    return Group(
        "copy", [], [], [value], [], [(value, name)], {}, value.node.path, note, aligned=frozenset([value])
    )  # fmt: skip


class _Builder:
    """Turns drafts into groups, split where they would bind too many buffers."""

    def __init__(self, a: Analysis, limits: Limits) -> None:
        self.a = a
        self.limit = limits.max_storage_buffers_per_shader_stage
        self.cap = limits.max_storage_buffer_binding_size // ALIGN * ALIGN

    def build(self, draft: Draft) -> list[Group]:
        """The groups of one draft, in order."""
        a = self.a
        if draft.kind == "copy":
            return [_copy(*draft.stores[0])]
        nodes = sorted(draft.levels, key=a.position.__getitem__)
        group = self._group(draft, nodes, draft.outputs)
        return self._fit(draft, group, draft.outputs)

    def _fit(self, draft: Draft, group: Group, why: dict[Value, str]) -> list[Group]:
        """Split a group until each part keeps the limit."""
        nodes = group.nodes
        if group.kind == "family" or len(nodes) < 2 or self.bindings(group) <= self.limit:
            return [group]
        loose = [n for n in nodes if group.levels[n] in ("inline", "picked")]
        if loose:
            last = loose[-1]
            first = self._closed([last], set(loose))
            rest = self._rest(nodes, first, last)
            moved: dict[Node, Level] = {**draft.levels, last: "element"}
            draft = replace(draft, levels=moved)
        else:
            cut = len(nodes) - 1
            while cut > 1 and self.bindings(self._part(draft, nodes[:cut], nodes[cut:], why)) > self.limit:
                cut -= 1
            first, rest = nodes[:cut], nodes[cut:]
        head = self._part(draft, first, rest, why)
        tail = self._part(draft, rest, [], why)
        read = {str(v.node.attrs["name"]) for v in tail.inputs if v.node.op in ("param", "state")}
        late = [(v, name) for v, name in head.stores if name in read]
        if late:  # what the second part reads is not overwritten by the first
            draft = replace(draft, stores=[s for s in draft.stores if s not in late])
            head = self._part(draft, first, rest, why)
        copies = [_copy(v, name) for v, name in late]
        parts = [self._fit(draft, part, {v: why.get(v, SPLIT) for v in part.outputs}) for part in (head, tail)]
        return [*parts[0], *parts[1], *copies]

    def _closed(self, seeds: list[Node], among: set[Node]) -> list[Node]:
        found, stack = set(seeds), list(seeds)
        while stack:
            for value, _ in self.a.reads[stack.pop()]:
                if value.node in among and value.node not in found:
                    found.add(value.node)
                    stack.append(value.node)
        return sorted(found, key=self.a.position.__getitem__)

    def _rest(self, nodes: list[Node], first: list[Node], last: Node) -> list[Node]:
        """What a split leaves: all but ``first``, and again those of it that the rest reads, ``last`` apart."""
        rest = set(nodes) - set(first)
        for node in reversed(first):
            if node is not last and any(v.node is node for n in rest for v, _ in self.a.reads[n]):
                rest.add(node)
        return [n for n in nodes if n in rest]

    def _part(self, draft: Draft, nodes: list[Node], later: list[Node], why: dict[Value, str]) -> Group:
        read = {v for n in later if n not in nodes for v, _ in self.a.reads[n] if v.node not in later}
        outputs = {v: why.get(v, SPLIT) for n in nodes for v in n.outputs if v in why or v in read}
        return self._group(draft, nodes, outputs)

    def _group(self, draft: Draft, nodes: list[Node], why: dict[Value, str]) -> Group:
        a = self.a
        members = set(nodes)
        outputs = [v for n in nodes for v in n.outputs if v in why]
        levels: dict[Node, Level] = {n: draft.levels[n] for n in nodes}
        kind, pattern = draft.kind, draft.pattern
        if kind == "reduce" and not any(a.kinds[n] == "reduce" for n in nodes):
            if set(levels.values()) - {"inline", "picked"} in ({"element"}, {"row"}, set()):
                kind, pattern = "pointwise", ()
        inputs, body = self._read(outputs, members)
        stores = [(v, name) for v, name in draft.stores if v in why and v.node in members]
        group = Group(kind, nodes, body, inputs, outputs, stores, {}, "", "", pattern, levels, draft.family)
        if draft.family is not None:
            group.operands = a.operands[draft.family]
        group.aligned = self._aligned(group)
        group.aliases = self._aliases(group)
        named = [n for n in nodes if n.path]
        group.path = named[-1].path if named else ""
        kept = "; ".join(f"{v.node.op} kept: {why[v]}" for v in outputs)
        group.note = (f"{len(nodes)} ops fused; " if len(nodes) > 1 else "") + kept
        return group

    def _read(self, outputs: list[Value], members: set[Node]) -> tuple[list[Value], list[Node]]:
        """Inputs in the order met, and every node between them and the outputs."""
        a = self.a
        inputs: dict[Value, None] = {}
        seen: set[Node] = set()
        stack = [v for v in reversed(outputs)]
        while stack:
            value = stack.pop()
            node = value.node
            if node in seen:
                continue
            if a.kinds[node] == "buffer" or (node in a.reads and node not in members):
                inputs[value] = None
                continue
            seen.add(node)
            if a.kinds[node] == "family":
                for operand in a.operands[node]:
                    inputs[operand.base] = None
                continue
            stack += reversed(node.inputs)
        return list(inputs), sorted(seen, key=a.position.__getitem__)

    def _aligned(self, group: Group) -> frozenset[Value]:
        """Inputs read only by elements, each at its own linear index."""
        bad: set[Value] = set()
        good: set[Value] = set()
        for node in group.nodes:
            element = group.levels[node] == "element" or self.a.kinds[node] == "reduce"
            for value, relation in self.a.reads[node]:
                (good if element and relation == "same" else bad).add(value)
        return frozenset(v for v in good if v not in bad and v in group.inputs)

    def _aliases(self, group: Group) -> dict[str, str]:
        """Outputs that may take an input's memory."""
        tensors = {v: name for v, name in group.stores}
        out: dict[str, str] = {}
        for k, value in enumerate(group.outputs):
            for j, read in enumerate(group.inputs):
                if read.node.op in ("param", "state") and str(read.node.attrs["name"]) == tensors.get(value):
                    out[f"out{k}"] = f"in{j}"
        if group.kind != "pointwise":
            return out
        for k, value in enumerate(group.outputs):
            for j, read in enumerate(group.inputs):
                if (
                    f"out{k}" not in out
                    and value not in tensors
                    and read.node.op not in ("param", "state", "load")
                    and f"in{j}" not in out.values()
                    and read in group.aligned
                    and DTYPES[read.dtype] == DTYPES[value.dtype]
                    and read.dtype == value.dtype
                ):
                    out[f"out{k}"] = f"in{j}"
        return out

    def bindings(self, group: Group) -> int:
        """Storage bindings that a group takes: tensors read at each element's own index take one."""
        replaced = {
            group.inputs[int(i[2:])]
            for o, i in group.aliases.items()
            if group.outputs[int(o[3:])] in dict(group.stores)
        }
        total = sum(1 if v in group.aligned else self._windows(v) for v in group.inputs if v not in replaced)
        return total + len(group.outputs)

    def _windows(self, value: Value) -> int:
        return max(1, -(-value.type.nbytes // self.cap))
