"""Matrix products of strided operands: transposes, head splits and slices are strides, never copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scellis_core.errors import DeviceError
from scellis_core.lower.access import Loader, Writer
from scellis_core.lower.call import Call, Epilogue
from scellis_core.lower.gemm import Gemm, gemm_calls
from scellis_core.lower.program import Limits
from scellis_core.lower.tiles import Choice, Layout
from scellis_core.lower.wgsl import Mem, Module, ScalarTable


@dataclass(frozen=True)
class Strided:
    """A matrix, or a batch of them, inside a buffer.

    Attributes:
        dtype: f32 or f16.
        numel: elements of the buffer range that is bound.
        strides: in elements: one for each batch dimension, then rows, then columns. 0 repeats.
        offset: elements before the first.
    """

    dtype: str
    numel: int
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class MatmulSpec:
    """out[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n].

    Attributes:
        m, n, k: sizes, each at least 1.
        batch: sizes of the batch dimensions, outermost first (none, one, or more).
        a, b, out: operands; the sum is f32 whatever their dtypes.
        accumulate: add to what ``out`` holds.
    """

    m: int
    n: int
    k: int
    a: Strided
    b: Strided
    out: Strided
    batch: tuple[int, ...] = ()
    accumulate: bool = False

    @classmethod
    def dense(
        cls,
        m: int,
        n: int,
        k: int,
        batch: tuple[int, ...] = (),
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        dtype: str = "f32",
        out_dtype: str = "",
        accumulate: bool = False,
    ) -> MatmulSpec:
        """The spec of contiguous operands; a transposed one is stored [.., k, m] or [.., n, k]."""

        def operand(rows: int, columns: int, transposed: bool, dtype: str) -> Strided:
            size = rows * columns
            steps = [size * math.prod(batch[i + 1 :]) for i in range(len(batch))]
            inner = (1, rows) if transposed else (columns, 1)
            return Strided(dtype, size * math.prod(batch), (*steps, *inner))

        a, b = operand(m, k, transpose_a, dtype), operand(k, n, transpose_b, dtype)
        return cls(m, n, k, a, b, operand(m, n, False, out_dtype or dtype), batch, accumulate)


@dataclass(frozen=True)
class StridedSource:
    """An operand of a matrix kernel: element (x, k) of a batch at ``offset + batch + x * xs + k * ks``."""

    place: Strided
    batch: tuple[int, ...]
    x: int
    k: int
    xs: int
    ks: int

    @property
    def fast(self) -> Layout:
        """Contiguous axis."""
        if self.x == 1 or self.k == 1:
            return "k" if self.x == 1 else "x"
        return "k" if self.ks <= self.xs and self.ks > 0 else "x"

    @property
    def layout(self) -> Layout:
        """Preferred layout of its tile."""
        return self.fast

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        along, count, other, repeats = (
            (self.ks, self.k, self.xs, self.x) if self.fast == "k" else (self.xs, self.x, self.ks, self.k)
        )
        if along != 1 or count % 4 or self.place.numel % 4 or self.place.offset % 4:
            return False
        steps = [s for s, size in zip(self.place.strides, self.batch, strict=False) if size > 1]
        return all(s % 4 == 0 for s in steps) and (repeats == 1 or other % 4 == 0)

    def bind(self, module: Module, name: str) -> Loader:
        """Declare the tensor on a module."""
        mem = module.tensor(name, self.place.dtype, self.place.numel, "read", 4 if self.vec else 1)
        return _StridedLoader(self, mem)


@dataclass
class _StridedLoader:
    """Loader of :class:`StridedSource`."""

    source: StridedSource
    mem: Mem

    def batch(self, batch: str) -> list[str]:
        s = self.source
        return [f"let {self.mem.name}_base = {batch_index(batch, s.batch, s.place)};"]

    def outer(self, tag: str, x: str) -> list[str]:
        return [f"let {tag} = {self.mem.name}_base + ({x}) * {self.source.xs}u;"]

    def inner(self, tag: str, k: str) -> list[str]:
        return [f"let {tag} = {k} * {self.source.ks}u;"]

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        value = self.mem.load(f"{outer} + {inner}")
        return "", value if self.mem.dtype == "f32" else f"f32({value})"

    def vector(self, outer: str, inner: str) -> str:
        value = self.mem.load4(f"({outer} + {inner}) / 4u")
        return value if self.mem.dtype == "f32" else f"vec4<f32>({value})"


def batch_index(batch: str, sizes: Sequence[int], place: Strided) -> str:
    """Expression: the first element of a flat batch index."""
    terms = [f"{place.offset}u"]
    inner = math.prod(sizes)
    for size, step in zip(sizes, place.strides, strict=False):
        inner //= size
        if size > 1 and step:
            index = batch if inner == 1 else f"({batch} / {inner}u)"
            terms.append(f"({index} % {size}u) * {step}u")
    return " + ".join(terms)


@dataclass(frozen=True)
class StridedSink:
    """The result of a matrix kernel."""

    place: Strided
    batch: tuple[int, ...]
    m: int
    n: int

    @property
    def dtype(self) -> str:
        """Of the stored elements."""
        return self.place.dtype

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        *steps, row, column = self.place.strides
        if column != 1 or self.n % 4 or self.place.numel % 4 or self.place.offset % 4:
            return False
        return all(s % 4 == 0 for s, size in zip([*steps, row], [*self.batch, self.m], strict=True) if size > 1)

    def bind(self, module: Module, name: str, vec: int) -> Writer:
        """Declare the tensor on a module."""
        return _StridedWriter(self, module.tensor(name, self.place.dtype, self.place.numel, "read_write", vec))


@dataclass
class _StridedWriter:
    """Writer of :class:`StridedSink`."""

    sink: StridedSink
    mem: Mem

    def batch(self, batch: str) -> str:
        return batch_index(batch, self.sink.batch, self.sink.place)

    def row(self, row: str) -> str:
        return f"{row} * {self.sink.place.strides[-2]}u"

    def column(self, tag: str, column: str) -> tuple[list[str], str]:
        step = self.sink.place.strides[-1]
        return [], column if step == 1 else f"{column} * {step}u"


def gemm_of(spec: MatmulSpec, epilogue: Epilogue | None = None) -> Gemm:
    """The product as the generator takes it.

    Raises:
        DeviceError: if an operand has the wrong number of strides or reaches past its buffer.
    """
    shapes = {"a": (spec.m, spec.k), "b": (spec.k, spec.n), "out": (spec.m, spec.n)}
    for key, place in (("a", spec.a), ("b", spec.b), ("out", spec.out)):
        sizes = (*spec.batch, *shapes[key])
        if len(place.strides) != len(sizes):
            raise DeviceError(f"matmul operand {key}", f"{len(sizes)} strides", f"{len(place.strides)}")
        last = place.offset + sum((size - 1) * step for size, step in zip(sizes, place.strides, strict=True))
        if min(place.strides) < 0 or last >= place.numel or last >= 1 << 32:
            raise DeviceError(f"matmul operand {key}", f"indices below {place.numel}", f"{last}")
    *_, a_row, a_col = spec.a.strides
    *_, b_row, b_col = spec.b.strides
    return Gemm(
        "matmul",
        spec.m,
        spec.n,
        spec.k,
        math.prod(spec.batch),
        StridedSource(spec.a, spec.batch, spec.m, spec.k, a_row, a_col),
        StridedSource(spec.b, spec.batch, spec.n, spec.k, b_col, b_row),
        StridedSink(spec.out, spec.batch, spec.m, spec.n),
        spec.accumulate,
        epilogue,
    )


def matmul_calls(
    spec: MatmulSpec,
    limits: Limits,
    scalars: ScalarTable | None = None,
    epilogue: Epilogue | None = None,
    choice: Choice | None = None,
) -> list[Call]:
    """Kernels of a product, with operand keys ``a``, ``b``, ``out``, the epilogue's, and scratch ``ws``.

    Args:
        spec: sizes and operands.
        limits: of the device.
        scalars: the step program's scalars, for epilogues that read some.
        epilogue: applied to each element before it is stored.
        choice: tile and splits, where the cost model is not to decide.

    Raises:
        DeviceError: if an operand reaches past its buffer, or too many bindings are needed.
    """
    return gemm_calls(gemm_of(spec, epilogue), limits, scalars, choice)
