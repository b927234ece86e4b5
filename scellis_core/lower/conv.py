"""Convolutions as implicit matrix products.

The tiled kernel of :mod:`scellis_core.lower.gemm` with operands that compute where in an image an element lies.
Images are NCHW, weights OIHW; groups are the batch of the product.
"""

from __future__ import annotations

from dataclasses import dataclass

from scellis_core.errors import DeviceError
from scellis_core.lower.access import Loader, Sink, Source, Writer
from scellis_core.lower.call import Call, Epilogue
from scellis_core.lower.gemm import Gemm, gemm_calls
from scellis_core.lower.matmul import Strided, StridedSink, StridedSource
from scellis_core.lower.program import Limits
from scellis_core.lower.tiles import Choice, Layout
from scellis_core.lower.wgsl import Mem, Module, ScalarTable


@dataclass(frozen=True)
class ConvSpec:
    """y[n, o, oh, ow] = sum over c, i, j of x[n, c, oh*stride + i*dilation - top, ...] * w[o, c, i, j].

    Attributes:
        n, c, h, w: the image batch.
        o, kh, kw: output channels and window; weights are [o, c / groups, kh, kw].
        stride, dilation: (rows, columns).
        padding: (top, bottom, left, right) zeros.
        groups: divides c and o.
        x_dtype, w_dtype, y_dtype: dtypes of image, weights and result (or of their gradients).
    """

    n: int
    c: int
    h: int
    w: int
    o: int
    kh: int
    kw: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    x_dtype: str = "f32"
    w_dtype: str = "f32"
    y_dtype: str = "f32"

    @property
    def oh(self) -> int:
        """Rows of the result."""
        return (self.h + self.padding[0] + self.padding[1] - self.dilation[0] * (self.kh - 1) - 1) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Columns of the result."""
        return (self.w + self.padding[2] + self.padding[3] - self.dilation[1] * (self.kw - 1) - 1) // self.stride[1] + 1

    @property
    def cg(self) -> int:
        """Input channels of a group."""
        return self.c // self.groups

    @property
    def og(self) -> int:
        """Output channels of a group."""
        return self.o // self.groups

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.kh * self.kw

    def check(self) -> None:
        """Check the spec.

        Raises:
            DeviceError: if groups do not divide the channels, or the result is empty.
        """
        if self.c % self.groups or self.o % self.groups:
            raise DeviceError("conv2d", "channels divisible by groups", f"{self.c}, {self.o} by {self.groups}")
        if min(self.oh, self.ow) < 1:
            raise DeviceError("conv2d", "a window that fits the padded image", f"{self.oh} x {self.ow} results")


def _gathered(value: str, mem: Mem) -> str:
    return value if mem.dtype == "f32" else f"f32({value})"


def _wrapped(value: int) -> str:
    """A u32 literal for a possibly negative addend (u32 arithmetic wraps)."""
    return f"{value % (1 << 32)}u"


@dataclass(frozen=True)
class Patches:
    """The image as a matrix: rows of windows by taps (c, i, j).

    ``taps_are_k`` puts the taps on the summed axis (forward) or the windows (n, oh, ow) there (weight gradient).
    """

    spec: ConvSpec
    taps_are_k: bool

    @property
    def fast(self) -> Layout:
        """Contiguous axis."""
        return "x" if self.taps_are_k else "k"

    @property
    def layout(self) -> Layout:
        """Preferred layout of its tile."""
        return "k"

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        return False

    def bind(self, module: Module, name: str) -> Loader:
        """Declare the tensor on a module."""
        s = self.spec
        return _PatchLoader(self, module.tensor(name, s.x_dtype, s.n * s.c * s.h * s.w, "read"))


@dataclass
class _PatchLoader:
    """Loader of :class:`Patches`."""

    source: Patches
    mem: Mem

    def batch(self, batch: str) -> list[str]:
        s = self.source.spec
        return [f"let {self.mem.name}_base = {batch} * {s.cg * s.h * s.w}u;"]

    def window(self, tag: str, at: str) -> list[str]:
        """(image base, first row, first column) of window ``at``; rows and columns wrap below zero."""
        s = self.source.spec
        size = s.oh * s.ow
        return [
            f"let {tag}p = ({at}) % {size}u;",
            f"let {tag}b = {self.mem.name}_base + (({at}) / {size}u) * {s.c * s.h * s.w}u;",
            f"let {tag}h = ({tag}p / {s.ow}u) * {s.stride[0]}u + {_wrapped(-s.padding[0])};",
            f"let {tag}w = ({tag}p % {s.ow}u) * {s.stride[1]}u + {_wrapped(-s.padding[2])};",
        ]

    def tap(self, tag: str, at: str) -> list[str]:
        """(channel base, row step, column step) of tap ``at``."""
        s = self.source.spec
        return [
            f"let {tag}b = (({at}) / {s.taps}u) * {s.h * s.w}u;",
            f"let {tag}r = ({at}) % {s.taps}u;",
            f"let {tag}h = ({tag}r / {s.kw}u) * {s.dilation[0]}u;",
            f"let {tag}w = ({tag}r % {s.kw}u) * {s.dilation[1]}u;",
        ]

    def outer(self, tag: str, x: str) -> list[str]:
        return self.window(tag, x) if self.source.taps_are_k else self.tap(tag, x)

    def inner(self, tag: str, k: str) -> list[str]:
        return self.tap(tag, k) if self.source.taps_are_k else self.window(tag, k)

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        s = self.source.spec
        row, column = f"({outer}h + {inner}h)", f"({outer}w + {inner}w)"
        checks: list[str] = []
        top, bottom, left, right = s.padding
        if top or bottom:
            checks.append(f"{row} < {s.h}u")
        if left or right:
            checks.append(f"{column} < {s.w}u")
        index = f"{outer}b + {inner}b + {row} * {s.w}u + {column}"
        return " && ".join(checks), _gathered(self.mem.load(index), self.mem)

    def vector(self, outer: str, inner: str) -> str:
        raise DeviceError("conv2d", "scalar loads of an image", "a vector load")


@dataclass(frozen=True)
class Windows:
    """The gradient of the result as a matrix: x = image pixel (n, h, w), k = (o, i, j): what reached that pixel."""

    spec: ConvSpec

    @property
    def fast(self) -> Layout:
        """Contiguous axis."""
        return "x"

    @property
    def layout(self) -> Layout:
        """Preferred layout of its tile."""
        return "k"

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        return False

    def bind(self, module: Module, name: str) -> Loader:
        """Declare the tensor on a module."""
        s = self.spec
        return _WindowLoader(self, module.tensor(name, s.y_dtype, s.n * s.o * s.oh * s.ow, "read"))


@dataclass
class _WindowLoader:
    """Loader of :class:`Windows`."""

    source: Windows
    mem: Mem

    def batch(self, batch: str) -> list[str]:
        s = self.source.spec
        return [f"let {self.mem.name}_base = {batch} * {s.og * s.oh * s.ow}u;"]

    def outer(self, tag: str, x: str) -> list[str]:
        s = self.source.spec
        size = s.h * s.w
        return [
            f"let {tag}p = ({x}) % {size}u;",
            f"let {tag}b = {self.mem.name}_base + (({x}) / {size}u) * {s.o * s.oh * s.ow}u;",
            f"let {tag}h = {tag}p / {s.w}u + {s.padding[0]}u;",
            f"let {tag}w = {tag}p % {s.w}u + {s.padding[2]}u;",
        ]

    def inner(self, tag: str, k: str) -> list[str]:
        s = self.source.spec
        return [
            f"let {tag}b = ({k} / {s.taps}u) * {s.oh * s.ow}u;",
            f"let {tag}r = {k} % {s.taps}u;",
            f"let {tag}h = ({tag}r / {s.kw}u) * {s.dilation[0]}u;",
            f"let {tag}w = ({tag}r % {s.kw}u) * {s.dilation[1]}u;",
        ]

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        s = self.source.spec
        row, column = f"({outer}h - {inner}h)", f"({outer}w - {inner}w)"
        checks: list[str] = []
        for value, step, size in ((row, s.stride[0], s.oh), (column, s.stride[1], s.ow)):
            checks.append(f"{value} < {size * step}u")
            if step > 1:
                checks.append(f"{value} % {step}u == 0u")
        index = f"{outer}b + {inner}b + {row} / {s.stride[0]}u * {s.ow}u + {column} / {s.stride[1]}u"
        return " && ".join(checks), _gathered(self.mem.load(index), self.mem)

    def vector(self, outer: str, inner: str) -> str:
        raise DeviceError("conv2d", "scalar loads of a gradient", "a vector load")


@dataclass(frozen=True)
class Folded:
    """A tensor of which one matrix axis is two: element (x, k) at base + x * xs + (k / inner) * ko + k % inner.

    Holds the weights for the input gradient (k = o, taps) and the result's gradient for the weight gradient
    (k = n, pixels).
    """

    dtype: str
    numel: int
    batch_stride: int
    xs: int
    inner: int
    ko: int

    @property
    def fast(self) -> Layout:
        """Contiguous axis."""
        return "k"

    @property
    def layout(self) -> Layout:
        """Preferred layout of its tile."""
        return "k"

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        return not any(v % 4 for v in (self.numel, self.batch_stride, self.xs, self.inner, self.ko))

    def bind(self, module: Module, name: str) -> Loader:
        """Declare the tensor on a module."""
        return _FoldedLoader(self, module.tensor(name, self.dtype, self.numel, "read", 4 if self.vec else 1))


@dataclass
class _FoldedLoader:
    """Loader of :class:`Folded`."""

    source: Folded
    mem: Mem

    def batch(self, batch: str) -> list[str]:
        return [f"let {self.mem.name}_base = {batch} * {self.source.batch_stride}u;"]

    def outer(self, tag: str, x: str) -> list[str]:
        return [f"let {tag} = {self.mem.name}_base + ({x}) * {self.source.xs}u;"]

    def inner(self, tag: str, k: str) -> list[str]:
        s = self.source
        return [f"let {tag} = ({k} / {s.inner}u) * {s.ko}u + {k} % {s.inner}u;"]

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        return "", _gathered(self.mem.load(f"{outer} + {inner}"), self.mem)

    def vector(self, outer: str, inner: str) -> str:
        value = self.mem.load4(f"({outer} + {inner}) / 4u")
        return value if self.mem.dtype == "f32" else f"vec4<f32>({value})"


@dataclass(frozen=True)
class ImageSink:
    """A result [n, channels, pixels] of a product whose rows are channels of a group and columns (n, pixel)."""

    dtype: str
    n: int
    channels: int
    group: int
    pixels: int

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        return self.pixels % 4 == 0

    def bind(self, module: Module, name: str, vec: int) -> Writer:
        """Declare the tensor on a module."""
        return _ImageWriter(
            self, module.tensor(name, self.dtype, self.n * self.channels * self.pixels, "read_write", vec)
        )


@dataclass
class _ImageWriter:
    """Writer of :class:`ImageSink`."""

    sink: ImageSink
    mem: Mem

    def batch(self, batch: str) -> str:
        return f"{batch} * {self.sink.group * self.sink.pixels}u"

    def row(self, row: str) -> str:
        return f"{row} * {self.sink.pixels}u"

    def column(self, tag: str, column: str) -> tuple[list[str], str]:
        s = self.sink
        image = f"let {tag}n = ({column} / {s.pixels}u) * {s.channels * s.pixels}u;"
        return [image], f"{tag}n + {column} % {s.pixels}u"


def _calls(
    name: str,
    spec: ConvSpec,
    size: tuple[int, int, int],
    operands: tuple[Source, Source, Sink],
    limits: Limits,
    scalars: ScalarTable | None,
    epilogue: Epilogue | None,
    choice: Choice | None,
    accumulate: bool = False,
) -> list[Call]:
    a, b, out = operands
    m, n, k = size
    return gemm_calls(Gemm(name, m, n, k, spec.groups, a, b, out, accumulate, epilogue), limits, scalars, choice)


def conv2d_calls(
    spec: ConvSpec,
    limits: Limits,
    scalars: ScalarTable | None = None,
    epilogue: Epilogue | None = None,
    choice: Choice | None = None,
) -> list[Call]:
    """Kernels of the forward convolution.

    Operand keys: ``a`` weights, ``b`` image, ``out`` result. The epilogue sees batch = group, row = output channel
    within the group, column = (n, oh, ow) as one index.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    depth = spec.cg * spec.taps
    weights = Strided(spec.w_dtype, spec.o * depth, (spec.og * depth, depth, 1))
    pixels = spec.oh * spec.ow
    operands = (
        StridedSource(weights, (spec.groups,), spec.og, depth, depth, 1),
        Patches(spec, taps_are_k=True),
        ImageSink(spec.y_dtype, spec.n, spec.o, spec.og, pixels),
    )
    return _calls("conv2d", spec, (spec.og, spec.n * pixels, depth), operands, limits, scalars, epilogue, choice)


