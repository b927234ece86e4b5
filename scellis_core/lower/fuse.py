"""Which nodes share a kernel: consumers gather their producers, from the end of the graph to its beginning.

A node whose only consumers sit in one group joins it; one that several groups read joins a group as a further
output where that makes no cycle, else begins a group. Groups of element and row work become row groups when a
reduction, or a value of its rows, joins them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal

from scellis_core.errors import IRError
from scellis_core.ir import Node, Value
from scellis_core.lower.analysis import EPILOGUES, Analysis
from scellis_core.lower.program import ALIGN, Limits
from scellis_core.lower.views import COSTLY, Pattern, Relation, base_of, cols_of, rows_of

Level = Literal["element", "row", "picked", "inline"]
"""Where a group evaluates a node: at each element, once a row, at one element of the row, or wherever asked."""

GroupKind = Literal["pointwise", "reduce", "family", "copy"]

NEAR = 64
"""Groups that only share what they read are merged up to this distance in nodes."""

INLINE_COST = 12
MAX_NODES = 160

EPILOGUE_COST = 6
"""Longest epilogue, in additions: it is written out once for every few results of a thread."""

EPILOGUE_OUTPUTS = 2
"""Most tensors that an epilogue writes, the product's own among them."""

EPILOGUE_START = 4
"""Nodes that a product applies of a longer or costlier group."""

MERGED_BINDINGS = 16
"""Most tensors that groups merged into one may bind: a kernel that reads more keeps too much alive until it runs."""

MERGED_SUMS = 8
"""Most reductions of groups merged into one: each keeps an accumulator and an array of workgroup memory."""

SMALL = 64
"""Elements up to which independent groups of one size share a kernel, whatever they read."""


@dataclass(eq=False)
class Draft:
    """A group being gathered. ``space`` counts elements (of a reduction's input, for ``reduce``)."""

    id: int
    kind: GroupKind
    space: int
    anchor: int
    pattern: Pattern = ()
    levels: dict[Node, Level] = field(default_factory=dict["Node", "Level"])
    outputs: dict[Value, str] = field(default_factory=dict["Value", str])
    stores: list[tuple[Value, str]] = field(default_factory=list["tuple[Value, str]"])
    reach: int = 0
    later: set[int] = field(default_factory=set[int])
    awaited: bool = False
    inlined: int = 0
    family: Node | None = None


def fusable(pattern: Pattern) -> bool:
    """Whether one kernel may hold a reduction and what is computed from it at each element.

    There must be enough rows to fill a device, or rows short enough not to need it.
    """
    rows, cols = rows_of(pattern), cols_of(pattern)
    if not pattern or cols <= 1:
        return False
    if pattern[-1][1]:
        return rows >= 128 or cols <= 2048
    return cols <= 1024 and rows * cols <= 32768


