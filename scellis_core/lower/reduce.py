"""Reductions and row groups.

A group has a space of rows (the kept axes) and columns (the reduced ones). A team of threads takes a row. It works
in passes: pass ``p`` evaluates the elements that need at most the results of earlier passes, reduces them through
shared memory and writes the element outputs that are ready; row values live in variables. Rows that fit are held in
registers between passes; longer ones are read again. Where there are few rows, or the reduced axes come first, a
group that has a single pass and no element outputs is cut: a first kernel reduces pieces, a second one the pieces'
results, both in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scellis_core.ir import DTYPES, Node, Value
from scellis_core.lower.accum import Accumulator, Shared, named, tree
from scellis_core.lower.call import Call, Scratch, finish
from scellis_core.lower.expr import Evaluator
from scellis_core.lower.group import Group
from scellis_core.lower.index import Code, Ix, Position, Shape, constant, lane, linear
from scellis_core.lower.pointwise import QUAD_DTYPES, Binding, Tensors, kernel_name, over_cap, store_quad
from scellis_core.lower.program import Limits
from scellis_core.lower.views import cols_of, rows_of
from scellis_core.lower.wgsl import Mem, Module, ScalarTable

HELD = 8
"""Elements of a row that a thread holds between passes."""

HELD_TEXT = 700
"""Longest unrolled body in node evaluations: beyond, the pass is a loop."""

WORKGROUPS = 1024
"""First-pass workgroups that a cut reduction aims at."""


@dataclass
class Plan:
    """A reduce group read for emission.

    Attributes:
        rows, cols: sizes.
        passes: for each pass its reductions and its element outputs.
        row_outputs: outputs of the kept axes, written last.
    """

    group: Group
    rows: int
    cols: int
    passes: list[tuple[list[Node], list[Value]]]
    row_outputs: list[Value]

    @property
    def reductions(self) -> list[Node]:
        """All reductions, in order of passes."""
        return [n for nodes, _ in self.passes for n in nodes]

    @property
    def single(self) -> bool:
        """Whether it has one pass and no element outputs."""
        return len(self.passes) == 1 and not self.passes[0][1]


def plan_of(group: Group, alias: set[Value]) -> Plan:
    """Order a group's work into passes; outputs in ``alias`` are written in the last one."""
    pattern = group.pattern
    ready: dict[Node, int] = {}
    found: dict[int, list[Node]] = {}
    reductions = {n for n in group.nodes if Accumulator.of(n).combine}
    for node in group.body:
        ready[node] = max([ready.get(v.node, 0) for v in node.inputs], default=0)
        if node in reductions:
            found.setdefault(ready[node], []).append(node)
            ready[node] += 1
    elements = [v for v in group.outputs if group.levels[v.node] == "element" and v.node not in reductions]
    count = max([p + 1 for p in found] + [ready[v.node] + 1 for v in elements], default=1)
    passes: list[tuple[list[Node], list[Value]]] = [(found.get(p, []), []) for p in range(count)]
    for value in elements:
        passes[count - 1 if value in alias else ready[value.node]][1].append(value)
    if not pattern:
        rows, cols = next(iter(reductions)).inputs[0].type.numel, 1
    else:
        rows, cols = rows_of(pattern), cols_of(pattern)
    return Plan(group, rows, cols, passes, [v for v in group.outputs if v not in elements])


