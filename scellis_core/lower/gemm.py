"""The generator of tiled matrix kernels: C[m, n] = sum over k of A[m, k] * B[k, n], for any way to reach A, B and C.

Matrix products and convolutions are this one kernel with other :class:`Source` and :class:`Sink` objects. The text
is unrolled: every accumulator has a name (an indexed private array costs a factor of ten on some drivers), the
shared tiles are read as vec4s at addresses that are one run-time index plus a constant, and the next tile is
fetched into registers while the present one is used. Sums are f32 in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scellis_core.lower.access import DenseSink, Sink, Source, Writer
from scellis_core.lower.call import Call, Epilogue, finish
from scellis_core.lower.operand import COMPONENTS, Operand
from scellis_core.lower.program import Limits
from scellis_core.lower.tiles import Choice, Tile, choose
from scellis_core.lower.wgsl import Module, ScalarTable


@dataclass(frozen=True)
class Gemm:
    """A product to make a kernel for.

    Attributes:
        name: kernel name for people.
        m, n, k, batch: sizes, each at least 1.
        a, b, out: operands.
        accumulate: add to what ``out`` holds.
        epilogue: applied before storing.
    """

    name: str
    m: int
    n: int
    k: int
    batch: int
    a: Source
    b: Source
    out: Sink
    accumulate: bool = False
    epilogue: Epilogue | None = None


def gemm_calls(g: Gemm, limits: Limits, scalars: ScalarTable | None = None, choice: Choice | None = None) -> list[Call]:
    """One call, or two where the summed axis is split: partial sums, then their sum in a fixed order.

    Args:
        g: the product.
        limits: of the device.
        scalars: the step program's scalars, for epilogues that use them.
        choice: tile and splits, where the cost model is not to decide.

    Raises:
        DeviceError: if the operands take more bindings than the device has.
    """
    cap = limits.max_storage_buffer_binding_size // 4

    def fits(splits: int) -> bool:
        return splits * g.m * g.n * g.batch * 4 <= min(2 * cap * 4, limits.max_buffer_size, 1 << 30)

    chosen = choice or choose(limits, (g.m, g.n, g.k, g.batch), (g.a.layout, g.b.layout), fits)
    steps = -(-g.k // chosen.tile.bk)
    per = -(-steps // min(chosen.splits, steps))
    splits = -(-steps // per)
    table = scalars or ScalarTable()
    if splits == 1:
        return [_Kernel(g, chosen.tile, 1, steps, limits, table).call()]
    return [
        _Kernel(g, chosen.tile, splits, per, limits, table).call(),
        combine_call(g, splits, limits, table),
    ]


def combine_call(g: Gemm, splits: int, limits: Limits, scalars: ScalarTable) -> Call:
    """Sum the partial results of a split product, apply its epilogue and store."""
    module = Module(f"{g.name}_sum{splits}", limits, scalars=scalars)
    vec = 4 if g.n % 4 == 0 and g.out.vec else 1
    total = g.batch * g.m * g.n
    partial = module.tensor("ws", "f32", total * splits, "read", vec)
    if g.epilogue and g.epilogue.declare:
        g.epilogue.declare(module)
    writer = g.out.bind(module, "out", vec)
    gi, grid = module.linear(total // vec)
    kind = "vec4<f32>" if vec == 4 else "f32"
    load = partial.load4 if vec == 4 else partial.load
    lines = [f"var acc = {load('i')};"]
    lines += [f"acc += {load(f'i + {s * total // vec}u')};" for s in range(1, splits)]
    columns = g.n // vec
    lines += [
        f"let batch = i / {g.m * columns}u;",
        f"let row = (i / {columns}u) % {g.m}u;",
        f"let col = (i % {columns}u) * {vec}u;",
    ]
    before, column = writer.column("cc", "col")
    lines += before
    index = f"{writer.batch('batch')} + {writer.row('row')} + {column}"
    lines += [f"let at = {index};", f"let raw: {kind} = acc;"]
    lines += store_lines(module, g, writer, vec, "raw", "row", "col", "at")
    body = "\n".join(["  let i = " + gi + ";", f"  if (i < {total // vec}u) {{", *(f"    {x}" for x in lines), "  }"])
    return finish(module, body, grid, op=g.name)


def store_lines(
    module: Module, g: Gemm, writer: Writer, width: int, acc: str, row: str, column: str, at: str
) -> list[str]:
    """Statements: epilogue, accumulation, conversion and store of one value or of a vec4.

    ``acc``, ``row``, ``column`` and ``at`` are names; ``width`` 4 means a vec4 at four consecutive columns.
    """
    lines: list[str] = []
    value = acc
    e = g.epilogue
    if e and width == 1:
        before, value = e.emit(module, "batch", row, column, acc)
        lines += before
    elif e and e.vector:
        before, value = e.vector(module, "batch", row, column, acc)
        lines += before
    elif e:
        lines.append("var packed = vec4<f32>();")
        for q, component in enumerate(COMPONENTS):
            before, one = e.emit(module, "batch", row, f"col_{q}", f"acc_{q}")
            lines += [
                "{",
                f"  let acc_{q} = {acc}.{component};",
                f"  let col_{q} = {column} + {q}u;",
                *(f"  {x}" for x in before),
                f"  packed.{component} = {one};",
                "}",
            ]
        value = "packed"
    mem = writer.mem
    half = g.out.dtype == "f16"
    kind = "vec4<f32>" if width == 4 else "f32"
    lines.append(f"var result: {kind} = {value};")
    if width == 4:
        slot = f"{at} / 4u"
        if g.accumulate:
            lines.append(f"result += vec4<f32>({mem.load4(slot)});")
        lines.append(mem.store4(slot, "vec4<f16>(result)" if half else "result"))
    else:
        if g.accumulate:
            lines.append(f"result += f32({mem.load(at)});")
        lines.append(mem.store(at, "f16(result)" if half else "result"))
    return lines


class _Kernel:
    """One tiled kernel being written."""

    def __init__(self, g: Gemm, tile: Tile, splits: int, per: int, limits: Limits, scalars: ScalarTable) -> None:
        self.g = g
        self.tile = tile
        self.splits = splits
        self.per = per
        layout_a, layout_b = tile.layouts(g.a.layout, g.b.layout)
        pads = tile.pads(layout_a, layout_b, limits) or (0, 0)
        self.module = m = Module(f"{g.name}_{tile}" + (f"_k{splits}" if splits > 1 else ""), limits, scalars=scalars)
        m.workgroup = (tile.threads, 1, 1)
        self.a = Operand("a", tile, (g.m, g.k), g.a, g.a.bind(m, "a"), layout_a, pads[0])
        self.b = Operand("b", tile, (g.n, g.k), g.b, g.b.bind(m, "b"), layout_b, pads[1])
        self.split = splits > 1
        self.target = (
            g
            if not self.split
            else Gemm(g.name, g.m, g.n, g.k, g.batch * splits, g.a, g.b, DenseSink(g.m, g.n, g.batch * splits))
        )
        if not self.split and g.epilogue and g.epilogue.declare:
            g.epilogue.declare(m)
        self.vec_store = self.target.out.vec and layout_b == "x" and g.n % 4 == 0
        self.writer = self.target.out.bind(m, "ws" if self.split else "out", 4 if self.vec_store else 1)

    def call(self) -> Call:
        g, tile, m = self.g, self.tile, self.module
        rows, columns = -(-g.m // tile.bm), -(-g.n // tile.bn)
        count = rows * columns * g.batch * self.splits
        flat, grid = m.groups(count)
        lines = [f"let group_raw = {flat};"]
        spilled = grid[1] > 1
        lines.append(f"let group = min(group_raw, {count - 1}u);" if spilled else "let group = group_raw;")
        lines += self.place(rows, columns)
        for operand in (self.a, self.b):
            lines += operand.loader.batch("batch")
        lines += self.threads()
        lines += [f"var {c}: {self.kind()} = {self.kind()}();" for c in self.accumulators()]
        lines += self.staged() if tile.shared else self.direct()
        stores = self.stores()
        lines += [f"if (group_raw < {count}u) {{", *stores, "}"] if spilled else stores
        shared = "\n".join((self.a.declare(), self.b.declare())) if tile.shared else ""
        scratch = (("ws", "f32", g.m * g.n * g.batch * self.splits),) if self.split else ()
        return finish(m, indent(lines), grid, shared=shared, scratch=scratch, op=g.name)

    def place(self, rows: int, columns: int) -> list[str]:
        """Statements: batch, split, first row and column of the workgroup; panels of 8 tile rows, for the caches."""
        per = rows * columns
        out = [f"let spot = group % {per}u;"]
        zone = f"group / {per}u"
        g = self.g
        out.append(f"let batch = ({zone}) % {g.batch}u;" if g.batch > 1 else "let batch = 0u;")
        if self.split:
            out.append(f"let split = ({zone}) / {g.batch}u;")
        panel = 8
        if rows <= panel:
            out += [f"let tile_row = spot % {rows}u;", f"let tile_col = spot / {rows}u;"]
        else:
            out += [
                f"let panel_row = (spot / {panel * columns}u) * {panel}u;",
                f"let panel_rows = min({rows}u - panel_row, {panel}u);",
                f"let panel_at = spot % {panel * columns}u;",
                "let tile_row = panel_row + panel_at % panel_rows;",
                "let tile_col = panel_at / panel_rows;",
            ]
        return [*out, f"let row0 = tile_row * {self.tile.bm}u;", f"let col0 = tile_col * {self.tile.bn}u;"]

    def threads(self) -> list[str]:
        """Statements: the thread's place in the tile."""
        t = self.tile
        if not t.wx or t.wx >= t.tx or 32 % t.wx or t.tx % t.wx or t.ty % (32 // t.wx):
            return [f"let tx = li % {t.tx}u;", f"let ty = li / {t.tx}u;"]
        wide, tall = t.tx // t.wx, 32 // t.wx
        return [
            "let lane = li % 32u;",
            "let warp = li / 32u;",
            f"let tx = (warp % {wide}u) * {t.wx}u + lane % {t.wx}u;",
            f"let ty = (warp / {wide}u) * {tall}u + lane / {t.wx}u;",
        ]

    # -- accumulators: vec4s along columns where B lies along x, else along rows where A does, else scalars --------
    def kind(self) -> str:
        return "f32" if self.a.layout == "k" and self.b.layout == "k" else "vec4<f32>"

    def accumulators(self) -> list[str]:
        t = self.tile
        if self.b.layout == "x":
            return [f"c{i}_{j}" for i in range(t.tm) for j in range(t.tn // 4)]
        rows = t.tm // 4 if self.a.layout == "x" else t.tm
        return [f"c{i}_{j}" for i in range(rows) for j in range(t.tn)]

    def element(self, i: int, j: int) -> str:
        """The accumulator of the thread's row i and column j."""
        if self.b.layout == "x":
            return f"c{i}_{j // 4}.{COMPONENTS[j % 4]}"
        if self.a.layout == "x":
            return f"c{i // 4}_{j}.{COMPONENTS[i % 4]}"
        return f"c{i}_{j}"

    def block(self, read: Callable[[Operand, int, int], str]) -> list[str]:
        """Statements: the products of four consecutive k.

        ``read(operand, i, q)`` gives the vec4 of vector i: along k (layout k, any q), or along x at the q-th of the
        four.
        """
        a, b, t = self.a, self.b, self.tile
        out = ["{"]
        if a.layout == "k":
            out += [f"let a_{i} = {read(a, i, 0)};" for i in range(t.tm)]
        if b.layout == "k" and a.layout == "k":
            for j in range(t.tn):
                out.append(f"let b_{j} = {read(b, j, 0)};")
                out += [f"c{i}_{j} = fma(a_{i}.{q}, b_{j}.{q}, c{i}_{j});" for q in COMPONENTS for i in range(t.tm)]
            return [*out, "}"]
        if b.layout == "k":
            out += [f"let b_{j} = {read(b, j, 0)};" for j in range(t.tn)]
        for q, component in enumerate(COMPONENTS):
            out.append("{")
            if a.layout == "x":
                out += [f"let a_{r} = {read(a, r, q)};" for r in range(t.tm // 4)]
            if b.layout == "x":
                out += [f"let b_{c} = {read(b, c, q)};" for c in range(t.tn // 4)]
                for i in range(t.tm):
                    one = f"a_{i}.{component}" if a.layout == "k" else f"a_{i // 4}.{COMPONENTS[i % 4]}"
                    out.append(f"let s_{i} = vec4<f32>({one});")
                    out += [f"c{i}_{c} = fma(s_{i}, b_{c}, c{i}_{c});" for c in range(t.tn // 4)]
            else:
                for j in range(t.tn):
                    out.append(f"let s_{j} = vec4<f32>(b_{j}.{component});")
                    out += [f"c{r}_{j} = fma(a_{r}, s_{j}, c{r}_{j});" for r in range(t.tm // 4)]
            out.append("}")
        return [*out, "}"]

    def products(self, page: str) -> list[str]:
        """Statements: all products of the shared tile."""
        out: list[str] = []
        for kk in range(self.tile.bk // 4):

            def read(operand: Operand, i: int, q: int, kk: int = kk) -> str:
                return operand.read(i, kk if operand.layout == "k" else 4 * kk + q, page)

            out += self.block(read)
        return out

    def span(self) -> list[str]:
        """Statements: the steps of the K loop that this workgroup takes."""
        steps = -(-self.g.k // self.tile.bk)
        if not self.split:
            return [f"let last = {steps}u;", "let begin = 0u;"]
        return [f"let begin = split * {self.per}u;", f"let last = min(begin + {self.per}u, {steps}u);"]

    def staged(self) -> list[str]:
        """Statements: the K loop through shared memory."""
        t = self.tile
        out = [*self.a.prepare(), *self.b.prepare(), *self.span()]
        more = self.per > 1

        def fetch(step: str) -> list[str]:
            return [f"let k0 = ({step}) * {t.bk}u;", *self.a.fetch("k0"), *self.b.fetch("k0")]

        out += ["{", *fetch("begin"), "}"]
        ahead = ["if (step + 1u < last) {", *fetch("step + 1u"), "}"] if more else []
        loop = "for (var step = begin; step < last; step++) {"
        if not t.double:
            publish = [*self.a.publish(""), *self.b.publish("")]
            again = ["workgroupBarrier();"] if more else []
            return [*out, loop, *publish, "workgroupBarrier();", *ahead, *self.products(""), *again, "}"]
        out += [*self.a.publish("0"), *self.b.publish("0"), "workgroupBarrier();", loop]
        out += ["let page = (step - begin) % 2u;", *ahead, *self.products("page")]
        if more:
            store = [*self.a.publish("1u - page"), *self.b.publish("1u - page")]
            out += ["if (step + 1u < last) {", *store, "}", "workgroupBarrier();"]
        return [*out, "}"]

    def direct(self) -> list[str]:
        """Statements: the K loop that reads operands straight from their buffers."""
        t = self.tile
        out = [*self.a.prepare_direct(), *self.b.prepare_direct(), *self.span()]
        out += ["for (var step = begin; step < last; step++) {", f"let k0 = step * {t.bk}u;"]
        for kk in range(0, t.bk, 4):
            out.append("{")
            for operand in (self.a, self.b):
                out += self.straight(operand, kk)

            def read(operand: Operand, i: int, q: int) -> str:
                return f"{operand.name}v_{i}" if operand.layout == "k" else f"{operand.name}v_{i}_{q}"

            out += [*self.block(read), "}"]
        return [*out, "}"]

    def straight(self, operand: Operand, kk: int) -> list[str]:
        """Statements: load four k of every vector of one operand."""
        out: list[str] = []
        for i in range(operand.vectors()):
            tag = f"{operand.name}{i}"
            for q in range(1 if operand.layout == "k" else 4):
                name = f"{operand.name}v_{i}" if operand.layout == "k" else f"{operand.name}v_{i}_{q}"
                out += [f"var {name} = vec4<f32>();", "{", *operand.load(tag, name, f"k0 + {kk + q}u"), "}"]
        return out

    # -- results ------------------------------------------------------------------------------------------------
    def stores(self) -> list[str]:
        """Statements: epilogue and stores of the thread's results, guarded at the edges."""
        g, t = self.target, self.tile
        zone = f"(split * {self.g.batch}u + batch)" if self.split else "batch"
        out = [f"let out_base = {self.writer.batch(zone)};"]
        width = 4 if self.vec_store else 1
        columns: list[tuple[str, int]] = []
        for j in range(t.tn // 4 if self.b.layout == "x" else t.tn):
            first = self.b.position(j)
            for q in (0,) if self.b.layout == "k" or width == 4 else range(4):
                tag = f"col_{j}_{q}"
                before, part = self.column(tag, f"col0 + {first}" + (f" + {q}u" if q else ""))
                out += [*before, f"let {tag}_at = {part};"]
                columns.append((tag, 4 * j + q if self.b.layout == "x" else j))
        for i in range(t.tm):
            if self.a.layout == "k":
                row = f"row0 + {self.a.position(i)}"
            else:
                row = f"row0 + {self.a.position(i // 4)} + {i % 4}u"
            lines = [f"let row = {row};", f"let row_at = out_base + {self.writer.row('row')};"]
            body: list[str] = []
            for tag, j in columns:
                acc = self.element(i, j) if width == 1 else f"c{i}_{j // 4}"
                inner = [f"let acc = {acc};", f"let at = row_at + {tag}_at;"]
                inner += store_lines(self.module, g, self.writer, width, "acc", "row", tag, "at")
                guard = f"if ({tag} < {g.n}u) " if g.n % t.bn else ""
                body += [guard + "{", *inner, "}"]
            guard = f"if (row < {g.m}u) " if g.m % t.bm else ""
            out += ["{", *lines, guard + "{", *body, "}", "}"]
        return out

    def column(self, tag: str, expression: str) -> tuple[list[str], str]:
        before, part = self.writer.column(f"{tag}w", tag)
        return [f"let {tag} = {expression};", *before], part


def indent(lines: list[str]) -> str:
    """Join statements, indented by their braces."""
    depth = 1
    out: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("}"):
            depth -= 1
        out.append("  " * depth + text)
        depth += text.count("{") - text.count("}") + (1 if text.startswith("}") else 0)
    return "\n".join(out)
