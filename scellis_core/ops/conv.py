"""Two-dimensional convolution (as cross-correlation), and its two gradients, each the adjoint of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scellis_core.ir import FLOATS, Cotangent, Family, Node, OpDef, Tolerance, Type, Value, register
from scellis_core.ops.base import Attrs, arity, dtype_in, emit, fail, int_attr, ints_attr, normal, shown

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

GEOMETRY = ("stride", "padding", "dilation", "groups")
_DEFAULTS: Attrs = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


@dataclass(frozen=True)
class Geometry:
    """How a window moves: stride (2), padding (top, bottom, left, right), dilation (2), groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, attrs: Attrs) -> Geometry:
        """Read and check the attributes."""
        return cls(
            ints_attr(attrs, "stride", 2, 1),
            ints_attr(attrs, "padding", 4, 0),
            ints_attr(attrs, "dilation", 2, 1),
            int_attr(attrs, "groups", 1),
        )

    def out(self, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, int]:
        """Output height and width for a height and width and a kernel."""
        found: list[int] = []
        for axis in (0, 1):
            reach = self.dilation[axis] * (kernel[axis] - 1) + 1
            padded = size[axis] + self.padding[2 * axis] + self.padding[2 * axis + 1]
            if reach > padded:
                fail(f"a window of at most {padded} elements (with padding) on axis {axis + 2}", f"one of {reach}")
            found.append((padded - reach) // self.stride[axis] + 1)
        return found[0], found[1]

    def taps(self, kernel: tuple[int, ...], out: tuple[int, ...]) -> Iterator[tuple[int, int, Any]]:
        """For each kernel position, the slices of a padded input that it meets."""
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                rows = slice(
                    i * self.dilation[0], i * self.dilation[0] + (out[0] - 1) * self.stride[0] + 1, self.stride[0]
                )
                cols = slice(
                    j * self.dilation[1], j * self.dilation[1] + (out[1] - 1) * self.stride[1] + 1, self.stride[1]
                )
                yield i, j, (slice(None), slice(None), rows, cols)


def _four(types: Sequence[Type]) -> None:
    arity(types, 2)
    for type in types:
        dtype_in(type, FLOATS)
        if len(type.shape) != 4:
            fail("two operands of 4 dimensions", shown(types))
    if types[0].dtype != types[1].dtype:
        fail("operands of one dtype", shown(types), "ops.cast")


def _channels(x: tuple[int, ...], w: tuple[int, ...], groups: int, shown_types: str) -> None:
    if x[1] != w[1] * groups or w[0] % groups:
        fail(
            "input channels = groups * (channels of the kernel), and output channels in whole groups",
            f"{x[1]} input channels, kernel {list(w)}, groups={groups} in {shown_types}",
        )


def _infer_conv(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    _four(types)
    x, w = types[0].shape, types[1].shape
    geometry = Geometry.of(attrs)
    _channels(x, w, geometry.groups, shown(types))
    return (Type(types[0].dtype, (x[0], w[0], *geometry.out(x[2:], w[2:]))),)


def _infer_grad_input(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    _four(types)
    g, w = types[0].shape, types[1].shape
    geometry = Geometry.of(attrs)
    size = ints_attr(attrs, "size", 2, 1)
    x = (g[0], w[1] * geometry.groups, *size)
    _channels(x, w, geometry.groups, shown(types))
    wanted = (x[0], w[0], *geometry.out(size, w[2:]))
    if g != wanted:
        fail(f"a gradient of shape {list(wanted)} for size={size}", shown(types))
    return (Type(types[0].dtype, x),)


def _infer_grad_weight(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    _four(types)
    x, g = types[0].shape, types[1].shape
    geometry = Geometry.of(attrs)
    kernel = ints_attr(attrs, "kernel", 2, 1)
    if x[1] % geometry.groups:
        fail(f"channels in {geometry.groups} whole groups", shown(types))
    w = (g[1], x[1] // geometry.groups, *kernel)
    _channels(x, w, geometry.groups, shown(types))
    wanted = (x[0], w[0], *geometry.out(x[2:], kernel))
    if g != wanted:
        fail(f"a gradient of shape {list(wanted)} for kernel={kernel}", shown(types))
    return (Type(types[0].dtype, w),)


def _padded(x: Array, geometry: Geometry) -> Array:
    import numpy as np

    top, bottom, left, right = geometry.padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))


def _grouped(x: Array, groups: int) -> Array:
    """[N, C, H, W] -> [groups, C / groups, N, H, W]."""
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).transpose(1, 2, 0, 3, 4)


def _conv_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    x, w = arrays
    geometry = Geometry.of(attrs)
    groups, kernel = geometry.groups, w.shape[2:]
    out = geometry.out(x.shape[2:], kernel)
    wide = _padded(x, geometry)
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    total = np.zeros((groups, w.shape[0] // groups, x.shape[0] * out[0] * out[1]))
    for i, j, at in geometry.taps(kernel, out):
        seen = _grouped(wide[at], groups)
        total += weights[:, :, :, i, j] @ seen.reshape(groups, seen.shape[1], -1)
    result = total.reshape(w.shape[0], x.shape[0], *out)
    return [result.transpose(1, 0, 2, 3)]


def _grad_input_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    g, w = arrays
    geometry = Geometry.of(attrs)
    groups, (height, width) = geometry.groups, ints_attr(attrs, "size")
    top, bottom, left, right = geometry.padding
    n, channels = g.shape[0], w.shape[1] * groups
    wide = np.zeros((n, channels, height + top + bottom, width + left + right))
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    seen = _grouped(g, groups).reshape(groups, w.shape[0] // groups, -1)
    for i, j, at in geometry.taps(w.shape[2:], g.shape[2:]):
        part = weights[:, :, :, i, j].swapaxes(1, 2) @ seen
        wide[at] += part.reshape(channels, n, *g.shape[2:]).transpose(1, 0, 2, 3)
    return [wide[:, :, top : top + height, left : left + width]]


def _grad_weight_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    x, g = arrays
    geometry = Geometry.of(attrs)
    groups, kernel = geometry.groups, ints_attr(attrs, "kernel")
    wide = _padded(x, geometry)
    seen = _grouped(g, groups).reshape(groups, g.shape[1] // groups, -1)
    total = np.zeros((groups, g.shape[1] // groups, x.shape[1] // groups, *kernel))
    for i, j, at in geometry.taps(kernel, g.shape[2:]):
        part = _grouped(wide[at], groups)
        total[..., i, j] = seen @ part.reshape(groups, part.shape[1], -1).swapaxes(1, 2)
    return [total.reshape(g.shape[1], x.shape[1] // groups, *kernel)]


def _geometry_of(node: Node) -> Attrs:
    return {k: node.attrs[k] for k in GEOMETRY}


def conv(x: Value, w: Value, geometry: Attrs) -> Value:
    """Emit the convolution."""
    return emit("conv2d", x, w, **geometry)


def grad_input(g: Value, w: Value, geometry: Attrs, x: Value) -> Value:
    """Emit the adjoint in x."""
    return emit("conv2d_grad_input", g, w, size=x.shape[2:], **geometry)


def grad_weight(x: Value, g: Value, geometry: Attrs, w: Value) -> Value:
    """Emit the adjoint in w."""
    return emit("conv2d_grad_weight", x, g, kernel=w.shape[2:], **geometry)


def _conv_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (u,) = grads
    if u is None:
        return (None, None)
    (x, w), geometry = node.inputs, _geometry_of(node)
    return (lambda: grad_input(u, w, geometry, x), lambda: grad_weight(x, u, geometry, w))


def _grad_input_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    """<grad_input(g, w), u> = <g, conv(u, w)>."""
    (u,) = grads
    if u is None:
        return (None, None)
    (g, w), geometry = node.inputs, _geometry_of(node)
    return (lambda: conv(u, w, geometry), lambda: grad_weight(u, g, geometry, w))


def _grad_weight_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    """<grad_weight(x, g), u> = <g, conv(x, u)>."""
    (u,) = grads
    if u is None:
        return (None, None)
    (x, g), geometry = node.inputs, _geometry_of(node)
    return (lambda: grad_input(g, u, geometry, x), lambda: conv(x, u, geometry))


_CASES: tuple[tuple[tuple[int, int, int, int], int, tuple[int, int], Attrs], ...] = (
    ((1, 1, 1, 1), 1, (1, 1), {}),
    ((2, 3, 7, 6), 5, (3, 3), {}),
    ((2, 3, 8, 9), 4, (3, 2), {"stride": (2, 3), "padding": (1, 0, 2, 1)}),
    ((1, 4, 9, 9), 6, (3, 3), {"padding": (2, 2, 2, 2), "dilation": (2, 2), "groups": 2}),
    ((2, 6, 5, 5), 6, (3, 3), {"padding": (1, 1, 1, 1), "groups": 6}),
    ((3, 2, 11, 12), 70, (5, 5), {"stride": (2, 2), "padding": (2, 2, 2, 2)}),
)


def _cases(rng: Rng) -> list[tuple[Array, Array, Array, Attrs]]:
    """x, w, g and the geometry of each case."""
    found: list[tuple[Array, Array, Array, Attrs]] = []
    for x_shape, channels, kernel, given in _CASES:
        attrs: Attrs = {**_DEFAULTS, **given}
        geometry = Geometry.of(attrs)
        w = normal(rng, channels, x_shape[1] // geometry.groups, *kernel)
        g = normal(rng, x_shape[0], channels, *geometry.out(x_shape[2:], kernel))
        found.append((normal(rng, *x_shape), w, g, attrs))
    return found


def _conv_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [([x, w], dict(a)) for x, w, _, a in _cases(rng)]


def _grad_input_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [([g, w], {"size": x.shape[2:], **a}) for x, w, g, a in _cases(rng)]


def _grad_weight_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [([x, g], {"kernel": w.shape[2:], **a}) for x, w, g, a in _cases(rng)]


_TOLERANCE = Tolerance(1e-5, 5e-5)

register(
    OpDef(
        "conv2d",
        "x[N, C, H, W] with kernels w[O, C / groups, kh, kw]; accumulated in f32.",
        _infer_conv,
        _conv_oracle,
        Family("conv2d"),
        _conv_vjp,
        tolerance=_TOLERANCE,
        attrs=GEOMETRY,
        defaults=_DEFAULTS,
        sample=_conv_sample,
    )
)
register(
    OpDef(
        "conv2d_grad_input",
        "Gradient of conv2d in x[.., size], from g[N, O, OH, OW] and w.",
        _infer_grad_input,
        _grad_input_oracle,
        Family("conv2d_grad_input"),
        _grad_input_vjp,
        tolerance=_TOLERANCE,
        attrs=("size", *GEOMETRY),
        defaults=_DEFAULTS,
        sample=_grad_input_sample,
    )
)
register(
    OpDef(
        "conv2d_grad_weight",
        "Gradient of conv2d in w[.., kernel], from x and g[N, O, OH, OW].",
        _infer_grad_weight,
        _grad_weight_oracle,
        Family("conv2d_grad_weight"),
        _grad_weight_vjp,
        tolerance=_TOLERANCE,
        attrs=("kernel", *GEOMETRY),
        defaults=_DEFAULTS,
        sample=_grad_weight_sample,
    )
)
