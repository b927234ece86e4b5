"""Random graphs over pointwise ops, views, reductions and lookups, with arrays to feed them."""

from __future__ import annotations

import math

import numpy as np

from scellis_core.errors import IRError
from scellis_core.ir import Graph, Type, Value, broadcast_shapes

UNARY = ("neg", "tanh", "abs", "exp", "sigmoid", "sin")
BINARY = ("add", "sub", "mul", "max", "min")
EDGES = (1, 2, 3, 4, 5, 8, 12, 16, 33)


def random_graph(seed: int, *, size: int = 14, limit: int = 6000) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of about ``size`` ops, every tensor of at most ``limit`` elements; values stay near 1."""
    rng = np.random.default_rng(seed)
    graph = Graph(f"random{seed}")
    arrays: dict[str, np.ndarray] = {}
    pool: list[Value] = []

    def pick_shape() -> tuple[int, ...]:
        while True:
            shape = tuple(int(rng.choice(EDGES)) for _ in range(rng.integers(1, 4)))
            if math.prod(shape) <= limit // 4:
                return shape

    def emit(op: str, inputs: list[Value], **attrs: object) -> Value:
        return graph.emit(op, inputs, **attrs)[0]  # type: ignore[arg-type]

    def load(shape: tuple[int, ...]) -> Value:
        name = f"x{len(arrays)}"
        arrays[name] = rng.standard_normal(shape).astype(np.float32)
        return graph.load(name, Type("f32", shape))

    def state(shape: tuple[int, ...]) -> Value:
        name = f"s{len(arrays)}"
        arrays[name] = rng.standard_normal(shape).astype(np.float32)
        return graph.state(name, Type("f32", shape))

    def indices(shape: tuple[int, ...], high: int) -> Value:
        name = f"i{len(arrays)}"
        arrays[name] = rng.integers(0, high, shape).astype(np.int32)
        return graph.load(name, Type("i32", shape))

    def bounded(value: Value) -> Value:
        return emit("tanh", [value])

    def step() -> Value | None:
        x = pool[rng.integers(max(0, len(pool) - 6), len(pool))]
        kind = rng.integers(0, 18)
        ndim = x.ndim
        if kind < 3:
            op = str(rng.choice(UNARY))
            return bounded(emit(op, [x])) if op == "exp" else emit(op, [x])
        if kind < 6:
            y = pool[rng.integers(0, len(pool))]
            try:
                shape = broadcast_shapes(x.shape, y.shape)
            except IRError:
                y = load(x.shape)
                shape = x.shape
            if math.prod(shape) > limit:
                return None
            return bounded(graph.binary(str(rng.choice(BINARY)), x, y))
        if kind < 8:
            axes = tuple(sorted({int(a) for a in rng.integers(0, ndim, 2)})) if ndim else ()
            if not axes:
                return None
            op = str(rng.choice(["reduce_sum", "reduce_max", "reduce_min", "reduce_sum"]))
            keep = bool(rng.integers(0, 2))
            r = bounded(emit(op, [x], axes=axes, keepdims=keep))
            if keep:
                pool.append(bounded(graph.binary("sub", x, r)))
            return r
        if kind == 8 and ndim:
            return emit("permute", [x], perm=tuple(int(p) for p in rng.permutation(ndim)))
        if kind == 9:
            flat = x.type.numel
            first = int(rng.choice([d for d in range(1, flat + 1) if flat % d == 0]))
            return emit("reshape", [x], shape=(first, flat // first))
        if kind == 10 and ndim:
            starts = tuple(int(rng.integers(0, n)) for n in x.shape)
            stops = tuple(int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, x.shape, strict=True))
            steps = tuple(int(rng.integers(1, 3)) for _ in x.shape)
            return emit("slice", [x], starts=starts, stops=stops, steps=steps)
        if kind == 11 and ndim:
            low = tuple(int(v) for v in rng.integers(0, 3, ndim))
            high = tuple(int(v) for v in rng.integers(0, 3, ndim))
            if math.prod(n + a + b for n, a, b in zip(x.shape, low, high, strict=True)) > limit:
                return None
            return emit("pad", [x], low=low, high=high, value=0.5)
        if kind == 12 and ndim:
            axis = int(rng.integers(0, ndim))
            others = [
                v
                for v in pool
                if v.ndim == ndim
                and all(a == b or k == axis for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)))
            ]
            parts = [x, others[rng.integers(0, len(others))]]
            if sum(p.type.numel for p in parts) > limit:
                return None
            return emit("concat", parts, axis=axis)
        if kind == 13 and ndim:
            shape = pick_shape()[:2]
            if math.prod(shape) * math.prod(x.shape[1:]) > limit:
                return None
            return emit("take", [x, indices(shape, x.shape[0])])
        if kind == 14 and ndim:
            return emit("pick", [x, indices(x.shape[:-1], x.shape[-1])])
        if kind == 15 and ndim:
            ramp = emit("iota", [], axis=ndim - 1, dtype="f32", shape=x.shape)
            mask = graph.binary("lt", ramp, float(x.shape[-1] // 2))
            return emit("select", [mask, x, emit("neg", [x])])
        if kind == 16 and ndim >= 2 and x.shape[-1] <= 64:
            width = int(rng.choice(EDGES))
            flipped = bool(rng.integers(0, 2))
            w = load((width, x.shape[-1]) if flipped else (x.shape[-1], width))
            if math.prod(x.shape[:-1]) * width > limit:
                return None
            return bounded(emit("matmul", [x, w], transpose_b=flipped))
        if kind == 17:
            return graph.binary("add", x, state(x.shape))
        return None

    pool.append(load(pick_shape()))
    pool.append(load(pick_shape()))
    while len(graph.nodes) < size:
        value = step()
        if value is not None:
            pool.append(value)
    for k, value in enumerate(pool[-3:]):
        graph.output(f"o{k}", value)
    for k in rng.integers(0, len(pool), 2):
        graph.output(f"p{k}", pool[k])
    for name, leaf in graph.leaves("state").items():
        fitting = [v for v in pool if v.shape == leaf.shape]
        if fitting:
            value = fitting[rng.integers(0, len(fitting))]
            graph.store(name, value if rng.integers(0, 2) else graph.binary("add", value, leaf))
    return graph.prune(), arrays
