"""Building graphs, refusals, the verifier and the digest; no NumPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scellis_core import ops
from scellis_core.errors import IRError
from scellis_core.ir import (
    OPS,
    Graph,
    OpDef,
    Type,
    Value,
    broadcast_shapes,
    copy_node,
    digest,
    op_def,
    register,
    verify,
)

F32 = Type("f32", (2, 3))


def graph_and(*types: Type) -> tuple[Graph, list[Value]]:
    graph = Graph("g")
    return graph, [graph.load(f"x{i}", t) for i, t in enumerate(types)]


def refusal(build: object) -> str:
    with pytest.raises(IRError) as caught:
        build()  # type: ignore[operator]
    return str(caught.value)


# -- building -------------------------------------------------------------------------------------------------
def test_leaves_of_one_name_are_one_value() -> None:
    graph = Graph()
    w = graph.param("w", F32)
    assert graph.param("w", F32) is w
    assert graph.state("w", F32) is not w
    assert graph.load("x", F32) is graph.load("x", F32)
    assert graph.scalar("lr") is graph.scalar("lr")
    assert refusal(lambda: graph.param("w", Type("f32", (3,)))) == "param w: expected f32[2, 3], got f32[3]"


def test_leaves_survive_pruning_and_are_forgotten_with_it() -> None:
    graph = Graph()
    kept, dropped = graph.param("kept", F32), graph.param("dropped", F32)
    graph.output("y", kept + 1.0)
    graph.prune()
    assert graph.param("kept", F32) is kept
    assert graph.param("dropped", F32) is not dropped
    graph.output("z", graph.param("dropped", F32))
    verify(graph)


def test_arithmetic_lifts_numbers_and_broadcasts() -> None:
    graph, (x, row) = graph_and(F32, Type("f32", (3,)))
    y = 2.0 * x - row / 4
    assert y.type == F32
    assert [n.op for n in graph.nodes] == ["load", "load", "const", "mul", "const", "div", "broadcast", "sub"]
    assert graph.nodes[4].attrs == {"value": 4.0, "dtype": "f32", "shape": (3,)}
    verify(graph)


def test_comparisons_and_logic() -> None:
    _, (x, y) = graph_and(F32, F32)
    both = (x > 0.0) & (y <= x) | ~ops.eq(x, y)
    assert both.type == Type("bool", (2, 3))
    assert ops.select(both, x, 0.0).type == F32
    assert ops.select(both, 1, 0).dtype == "i32"
    assert ops.select(both, 1.0, 0).dtype == "f32"


def test_powers_become_products_and_roots() -> None:
    graph, (x,) = graph_and(F32)
    for exponent in (1, 2, 3, 0.5, -1, -0.5, 2.5):
        _ = x**exponent
    assert [n.op for n in graph.nodes[1:]] == ["mul", "mul", "mul", "sqrt", "recip", "rsqrt", "const", "pow"]


def test_paths_and_draws() -> None:
    graph, (x,) = graph_and(F32)
    with graph.at("a"):
        with graph.at("a.b"):
            inner = -x
        outer = -x
    assert (inner.node.path, outer.node.path, graph.path) == ("a.b", "a", "")
    assert [graph.reserve(n) for n in (1, 4, 5, 1)] == [0, 1, 2, 4]
    assert graph.draws == 5


def test_reading() -> None:
    graph, (x,) = graph_and(F32)
    y = x * x
    graph.store("s", y)
    assert graph.users()[x] == [y.node]
    assert [n.op for n in graph.users()[y]] == ["store"]
    assert list(graph.values()) == [x, y]
    assert graph.leaves("load") == {"x0": x}
    assert [n.attrs["name"] for n in graph.stores()] == ["s"]


def test_copy_node_maps_operands() -> None:
    graph, (x,) = graph_and(F32)
    with graph.at("p"):
        y = ops.exp(x)
    other = Graph("other")
    mapping = {x: other.load("x", F32)}
    (copied,) = copy_node(y.node, other, mapping)
    assert mapping[y] is copied
    assert (copied.node.op, copied.node.path, copied.node.inputs) == ("exp", "p", [mapping[x]])


def test_broadcast_shapes() -> None:
    assert broadcast_shapes((2, 1, 3), (5, 1)) == (2, 5, 3)
    assert broadcast_shapes((), (4,)) == (4,)
    assert refusal(lambda: broadcast_shapes((2,), (3,))) == (
        "broadcast: expected shapes that align from the right, [2], got [3]; try reshape one of them"
    )


# -- refusals -------------------------------------------------------------------------------------------------
def emitted(op: str, *types: Type, **attrs: object) -> str:
    graph, values = graph_and(*types)
    with graph.at("net.0"):
        return refusal(lambda: graph.emit(op, values, **attrs))  # type: ignore[arg-type]


I32 = Type("i32", (2, 3))
IMAGE = Type("f32", (1, 4, 8, 8))

REFUSALS = [
    (lambda: emitted("multiply", F32), "op multiply: expected a known op, got 'multiply'; try one of: "),
    (lambda: emitted("neg", F32, axis=1), "net.0: neg: expected an attribute of the op, got axis"),
    (
        lambda: emitted("permute", F32),
        "net.0: permute: expected attributes perm, got no perm",
    ),
    (lambda: emitted("neg"), "net.0: neg: expected 1 operand, got 0 (no operand)"),
    (
        lambda: emitted("add", F32, I32),
        "net.0: add: expected operands of one type, got f32[2, 3], i32[2, 3]; try ops.broadcast for shapes, "
        "ops.cast for dtypes",
    ),
    (
        lambda: emitted("add", F32, Type("f32", (3,))),
        "net.0: add: expected operands of one type, got f32[2, 3], f32[3]; try ops.broadcast for shapes, "
        "ops.cast for dtypes",
    ),
    (
        lambda: emitted("exp", I32),
        "net.0: exp: expected operand of dtype f16 or f32 or f64, got i32[2, 3]; try ops.cast",
    ),
    (
        lambda: emitted("select", F32, F32, F32),
        "net.0: select: expected a condition of dtype bool, got f32[2, 3]; try a comparison such as ops.ne(x, 0)",
    ),
    (
        lambda: emitted("cast", F32, dtype="bf16"),
        "net.0: cast: expected dtype f32 or f16 or i32 or u32 or bool or f64, got 'bf16'",
    ),
    (
        lambda: emitted("const", value=1, dtype="f32", shape=()),
        "net.0: const: expected a float for a constant of dtype f32, got 1",
    ),
    (
        lambda: emitted("const", value=70000.0, dtype="f16", shape=()),
        "net.0: const: expected a constant that f16 holds, at most 65504.0, got 70000.0",
    ),
    (
        lambda: emitted("const", value=2**31, dtype="i32", shape=()),
        "net.0: const: expected an integer from -2147483648 to 2147483647 for a constant of dtype i32, got 2147483648",
    ),
    (
        lambda: emitted("load", name="x", dtype="f32", shape=(2, 0)),
        "net.0: load: expected shape of sizes >= 1 (no tensor is empty), got (2, 0)",
    ),
    (
        lambda: emitted("broadcast", F32, shape=(2, 4)),
        "net.0: broadcast: expected a shape that [2, 3] is repeated to, aligned from the right, got [2, 4]; "
        "try ops.reshape",
    ),
    (
        lambda: emitted("reshape", F32, shape=(4,)),
        "net.0: reshape: expected a shape of 6 elements, got [4] of 4",
    ),
    (
        lambda: emitted("permute", F32, perm=(0, 0)),
        "net.0: permute: expected each axis of f32[2, 3] once, got perm (0, 0)",
    ),
    (
        lambda: emitted("slice", F32, starts=(0, 2), stops=(2, 2), steps=(1, 1)),
        "net.0: slice: expected start < stop <= size on each axis of f32[2, 3], got starts (0, 2), stops (2, 2)",
    ),
    (
        lambda: emitted("pad", F32, low=(0, 0), high=(0, 0), value=0),
        "net.0: pad: expected value as float for dtype f32, got 0",
    ),
    (
        lambda: emitted("concat", F32, Type("f32", (3, 2)), axis=0),
        "net.0: concat: expected operands of one dtype and shape but for axis 0, got f32[2, 3], f32[3, 2]",
    ),
    (
        lambda: emitted("reduce_sum", F32, axes=(1, 0), keepdims=False),
        "net.0: reduce_sum: expected at least one axis of f32[2, 3], in rising order, got axes (1, 0); "
        "try ops.reduce_sum(x, axes=...)",
    ),
    (
        lambda: emitted("argmax", F32, axis=2),
        "net.0: argmax: expected axis as an integer >= 0 and < 2, got 2",
    ),
    (
        lambda: emitted("matmul", F32, F32),
        "net.0: matmul: expected equal inner sizes, 3 of a, got 2 of b in f32[2, 3], f32[2, 3] with "
        "transpose_a=false transpose_b=false; try a transpose flag",
    ),
    (
        lambda: emitted("matmul", Type("f32", (4, 2, 3)), Type("f32", (5, 3, 2))),
        "net.0: matmul: expected equal batch dimensions, or a b of 2 dimensions, got f32[4, 2, 3], f32[5, 3, 2]; "
        "try ops.broadcast",
    ),
    (
        lambda: emitted("conv2d", IMAGE, Type("f32", (6, 4, 3, 3)), groups=2),
        "net.0: conv2d: expected input channels = groups * (channels of the kernel), and output channels in whole "
        "groups, got 4 input channels, kernel [6, 4, 3, 3], groups=2 in f32[1, 4, 8, 8], f32[6, 4, 3, 3]",
    ),
    (
        lambda: emitted("conv2d", IMAGE, Type("f32", (6, 4, 9, 3))),
        "net.0: conv2d: expected a window of at most 8 elements (with padding) on axis 2, got one of 9",
    ),
    (
        lambda: emitted("max_pool2d", IMAGE, window=(2, 2), stride=(2, 2), padding=(2, 0, 0, 0)),
        "net.0: max_pool2d: expected padding smaller than the window (2, 2), got padding (2, 0, 0, 0)",
    ),
    (
        lambda: emitted("take", F32, F32),
        "net.0: take: expected an index of dtype i32 or u32, got f32[2, 3]; try ops.cast",
    ),
    (
        lambda: emitted("pick", F32, Type("i32", (3,))),
        "net.0: pick: expected x[..., C] and an index of the same leading shape, got f32[2, 3], i32[3]",
    ),
    (
        lambda: emitted("scatter_add", Type("i32", (2,)), Type("f32", (3,)), rows=4),
        "net.0: scatter_add: expected a source whose shape begins with [2], got i32[2], f32[3]",
    ),
]


@pytest.mark.parametrize(("build", "text"), REFUSALS)
def test_refusals_say_where_what_and_what_to_try(build: object, text: str) -> None:
    found = build()  # type: ignore[operator]
    assert found == text if not text.endswith("one of: ") else found.startswith(text)


def test_operands_of_another_graph_are_refused() -> None:
    graph, (x,) = graph_and(F32)
    other = Graph("other")
    y = other.load("y", F32)
    assert refusal(lambda: graph.emit("add", [x, y])) == "g: add: expected operands of graph g, got one of graph other"


def test_a_value_is_no_python_condition() -> None:
    _, (x,) = graph_and(F32)
    assert refusal(lambda: bool(x > 0.0)) == (
        "value %?: bool[2, 3]: expected a Python condition on Python values, got a tensor value; "
        "try ops.select(condition, a, b)"
    )


def test_numbers_alone_and_bad_axes_are_refused() -> None:
    graph, (x,) = graph_and(F32)
    assert refusal(lambda: ops.add(1.0, 2.0)) == (
        "ops: expected at least one tensor value, got Python numbers alone; try graph.const"
    )
    assert refusal(lambda: ops.softmax(x, 2)) == "axis of f32[2, 3]: expected an axis from -2 to 1, got 2"
    assert refusal(lambda: x + True) == "g: const: expected a float for a constant of dtype f32, got True"
    assert refusal(lambda: graph.load("i", I32) * 0.5) == (
        "g: const: expected an integer from -2147483648 to 2147483647 for a constant of dtype i32, got 0.5"
    )
    assert refusal(lambda: ops.one_minus_power(1.0, graph.scalar("t"))) == (
        "one_minus_power: expected 0 <= beta < 1, got 1.0"
    )


def test_an_op_name_is_taken_once() -> None:
    copy = OpDef(**{f: getattr(op_def("neg"), f) for f in OpDef.__dataclass_fields__})
    assert refusal(lambda: register(copy)) == (
        "op neg: expected a new name, got one that is registered already; try another name"
    )


# -- verifier -------------------------------------------------------------------------------------------------
def test_verifier_finds_each_fault() -> None:
    graph, (x,) = graph_and(F32)
    y = ops.exp(x)
    verify(graph)

    y.node.inputs[0] = y
    assert refusal(lambda: verify(graph)) == (
        "g node 1 exp: expected operands defined by an earlier node, got %?: f32[2, 3]; try topological order"
    )
    y.node.inputs[0] = x
    y.type = Type("f32", (3, 2))
    assert refusal(lambda: verify(graph)) == ("g node 1 exp: expected output types ['f32[2, 3]'], got ['f32[3, 2]']")
    y.type = F32
    y.node.attrs["axis"] = 1
    assert refusal(lambda: verify(graph)) == "g node 1 exp: expected attributes [], got ['axis']; try Graph.emit"
    y.node.attrs.clear()
    graph.store("s", y)
    graph.emit("state", [], name="s", dtype="f32", shape=(6,))
    assert refusal(lambda: verify(graph)) == "g node 3 state: expected s of type f32[2, 3], got f32[6]"
    graph.nodes.pop()
    graph.output("z", Graph("h").load("x", F32))
    assert refusal(lambda: verify(graph)) == "g output z: expected a value of this graph, got %?: f32[2, 3]"


# -- digest ---------------------------------------------------------------------------------------------------
def small(value: float | int | bool = 1.0, dtype: str = "f32", name: str = "x", path: str = "") -> str:
    graph = Graph(name)
    with graph.at(path):
        x = graph.load("x", Type(dtype, (2,)))
        x.name = name
        graph.output("y", graph.emit("add", [x, graph.const(value, dtype, (2,))])[0] if dtype != "bool" else x)
    return digest(graph)


def test_digest_does_not_change_with_names_and_paths() -> None:
    assert small(name="a", path="p") == small(name="b", path="q")


def test_digest_keeps_numbers_apart() -> None:
    nan, inf = float("nan"), float("inf")
    assert small(nan) == small(-nan)
    seen = [small(v) for v in (1.0, -1.0, 0.0, -0.0, nan, inf, -inf, 1.0000000000000002)]
    seen += [small(1, "i32"), small(1, "u32"), small(1.0, "f64")]
    assert len(set(seen)) == len(seen)


def test_digest_changes_with_wiring_outputs_and_draws() -> None:
    def built(swap: bool, output: str, draws: int) -> str:
        graph, (x, y) = graph_and(F32, F32)
        graph.output(output, (y - x) if swap else (x - y))
        graph.draws = draws
        return digest(graph)

    seen = {built(*case) for case in ((False, "o", 0), (True, "o", 0), (False, "p", 0), (False, "o", 1))}
    assert len(seen) == 4


def test_the_compiler_side_imports_no_numpy() -> None:
    code = "import sys; import scellis_core.ops, scellis_core.autodiff; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_ops_of_the_contract_are_there() -> None:
    names = """load param state scalar const iota store neg abs exp log log1p expm1 sqrt rsqrt tanh sigmoid erf sin
    cos floor ceil round sign recip not isfinite stop_gradient add sub mul div pow max min lt le eq ne and or xor shr
    shl rem select cast broadcast reshape permute slice pad concat reduce_sum reduce_max reduce_min argmax take
    scatter_add pick matmul conv2d conv2d_grad_input conv2d_grad_weight max_pool2d max_pool2d_grad avg_pool2d
    avg_pool2d_grad philox"""
    assert sorted(OPS) == sorted(names.split())
