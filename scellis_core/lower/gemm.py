"""The generator of tiled matrix kernels: C[m, n] = sum over k of A[m, k] * B[k, n], for any way to reach A, B and C.

Matrix products and convolutions are this one kernel with other :class:`Source` and :class:`Sink` objects. The text
is unrolled: every accumulator has a name (an indexed private array costs a factor of ten on some drivers), the
shared tiles are read as vec4s at addresses that are one run-time index plus a constant, and the next tile is
fetched into registers while the present one is used. Sums are f32 in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scellis_core.lower.call import Call, Epilogue, finish
from scellis_core.lower.program import Limits
from scellis_core.lower.tiles import Choice, Layout, Tile, choose
from scellis_core.lower.wgsl import Mem, Module, ScalarTable

COMPONENTS = "xyzw"


class Loader(Protocol):
    """An operand inside one kernel. ``x`` is its row (A) or column (B); ``k`` the summed index."""

    def batch(self, batch: str) -> list[str]:
        """Statements once a workgroup."""
        ...

    def outer(self, tag: str, x: str) -> list[str]:
        """Statements for one ``x``, before the K loop; names begin with ``tag``."""
        ...

    def inner(self, tag: str, k: str) -> list[str]:
        """Statements for one ``k``; names begin with ``tag``."""
        ...

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        """(condition or "", f32 expression) of one element; zero where the condition fails."""
        ...

    def vector(self, outer: str, inner: str) -> str:
        """vec4<f32> expression of four elements along the contiguous axis; only for sources with ``vec``."""
        ...


class Source(Protocol):
    """Where an operand comes from: ``fast`` is its contiguous axis, ``vec`` says that aligned vec4s along it can be
    loaded whole, ``layout`` is the preferred layout of its tile."""

    @property
    def fast(self) -> Layout: ...
    @property
    def vec(self) -> bool: ...
    @property
    def layout(self) -> Layout: ...
    def bind(self, module: Module, name: str) -> Loader:
        """Declare its tensor."""
        ...


class Writer(Protocol):
    """A result inside one kernel; the element index is the sum of its three parts."""

    mem: Mem

    def batch(self, batch: str) -> str: ...
    def row(self, row: str) -> str: ...
    def column(self, tag: str, column: str) -> tuple[list[str], str]: ...


class Sink(Protocol):
    """Where the result goes; ``vec`` says that aligned vec4s along the columns can be stored whole."""

    @property
    def vec(self) -> bool: ...
    @property
    def dtype(self) -> str: ...
    def bind(self, module: Module, name: str, vec: int) -> Writer:
        """Declare its tensor, as vec4s where ``vec`` is 4."""
        ...


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


@dataclass(frozen=True)
class DenseSink:
    """f32 [splits * batch, m, n], contiguous: the partial sums of a split product."""

    m: int
    n: int
    batch: int
    dtype: str = "f32"

    @property
    def vec(self) -> bool:
        return self.n % 4 == 0

    def bind(self, module: Module, name: str, vec: int) -> Writer:
        return DenseWriter(
            module.tensor(name, "f32", self.m * self.n * self.batch, "read_write", vec), self.m, self.n
        )


@dataclass
class DenseWriter:
    """Writer of :class:`DenseSink`."""

    mem: Mem
    m: int
    n: int

    def batch(self, batch: str) -> str:
        return f"({batch} * {self.m * self.n}u)"

    def row(self, row: str) -> str:
        return f"{row} * {self.n}u"

    def column(self, tag: str, column: str) -> tuple[list[str], str]:
        return [], column


def gemm_calls(
    g: Gemm, limits: Limits, scalars: ScalarTable | None = None, choice: Choice | None = None
) -> list[Call]:
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
    body = "\n".join(
        ["  let i = " + gi + ";", f"  if (i < {total // vec}u) {{", *(f"    {x}" for x in lines), "  }"]
    )
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


class _Operand:
    """One operand of a tiled kernel: its fetch into registers, its shared tile, its reads from it."""

    def __init__(
        self, kernel: _Kernel, name: str, source: Source, loader: Loader, layout: Layout, pad: int
    ) -> None:
        tile = kernel.tile
        first = name == "a"
        self.name = name
        self.source = source
        self.loader = loader
        self.layout = layout
        self.size = kernel.g.m if first else kernel.g.n
        self.k = kernel.g.k
        self.block = tile.bm if first else tile.bn
        self.per = tile.tm if first else tile.tn
        self.lanes = tile.ty if first else tile.tx
        self.lane = "ty" if first else "tx"
        self.bk = tile.bk
        self.kv = tile.bk // 4
        self.row_vec = self.kv + pad
        self.double = tile.double
        self.tile = tile
        self.first = f"{'row' if first else 'col'}0"
        self.whole = source.vec and source.fast == layout
        self.units = self.block * tile.bk // 4
        self.slots = -(-self.units // tile.threads)
        self.guard_k = self.k % tile.bk != 0

    # -- shared tile --------------------------------------------------------------------------------------------
    def declare(self) -> str:
        """The shared tile's declaration; nested so that a thread's reads share one run-time index."""
        if self.layout == "k":
            kind = f"array<array<array<vec4<f32>, {self.row_vec}>, {self.lanes}>, {self.per}>"
        else:
            kind = f"array<array<array<vec4<f32>, {self.lanes}>, {self.per // 4}>, {self.bk}>"
        if self.double:
            kind = f"array<{kind}, 2>"
        return f"var<workgroup> tile_{self.name}: {kind};"

    def shared(self, first: str, second: str, third: str, page: str) -> str:
        turn = f"[{page}]" if self.double else ""
        return f"tile_{self.name}{turn}[{first}][{second}][{third}]"

    def read(self, i: int, kk: int, page: str) -> str:
        """The vec4 along k number ``kk`` of row i (layout k), or the vec4 along x number i at k ``kk`` (layout x)."""
        if self.layout == "k":
            return self.shared(f"{i}", self.lane, f"{kk}", page)
        return self.shared(f"{kk}", f"{i}", self.lane, page)

    # -- fetch --------------------------------------------------------------------------------------------------
    def partial(self, slot: int) -> str:
        """Condition under which this thread has work in the slot; empty where always."""
        full = (slot + 1) * self.tile.threads <= self.units
        return "" if full else f"li + {slot * self.tile.threads}u < {self.units}u"

    def unit(self, slot: int) -> tuple[str, str]:
        """(x within the tile, k within the tile) of a slot's first element, as expressions."""
        u = f"(li + {slot * self.tile.threads}u)" if slot else "li"
        if self.layout == "k":
            if self.source.fast == "k":
                return f"{u} / {self.kv}u", f"({u} % {self.kv}u) * 4u"
            return f"{u} % {self.block}u", f"({u} / {self.block}u) * 4u"
        wide = self.block // 4
        if self.source.fast == "x":
            return f"({u} % {wide}u) * 4u", f"{u} / {wide}u"
        return f"({u} / {self.bk}u) * 4u", f"{u} % {self.bk}u"

    def prepare(self) -> list[str]:
        """Statements before the K loop: coordinates of each slot, and its registers."""
        out: list[str] = []
        for s in range(self.slots):
            x, k = self.unit(s)
            tag = f"{self.name}{s}"
            out += [f"let {tag}_x = {x};", f"let {tag}_k = {k};", f"var {tag}_v = vec4<f32>();"]
            out += self.outer(tag, f"{self.first} + {tag}_x")
        return out

    def outer(self, tag: str, x: str) -> list[str]:
        """The loader's statements for the row(s) or column(s) of one vec4, clamped into the operand."""
        exact = self.size % self.block == 0
        out: list[str] = []
        if self.layout == "k":
            top = self.size - 1
            return self.loader.outer(f"{tag}_o", x if exact else f"min({x}, {top}u)")
        if self.whole:
            return self.loader.outer(f"{tag}_o", x if exact else f"min({x}, {self.size - 4}u)")
        for q in range(4):
            out += self.loader.outer(
                f"{tag}_o{q}", f"{x} + {q}u" if exact else f"min({x} + {q}u, {self.size - 1}u)"
            )
        return out

    def load(self, tag: str, target: str, k: str) -> list[str]:
        """Statements that set ``target`` to the vec4 at ``k``; zero past the summed axis."""
        lines: list[str] = [f"let {tag}_q = {k};"]
        within = f"{tag}_q < {self.k}u" if self.guard_k else ""
        if self.whole:
            lines += self.loader.inner(f"{tag}_i", f"{tag}_q")
            value = self.loader.vector(f"{tag}_o", f"{tag}_i")
            if within:
                return [*lines, f"{target} = vec4<f32>();", f"if ({within}) {{ {target} = {value}; }}"]
            return [*lines, f"{target} = {value};"]
        elements: list[tuple[str, str]] = []
        if self.layout == "k":
            for q in range(4):
                lines.append(f"let {tag}_q{q} = {tag}_q + {q}u;")
                lines += self.loader.inner(f"{tag}_i{q}", f"{tag}_q{q}")
                condition, value = self.loader.scalar(f"{tag}_o", f"{tag}_i{q}")
                bound = f"{tag}_q{q} < {self.k}u" if self.guard_k else ""
                elements.append((" && ".join(c for c in (bound, condition) if c), value))
        else:
            lines += self.loader.inner(f"{tag}_i", f"{tag}_q")
            for q in range(4):
                condition, value = self.loader.scalar(f"{tag}_o{q}", f"{tag}_i")
                elements.append((" && ".join(c for c in (within, condition) if c), value))
        if not any(c for c, _ in elements):
            return [*lines, f"{target} = vec4<f32>({', '.join(v for _, v in elements)});"]
        lines.append(f"{target} = vec4<f32>();")
        for component, (condition, value) in zip(COMPONENTS, elements, strict=True):
            lines.append(f"if ({condition}) {{ {target}.{component} = {value}; }}")
        return lines

    def fetch(self, k0: str) -> list[str]:
        """Statements: all slots of the tile that starts at ``k0``, into registers."""
        out: list[str] = []
        for s in range(self.slots):
            tag = f"{self.name}{s}"
            lines = self.load(tag, f"{tag}_v", f"{k0} + {tag}_k")
            condition = self.partial(s)
            out += [f"if ({condition}) {{" if condition else "{", *lines, "}"]
        return out

    def publish(self, page: str) -> list[str]:
        """Statements: registers to the shared tile."""
        out: list[str] = []
        for s in range(self.slots):
            tag = f"{self.name}{s}"
            if self.layout == "k":
                place = self.shared(
                    f"{tag}_x / {self.lanes}u", f"{tag}_x % {self.lanes}u", f"{tag}_k / 4u", page
                )
            else:
                vec = f"({tag}_x / 4u)"
                place = self.shared(f"{tag}_k", f"{vec} / {self.lanes}u", f"{vec} % {self.lanes}u", page)
            condition = self.partial(s)
            line = f"{place} = {tag}_v;"
            out.append(f"if ({condition}) {{ {line} }}" if condition else line)
        return out

    # -- without shared memory ----------------------------------------------------------------------------------
    def prepare_direct(self) -> list[str]:
        """Statements before the K loop of a kernel that reads operands straight from their buffers."""
        out: list[str] = []
        for i in range(self.per if self.layout == "k" else self.per // 4):
            x = f"{self.first} + {self.position(i)}"
            out += self.outer(f"{self.name}{i}", x)
        return out

    def position(self, i: int) -> str:
        """First row or column (within the tile) of a thread's vector i."""
        if self.layout == "k":
            return f"{self.lane} + {i * self.lanes}u"
        return f"({self.lane} + {i * self.lanes}u) * 4u"

    def vectors(self) -> int:
        """How many vectors of this operand a thread holds at once."""
        return self.per if self.layout == "k" else self.per // 4


class _Kernel:
    """One tiled kernel being written."""

    def __init__(
        self, g: Gemm, tile: Tile, splits: int, per: int, limits: Limits, scalars: ScalarTable
    ) -> None:
        self.g = g
        self.tile = tile
        self.splits = splits
        self.per = per
        layout_a, layout_b = tile.layouts(g.a.layout, g.b.layout)
        pads = tile.pads(layout_a, layout_b, limits) or (0, 0)
        self.module = m = Module(
            f"{g.name}_{tile}" + (f"_k{splits}" if splits > 1 else ""), limits, scalars=scalars
        )
        m.workgroup = (tile.threads, 1, 1)
        self.a = _Operand(self, "a", g.a, g.a.bind(m, "a"), layout_a, pads[0])
        self.b = _Operand(self, "b", g.b, g.b.bind(m, "b"), layout_b, pads[1])
        self.split = splits > 1
        self.target = (
            g
            if not self.split
            else Gemm(
                g.name, g.m, g.n, g.k, g.batch * splits, g.a, g.b, DenseSink(g.m, g.n, g.batch * splits)
            )
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

    def block(self, read: Callable[[_Operand, int, int], str]) -> list[str]:
        """Statements: the products of four consecutive k. ``read(operand, i, q)`` gives the vec4 of vector i: along k
        (layout k, any q), or along x at the q-th of the four."""
        a, b, t = self.a, self.b, self.tile
        out = ["{"]
        if a.layout == "k":
            out += [f"let a_{i} = {read(a, i, 0)};" for i in range(t.tm)]
        if b.layout == "k" and a.layout == "k":
            for j in range(t.tn):
                out.append(f"let b_{j} = {read(b, j, 0)};")
                out += [
                    f"c{i}_{j} = fma(a_{i}.{q}, b_{j}.{q}, c{i}_{j});"
                    for q in COMPONENTS
                    for i in range(t.tm)
                ]
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

            def read(operand: _Operand, i: int, q: int, kk: int = kk) -> str:
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

            def read(operand: _Operand, i: int, q: int) -> str:
                return f"{operand.name}v_{i}" if operand.layout == "k" else f"{operand.name}v_{i}_{q}"

            out += [*self.block(read), "}"]
        return [*out, "}"]

    def straight(self, operand: _Operand, kk: int) -> list[str]:
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
