"""Evaluating nodes as functions of an index: what a generated kernel's text is made of."""

from __future__ import annotations

from collections.abc import Callable

from scellis_core.errors import IRError
from scellis_core.ir import Node, Pointwise, Value, op_def
from scellis_core.lower.index import LANES, Code, Ix, Position, broadcast_dims, constant, linear, plain, slice_dims
from scellis_core.lower.prelude import prelude
from scellis_core.lower.views import slice_attrs
from scellis_core.lower.wgsl import WGSL_TYPES, Mem, Module, f32_literal

Text = tuple[str, int]
"""An expression and the innermost block that it depends on."""


def value_type(dtype: str) -> str:
    """The WGSL type of a value in a register: predicates are ``bool``."""
    return "bool" if dtype == "bool" else WGSL_TYPES[dtype]


def literal(value: float | int | bool, dtype: str) -> str:
    """A constant as WGSL, safe as an operand."""
    if dtype == "i32" and int(value) == -(1 << 31):
        return "i32(-2147483648)"
    text = f32_literal(value, dtype)
    return f"({text})" if text.startswith("-") else text


class Evaluator:
    """Writes the expressions of one kernel into ``code``.

    Attributes:
        mems: tensors by value; evaluation stops at them.
        scalar_reads: tensors that some access reads by single elements.
        local: where only a part of a tensor is bound, the index within it for a position's key.
    """

    def __init__(self, module: Module, code: Code, mems: dict[Value, Mem]) -> None:
        self.module = module
        self.code = code
        self.mems = mems
        self.scalar_reads: set[Value] = set()
        self.parts: set[Value] = set()
        self.local: dict[object, Ix] = {}

    def at(self, value: Value, position: Position) -> Text:
        """The element of ``value`` at a position."""
        key = (value, position.key)
        found = self.code.find(key)
        if found is not None:
            return found
        if value in self.mems:
            return self._load(value, position, key)
        node = value.node
        rule = RULES.get(node.op)
        if rule is not None:
            text, depth = rule(self, node, position)
            return self.code.keep(key, text, depth)
        return self._pointwise(node, position, key)

    def bind(self, value: Value, position: Position, text: str, depth: int) -> None:
        """Say what an element is."""
        self.code.keep((value, position.key), text, depth)

    def _load(self, value: Value, position: Position, key: object) -> Text:
        mem, code = self.mems[value], self.code
        ix = self.local[position.key] if value in self.parts else code.flat(position, value.type.numel)
        if mem.vec == 4 and ix.base is not None:
            quad, depth = code.let(
                (mem.name, ix.base.text), mem.load4(ix.base.text), ix.base.depth, value=True, prefix="q"
            )
            text = f"{quad}.{LANES[ix.lane]}"
            return code.keep(key, f"({text} != 0u)" if value.dtype == "bool" else text, depth)
        self.scalar_reads.add(value)
        return code.let(key, mem.load(code.scalar(ix)), ix.depth, value=True)

    def _pointwise(self, node: Node, position: Position, key: object) -> Text:
        lowering = op_def(node.op).lower
        if not isinstance(lowering, Pointwise):
            raise IRError(f"{node.path}: {node.op}", "an operand in memory", "a result of another kernel")
        operands = [self.at(v, position) for v in node.inputs]
        for name in lowering.needs:
            self.need(name)
        out = node.outputs[0].dtype
        first = node.inputs[0].dtype if node.inputs else out
        expr = lowering.by_dtype.get(first, lowering.expr)
        text = expr.format(*[t for t, _ in operands], out=value_type(out))
        return self.code.let(key, text, max([d for _, d in operands], default=0), value=True)

    def need(self, name: str) -> None:
        """Add a prelude function, and those that it calls."""
        for text in prelude(name):
            self.module.add_function(text)

    # -- index functions -------------------------------------------------------------------------------------
    def const(self, node: Node, position: Position) -> Text:
        """A splat."""
        value = node.attrs["value"]
        return literal(value if isinstance(value, (int, float)) else 0, node.outputs[0].dtype), 0

    def scalar(self, node: Node, position: Position) -> Text:
        """A number that the host writes every step."""
        name, dtype = str(node.attrs["name"]), node.outputs[0].dtype
        text = self.module.scalar(name, "u32" if dtype == "bool" else dtype)
        return self.code.let(("scalar", name), f"{text} != 0u" if dtype == "bool" else text, 0)

    def iota(self, node: Node, position: Position) -> Text:
        """The index along an axis."""
        shape, dtype = node.outputs[0].shape, node.outputs[0].dtype
        axis = int(node.attrs.get("axis", 0)) % max(len(shape), 1)  # type: ignore[arg-type]
        ix = self._axis(shape, axis, position)
        text = self.code.scalar(ix)
        if dtype != "u32":
            return self.code.let(("iota", dtype, text), f"{WGSL_TYPES[dtype]}({text})", ix.depth)
        return text, ix.depth

    def _axis(self, shape: tuple[int, ...], axis: int, position: Position) -> Ix:
        if not shape or shape[axis] == 1:
            return constant(0)
        before, after = 1, 1
        for size in shape[:axis]:
            before *= size
        for size in shape[axis + 1 :]:
            after *= size
        return self.code.digits(position, plain((before, shape[axis], after)))[0 if before == 1 else 1]

    def philox(self, node: Node, position: Position) -> Text:
        """Random bits: word ``i % 4`` of block ``i / 4``."""
        code, module = self.code, self.module
        self.need("philox")
        stream, offset = str(node.attrs["stream"]), int(node.attrs["offset"])  # type: ignore[arg-type]
        ix = code.flat(position, node.outputs[0].type.numel)
        block = ix.base if ix.base is not None else code.div(ix, 4)
        parts = [
            self.code.let(("scalar", name), module.scalar(name, "u32"), 0)[0]
            for name in ("rng.counter_lo", "rng.counter_hi", f"rng.{stream}.key0", f"rng.{stream}.key1")
        ]
        call = f"philox({block.text}, {offset}u, {', '.join(parts)})"
        words, depth = code.let(("philox", stream, offset, block.text), call, block.depth, value=True, prefix="r")
        if ix.base is not None:
            return f"{words}.{LANES[ix.lane]}", depth
        word = code.mod(ix, 4)
        return code.let((words, word.text), f"{words}[{word.text}]", max(depth, word.depth), value=True)

    def reshape(self, node: Node, position: Position) -> Text:
        """The same linear index."""
        return self.at(node.inputs[0], position)

    def broadcast(self, node: Node, position: Position) -> Text:
        """Repeated axes drop out of the index."""
        source, target = node.inputs[0], node.outputs[0].shape
        if all(broadcast_dims(source.shape, target)[1]):
            return self.at(source, position)
        return self.at(source, self.code.broadcast(position, source.shape, target))

    def permute(self, node: Node, position: Position) -> Text:
        """Axes in another order."""
        source = node.inputs[0]
        perm = tuple([int(p) for p in node.attrs["perm"]])  # type: ignore[union-attr]
        return self.at(source, self.code.permute(position, source.shape, perm))

    def slice(self, node: Node, position: Position) -> Text:
        """``start + step * index`` on each axis."""
        source = node.inputs[0]
        starts, steps = slice_attrs(node)
        parts = slice_dims(source.shape, starts, steps, node.outputs[0].shape)
        return self.at(source, self.code.window(position, parts))

    def pad(self, node: Node, position: Position) -> Text:
        """The source where the index falls into it, else the padding's value."""
        code, source, out = self.code, node.inputs[0], node.outputs[0]
        low = [int(x) for x in node.attrs["low"]]  # type: ignore[union-attr]
        parts: list[tuple[int, int, int]] = []
        for have, first, want in zip(source.shape, low, out.shape, strict=True):
            if have == want == 1:
                continue
            if have == want and parts and parts[-1][0] == parts[-1][1]:
                parts[-1] = (parts[-1][0] * want, parts[-1][1] * have, 0)
            else:
                parts.append((want, have, first))
        at = iter(code.digits(position, tuple([p[0] for p in parts if p[0] != 1])))
        tests: list[str] = []
        inside: list[tuple[int, int, Ix]] = []
        for want, have, first in parts:
            ix = next(at) if want != 1 else constant(0)
            if first:
                tests.append(f"{code.scalar(ix)} >= {first}u")
            if first + have < want:
                tests.append(f"{code.scalar(ix)} < {first + have}u")
            inside.append((have, first, ix))
        value = node.attrs["value"]
        fill = literal(value if isinstance(value, (int, float)) else 0, out.dtype)
        if any(have == 0 for have, _, _ in inside):
            return fill, 0
        name = code.name("p")
        code.line(f"var {name}: {value_type(out.dtype)} = {fill};")
        code.open(f"if ({' && '.join(tests) or 'true'})", guard=True)
        shifted = [(have, code.sub(ix, first)) for have, first, ix in inside if have != 1]
        text, _ = self.at(source, Position(tuple([h for h, _ in shifted]), tuple([ix for _, ix in shifted])))
        code.line(f"{name} = {text};")
        code.close()
        return name, code.depth

    def concat(self, node: Node, position: Position) -> Text:
        """The operand whose part of the axis the index falls into."""
        code, out = self.code, node.outputs[0]
        axis = int(node.attrs["axis"]) % len(out.shape)  # type: ignore[arg-type]
        before, after = 1, 1
        for size in out.shape[:axis]:
            before *= size
        for size in out.shape[axis + 1 :]:
            after *= size
        total = out.shape[axis]
        digits = iter(code.digits(position, plain((before, total, after))))
        outer, along, inner = [next(digits) if n != 1 else constant(0) for n in (before, total, after)]
        name = code.name("c")
        code.line(f"var {name}: {value_type(out.dtype)};")
        start = 0
        parts = node.inputs
        for k, source in enumerate(parts):
            stop = start + source.shape[axis]
            here = code.scalar(along)
            tests = [f"{here} >= {start}u"] * (k > 0) + [f"{here} < {stop}u"] * (k < len(parts) - 1)
            code.open(f"if ({' && '.join(tests) or 'true'})", guard=True)
            wide = [
                (n, ix) for n, ix in ((before, outer), (stop - start, code.sub(along, start)), (after, inner)) if n != 1
            ]
            text, _ = self.at(source, Position(tuple([n for n, _ in wide]), tuple([ix for _, ix in wide])))
            code.line(f"{name} = {text};")
            code.close()
            start = stop
        return name, code.depth

    def take(self, node: Node, position: Position) -> Text:
        """A row of the table by index; the index is held inside the table."""
        code = self.code
        table, index = node.inputs
        count, rows = index.type.numel, table.shape[0]
        inner = table.type.numel // max(rows, 1)
        digits = iter(code.digits(position, plain((count, inner))))
        place, rest = [next(digits) if n != 1 else constant(0) for n in (count, inner)]
        row = self._held(index, linear(place, count), rows)
        wide = [(n, ix) for n, ix in ((rows, row), (inner, rest)) if n != 1]
        return self.at(table, Position(tuple([n for n, _ in wide]), tuple([ix for _, ix in wide])))

    def pick(self, node: Node, position: Position) -> Text:
        """An element of the last axis by index; the index is held inside it."""
        source, index = node.inputs
        size = source.shape[-1]
        column = self._held(index, position, size)
        if size == 1:
            return self.at(source, position)
        return self.at(source, Position((*position.dims, size), (*position.at, column)))

    def _held(self, index: Value, position: Position, size: int) -> Ix:
        text, depth = self.at(index, position)
        if index.dtype == "i32":
            held = f"u32(clamp({text}, 0i, {size - 1}i))"
        else:
            held = f"min(u32({text}), {size - 1}u)"
        name, depth = self.code.let(held, held, depth, value=True, prefix="h")
        return Ix(name, size, depth)


RULES: dict[str, Callable[[Evaluator, Node, Position], Text]] = {
    "const": Evaluator.const,
    "scalar": Evaluator.scalar,
    "iota": Evaluator.iota,
    "philox": Evaluator.philox,
    "reshape": Evaluator.reshape,
    "stop_gradient": Evaluator.reshape,
    "broadcast": Evaluator.broadcast,
    "permute": Evaluator.permute,
    "slice": Evaluator.slice,
    "pad": Evaluator.pad,
    "concat": Evaluator.concat,
    "take": Evaluator.take,
    "pick": Evaluator.pick,
}
