"""One operand of a tiled kernel: its fetch into registers, its shared tile, the reads from it."""

from __future__ import annotations

from scellis_core.lower.access import Loader, Source
from scellis_core.lower.tiles import Layout, Tile

COMPONENTS = "xyzw"


class Operand:
    """One operand of a tiled kernel: its fetch into registers, its shared tile, its reads from it."""

    def __init__(
        self, name: str, tile: Tile, size: tuple[int, int], source: Source, loader: Loader, layout: Layout, pad: int
    ) -> None:
        first = name == "a"
        self.name = name
        self.source = source
        self.loader = loader
        self.layout = layout
        self.size, self.k = size
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
        """An element of the shared tile."""
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
            out += self.loader.outer(f"{tag}_o{q}", f"{x} + {q}u" if exact else f"min({x} + {q}u, {self.size - 1}u)")
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
                place = self.shared(f"{tag}_x / {self.lanes}u", f"{tag}_x % {self.lanes}u", f"{tag}_k / 4u", page)
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