def conv2d_grad_input_calls(
    spec: ConvSpec,
    limits: Limits,
    scalars: ScalarTable | None = None,
    epilogue: Epilogue | None = None,
    choice: Choice | None = None,
) -> list[Call]:
    """Kernels of the gradient to the image: ``a`` weights, ``b`` the result's gradient, ``out`` the image's.

    The epilogue sees batch = group, row = input channel within the group, column = (n, h, w) as one index.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    per = spec.cg * spec.taps
    pixels = spec.h * spec.w
    operands = (
        Folded(spec.w_dtype, spec.o * per, spec.og * per, spec.taps, spec.taps, per),
        Windows(spec),
        ImageSink(spec.x_dtype, spec.n, spec.c, spec.cg, pixels),
    )
    size = (spec.cg, spec.n * pixels, spec.og * spec.taps)
    return _calls("conv2d_grad_input", spec, size, operands, limits, scalars, epilogue, choice)


def conv2d_grad_weight_calls(
    spec: ConvSpec,
    limits: Limits,
    scalars: ScalarTable | None = None,
    epilogue: Epilogue | None = None,
    choice: Choice | None = None,
    accumulate: bool = False,
) -> list[Call]:
    """Kernels of the gradient to the weights: ``a`` the result's gradient, ``b`` the image, ``out`` the weights'.

    The epilogue sees batch = group, row = output channel within the group, column = (c, i, j) as one index.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    per = spec.cg * spec.taps
    pixels = spec.oh * spec.ow
    place = Strided(spec.w_dtype, spec.o * per, (spec.og * per, per, 1))
    operands = (
        Folded(spec.y_dtype, spec.n * spec.o * pixels, spec.og * pixels, pixels, pixels, spec.o * pixels),
        Patches(spec, taps_are_k=False),
        StridedSink(place, (spec.groups,), spec.og, per),
    )
    size = (spec.og, per, spec.n * pixels)
    return _calls("conv2d_grad_weight", spec, size, operands, limits, scalars, epilogue, choice, accumulate)
