"""Kernels of reduce groups: teams of threads along rows, and threads side by side over columns."""

from __future__ import annotations

from collections.abc import Sequence

from scellis_core.ir import Node, Value
from scellis_core.lower.accum import Accumulator, Shared, named, tree
from scellis_core.lower.call import Call, Scratch, finish
from scellis_core.lower.expr import Evaluator
from scellis_core.lower.index import Code, Ix, Position, Shape, constant, lane, linear, without_unused
from scellis_core.lower.pointwise import QUAD_DTYPES, Binding, Tensors, behind, kernel_name, store_quad
from scellis_core.lower.program import Limits
from scellis_core.lower.rowplan import Job, Plan
from scellis_core.lower.wgsl import Mem, Module, ScalarTable

HELD = 8
"""Elements of a row that a thread holds between passes."""

HELD_TEXT = 700
"""Longest unrolled body in node evaluations: beyond, the pass is a loop."""


def power(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()


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
        text = without_unused(self.code.text()) if self.job.parts else self.code.text()
        call = finish(self.module, text, grid, shared=shared, scratch=self.scratch, op=self.group.title)
        return self.tensors.bound(call)

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
            and (self.job.part[1] if value in self.job.parts else value.type.numel) % 4 == 0
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
        stop, reductions = self.group.inputs, set(self.plan.reductions)
        return behind([n.inputs[0] for n in reductions], stop), behind(self.plan.row_outputs, stop, reductions)

    def position(self, r: Ix, c: Ix) -> Position:
        """Element ``c`` of the job's row ``r``, as digits over the pattern."""
        code, plan, job = self.code, self.plan, self.job
        pattern = self.group.pattern
        row, e = code.add(constant(job.row0), r), code.add(constant(job.col0), c)
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
            whole = code.add(code.mul(r, plan.cols), c) if pattern[-1][1] else code.add(code.mul(c, plan.rows), r)
            flat = c if plan.rows == 1 else whole
            self.evaluator.local[found.key] = code.add(constant(job.skip), flat)
        return found

    def row_position(self, r: Ix) -> Position:
        """The position of the value of the job's row ``r``."""
        row = self.code.add(constant(self.job.row0), r)
        pattern = self.group.pattern
        kept: Shape = tuple([n for n, reduced in pattern if not reduced]) if pattern else (self.plan.rows,)
        if self.plan.rows == 1:
            return Position((), ())
        return Position(kept, self.code.digits(linear(row, self.plan.rows), kept))

    def bind_results(self, nodes: Sequence[Node], parts: Sequence[Sequence[str]], r: Ix) -> None:
        """Make the results of reductions known to the expressions that use them."""
        flat = linear(self.code.add(constant(self.job.row0), r), self.plan.rows)
        for node, have in zip(nodes, parts, strict=True):
            text = named(self.code, [Accumulator.of(node).finish(have)])[0]
            for place in (self.row_position(r), flat):
                self.evaluator.bind(node.outputs[0], place, text, 0)

    def merged(self, index: int, place: Ix) -> tuple[str, ...]:
        """Accumulator ``place`` of a reduction's scratch."""
        code, text = self.code, self.code.scalar(place)
        found = [code.let((m.name, text), m.load(text), place.depth, value=True)[0] for m in self.pieces[index]]
        return tuple(found)

    def accumulators_of(self, nodes: Sequence[Node]) -> list[tuple[str, ...]]:
        """Variables for the reductions of a loop."""
        result: list[tuple[str, ...]] = []
        for node in nodes:
            accumulator = Accumulator.of(node)
            names: list[str] = []
            for type, start in zip(accumulator.types, accumulator.start, strict=True):
                names.append(self.code.name("acc"))
                self.code.line(f"var {names[-1]}: {type} = {start};")
            result.append(tuple(names))
        return result

    def accumulate(self, node: Node, have: Sequence[str], more: Sequence[str]) -> None:
        """Add a value to the variables of a reduction."""
        joined = Accumulator.of(node).join(self.code, have, more)
        if len(joined) > 1:
            joined = named(self.code, joined)
        for name, text in zip(have, joined, strict=True):
            self.code.line(f"{name} = {text};")

    def write(self) -> tuple[tuple[int, int, int], str]:
        """Write the body; returns grid and shared declarations."""
        raise NotImplementedError

    def write_results(self, r: Ix, writes: str, parts: Sequence[Sequence[str]], piece: str) -> None:
        """Write the row outputs, or at ``piece`` the accumulators, where ``writes`` holds."""
        code, outputs = self.code, [] if self.job.partial else self.plan.row_outputs
        if not self.job.partial and not outputs:
            return
        outs = self.tensors.outs
        if any(outs[v] is mem for v in outputs for mem in self.tensors.mems.values()):
            code.line("storageBarrier();")
            code.line("workgroupBarrier();")
        code.open(f"if ({writes})", guard=True)
        if self.job.partial:
            for mems, have in zip(self.pieces, parts, strict=True):
                for mem, text in zip(mems, have, strict=True):
                    code.line(mem.store(piece, text))
        else:
            place = self.row_position(r)
            texts = [self.evaluator.at(v, place)[0] for v in outputs]
            at = code.scalar(code.add(constant(self.job.row0), r))
            for value, text in zip(outputs, texts, strict=True):
                code.line(outs[value].store(at, text))
        code.close()


class Rows(_Kernel):
    """A team of threads a row, or a piece of one."""

    def quads(self) -> bool:
        """Whether a thread's step is four neighbours."""
        pattern, job = self.group.pattern, self.job
        return (
            self.binding.quad is not False
            and not job.merging
            and bool(pattern)
            and pattern[-1][1]
            and pattern[-1][0] % 4 == 0
            and job.cols % 4 == job.col0 % 4 == job.length % 4 == 0
            and all(v.dtype in QUAD_DTYPES for v in self._elements())
        )

    def write(self) -> tuple[tuple[int, int, int], str]:
        """Write the body; returns grid and shared declarations."""
        code, job, plan = self.code, self.job, self.plan
        self.width = width = 4 if self.quad else 1
        self.steps = steps = -(-(job.length if job.partial else job.cols) // width)
        wanted = steps if width == 4 or steps <= 64 else -(-steps // 4)
        self.team = team = min(power(wanted), 256, self.limits.max_compute_invocations_per_workgroup)
        size = max(team, 64)
        per_group = size // team
        count = job.rows * job.here
        self.module.workgroup = (size, 1, 1)
        groups, grid = self.module.groups(-(-count // per_group))
        code.line(
            f"let row_raw = {groups} * {per_group}u + li / {team}u;" if per_group > 1 else f"let row_raw = {groups};"
        )
        code.line(f"let row_all = min(row_raw, {count - 1}u);")
        code.line(f"let live = row_raw < {count}u;")
        code.line(f"let lane = li % {team}u;" if per_group > 1 else "let lane = li;")
        code.line("let home = li - lane;")
        whole = code.index("row_all", count, 0)
        row, piece = code.div(whole, job.here), code.mod(whole, job.here)
        self.base = code.mul(piece, job.length) if job.partial else constant(0)
        shared = Shared(size)
        each = -(-steps // team)
        text = each * width * max(len(self.group.body), 1)
        held = not job.partial and each * width <= HELD and text <= HELD_TEXT
        chunks = [self._chunk(k) for k in range(each)] if held else []
        parts: list[tuple[str, ...]] = []
        for turn, (nodes, outs) in enumerate(plan.passes):
            have = self._held(nodes, outs, row, chunks) if held else self._looped(nodes, outs, row)
            if nodes:
                accumulators = [Accumulator.of(n) for n in nodes]
                parts = tree(code, shared, accumulators, have, team=team, stride=1, lane="lane", home="home", turn=turn)
                if not job.partial:
                    self.bind_results(nodes, parts, row)
        place = code.add(code.mul(row, job.pieces), code.add(constant(job.piece0), piece))
        self.write_results(row, "lane == 0u && live" if team > 1 else "live", parts, code.scalar(place))
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

    def _values(self, node: Node, row: Ix, e: Ix, index: int) -> tuple[str, ...]:
        """One element of a reduction as an accumulator."""
        code = self.code
        if self.job.merging:
            return self.merged(index, code.add(code.mul(row, self.job.cols), e))
        text, _ = self.evaluator.at(node.inputs[0], self.position(row, e))
        return Accumulator.of(node).lift(text, code.scalar(code.add(constant(self.job.col0), e)))

    def _held(
        self, nodes: Sequence[Node], outs: Sequence[Value], row: Ix, chunks: Sequence[tuple[Ix, str]]
    ) -> list[tuple[str, ...]]:
        """A pass whose elements are named one by one, so that later passes find them in registers."""
        code = self.code
        # Threads past the end look at the last element; what overwrites it may have done so already.
        replaced = bool(self.binding.alias)
        result: list[tuple[str, ...]] = []
        for index, node in enumerate(nodes):
            accumulator = Accumulator.of(node)
            have: tuple[str, ...] = ()
            for step, valid in chunks:
                for e in self._elements_at(step):
                    more = self._values(node, row, e, index)
                    if valid and (replaced or accumulator.combine == "sum"):
                        more = accumulator.neutral(more, valid)
                    have = named(code, accumulator.join(code, have, more)) if have else named(code, more)
            result.append(have)
        for step, valid in chunks:
            self._store(outs, row, step, " && ".join([t for t in (valid, "live") if t]))
        return result

    def _looped(self, nodes: Sequence[Node], outs: Sequence[Value], row: Ix) -> list[tuple[str, ...]]:
        """A pass that reads its elements again."""
        code, job = self.code, self.job
        result = self.accumulators_of(nodes)
        bound = f"{self.steps}u"
        if job.partial and job.cols % job.length:
            left = f"min({job.cols}u - {code.scalar(self.base)}, {job.length}u)"
            bound = code.let("left", f"{left} / {self.width}u", 0, prefix="n")[0]
        counter = code.name("e")
        code.open(f"for (var {counter} = lane; {counter} < {bound}; {counter} += {self.team}u)", guard=False)
        step = code.index(counter, self.steps)
        for index, (node, have) in enumerate(zip(nodes, result, strict=True)):
            accumulator = Accumulator.of(node)
            more: tuple[str, ...] = ()
            for e in self._elements_at(step):
                value = self._values(node, row, e, index)
                more = named(code, accumulator.join(code, more, value)) if more else named(code, value)
            self.accumulate(node, have, more)
        self._store(outs, row, step, "live")
        code.close()
        return result

    def _store(self, outs: Sequence[Value], row: Ix, step: Ix, valid: str) -> None:
        """Write the element outputs of one step."""
        if not outs:
            return
        code, local = self.code, self.evaluator.local
        places = [self.position(row, e) for e in self._elements_at(step)]
        texts = [[self.evaluator.at(v, p)[0] for p in places] for v in outs]
        numel = self.plan.rows * self.plan.cols
        flat = [local[p.key] if self.job.parts else code.flat(p, numel) for p in places]
        lines: list[str] = []
        for value, have in zip(outs, texts, strict=True):
            mem, base = self.tensors.outs[value], flat[0].base
            if mem.vec == 4 and base is not None:
                lines.append(store_quad(mem, base.text, have))
            else:
                lines += [mem.store(code.scalar(ix), text) for ix, text in zip(flat, have, strict=True)]
        code.open(f"if ({valid})", guard=True)
        for line in lines:
            code.line(line)
        code.close()


class Columns(_Kernel):
    """Threads side by side over the kept axes, several deep over the reduced ones; single-pass groups only."""

    def write(self) -> tuple[tuple[int, int, int], str]:
        """Write the body; returns grid and shared declarations."""
        code, job, plan = self.code, self.job, self.plan
        rows = plan.rows
        across = min(power(rows), 32)
        deep = min(256 // across, power(job.length if job.partial else job.cols))
        size = across * deep
        tiles = -(-rows // across)
        count = tiles * job.here
        self.module.workgroup = (size, 1, 1)
        groups, grid = self.module.groups(count)
        code.line(f"let tile_raw = {groups};")
        code.line(f"let row_raw = (tile_raw % {tiles}u) * {across}u + li % {across}u;")
        code.line(f"let row_all = min(row_raw, {rows - 1}u);")
        code.line(f"let live = row_raw < {rows}u && tile_raw < {count}u;")
        code.line(f"let lane = li / {across}u;")
        code.line(f"let home = li % {across}u;")
        row = code.index("row_all", rows, 0)
        piece, first, stop = "0u", "0u", f"{job.cols}u"
        if job.here > 1:
            piece, first, stop = "piece", "first", "stop"
            code.line(f"let piece = min(tile_raw / {tiles}u, {job.here - 1}u);")
            code.line(f"let first = piece * {job.length}u;")
            code.line(f"let stop = min(first + {job.length}u, {job.cols}u);")
        result = self.accumulators_of(plan.reductions)
        code.open(f"for (var e = {first} + lane; e < {stop}; e += {deep}u)", guard=False)
        e = code.index("e", job.cols)
        for index, node in enumerate(plan.reductions):
            if job.merging:
                more = self.merged(index, code.add(code.mul(e, rows), row))
            else:
                text, _ = self.evaluator.at(node.inputs[0], self.position(row, e))
                place = code.scalar(code.add(constant(job.col0), e))
                more = named(code, Accumulator.of(node).lift(text, place))
            self.accumulate(node, result[index], more)
        code.close()
        shared = Shared(size)
        parts = tree(
            code, shared, self.accumulators, result, team=deep, stride=across, lane="lane", home="home", turn=0
        )
        if not job.partial:
            self.bind_results(plan.reductions, parts, row)
        self.write_results(row, "lane == 0u && live", parts, f"({piece} + {job.piece0}u) * {rows}u + row_all")
        return grid, shared.text()
