"""Every op: values against independent formulas, gradients against central differences, text, edges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from central_differences import check_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from scellis_core import ops, oracle, rng
from scellis_core.autodiff import gradients
from scellis_core.errors import DataError, IRError
from scellis_core.ir import OPS, Graph, Type, Value, digest, parse_graph, print_graph, verify
from scellis_core.ops.base import type_of

FEW = settings(max_examples=60, deadline=None, derandomize=True)
sizes = st.sampled_from([1, 2, 3, 5, 7, 17])
shapes = st.lists(sizes, min_size=0, max_size=4).filter(lambda s: math.prod(s) < 3000).map(tuple)


def draw(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(build: Any, *arrays: Any, scalars: dict[str, Any] | None = None) -> Any:
    """Build a graph over loaded arrays and evaluate its one output."""
    graph = Graph("run")
    values = [graph.load(f"in{i}", type_of(np.asarray(a))) for i, a in enumerate(arrays)]
    graph.output("y", build(*values))
    verify(graph)
    return oracle.evaluate(graph, {f"in{i}": a for i, a in enumerate(arrays)}, {}, scalars or {})["y"]


# -- all ops --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", sorted(OPS))
def test_samples_run_have_their_types_and_round_trip_as_text(op: str) -> None:
    cases = ops.sample_cases(op, np.random.default_rng(3))
    assert len(cases) >= 2
    kinds = {"f32": "f", "i32": "i", "u32": "i", "bool": "b"}
    for case in cases:
        verify(case.graph)
        out = oracle.evaluate(case.graph, case.inputs, case.tensors, case.scalars)
        for name, value in case.graph.outputs.items():
            assert out[name].shape == value.shape
            assert out[name].dtype.kind == kinds[value.dtype]
        text = print_graph(case.graph)
        again = parse_graph(text)
        assert print_graph(again) == text
        assert digest(again) == digest(case.graph)


@pytest.mark.parametrize("op", sorted(n for n, d in OPS.items() if d.vjp is not None and n != "max_pool2d_grad"))
def test_gradients_of_samples_match_central_differences(op: str) -> None:
    generator = np.random.default_rng(5)
    for case in ops.sample_cases(op, generator):
        arrays = [case.inputs[f"in{i}"] for i in range(len(case.operands))]
        node = case.graph.nodes[-1]
        if all(a.dtype != np.float32 for a in arrays) or node.outputs[0].dtype != "f32":
            continue
        noisy = [  # breaks ties, where the derivative jumps
            a + np.asarray(1e-3 * generator.standard_normal(a.shape), np.float32) if a.dtype == np.float32 else a
            for a in arrays
        ]
        if op in ("log", "sqrt", "rsqrt"):
            noisy = [np.abs(a) + np.float32(0.01) for a in noisy]
        check_gradients(lambda *v, node=node: v[0].graph.emit(node.op, v, **node.attrs)[0], noisy)


SMOOTH = ("exp", "log", "sigmoid", "tanh", "erf", "rsqrt", "sqrt", "recip", "log1p", "expm1", "sin", "cos")


@pytest.mark.parametrize("op", SMOOTH)
def test_second_derivatives_of_smooth_functions(op: str) -> None:
    x = np.asarray(np.random.default_rng(1).uniform(0.5, 1.5, (3, 5)), np.float32)
    check_gradients(lambda v: ops.square(v.graph.emit(op, [v])[0]), [x], order=2)


# -- property based -------------------------------------------------------------------------------------------
@FEW
@given(shapes, st.data())
def test_broadcast_operands(shape: tuple[int, ...], data: st.DataObject) -> None:
    keep = data.draw(st.integers(0, len(shape)))
    other = tuple(1 if data.draw(st.booleans()) else n for n in shape[keep:])
    a, b = draw(1, *shape), draw(2, *other)
    np.testing.assert_allclose(run(lambda x, y: x * y - y, a, b), a.astype(float) * b - b)
    check_gradients(lambda x, y: x * y - y, [a, b])


@FEW
@given(shapes.filter(len), st.data(), st.booleans())
def test_reductions(shape: tuple[int, ...], data: st.DataObject, keepdims: bool) -> None:
    axes = tuple(
        data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda a: a % len(shape)))
    )
    x = draw(3, *shape)
    for name in ("sum", "max", "min", "mean", "var"):
        fn = getattr(ops, name if name in ("mean", "var") else f"reduce_{name}")
        found = run(lambda v, fn=fn: fn(v, axes, keepdims), x)
        np.testing.assert_allclose(found, getattr(np, name)(x.astype(float), axis=axes, keepdims=keepdims), atol=1e-12)
        check_gradients(lambda v, fn=fn: fn(v, axes, keepdims), [x])


@FEW
@given(st.lists(sizes, max_size=2).map(tuple), sizes, sizes, sizes, st.booleans(), st.booleans(), st.booleans())
def test_matmul(batch: tuple[int, ...], m: int, n: int, k: int, ta: bool, tb: bool, shared: bool) -> None:
    a = draw(1, *batch, *((k, m) if ta else (m, k)))
    b = draw(2, *(() if shared else batch), *((n, k) if tb else (k, n)))
    wanted = np.einsum(
        "...mk,...kn->...mn",
        a.astype(float).swapaxes(-1, -2) if ta else a.astype(float),
        b.astype(float).swapaxes(-1, -2) if tb else b.astype(float),
    )
    np.testing.assert_allclose(run(lambda x, y: ops.matmul(x, y, ta, tb), a, b), wanted, atol=1e-12)
    check_gradients(lambda x, y: ops.matmul(x, y, ta, tb), [a, b], order=2)


@FEW
@given(st.data())
def test_conv2d(data: st.DataObject) -> None:
    n, groups = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    c, o = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    kernel = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    stride = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)))
    dilation = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)))
    padding = tuple(data.draw(st.integers(0, 2)) for _ in range(4))
    size = tuple(dilation[k] * (kernel[k] - 1) + 1 + data.draw(st.integers(0, 4)) for k in (0, 1))
    x, w = draw(1, n, c, *size), draw(2, o, c // groups, *kernel)

    def build(a: Value, b: Value) -> Value:
        return ops.conv2d(a, b, stride, padding, dilation, groups)  # type: ignore[arg-type]

    np.testing.assert_allclose(run(build, x, w), naive_conv(x, w, stride, padding, dilation, groups), atol=1e-12)
    check_gradients(build, [x, w], order=2)


def naive_conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Loops, from the definition."""
    wide = np.pad(x.astype(float), ((0, 0), (0, 0), padding[:2], padding[2:]))
    reach = [dilation[k] * (w.shape[2 + k] - 1) + 1 for k in (0, 1)]
    rows, cols = ((wide.shape[2 + k] - reach[k]) // stride[k] + 1 for k in (0, 1))
    out = np.zeros((x.shape[0], w.shape[0], rows, cols))
    for b, f, i, j in itertools.product(*(range(s) for s in out.shape)):
        first = f // (w.shape[0] // groups) * w.shape[1]
        seen = wide[
            b,
            first : first + w.shape[1],
            i * stride[0] : i * stride[0] + reach[0] : dilation[0],
            j * stride[1] : j * stride[1] + reach[1] : dilation[1],
        ]
        out[b, f, i, j] = (seen * w[f]).sum()
    return out


@FEW
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    window = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    stride = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)))
    padding = tuple(data.draw(st.integers(0, window[k // 2] - 1)) for k in range(4))
    size = tuple(window[k] + data.draw(st.integers(0, 4)) for k in (0, 1))
    include = data.draw(st.booleans())
    x = draw(1, 2, 2, *size)
    greatest, average = naive_pool(x, window, stride, padding, include)

    def max_pool(v: Value) -> Value:
        return ops.max_pool2d(v, window, stride, padding)  # type: ignore[arg-type]

    def avg_pool(v: Value) -> Value:
        return ops.avg_pool2d(v, window, stride, padding, include)  # type: ignore[arg-type]

    np.testing.assert_allclose(run(max_pool, x), greatest)
    np.testing.assert_allclose(run(avg_pool, x), average, atol=1e-12)
    check_gradients(max_pool, [x])
    check_gradients(lambda v: ops.square(avg_pool(v)), [x], order=2)


def naive_pool(x: Any, window: Any, stride: Any, padding: Any, include: bool) -> tuple[Any, Any]:
    """Loops, from the definition."""
    wide = np.pad(x.astype(float), ((0, 0), (0, 0), padding[:2], padding[2:]), constant_values=np.nan)
    rows, cols = ((wide.shape[2 + k] - window[k]) // stride[k] + 1 for k in (0, 1))
    top, mean = np.zeros((*x.shape[:2], rows, cols)), np.zeros((*x.shape[:2], rows, cols))
    for b, c, i, j in itertools.product(*(range(s) for s in top.shape)):
        seen = wide[b, c, i * stride[0] : i * stride[0] + window[0], j * stride[1] : j * stride[1] + window[1]]
        top[b, c, i, j] = np.nanmax(seen)
        mean[b, c, i, j] = np.nansum(seen) / (seen.size if include else np.isfinite(seen).sum())
    return top, mean


@FEW
@given(shapes, st.data())
def test_views(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = draw(1, *shape)
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    starts = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    stops = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(starts, shape, strict=True))
    steps = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    low, high = (tuple(data.draw(st.integers(0, 2)) for _ in shape) for _ in range(2))

    def build(v: Value) -> Value:
        return ops.pad(ops.permute(ops.slice(v, starts, stops, steps), perm), low, high, 1.5)

    cut = x.astype(float)[tuple(slice(*s) for s in zip(starts, stops, steps, strict=True))].transpose(perm)
    wanted = np.pad(cut, list(zip(low, high, strict=True)), constant_values=1.5) if shape else cut
    np.testing.assert_array_equal(run(build, x), wanted)
    check_gradients(build, [x])


@FEW
@given(shapes.filter(len), st.data())
def test_concat_of_parts_is_the_whole(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    arrays = [draw(k, *shape[:axis], data.draw(sizes), *shape[axis + 1 :]) for k in range(3)]
    np.testing.assert_array_equal(run(lambda *v: ops.concat(v, axis), *arrays), np.concatenate(arrays, axis))
    check_gradients(lambda *v: ops.concat(v, axis), arrays)


@FEW
@given(sizes, st.lists(sizes, max_size=2).map(tuple), st.lists(sizes, max_size=2).map(tuple), st.integers(0, 99))
def test_take_scatter_and_pick(rows: int, index_shape: tuple[int, ...], rest: tuple[int, ...], seed: int) -> None:
    index = np.asarray(np.random.default_rng(seed).integers(0, rows, index_shape), np.int32)
    table, source = draw(1, rows, *rest), draw(2, *index_shape, *rest)
    np.testing.assert_array_equal(run(ops.take, table, index), table[index])
    total = np.zeros((rows, *rest))
    for at in np.ndindex(*index_shape):
        total[index[at]] += source[at]
    np.testing.assert_allclose(run(lambda i, s: ops.scatter_add(i, s, rows), index, source), total, atol=1e-12)
    x = draw(3, *index_shape, rows)
    picked = np.asarray([x[(*at, index[at])] for at in np.ndindex(*index_shape)]).reshape(index_shape)
    np.testing.assert_array_equal(run(ops.pick, x, index), picked)
    check_gradients(lambda t, i: ops.square(ops.take(t, i)), [table, index], order=2)
    check_gradients(lambda i, s: ops.square(ops.scatter_add(i, s, rows)), [index, source], order=2)
    check_gradients(lambda v, i: ops.square(ops.pick(v, i)), [x, index], order=2)


@FEW
@given(shapes.filter(len), st.data())
def test_softmax_family(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = draw(1, *shape) * 3
    e = np.exp(x.astype(float))
    total = e.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(run(lambda v: ops.softmax(v, axis), x), e / total, rtol=1e-10)
    np.testing.assert_allclose(run(lambda v: ops.log_softmax(v, axis), x), np.log(e / total), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run(lambda v: ops.logsumexp(v, axis), x), np.log(total.squeeze(axis)), rtol=1e-10)
    for fn in (ops.softmax, ops.log_softmax, ops.logsumexp):
        check_gradients(lambda v, fn=fn: fn(v, axis), [x], order=2)


# -- values and edges -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (ops.relu, lambda x: x * (x > 0)),
        (ops.silu, lambda x: x / (1 + math.exp(-x))),
        (ops.gelu, lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
        (
            lambda v: ops.gelu(v, "tanh"),
            lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
        (ops.softplus, lambda x: math.log(1 + math.exp(x))),
        (lambda v: ops.clamp(v, -0.5, 0.75), lambda x: min(max(x, -0.5), 0.75)),
        (lambda v: v**2, lambda x: x**2),
        (lambda v: v**3, lambda x: x**3),
        (lambda v: abs(v) ** 0.5, lambda x: math.sqrt(abs(x))),
        (lambda v: 2.0**v, lambda x: 2**x),
        (lambda v: ops.stop_gradient(v) - 1, lambda x: x - 1),
    ],
)
def test_composed_functions(fn: Any, wanted: Any) -> None:
    x = draw(4, 7, 5)
    np.testing.assert_allclose(run(fn, x), np.vectorize(wanted)(x.astype(float)), rtol=1e-12, atol=1e-12)


def test_extremes_neither_overflow_nor_lose_small_numbers() -> None:
    x = np.asarray([-1000.0, -40.0, 0.0, 40.0, 1000.0], np.float32)
    np.testing.assert_allclose(run(ops.softplus, x), [0.0, math.exp(-40), math.log(2), 40.0, 1000.0], rtol=1e-12)
    np.testing.assert_allclose(run(ops.sigmoid, x), [0.0, math.exp(-40), 0.5, 1.0, 1.0], rtol=1e-12)
    np.testing.assert_array_equal(run(ops.tanh, np.asarray([1000.0, -1000.0], np.float32)), [1.0, -1.0])
    np.testing.assert_allclose(run(lambda v: ops.gelu(v, "tanh"), np.asarray([-13.24], np.float32)), [0.0], atol=1e-30)
    tiny = np.asarray([1e-9], np.float32)
    np.testing.assert_allclose(run(ops.log1p, tiny), tiny, rtol=1e-8)
    np.testing.assert_allclose(run(ops.expm1, tiny), tiny, rtol=1e-8)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.999999])
def test_one_minus_power(beta: float) -> None:
    t = np.asarray([1.0, 2.0, 3.0, 1000.0], np.float32)
    exact = [-math.expm1(float(n) * math.log(beta)) if beta else 1.0 for n in t]
    np.testing.assert_allclose(run(lambda v: ops.one_minus_power(beta, v), t), exact, rtol=1e-14)


def test_non_finite_numbers_are_found_by_bits() -> None:
    x = np.asarray([1, np.inf, np.nan, -0.0, 3.4e38, -np.inf], np.float32)
    np.testing.assert_array_equal(run(ops.isfinite, x), [True, False, False, True, True, False])


def test_ties_share_the_gradient() -> None:
    graph = Graph("ties")
    a, b = graph.load("a", Type("f32", (3,))), graph.load("b", Type("f32", (3,)))
    x = graph.load("x", Type("f32", (2, 3)))
    loss = ops.reduce_sum(ops.max(a, b)) + ops.reduce_sum(ops.reduce_max(x, 1))
    for name, value in zip("abx", gradients(graph, loss, [a, b, x]).values(), strict=True):
        assert value is not None
        graph.output(name, value)
    inputs = {"a": [1.0, 2.0, 3.0], "b": [1.0, 3.0, 2.0], "x": [[4.0, 4.0, 1.0], [0.0, 1.0, 2.0]]}
    out = oracle.evaluate(graph, inputs, {}, {})
    np.testing.assert_array_equal(out["a"], [0.5, 0.0, 1.0])
    np.testing.assert_array_equal(out["b"], [0.5, 1.0, 0.0])
    np.testing.assert_array_equal(out["x"], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])


def test_max_pool_gives_the_first_of_equals_the_gradient() -> None:
    x, g = np.full((1, 1, 2, 4), 3.0, np.float32), np.asarray([[[[5.0, 7.0]]]], np.float32)
    found = run(lambda v, u: v.graph.emit("max_pool2d_grad", [v, u], window=(2, 2), stride=(2, 2))[0], x, g)
    np.testing.assert_array_equal(found, [[[[5, 0, 7, 0], [0, 0, 0, 0]]]])


def test_a_second_derivative_of_max_pool_is_refused() -> None:
    with pytest.raises(IRError) as caught:
        check_gradients(lambda v: ops.square(ops.max_pool2d(v, 2)), [draw(1, 1, 1, 4, 4)], order=2)
    assert str(caught.value) == (
        "check: max_pool2d_grad: expected a gradient of first order, got a second derivative of max_pool2d; "
        "try avg_pool2d"
    )


def test_integers_wrap_to_32_bits_and_divide_as_wgsl_does() -> None:
    a = np.asarray([2**31 - 1, -(2**31), 7, -7, 5], np.int32)
    b = np.asarray([1, -1, 2, 2, 0], np.int32)
    np.testing.assert_array_equal(run(ops.add, a, b), [-(2**31), 2**31 - 1, 9, -5, 5])
    np.testing.assert_array_equal(run(ops.div, a, b), [2**31 - 1, -(2**31), 3, -3, 5])
    np.testing.assert_array_equal(run(ops.rem, a, b), [0, 0, 1, -1, 0])
    u = np.asarray([2**32 - 1, 3], np.uint32)
    np.testing.assert_array_equal(run(ops.mul, u, u), [1, 9])
    np.testing.assert_array_equal(run(ops.not_, u), [0, 2**32 - 4])
    np.testing.assert_array_equal(run(lambda v: ops.shl(v, 31), u), [2**31, 2**31])
    np.testing.assert_array_equal(run(lambda v: ops.shr(v, 1), a), [2**30 - 1, -(2**30), 3, -4, 2])


def test_cast_saturates_truncates_and_reinterprets() -> None:
    x = np.asarray([-1.9, 1.9, 3e9, -3e9, np.nan], np.float32)
    np.testing.assert_array_equal(run(lambda v: ops.cast(v, "i32"), x), [-1, 1, 2**31 - 1, -(2**31), 0])
    np.testing.assert_array_equal(run(lambda v: ops.cast(v, "u32"), x), [0, 1, 3000000000, 0, 0])
    np.testing.assert_array_equal(run(lambda v: ops.cast(v, "u32"), np.asarray([-1], np.int32)), [2**32 - 1])


def test_philox_is_the_generator_of_rng() -> None:
    graph = Graph("draw")
    ops.uniform(graph, (5,), "dropout")
    value = ops.uniform(graph, (3, 7), "dropout")
    graph.output("u", value)
    assert graph.draws == 2 + 6
    key = rng.stream_key(42, "dropout")
    counter = (1 << 32) - 3
    scalars = {
        "rng.counter_lo": counter & 0xFFFFFFFF,
        "rng.counter_hi": counter >> 32,
        "rng.dropout.key0": key[0],
        "rng.dropout.key1": key[1],
    }
    found = oracle.evaluate(graph, {}, {}, scalars)["u"]
    np.testing.assert_array_equal(found, rng.uniform(42, "dropout", counter + 2, (3, 7)))


# -- the interpreter ------------------------------------------------------------------------------------------
def test_stores_act_in_program_order_and_in_place() -> None:
    graph = Graph("order")
    before = graph.state("s", Type("f32", (2,)))
    graph.store("s", before + 1.0)
    after = graph.emit("state", [], name="s", dtype="f32", shape=(2,))[0]
    graph.output("before", before)
    graph.output("after", after)
    graph.store("new", after * 10.0)
    whole = np.zeros(4)
    tensors = {"s": whole[1:3]}
    out = oracle.evaluate(graph, {}, tensors, {})
    np.testing.assert_array_equal(out["before"], [0, 0])
    np.testing.assert_array_equal(out["after"], [1, 1])
    np.testing.assert_array_equal(whole, [0, 1, 1, 0])
    np.testing.assert_array_equal(tensors["new"], [10, 10])


def test_an_index_equal_to_the_size_is_refused_with_its_position() -> None:
    table, index = draw(1, 4, 2), np.asarray([[0, 1], [3, 4]], np.int32)
    with pytest.raises(DataError) as caught:
        run(ops.take, table, index)
    assert str(caught.value) == "take index at [1, 1]: expected 0 to 3, got 4"
    with pytest.raises(DataError, match=r"pick index at \[0\]: expected 0 to 1, got -1"):
        run(ops.pick, draw(1, 1, 2), np.asarray([-1], np.int32))
    with pytest.raises(DataError, match="scatter_add index at"):
        run(lambda i, s: ops.scatter_add(i, s, 3), index, draw(1, 2, 2, 1))


def test_missing_and_misshapen_inputs_are_refused() -> None:
    graph = Graph("g")
    graph.output("y", graph.load("x", Type("i32", (2,))) + 1)
    with pytest.raises(DataError) as caught:
        oracle.evaluate(graph, {"y": [1, 2]}, {}, {})
    assert str(caught.value) == "load: expected a value for x, got none; try one of: y"
    with pytest.raises(DataError, match=r"load x: expected shape \[2\], got \[3\]"):
        oracle.evaluate(graph, {"x": [1, 2, 3]}, {}, {})
    with pytest.raises(DataError, match=r"load x: expected integers for i32\[2\], got NumPy dtype float64"):
        oracle.evaluate(graph, {"x": [1.0, 2.0]}, {}, {})
    with pytest.raises(DataError, match=r"load x: expected numbers from -2147483648 to 2147483647"):
        oracle.evaluate(graph, {"x": [1, 2**31]}, {}, {})


def test_unknown_numpy_dtypes_are_refused() -> None:
    with pytest.raises(IRError, match="expected an array of float64"):
        type_of(np.zeros(3, np.int16))


def test_a_small_net_learns_in_float64() -> None:
    """Two layers fit a circle by gradient descent, all of it stores and states of one graph."""
    graph = Graph("train")
    x, y = graph.load("x", Type("f32", (64, 2))), graph.load("y", Type("f32", (64, 1)))
    sizes_of = {"w1": (2, 16), "b1": (16,), "w2": (16, 1), "b2": (1,)}
    p = {n: graph.param(n, Type("f32", s)) for n, s in sizes_of.items()}
    logits = ops.matmul(ops.tanh(ops.matmul(x, p["w1"]) + p["b1"]), p["w2"]) + p["b2"]
    loss = ops.mean(ops.softplus(logits) - logits * y)
    graph.output("loss", loss)
    for value, gradient in gradients(graph, loss, list(p.values())).items():
        assert gradient is not None
        graph.store(str(value.node.attrs["name"]), value - gradient * 2.0)
    generator = np.random.default_rng(0)
    points = generator.uniform(-1, 1, (64, 2))
    inside = (np.square(points).sum(axis=1, keepdims=True) < 0.6).astype(float)
    tensors: dict[str, Any] = {n: generator.standard_normal(s) for n, s in sizes_of.items()}
    losses = [float(oracle.evaluate(graph, {"x": points, "y": inside}, tensors, {})["loss"]) for _ in range(400)]
    assert losses[-1] < 0.1 < 0.5 < losses[0]