@dataclass
class Job:
    """One kernel of a plan.

    Attributes:
        rows, cols: what it covers of the group's rows and columns.
        row0, col0: where that begins.
        length: elements of a piece; ``cols`` where rows are whole.
        partial: whether it writes accumulators to scratch, not results.
        merging: whether its elements are accumulators from scratch.
        piece0, pieces: for a partial job, where its pieces stand among all pieces of a row.
        part, parts: elements of the space that it binds, of which tensors; all of every tensor where empty.
    """

    rows: int
    cols: int
    row0: int = 0
    col0: int = 0
    length: int = 0
    partial: bool = False
    merging: bool = False
    piece0: int = 0
    pieces: int = 1
    part: tuple[int, int] = (0, 0)
    parts: frozenset[Value] = frozenset()

    @property
    def here(self) -> int:
        """Pieces of a row that this job makes."""
        return -(-self.cols // self.length) if self.partial else 1


def power(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()


def reduce_calls(group: Group, limits: Limits, scalars: ScalarTable, binding: Binding) -> list[Call]:
    """The kernels of a reduce group: one, or where it is cut one for the pieces and one to merge them.

    Where its elements pass one binding there are more: each covers as many rows, or pieces, as a binding holds.
    """
    alias = {group.outputs[int(o[3:])] for o in binding.alias}
    plan = plan_of(group, alias)
    pattern = group.pattern
    columns = bool(pattern) and plan.single and not pattern[-1][1]
    emit = _Columns if columns else _Rows
    jobs = _jobs(plan, columns, limits)
    return [emit(plan, job, limits, scalars, binding).call() for job in jobs]


def _jobs(plan: Plan, columns: bool, limits: Limits) -> list[Job]:
    """The kernels of a plan."""
    elements = [v for _, outs in plan.passes for v in outs]
    pieces, length = _cut(plan, columns) if plan.single else (1, plan.cols)
    over = over_cap(plan.group, elements, limits)
    parts = frozenset([*plan.group.aligned, *elements])
    room = limits.max_storage_buffer_binding_size // 4 // 1024 * 1024
    contiguous = len(plan.group.pattern) <= 2
    if over and not columns and contiguous and plan.cols * 4 <= room:
        unit = 1024 // gcd(plan.cols, 1024)
        step = max(room // plan.cols // unit, 1) * unit
        if step * plan.cols <= room:
            return [
                Job(n, plan.cols, row0=row, part=(row * plan.cols, n * plan.cols), parts=parts)
                for row in range(0, plan.rows, step)
                for n in [min(step, plan.rows - row)]
            ]
    if over and plan.single and contiguous and (columns or plan.rows == 1):
        unit = 1024 // gcd(plan.rows, 1024)
        step = max(room // plan.rows // unit, 1) * unit
        if step * plan.rows <= room:
            length = min(length, step)
            made: list[Job] = []
            total = 0
            for col in range(0, plan.cols, step):
                n = min(step, plan.cols - col)
                made.append(
                    Job(plan.rows, n, col0=col, length=length, partial=True, piece0=total,
                        part=(col * plan.rows, n * plan.rows), parts=parts)
                )  # fmt: skip
                total += made[-1].here
            return [*(replace(job, pieces=total) for job in made), Job(plan.rows, total, merging=True)]
    if pieces == 1:
        return [Job(plan.rows, plan.cols)]
    first = Job(plan.rows, plan.cols, length=length, partial=True, pieces=pieces)
    return [first, Job(plan.rows, pieces, merging=True)]


def _cut(plan: Plan, columns: bool) -> tuple[int, int]:
    """(pieces, elements of a piece) for a single-pass group."""
    if columns:
        tiles = -(-plan.rows // 32)
        pieces = min(-(-plan.cols // 64), max(1, WORKGROUPS // 2 // tiles)) if plan.cols > 128 else 1
    else:
        pieces = min(-(-plan.cols // 4096), max(1, WORKGROUPS // plan.rows)) if plan.cols > 8192 else 1
    length = -(-plan.cols // pieces)
    if not columns:
        length = -(-length // 4) * 4
    return -(-plan.cols // length), length


class _Kernel:
    """What row and column kernels share: positions, tensors, scratch, results."""

    def __init__(self, plan: Plan, job: Job, limits: Limits, scalars: ScalarTable, binding: Binding) -> None:
        self.plan, self.job, self.limits, self.scalars, self.binding = plan, job, limits, scalars, binding
        self.group = plan.group
        self.accumulators = [Accumulator.of(n) for n in plan.reductions]
        self.narrow: set[Value] = set()
        self.quad = False

    def call(self) -> Call:
        """Write the kernel, again without wide access to tensors that turned out not to allow it."""
        self.quad = self.quads()
        while True:
            self.module = Module(self.name(), self.limits, scalars=self.scalars)
            self.code = Code()
            self.scratch: list[Scratch] = []
            self.unused: list[str] = []
            self.tensors = Tensors(self.module, self.group, self.binding, self.wide, self.job.part, self.job.parts)
            self.declare()
            self.evaluator = Evaluator(self.module, self.code, self.tensors.mems)
            self.evaluator.parts = set(self.job.parts)
            grid, shared = self.write()
            mems = self.tensors.mems
            missed = {v for v in self.evaluator.scalar_reads if mems[v].vec == 4}
            if not missed:
                break
            self.narrow |= missed
            if any(self.tensors.outs.get(o) is mems[v] for v in missed for o in self.group.outputs):
                self.quad = False
        call = finish(self.module, self.code.text(), grid, shared=shared, scratch=self.scratch, op=self.group.title)
        return call

    def name(self) -> str:
        """Kernel name."""
        return kernel_name(self.group) + ("_pieces" if self.job.partial else "_merge" if self.job.merging else "")

    def quads(self) -> bool:
        """Whether threads take four elements at once."""
        return False

    def wide(self, value: Value) -> bool:
        """Whether a tensor is bound as vec4."""
        return (
            self.quad
            and value not in self.narrow
            and value.type.numel % 4 == 0
            and (value in self.group.aligned or value in self._elements())
        )

    def _elements(self) -> list[Value]:
        return [v for _, outs in self.plan.passes for v in outs]

    def declare(self) -> None:
        """Declare the tensors that this kernel reads and writes."""
        group, job = self.group, self.job
        first, last = self._needs()
        if job.partial:
            self.tensors.declare([v for v in group.inputs if v in first], [])
        elif job.merging:
            self.tensors.declare([v for v in group.inputs if v in last], group.outputs)
        else:
            self.tensors.declare(group.inputs, group.outputs)
        self.pieces: list[list[Mem]] = []
        if not (job.partial or job.merging):
            return
        count = job.rows * (job.pieces if job.partial else job.cols)
        k = 0
        for accumulator in self.accumulators:
            mems: list[Mem] = []
            for type in accumulator.types:
                key = f"scratch{k}"
                k += 1
                mems.append(self.module.tensor(key, type, count, "read_write" if job.partial else "read"))
                if job.partial and not job.piece0:
                    self.scratch.append((key, type, count))
            self.pieces.append(mems)

    def _needs(self) -> tuple[set[Value], set[Value]]:
        """Inputs behind the reductions' elements, and inputs of what is computed from their results."""
        group = self.group

        def behind(roots: Sequence[Value], stop: set[Node]) -> set[Value]:
            found: set[Value] = set()
            seen: set[Value] = set()
            stack = list(roots)
            while stack:
                value = stack.pop()
                if value in seen:
                    continue
                seen.add(value)
                if value in group.inputs:
                    found.add(value)
                elif value.node not in stop:
                    stack += value.node.inputs
            return found

        reductions = set(self.plan.reductions)
        return behind([n.inputs[0] for n in reductions], set()), behind(self.plan.row_outputs, reductions)

    def shifted(self, name: str, local: Ix, start: int, size: int) -> Ix:
        """``local + start`` as an index over the whole, its statement dropped again where nothing uses it."""
        if not start:
            return local
        line = f"let {name} = {local.text} + {start}u;"
        self.code.line(line, local.depth)
        self.unused.append(line)
        return self.code.index(name, size, local.depth)

    def position(self, row: Ix, e: Ix, local_row: Ix | None = None, local_e: Ix | None = None) -> Position:
        """The element of a row, as digits over the pattern; the local ones say where it lies in the part bound."""
        code, plan, job = self.code, self.plan, self.job
        pattern = self.group.pattern
        if not pattern:
            return linear(row, plan.rows)
        kept: Shape = tuple([n for n, reduced in pattern if not reduced])
        summed: Shape = tuple([n for n, reduced in pattern if reduced])
        rows = iter(code.digits(linear(row, plan.rows), kept))
        cols = iter(code.digits(linear(e, plan.cols), summed))
        found = Position(
            tuple([n for n, _ in pattern]), tuple([next(cols) if reduced else next(rows) for _, reduced in pattern])
        )
        if job.parts and found.key not in self.evaluator.local:
            r, c = local_row or row, local_e or e
            if pattern[-1][1]:
                flat = code.add(code.mul(r, job.cols), c) if plan.rows > 1 else c
            else:
                flat = code.add(code.mul(c, job.rows), r)
            self.evaluator.local[found.key] = flat
        return found

    def row_position(self, row: Ix) -> Position:
        """The position of a row value."""
        pattern = self.group.pattern
        kept: Shape = tuple([n for n, reduced in pattern if not reduced]) if pattern else (self.plan.rows,)
        if self.plan.rows == 1:
            return Position((), ())
        return Position(kept, self.code.digits(linear(row, self.plan.rows), kept))

    def bind_results(self, nodes: Sequence[Node], parts: Sequence[Sequence[str]], row: Ix) -> None:
        """Make the results of reductions known to the expressions that use them."""
        for node, have in zip(nodes, parts, strict=True):
            text = named(self.code, [Accumulator.of(node).finish(have)])[0]
            value, places = node.outputs[0], {self.row_position(row).key: self.row_position(row)}
            flat = linear(row, self.plan.rows)
            places[flat.key] = flat
            for place in places.values():
                self.evaluator.bind(value, place, text, 0)

    def write(self) -> tuple[tuple[int, int, int], str]:
        """Write the body; returns grid and shared declarations."""
        raise NotImplementedError

    def write_results(self, row: Ix, writes: str, parts: Sequence[Sequence[str]], piece: str) -> None:
        """Write the row outputs, or the accumulators of a piece, where ``writes`` holds."""
        code = self.code
        if not self.job.partial and not self.plan.row_outputs:
            return
        if any(
            self.tensors.outs[v] in self.tensors.mems.values() for v in self.plan.row_outputs if not self.job.partial
        ):
            code.line("storageBarrier();")
            code.line("workgroupBarrier();")
        code.open(f"if ({writes})", guard=True)
        if self.job.partial:
            for mems, have in zip(self.pieces, parts, strict=True):
                for mem, text in zip(mems, have, strict=True):
                    code.line(mem.store(piece, text))
        else:
            place = self.row_position(row)
            texts = [self.evaluator.at(v, place)[0] for v in self.plan.row_outputs]
            for value, text in zip(self.plan.row_outputs, texts, strict=True):
                code.line(self.tensors.outs[value].store(row.text, text))
        code.close()


class _Rows(_Kernel):
    """A team of threads a row."""

    def quads(self) -> bool:
        pattern = self.group.pattern
        chosen = self.binding.quad
        return (
            chosen is not False
            and not self.job.merging
            and bool(pattern)
            and pattern[-1][1]
            and pattern[-1][0] % 4 == 0
            and self.job.cols % 4 == 0
            and all(v.dtype in QUAD_DTYPES for v in self._elements())
        )

    def write(self) -> tuple[tuple[int, int, int], str]:
        code, job, plan = self.code, self.job, self.plan
        width = 4 if self.quad else 1
        steps = -(-job.cols // width)
        self.team = team = min(power(steps if width == 4 else -(-steps // 4) if steps > 64 else steps), 256,
                               self.limits.max_compute_invocations_per_workgroup)  # fmt: skip
        group_size = max(team, 64)
        per_group = group_size // team
        self.module.workgroup = (group_size, 1, 1)
        groups, grid = self.module.groups(-(-job.rows // per_group))
        at = f"{groups} * {per_group}u + li / {team}u" if per_group > 1 else groups
        code.line(f"let row_raw = {at};")
        code.line(f"let row_all = min(row_raw, {job.rows - 1}u);")
        code.line(f"let live = row_raw < {job.rows}u;")
        code.line(f"let lane = li % {team}u;" if per_group > 1 else "let lane = li;")
        code.line("let home = li - lane;")
        whole = code.index("row_all", job.rows, 0)
        row = code.div(whole, job.pieces) if job.pieces > 1 else whole
        self.base = code.mul(code.mod(whole, job.pieces), job.cols) if job.pieces > 1 else constant(0)
        self.steps, self.width = steps, width
        shared = Shared(group_size)
        each = -(-steps // team)
        text = each * width * max(len(self.group.body), 1)
        held = job.pieces == 1 and each * width <= HELD and text <= HELD_TEXT
        chunks = [self._chunk(k) for k in range(each)] if held else []
        parts: list[tuple[str, ...]] = []
        for turn, (nodes, outs) in enumerate(plan.passes):
            accumulators = [Accumulator.of(n) for n in nodes]
            if held:
                have = self._held(nodes, outs, row, whole, chunks)
            else:
                have = self._looped(nodes, outs, row, whole)
            if nodes:
                parts = tree(code, shared, accumulators, have, team=team, stride=1, lane="lane", home="home", turn=turn)
                if not job.partial:
                    self.bind_results(nodes, parts, row)
        self.write_results(row, "lane == 0u && live" if team > 1 else "live", parts, "row_all")
        return grid, shared.text()

    def _chunk(self, k: int) -> tuple[Ix, str]:
        """(index, condition or "") of the thread's k-th step."""
        code, team = self.code, self.team
        name = "lane" if k == 0 else code.let(f"lane{k}", f"lane + {k * team}u", 0, prefix="e")[0]
        if (k + 1) * team <= self.steps:
            return Ix(name, self.steps), ""
        held = code.let(f"held{k}", f"min({name}, {self.steps - 1}u)", 0, prefix="e")[0]
        valid = code.let(f"ok{k}", f"{name} < {self.steps}u", 0, prefix="ok")[0]
        return Ix(held, self.steps), valid

    def _elements_at(self, step: Ix) -> list[Ix]:
        """The columns of one step."""
        if self.width == 4:
            return [self.code.add(self.base, lane(step, k)) for k in range(4)]
        return [self.code.add(self.base, step)]

    def _values(self, node: Node, row: Ix, whole: Ix, e: Ix, index: int) -> tuple[str, ...]:
        """One element of a reduction as an accumulator."""
        if self.job.merging:
            place = self.code.add(self.code.mul(row, self.job.cols), e)
            return tuple([
                self.code.let((m.name, place.text), m.load(place.text), place.depth, value=True)[0]
                for m in self.pieces[index]
            ])  # fmt: skip
        text, _ = self.evaluator.at(
            node.inputs[0], self.position(row, e) if self.plan.cols > 1 else linear(row, self.plan.rows)
        )
        return Accumulator.of(node).lift(text, self.code.scalar(e))

    def _held(
        self, nodes: Sequence[Node], outs: Sequence[Value], row: Ix, whole: Ix, chunks: Sequence[tuple[Ix, str]]
    ) -> list[tuple[str, ...]]:
        code = self.code
        result: list[tuple[str, ...]] = []
        for index, node in enumerate(nodes):
            accumulator = Accumulator.of(node)
            have: tuple[str, ...] = ()
            for step, valid in chunks:
                for e in self._elements_at(step):
                    more = self._values(node, row, whole, e, index)
                    if valid and accumulator.combine == "sum":
                        more = accumulator.neutral(more, valid)
                    have = named(code, accumulator.join(code, have, more)) if have else named(code, more)
            result.append(have)
        for step, valid in chunks:
            self._store(outs, row, step, " && ".join([t for t in (valid, "live") if t]))
        return result

    def _looped(self, nodes: Sequence[Node], outs: Sequence[Value], row: Ix, whole: Ix) -> list[tuple[str, ...]]:
        code = self.code
        result: list[tuple[str, ...]] = []
        for node in nodes:
            accumulator = Accumulator.of(node)
            names: list[str] = []
            for type, start in zip(accumulator.types, accumulator.start, strict=True):
                names.append(code.name("acc"))
                code.line(f"var {names[-1]}: {type} = {start};")
            result.append(tuple(names))
        bound = f"{self.steps}u"
        if self.job.pieces > 1 and self.plan.cols % self.job.cols:
            left = f"min({self.plan.cols}u - {code.scalar(self.base)}, {self.job.cols}u)"
            bound = code.let("left", f"{left} / {self.width}u", 0, prefix="n")[0]
        counter = code.name("e")
        code.open(f"for (var {counter} = lane; {counter} < {bound}; {counter} += {self.team}u)", guard=False)
        step = code.index(counter, self.steps)
        for index, (node, have) in enumerate(zip(nodes, result, strict=True)):
            accumulator = Accumulator.of(node)
            more: tuple[str, ...] = ()
            for e in self._elements_at(step):
                value = self._values(node, row, whole, e, index)
                more = named(code, accumulator.join(code, more, value)) if more else named(code, value)
            joined = accumulator.join(code, have, more)
            if len(joined) > 1:
                joined = named(code, joined)
            for name, text in zip(have, joined, strict=True):
                code.line(f"{name} = {text};")
        self._store(outs, row, step, "live")
        code.close()
        return result

    def _store(self, outs: Sequence[Value], row: Ix, step: Ix, valid: str) -> None:
        """Write the element outputs of one step."""
        if not outs:
            return
        code = self.code
        elements = self._elements_at(step)
        places = [self.position(row, e) for e in elements]
        texts = [[self.evaluator.at(v, p)[0] for p in places] for v in outs]
        flat = [code.flat(p, self.plan.rows * self.plan.cols) for p in places]
        lines: list[str] = []
        for value, have in zip(outs, texts, strict=True):
            mem = self.tensors.outs[value]
            if mem.vec == 4 and flat[0].base is not None:
                lines.append(store_quad(mem, flat[0].base.text, have))
            else:
                lines += [mem.store(code.scalar(ix), text) for ix, text in zip(flat, have, strict=True)]
        code.open(f"if ({valid})", guard=True)
        for line in lines:
            code.line(line)
        code.close()


class _Columns(_Kernel):
    """Threads side by side over the kept axes, several deep over the reduced ones; single-pass groups only."""

    def write(self) -> tuple[tuple[int, int, int], str]:
        code, job, plan = self.code, self.job, self.plan
        rows = plan.rows
        across = min(power(rows), 32)
        deep = min(256 // across, power(job.cols))
        size = across * deep
        tiles = -(-rows // across)
        self.module.workgroup = (size, 1, 1)
        groups, grid = self.module.groups(tiles * job.pieces)
        code.line(f"let tile_raw = {groups};")
        code.line(f"let row_raw = (tile_raw % {tiles}u) * {across}u + li % {across}u;")
        code.line(f"let row_all = min(row_raw, {rows - 1}u);")
        code.line(f"let live = row_raw < {rows}u && tile_raw < {tiles * job.pieces}u;")
        code.line(f"let lane = li / {across}u;")
        code.line(f"let home = li % {across}u;")
        row = code.index("row_all", rows, 0)
        total = job.cols if job.merging else plan.cols
        if job.pieces > 1:
            code.line(f"let piece = min(tile_raw / {tiles}u, {job.pieces - 1}u);")
            code.line(f"let first = piece * {job.cols}u;")
            code.line(f"let stop = min(first + {job.cols}u, {total}u);")
        else:
            code.line("let first = 0u;")
            code.line(f"let stop = {total}u;")
        accumulators = self.accumulators
        result: list[tuple[str, ...]] = []
        for accumulator in accumulators:
            names: list[str] = []
            for type, start in zip(accumulator.types, accumulator.start, strict=True):
                names.append(code.name("acc"))
                code.line(f"var {names[-1]}: {type} = {start};")
            result.append(tuple(names))
        code.open(f"for (var e = first + lane; e < stop; e += {deep}u)", guard=False)
        e = code.index("e", total)
        for index, node in enumerate(plan.reductions):
            accumulator = accumulators[index]
            if job.merging:
                place = code.add(code.mul(e, rows), row)
                more = tuple([
                    code.let((m.name, place.text), m.load(code.scalar(place)), place.depth, value=True)[0]
                    for m in self.pieces[index]
                ])  # fmt: skip
            else:
                text, _ = self.evaluator.at(node.inputs[0], self.position(row, e))
                more = accumulator.lift(text, "e")
            joined = accumulator.join(code, result[index], named(code, more))
            if len(joined) > 1:
                joined = named(code, joined)
            for name, text in zip(result[index], joined, strict=True):
                code.line(f"{name} = {text};")
        code.close()
        shared = Shared(size)
        parts = tree(code, shared, accumulators, result, team=deep, stride=across, lane="lane", home="home", turn=0)
        if not job.partial:
            self.bind_results(plan.reductions, parts, row)
        self.write_results(row, "lane == 0u && live", parts, f"piece * {rows}u + row_all")
        return grid, shared.text()


Emit = Callable[[Group, Limits, ScalarTable, Binding], list[Call]]

__all__ = ["DTYPES", "Emit", "Plan", "plan_of", "reduce_calls"]