class Fuser:
    """Gathers drafts; see the module's docstring."""

    def __init__(self, a: Analysis, limits: Limits) -> None:
        self.a = a
        self.limits = limits
        self.drafts: dict[int, Draft] = {}
        self.of: dict[Node, Draft] = {}
        self.count = 0
        self.became: dict[int, int] = {}
        self.leaf_readers: dict[Value, dict[int, Draft]] = {}
        self.storing: dict[str, Draft] = {}
        self.leaves: dict[str, Value] = {}
        self.store_at: dict[str, list[int]] = {}
        for node in a.graph.nodes:
            if node.op in ("param", "state"):
                self.leaves[str(node.attrs["name"])] = node.outputs[0]
            elif node.op == "store":
                self.store_at.setdefault(str(node.attrs["name"]), []).append(a.position[node])
        self.outputs: dict[Value, str] = dict(a.escapes)

    def run(self) -> list[Draft]:
        """All drafts, in an order that respects what they read and write."""
        for node in reversed(self.a.copies):
            self._copy(node)
        for node in reversed(self.a.graph.nodes):
            if self.a.computed(node):
                self._place(node)
        self._clear_with_readers()
        if self.a.fuse:
            self._merge_apart()
        return self._order()

    # -- the order of groups ---------------------------------------------------------------------------------
    def _new(self, kind: GroupKind, space: int, anchor: int, pattern: Pattern = ()) -> Draft:
        draft = Draft(self.count, kind, space, anchor, pattern)
        self.drafts[self.count] = draft
        self.count += 1
        return draft

    def _reaches(self, a: Draft, b: Draft) -> bool:
        return bool(a.reach >> b.id & 1)

    def _link(self, before: Draft, after: Draft) -> None:
        """Record that one group runs before another."""
        if before is after:
            return
        before.later.add(after.id)
        after.awaited = True
        new = after.reach | 1 << after.id
        if new & ~before.reach:
            before.reach |= new
            if before.awaited:
                for other in self.drafts.values():
                    if other.reach >> before.id & 1:
                        other.reach |= before.reach

    def _order(self) -> list[Draft]:
        """By anchor, each after those that must run before it."""
        waiting = dict.fromkeys(self.drafts, 0)
        for draft in self.drafts.values():
            draft.later = {self._now(k) for k in draft.later} - {draft.id}
            for k in draft.later:
                waiting[k] += 1
        ready = [(d.anchor, d.id) for d in self.drafts.values() if not waiting[d.id]]
        heapify(ready)
        done: list[Draft] = []
        while ready:
            draft = self.drafts[heappop(ready)[1]]
            done.append(draft)
            for k in draft.later:
                waiting[k] -= 1
                if not waiting[k]:
                    heappush(ready, (self.drafts[k].anchor, k))
        if len(done) < len(self.drafts):  # pragma: no cover - every join is checked
            raise IRError(self.a.graph.name, "kernel groups in an order", "a cycle between them")
        return done

    def _now(self, id: int) -> int:
        """The group that a merged one became."""
        while id in self.became:
            id = self.became[id]
        return id

    # -- stores ----------------------------------------------------------------------------------------------
    def _copy(self, store: Node) -> None:
        """A store of a persistent tensor or an input: a kernel of its own."""
        base, name = base_of(store.inputs[0]), str(store.attrs["name"])
        draft = self._new("copy", base.type.numel, self.a.position[store])
        draft.stores.append((base, name))
        self._bind_store(draft, name, self.a.position[store])
        self._note_reads(draft, [base])

    def _bind_store(self, draft: Draft, name: str, position: int) -> None:
        """Order a group that writes a tensor against the groups that read it or write it."""
        leaf = self.leaves.get(name)
        if leaf is not None:
            pre = self.a.position[leaf.node] < position
            for reader in list(self.leaf_readers.get(leaf, {}).values()):
                if pre:
                    self._link(reader, draft)
                else:
                    self._link(draft, reader)
        if name in self.storing:
            self._link(draft, self.storing[name])
        self.storing[name] = draft

    def _note_reads(self, draft: Draft, values: list[Value]) -> None:
        """Record reads of persistent tensors, each before the store that changes it."""
        for value in values:
            if value.node.op not in ("param", "state"):
                continue
            self.leaf_readers.setdefault(value, {})[draft.id] = draft
            writer = self.storing.get(str(value.node.attrs["name"]))
            if writer is not None and writer is not draft and self._read_first(value):
                self._link(draft, writer)

    def _read_first(self, leaf: Value) -> bool:
        """Whether a leaf stands before every store of its tensor."""
        places = self.store_at.get(str(leaf.node.attrs["name"]))
        return bool(places) and self.a.position[leaf.node] < places[0]

    def _in_place(self, node: Node, draft: Draft, level: Level) -> bool:
        """Whether a member reads what its own group overwrites only where, and when, it is about to."""
        written = {name: value for value, name in draft.stores}
        for value, relation in self.a.reads[node]:
            if value.node.op in ("param", "state") and (name := str(value.node.attrs["name"])) in written:
                at = draft.levels.get(written[name].node, level)
                if relation != "same" or at != level or self.a.kinds[node] == "reduce":
                    return False
        return True

    def _after(self, node: Node, draft: Draft) -> list[Draft]:
        """Groups that must run after ``draft`` where it holds ``node``."""
        out: list[Draft] = []
        for value, _ in self.a.reads[node]:
            if value.node.op in ("param", "state") and self._read_first(value):
                writer = self.storing.get(str(value.node.attrs["name"]))
                if writer is not None and writer is not draft:
                    out.append(writer)
        for value in node.outputs:
            for store in self.a.stores.get(value, []):
                leaf = self.leaves.get(str(store.attrs["name"]))
                if leaf is not None and not self._read_first(leaf):
                    out += self.leaf_readers.get(leaf, {}).values()
        return out

    def _fold_stores(self, node: Node, draft: Draft) -> None:
        """Let the group that computes a value write it to its tensor, or add a copy where order forbids."""
        for value in node.outputs:
            for k, store in enumerate(self.a.stores.get(value, [])):
                name, position = str(store.attrs["name"]), self.a.position[store]
                if k == 0 and self._foldable(value, name, draft):
                    draft.stores.append((value, name))
                    self._bind_store(draft, name, position)
                    continue
                copy = self._new("copy", value.type.numel, position)
                copy.stores.append((value, name))
                self._link(draft, copy)
                self._bind_store(copy, name, position)

    def _foldable(self, value: Value, name: str, draft: Draft) -> bool:
        leaf = self.leaves.get(name)
        if len(self.store_at[name]) > 1:
            return False
        if leaf is None or not self._read_first(leaf):
            return True
        for reader in self.leaf_readers.get(leaf, {}).values():
            if reader is not draft and self._reaches(draft, reader):
                return False
        draft.stores.append((value, name))
        good = all(self._in_place(node, draft, at) for node, at in draft.levels.items())
        draft.stores.pop()
        return good

    # -- gathering -------------------------------------------------------------------------------------------
    def _place(self, node: Node) -> None:
        """Give a node its group."""
        a = self.a
        uses: dict[int, list[tuple[Node, Relation]]] = {}
        for value in node.outputs:
            for use in a.uses.get(value, []):
                draft = self.of.get(use[0])
                if draft is not None:
                    uses.setdefault(draft.id, []).append(use)
        kept = any(v in a.escapes for v in node.outputs)
        if not uses and not kept:
            return
        groups = [self.drafts[k] for k in uses]
        if a.fuse:
            groups = self._merge(node, groups, uses)
            if a.kinds[node] == "family":
                if len(groups) == 1 and not kept and self._join_product(node, groups[0], uses[groups[0].id]):
                    return
            else:
                if len(groups) == 1 and not kept and self._join_only(node, groups[0], uses[groups[0].id]):
                    return
                if self._join_as_output(node, groups, uses):
                    return
        draft = self._fresh(node)
        self._enter(node, draft, "row" if draft.kind == "reduce" else "element", groups, output=True)

    def _join_product(self, node: Node, draft: Draft, uses: list[tuple[Node, Relation]]) -> bool:
        """Let the one group that reads a product become its epilogue, or its way to store."""
        a = self.a
        if node.op not in EPILOGUES or draft.kind != "pointwise" or not self._legal(node, draft, [draft]):
            return False
        if draft.space != node.outputs[0].type.numel:
            return False
        if len(draft.outputs) > EPILOGUE_OUTPUTS or sum(a.cost(n) for n in draft.levels) > EPILOGUE_COST:
            return self._join_start(node, draft, uses)
        moved = len(draft.levels) == 1 and uses[0][0].op == "permute" and uses[0][0].inputs[0] is node.outputs[0]
        if moved:
            if node.op != "matmul":
                return False
        elif any(r != "same" or draft.levels[n] != "element" for n, r in uses):
            return False
        elif not any(v.dtype in ("f32", "f16") for v in draft.outputs):
            return False
        read = {leaf for v, _ in a.reads[node] for leaf in [v] if v.node.op in ("param", "state")}
        names = {name for _, name in draft.stores}
        if any(str(v.node.attrs["name"]) in names for v in read):
            return False
        mine = {v for n in draft.levels for v, _ in a.reads[n] if str(v.node.attrs.get("name")) in names}
        if mine and node.op not in ("matmul", "conv2d_grad_weight"):
            return False
        if mine and not (len(draft.levels) == 1 and uses[0][0].op == "add" and len(draft.stores) == 1):
            return False
        members = {*draft.levels, node}
        reads = {v for n in members for v, _ in a.reads[n] if v.node not in members}
        if self._windows([*reads, *draft.outputs]) > self.limits.max_storage_buffers_per_shader_stage:
            return False
        draft.kind, draft.family = "family", node
        self._enter(node, draft, "element", [draft], output=False)
        return True

    def _join_start(self, node: Node, draft: Draft, uses: list[tuple[Node, Relation]]) -> bool:
        """Let a product apply the first cheap nodes (a bias) of a group that is too much for its kernel."""
        stored = {value for value, _ in draft.stores}
        chain: list[Node] = []
        while len(uses) == 1 and len(chain) < EPILOGUE_START:
            ((user, relation),) = uses
            value = user.outputs[0]
            if self.of.get(user) is not draft or relation != "same" or draft.levels[user] != "element":
                break
            if self.a.cost(user) > 2 or value in stored or value.dtype not in ("f32", "f16"):
                break
            if any(v.node in draft.levels and v.node not in chain for v, _ in self.a.reads[user]):
                break
            chain.append(user)
            uses = self.a.uses.get(value, [])
            if value in draft.outputs:
                break
        read = {v for n in (node, *chain) for v, _ in self.a.reads[n] if v.node not in (node, *chain)}
        if not chain:
            return False
        if self._windows([*read, chain[-1].outputs[0]]) > self.limits.max_storage_buffers_per_shader_stage:
            return False
        first = self._new("family", draft.space, self.a.position[chain[-1]])
        first.family = node
        last = chain[-1].outputs[0]
        first.outputs[last] = draft.outputs.pop(last, "read by another kernel")
        for member in chain:
            first.levels[member] = draft.levels.pop(member)
            self.of[member] = first
        self._enter(node, first, "element", [draft], output=False)
        self._note_reads(first, list(read))
        return True

    def _fresh(self, node: Node) -> Draft:
        kind = self.a.kinds[node]
        anchor = self.a.position[node]
        if kind == "reduce":
            return self._new("reduce", node.inputs[0].type.numel, anchor, self.a.patterns.get(node, ()))
        draft = self._new("family" if kind == "family" else "pointwise", node.outputs[0].type.numel, anchor)
        if kind == "family":
            draft.family = node
        return draft

    def _enter(self, node: Node, draft: Draft, level: Level, groups: list[Draft], *, output: bool) -> None:
        """Put a node into a group, with the order that its reads and writes imply."""
        for other in self._after(node, draft):
            self._link(draft, other)
        draft.levels[node] = level
        self.of[node] = draft
        for group in groups:
            self._link(draft, group)
        if output:
            many = f"used by {len(groups)} kernels" if len(groups) > 1 else ""
            for value in node.outputs:
                if value in self.a.escapes or value in self.a.uses:
                    draft.outputs[value] = self.a.escapes.get(value) or many or "read by another kernel"
        self._note_reads(draft, [value for value, _ in self.a.reads[node]])
        if output:
            self._fold_stores(node, draft)

    def _legal(self, node: Node, draft: Draft, groups: list[Draft]) -> bool:
        """Whether a node may join a group without a cycle, given all groups that read it."""
        if len(draft.levels) >= MAX_NODES:
            return False
        others = [*groups, *self._after(node, draft)]
        return not any(other is not draft and self._reaches(other, draft) for other in others)

    def _join_only(self, node: Node, draft: Draft, uses: list[tuple[Node, Relation]]) -> bool:
        """Join the one group that reads a node, without keeping its result."""
        if draft.kind in ("family", "copy") or not self._legal(node, draft, [draft]):
            return False
        level = self._fit(node, draft, uses)
        if level is None:
            if not self._inlinable(node, draft, uses):
                return False
            level = "inline"
        if not self._in_place(node, draft, level):
            return False
        self._enter(node, draft, level, [draft], output=False)
        return True

    def _join_as_output(self, node: Node, groups: list[Draft], uses: dict[int, list[tuple[Node, Relation]]]) -> bool:
        """Join the earliest group that can also write the node's result."""
        for draft in sorted(groups, key=lambda d: d.anchor):
            if draft.kind == "reduce" and node in self.a.tails:
                continue
            if draft.kind not in ("pointwise", "reduce") or not self._legal(node, draft, groups):
                continue
            level = self._fit(node, draft, uses.get(draft.id, []), kept=True)
            if level in ("element", "row") and self._in_place(node, draft, level):
                self._enter(node, draft, level, groups, output=True)
                return True
        return False

    def _clear_with_readers(self) -> None:
        """Let groups that read a tensor for the last time also write the constant that is stored to it."""
        for draft in list(self.drafts.values()):
            if draft.kind != "pointwise" or len(draft.stores) != 1 or any(self.a.reads[n] for n in draft.levels):
                continue
            value, name = draft.stores[0]
            leaf = self.leaves.get(name)
            if leaf is None or not self._read_first(leaf) or len(draft.outputs) > 1 or self.a.uses.get(value):
                continue
            readers = list(self.leaf_readers.get(leaf, {}).values())
            for reader in readers:
                others = [r for r in readers if r is not reader]
                if (
                    reader.kind == "pointwise"
                    and reader.space == draft.space
                    and not any(self._reaches(reader, other) for other in others)
                    and self._bindings(reader) < self.limits.max_storage_buffers_per_shader_stage
                    and self._alone(reader, leaf)
                ):
                    reader.reach &= ~(1 << draft.id)
                    self._absorb(reader, draft)
                    for other in others:
                        self._link(other, reader)
                    break

    def _alone(self, draft: Draft, leaf: Value) -> bool:
        """Whether a group reads a tensor only where each element writes."""
        return all(
            relation == "same" and level == "element"
            for node, level in draft.levels.items()
            for value, relation in self.a.reads[node]
            if value is leaf
        )

    def _fit(self, node: Node, draft: Draft, uses: list[tuple[Node, Relation]], *, kept: bool = False) -> Level | None:
        """The level at which a group can hold a node, turning it into a row group where that is needed."""
        a = self.a
        kind, numel = a.kinds[node], node.outputs[0].type.numel
        pattern = a.patterns.get(node, ())
        if draft.kind == "pointwise":
            same = all(r == "same" and self._reading(n, draft) == "element" for n, r in uses)
            if kind != "reduce" and same and numel == draft.space:
                return "element"
            if not pattern:
                return None
            total = rows_of(pattern) * cols_of(pattern)
            if (
                draft.space == total
                and fusable(pattern)
                and uses
                and all(r == ("rows", pattern) and self._reading(n, draft) == "element" for n, r in uses)
            ):
                draft.kind, draft.pattern = "reduce", pattern
                return "row"
            if kind == "reduce" and same and draft.space == numel:
                draft.kind, draft.pattern, draft.space = "reduce", pattern, total
                for member, level in draft.levels.items():
                    draft.levels[member] = "row" if level == "element" else level
                return "row"
            return None
        if draft.kind != "reduce" or not draft.pattern:
            return None
        rows = rows_of(draft.pattern)
        read_at = [(self._reading(n, draft), r) for n, r in uses]
        if kind == "reduce" and pattern != draft.pattern:
            return None
        if numel == rows and (kind == "reduce" or rows != draft.space):
            for at, relation in read_at:
                if at == "row" and relation == "same":
                    continue
                if at in ("element", "picked") and relation == ("rows", draft.pattern) and fusable(draft.pattern):
                    continue
                break
            else:
                return "row"
        if kind == "reduce" or numel != draft.space or a.wants.get(node, draft.pattern) != draft.pattern:
            return None
        if kept and not (fusable(draft.pattern) and draft.pattern[-1][1]):
            return None
        trailing = len(draft.pattern) <= 2 and any(reduced for _, reduced in draft.pattern[-1:])
        picked = False
        for at, relation in read_at:
            if at in ("element", "picked") and relation == "same":
                picked |= at == "picked"
            elif at == "row" and relation == "pick" and trailing:
                picked = True
            else:
                return None
        only_picked = picked and not any(at == "element" for at, _ in read_at)
        if only_picked and not kept and uses:
            return "picked"
        return "element"

    def _reading(self, node: Node, draft: Draft) -> Level:
        """The level at which a member reads its operands: a reduction reads elements."""
        if self.a.kinds[node] == "reduce":
            return "element"
        return draft.levels[node]

    def _inlinable(self, node: Node, draft: Draft, uses: list[tuple[Node, Relation]]) -> bool:
        """Whether a node's only group may evaluate it wherever it needs it."""
        if self.a.kinds[node] == "reduce":
            return False
        numel = node.outputs[0].type.numel
        asked = max(n.inputs[0].type.numel if self.a.kinds[n] == "reduce" else n.outputs[0].type.numel for n, _ in uses)
        if asked <= 2 * numel:
            return True
        cost = 6 if node.op in COSTLY else 1
        if draft.inlined + cost > INLINE_COST:
            return False
        draft.inlined += cost
        return True

    # -- merging ---------------------------------------------------------------------------------------------
    def _merge(self, node: Node, groups: list[Draft], uses: dict[int, list[tuple[Node, Relation]]]) -> list[Draft]:
        """Merge groups that read a node, over the same space, near each other and independent."""
        out: list[Draft] = []
        for draft in sorted(groups, key=lambda d: d.anchor):
            for other in out:
                if self._mergeable(other, draft):
                    self._absorb(other, draft)
                    uses.setdefault(other.id, []).extend(uses.pop(draft.id, []))
                    break
            else:
                out.append(draft)
        return out

    def _merge_apart(self) -> None:
        """Merge independent groups that share no operand, where a dispatch saved is worth it.

        These are reductions of one pattern without element outputs (bias gradients), and groups of few elements.
        """
        spaces: dict[object, list[Draft]] = {}
        for draft in sorted(self.drafts.values(), key=lambda d: d.anchor):
            if draft.kind == "pointwise" and draft.space <= SMALL:
                key: object = draft.space
            elif draft.kind == "reduce" and draft.pattern and not draft.pattern[-1][1]:
                if any(draft.levels[v.node] == "element" for v in draft.outputs):
                    continue
                key = draft.pattern
            else:
                continue
            others = spaces.setdefault(key, [])
            for other in reversed(others):
                if self._mergeable(other, draft):
                    self._absorb(other, draft)
                    break
            else:
                others.append(draft)

    def _mergeable(self, x: Draft, y: Draft) -> bool:
        if self._span(x, y) > NEAR or self._reaches(x, y) or self._reaches(y, x):
            return False
        if len(x.levels) + len(y.levels) > MAX_NODES or x.space != y.space:
            return False
        if sum(self.a.kinds[n] == "reduce" for d in (x, y) for n in d.levels) > MERGED_SUMS:
            return False
        kinds = {x.kind, y.kind}
        if kinds == {"reduce"}:
            same = x.pattern == y.pattern
        elif kinds == {"pointwise", "reduce"}:
            pattern = x.pattern or y.pattern
            same = fusable(pattern) and pattern[-1][1]
        else:
            same = kinds == {"pointwise"}
        return same and self._bindings(x, y) <= min(self.limits.max_storage_buffers_per_shader_stage, MERGED_BINDINGS)

    def _windows(self, values: Iterable[Value]) -> int:
        """Bindings of tensors that a kernel reaches anywhere: one for each window of the binding cap."""
        cap = self.limits.max_storage_buffer_binding_size // ALIGN * ALIGN
        return sum(max(1, -(-v.type.nbytes // cap)) for v in values)

    def _span(self, *drafts: Draft) -> int:
        """Nodes between the first and the last result of groups."""
        at = [self.a.position[v.node] for d in drafts for v in d.outputs] or [d.anchor for d in drafts]
        return max(*at, *(d.anchor for d in drafts)) - min(at)

    def _bindings(self, *drafts: Draft) -> int:
        members = {n for d in drafts for n in d.levels}
        read = {v for n in members for v, _ in self.a.reads[n] if v.node not in members}
        stored = {self.leaves.get(name) for d in drafts for _, name in d.stores}
        return len(read - stored) + sum(len(d.outputs) for d in drafts)

    def _absorb(self, x: Draft, y: Draft) -> None:
        if x.kind == "pointwise" and y.kind == "reduce":
            x.kind, x.pattern = "reduce", y.pattern
        x.anchor = max(x.anchor, y.anchor)
        x.levels.update(y.levels)
        x.outputs.update(y.outputs)
        x.stores += y.stores
        x.inlined += y.inlined
        for member in y.levels:
            self.of[member] = x
        for readers in self.leaf_readers.values():
            if readers.pop(y.id, None) is not None:
                readers[x.id] = x
        for name, draft in self.storing.items():
            if draft is y:
                self.storing[name] = x
        x.later |= y.later
        x.awaited |= y.awaited
        del self.drafts[y.id]
        self.became[y.id] = x.id
        x.reach |= y.reach
        if not x.awaited:
            return
        either = 1 << x.id | 1 << y.id
        for other in self.drafts.values():
            if other.reach & either:
                other.reach = other.reach & ~(1 << y.id) | 1 << x.id | x.reach
