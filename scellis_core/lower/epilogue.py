"""What a product's kernel applies to each result before it stores: the group's pointwise nodes as an epilogue."""

from __future__ import annotations

from collections.abc import Callable

from scellis_core.ir import Value
from scellis_core.lower.call import Epilogue
from scellis_core.lower.expr import Evaluator
from scellis_core.lower.group import Group
from scellis_core.lower.index import LANES, Code, Ix, Position, constant, lane, linear
from scellis_core.lower.pointwise import QUAD_DTYPES, behind, store_quad
from scellis_core.lower.wgsl import Mem, Module

Place = Callable[[Code, Ix, Ix, Ix], Position]
"""(code, batch, row, column) -> the element of the result that a kernel has there."""

FLOATS = ("f32", "f16")


def main_output(group: Group) -> int:
    """The output that the kernel itself stores; the epilogue stores the others."""
    return next(k for k, v in enumerate(group.outputs) if v.dtype in FLOATS)


def dense(batch: int, rows: int, columns: int) -> Place:
    """The place of (batch, row, column) in a result whose elements lie in that order."""

    def place(code: Code, b: Ix, row: Ix, column: Ix) -> Position:
        wide = [(n, ix) for n, ix in ((batch, b), (rows, row), (columns, column)) if n != 1]
        return Position(tuple([n for n, _ in wide]), tuple([ix for _, ix in wide]))

    return place


def image(groups: int, channels: int, pixels: int, images: int) -> Place:
    """The place in an image batch: batch = channel group, row = channel in it, column = (image, pixel)."""

    def place(code: Code, b: Ix, row: Ix, column: Ix) -> Position:
        n, pixel = (
            code.digits(linear(column, images * pixels), (images, pixels))
            if min(images, pixels) > 1
            else ((column, constant(0)) if pixels == 1 else (constant(0), column))
        )
        wide = [(size, ix) for size, ix in ((images, n), (groups, b), (channels, row), (pixels, pixel)) if size != 1]
        return Position(tuple([size for size, _ in wide]), tuple([ix for _, ix in wide]))

    return place


class Applied:
    """The epilogue of one group; the tensors it reads and writes are declared on each kernel that uses it."""

    def __init__(self, group: Group, place: Place, sizes: tuple[int, int, int]) -> None:
        self.group = group
        self.place = place
        self.sizes = sizes
        assert group.family is not None
        self.result = group.family.outputs[0]
        bases = {o.base for o in group.operands}
        read = behind(group.outputs, group.inputs, [group.family])
        self.reads = [(k, v) for k, v in enumerate(group.inputs) if v not in bases or v in read]
        self.main = main_output(group)
        self.made: dict[int, tuple[Module, bool, dict[Value, Mem], dict[Value, Mem]]] = {}

    def epilogue(self) -> Epilogue:
        """As the kernel generators take it."""
        whole = self.sizes[2] % 4 == 0 and all(v.dtype in QUAD_DTYPES for v in self.group.outputs)
        return Epilogue(self._one, None, self._four if whole else None, "ep")

    def _tensors(self, module: Module, *, quad: bool) -> tuple[dict[Value, Mem], dict[Value, Mem]]:
        """The tensors of one kernel: wide where every access of a vector epilogue is."""
        found = self.made.get(id(module))
        if found is not None:
            return found[2], found[3]
        narrow: set[Value] = set()
        if quad:
            mems = {v: Mem(f"x{k}", v.dtype, v.type.numel, "read", 4, 1, 1) for k, v in self.reads}
            code = Code()
            evaluator = Evaluator(Module("probe", module.limits), code, mems)
            self._evaluate(code, evaluator, "acc", Ix("b", self.sizes[0]), Ix("r", self.sizes[1]), "c")
            narrow = evaluator.scalar_reads

        def declare(key: str, value: Value, *, write: bool) -> Mem:
            wide = quad and value not in narrow and value.type.numel % 4 == 0
            return module.tensor(
                key, value.dtype, value.type.numel, "read_write" if write else "read", 4 if wide else 1
            )

        inputs = {v: declare(f"in{k}", v, write=False) for k, v in self.reads}
        outputs = {v: declare(f"out{k}", v, write=True) for k, v in enumerate(self.group.outputs) if k != self.main}
        self.made[id(module)] = (module, quad, inputs, outputs)
        return inputs, outputs

    def _evaluate(
        self, code: Code, evaluator: Evaluator, acc: str, batch: Ix, row: Ix, column: str
    ) -> tuple[dict[Value, list[str]], list[Position]]:
        """Every output at four columns from ``4 * (column / 4)``."""
        quad = code.let("quad", f"{column} / 4u", 0)[0]
        base = Ix(quad, -(-self.sizes[2] // 4))
        places = [self.place(code, batch, row, lane(base, k)) for k in range(4)]
        texts: dict[Value, list[str]] = {v: [] for v in self.group.outputs}
        for k, position in enumerate(places):
            self._bind(evaluator, position, f"{acc}.{LANES[k]}")
            for value in self.group.outputs:
                texts[value].append(evaluator.at(value, position)[0])
        return texts, places

    def _bind(self, evaluator: Evaluator, position: Position, acc: str) -> None:
        text = f"f16({acc})" if self.result.dtype == "f16" else acc
        evaluator.bind(self.result, position, text, 0)
        numel = self.result.type.numel
        if len(position.dims) > 1:
            evaluator.bind(self.result, linear(evaluator.code.flat(position, numel), numel), text, 0)

    def _four(self, module: Module, batch: str, row: str, col: str, acc: str) -> tuple[list[str], str]:
        inputs, outputs = self._tensors(module, quad=True)
        code = Code()
        evaluator = Evaluator(module, code, inputs)
        texts, places = self._evaluate(code, evaluator, acc, Ix(batch, self.sizes[0]), Ix(row, self.sizes[1]), col)
        flat = [code.flat(p, self.result.type.numel) for p in places]
        for value, mem in outputs.items():
            base = flat[0].base
            if mem.vec == 4 and base is not None:
                code.line(store_quad(mem, base.text, texts[value]))
            else:
                for ix, text in zip(flat, texts[value], strict=True):
                    code.line(mem.store(code.scalar(ix), text))
        main = self.group.outputs[self.main]
        have = ", ".join(f"f32({t})" if main.dtype == "f16" else t for t in texts[main])
        return code.blocks[0], f"vec4<f32>({have})"

    def _one(self, module: Module, batch: str, row: str, col: str, acc: str) -> tuple[list[str], str]:
        inputs, outputs = self._tensors(module, quad=False)
        code = Code()
        evaluator = Evaluator(module, code, inputs)
        b, r, c = self.sizes
        position = self.place(code, Ix(batch, b), Ix(row, r), Ix(col, c))
        self._bind(evaluator, position, acc)
        texts = {v: evaluator.at(v, position)[0] for v in self.group.outputs}
        at = code.scalar(code.flat(position, self.result.type.numel))
        for value, mem in outputs.items():
            code.line(mem.store(at, texts[value]))
        main = self.group.outputs[self.main]
        return code.blocks[0], f"f32({texts[main]})" if main.dtype == "f16" else texts[main]
