"""How matrix kernels reach memory: operands that are read and results that are written, as WGSL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scellis_core.lower.tiles import Layout
from scellis_core.lower.wgsl import Mem, Module


class Loader(Protocol):
    """An operand inside one kernel. ``x`` is its row (A) or column (B); ``k`` the summed index."""

    def batch(self, batch: str) -> list[str]:
        """Statements once a workgroup."""
        ...

    def outer(self, tag: str, x: str) -> list[str]:
        """Statements for one ``x``, before the K loop; names begin with ``tag``."""
        ...

    def inner(self, tag: str, k: str) -> list[str]:
        """Statements for one ``k``; names begin with ``tag``."""
        ...

    def scalar(self, outer: str, inner: str) -> tuple[str, str]:
        """(condition or "", f32 expression) of one element; zero where the condition fails."""
        ...

    def vector(self, outer: str, inner: str) -> str:
        """vec4<f32> expression of four elements along the contiguous axis; only for sources with ``vec``."""
        ...


class Source(Protocol):
    """Where an operand comes from.

    ``fast`` is its contiguous axis, ``vec`` says that aligned vec4s along it can be loaded whole, ``layout`` is the
    preferred layout of its tile.
    """

    @property
    def fast(self) -> Layout:
        """Contiguous axis."""
        ...

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        ...

    @property
    def layout(self) -> Layout:
        """Preferred layout of its tile."""
        ...

    def bind(self, module: Module, name: str) -> Loader:
        """Declare its tensor."""
        ...


class Writer(Protocol):
    """A result inside one kernel; the element index is the sum of its three parts."""

    mem: Mem

    def batch(self, batch: str) -> str:
        """Expression of the batch's part."""
        ...

    def row(self, row: str) -> str:
        """Expression of the row's part."""
        ...

    def column(self, tag: str, column: str) -> tuple[list[str], str]:
        """(statements, expression) of the column's part; names begin with ``tag``."""
        ...


class Sink(Protocol):
    """Where the result goes; ``vec`` says that aligned vec4s along the columns can be stored whole."""

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        ...

    @property
    def dtype(self) -> str:
        """Of the stored elements."""
        ...

    def bind(self, module: Module, name: str, vec: int) -> Writer:
        """Declare its tensor, as vec4s where ``vec`` is 4."""
        ...


@dataclass(frozen=True)
class DenseSink:
    """f32 [splits * batch, m, n], contiguous: the partial sums of a split product."""

    m: int
    n: int
    batch: int
    dtype: str = "f32"

    @property
    def vec(self) -> bool:
        """Whether aligned vec4s can be moved whole."""
        return self.n % 4 == 0

    def bind(self, module: Module, name: str, vec: int) -> Writer:
        """Declare the tensor on a module."""
        return _DenseWriter(module.tensor(name, "f32", self.m * self.n * self.batch, "read_write", vec), self.m, self.n)


@dataclass
class _DenseWriter:
    """Writer of :class:`DenseSink`."""

    mem: Mem
    m: int
    n: int

    def batch(self, batch: str) -> str:
        return f"({batch} * {self.m * self.n}u)"

    def row(self, row: str) -> str:
        return f"{row} * {self.n}u"

    def column(self, tag: str, column: str) -> tuple[list[str], str]:
        return [], column
