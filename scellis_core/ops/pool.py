"""Pooling over the last two axes of x[N, C, H, W], and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from scellis_core.errors import IRError
from scellis_core.ir import FLOATS, Cotangent, Family, Node, OpDef, Tolerance, Type, Value, register
from scellis_core.ops.base import Attrs, arity, bool_attr, dtype_in, emit, fail, ints_attr, normal, shown
from scellis_core.ops.conv import Geometry

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

    Cases = list[tuple[list[Array], dict[str, Any]]]

_WINDOW = ("window", "stride", "padding")
_AVERAGE = (*_WINDOW, "count_include_pad")
_NO_PADDING: Attrs = {"padding": (0, 0, 0, 0)}


def _geometry(attrs: Attrs) -> tuple[tuple[int, ...], Geometry]:
    """Window and movement; no window may lie in the padding alone."""
    window = ints_attr(attrs, "window", 2, 1)
    padding = ints_attr(attrs, "padding", 4, 0)
    if max(padding[:2]) >= window[0] or max(padding[2:]) >= window[1]:
        fail(f"padding smaller than the window {window}", f"padding {padding}")
    return window, Geometry(ints_attr(attrs, "stride", 2, 1), padding, (1, 1), 1)


def _image(type: Type, shape: tuple[int, ...]) -> None:
    dtype_in(type, FLOATS)
    if len(type.shape) != 4 or len(shape) != 4:
        fail("an image batch of 4 dimensions", str(type))


def _pooled(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    window, geometry = _geometry(attrs)
    return (*shape[:2], *geometry.out(shape[2:], window))


def _infer_pool(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    _image(types[0], types[0].shape)
    if "count_include_pad" in attrs:
        bool_attr(attrs, "count_include_pad")
    return (Type(types[0].dtype, _pooled(types[0].shape, attrs)),)


def _infer_max_grad(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 2)
    x, g = types
    _image(x, g.shape)
    wanted = Type(x.dtype, _pooled(x.shape, attrs))
    if g != wanted:
        fail(f"a gradient {wanted}", shown(types))
    return (x,)


def _infer_average_grad(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    _image(types[0], types[0].shape)
    bool_attr(attrs, "count_include_pad")
    shape = (*types[0].shape[:2], *ints_attr(attrs, "size", 2, 1))
    wanted = _pooled(shape, attrs)
    if types[0].shape != wanted:
        fail(f"a gradient of shape {list(wanted)} for size={attrs['size']}", str(types[0]))
    return (Type(types[0].dtype, shape),)


def _windows(x: Array, attrs: Attrs, fill: float) -> Array:
    """[N, C, OH, OW, window elements] over the padded image."""
    import numpy as np

    window, geometry = _geometry(attrs)
    top, bottom, left, right = geometry.padding
    wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(wide, window, (2, 3))
    seen = seen[:, :, :: geometry.stride[0], :: geometry.stride[1]]
    return seen.reshape(*seen.shape[:4], window[0] * window[1])


def _max_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    return [_windows(arrays[0], attrs, -np.inf).max(axis=-1)]


def _max_grad_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    x, g = arrays
    window, geometry = _geometry(attrs)
    top, _, left, _ = geometry.padding
    best = _windows(x, attrs, -np.inf).argmax(axis=-1)
    rows = np.arange(g.shape[2])[:, None] * geometry.stride[0] + best // window[1] - top
    cols = np.arange(g.shape[3])[None, :] * geometry.stride[1] + best % window[1] - left
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1)
    at = (planes * x.shape[2] + rows) * x.shape[3] + cols
    return [np.bincount(at.ravel(), g.ravel(), x.size).reshape(x.shape)]


def _counts(attrs: Attrs, shape: tuple[int, ...]) -> Any:
    """How many elements each window averages over: a number, or [OH, OW]."""
    import numpy as np

    window, _ = _geometry(attrs)
    if bool_attr(attrs, "count_include_pad"):
        return window[0] * window[1]
    return _windows(np.ones((1, 1, *shape[2:])), attrs, 0.0).sum(axis=-1)[0, 0]


def _average_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return [_windows(arrays[0], attrs, 0.0).sum(axis=-1) / _counts(attrs, arrays[0].shape)]


def _average_grad_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    (g,) = arrays
    window, geometry = _geometry(attrs)
    height, width = ints_attr(attrs, "size")
    top, bottom, left, right = geometry.padding
    part = g / _counts(attrs, (*g.shape[:2], height, width))
    wide = np.zeros((*g.shape[:2], height + top + bottom, width + left + right))
    for _, _, at in geometry.taps(window, g.shape[2:]):
        wide[at] += part
    return [wide[:, :, top : top + height, left : left + width]]


def _max_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    return (lambda: emit("max_pool2d_grad", node.inputs[0], g, **node.attrs),)


def _max_grad_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    def refuse() -> NoReturn:
        raise IRError(
            f"{node.path or node.graph.name}: max_pool2d_grad",
            "a gradient of first order",
            "a second derivative of max_pool2d",
            "avg_pool2d",
        )

    return (None, refuse)


def _average_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    return (lambda: emit("avg_pool2d_grad", g, size=node.inputs[0].shape[2:], **node.attrs),)


def _average_grad_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    return (lambda: emit("avg_pool2d", g, **{k: node.attrs[k] for k in _AVERAGE}),)


_CASES: tuple[tuple[tuple[int, int, int, int], Attrs], ...] = (
    ((1, 1, 1, 1), {"window": (1, 1), "stride": (1, 1)}),
    ((2, 3, 8, 6), {"window": (2, 2), "stride": (2, 2)}),
    ((2, 3, 7, 9), {"window": (3, 2), "stride": (2, 1), "padding": (1, 2, 0, 1)}),
    ((1, 5, 11, 13), {"window": (3, 3), "stride": (1, 2), "padding": (1, 1, 1, 1)}),
    ((3, 70, 5, 5), {"window": (5, 5), "stride": (1, 1)}),
)


def _max_sample(rng: Rng) -> Cases:
    import numpy as np

    cases: Cases = [([normal(rng, *shape)], {**_NO_PADDING, **a}) for shape, a in _CASES]
    tied = np.round(normal(rng, 2, 3, 6, 6))
    return [*cases, ([tied], {"window": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)})]


def _max_grad_sample(rng: Rng) -> Cases:
    return [([x, normal(rng, *_pooled(x.shape, a))], a) for (x,), a in _max_sample(rng)]


def _average_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, *shape)], {**_NO_PADDING, **a, "count_include_pad": include})
        for shape, a in _CASES
        for include in (True, False)
    ]


def _average_grad_sample(rng: Rng) -> Cases:
    return [([normal(rng, *_pooled(x.shape, a))], {"size": x.shape[2:], **a}) for (x,), a in _average_sample(rng)]


register(
    OpDef(
        "max_pool2d",
        "Greatest of each window; padding never wins.",
        _infer_pool,
        _max_oracle,
        Family("max_pool2d"),
        _max_vjp,
        tolerance=Tolerance(0.0, 0.0),
        attrs=_WINDOW,
        defaults=_NO_PADDING,
        sample=_max_sample,
    )
)
register(
    OpDef(
        "max_pool2d_grad",
        "Gradient of max_pool2d from x and g: the first greatest of each window gets it.",
        _infer_max_grad,
        _max_grad_oracle,
        Family("max_pool2d_grad"),
        _max_grad_vjp,
        tolerance=Tolerance(1e-5, 1e-5),
        attrs=_WINDOW,
        defaults=_NO_PADDING,
        sample=_max_grad_sample,
    )
)
register(
    OpDef(
        "avg_pool2d",
        "Mean of each window, with or without the padding.",
        _infer_pool,
        _average_oracle,
        Family("avg_pool2d"),
        _average_vjp,
        tolerance=Tolerance(1e-5, 1e-5),
        attrs=_AVERAGE,
        defaults={**_NO_PADDING, "count_include_pad": True},
        sample=_average_sample,
    )
)
register(
    OpDef(
        "avg_pool2d_grad",
        "Gradient of avg_pool2d in x[.., size].",
        _infer_average_grad,
        _average_grad_oracle,
        Family("avg_pool2d_grad"),
        _average_grad_vjp,
        tolerance=Tolerance(1e-5, 1e-5),
        attrs=("size", *_AVERAGE),
        defaults={**_NO_PADDING, "count_include_pad": True},
        sample=_average_grad_sample,
    )
)
