"""What an op is made of as data: tensor types, attributes, lowerings, tolerances."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

DTYPES: dict[str, int] = {"f32": 4, "f16": 2, "i32": 4, "u32": 4, "bool": 4, "f64": 8}
"""Element sizes in bytes. ``bool`` is stored as u32; f64 exists on the oracle only."""

FLOATS = ("f16", "f32", "f64")
INTS = ("i32", "u32")

Attr = bool | int | float | str | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """A tensor type, printed ``f32[32, 128]``; a scalar is ``f32[]``."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * DTYPES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Pointwise:
    """Lowering of an elementwise op: a WGSL scalar expression with ``{0}``, ``{1}`` .. for the operands.

    ``{out}`` stands for the WGSL type of the result. Operands are already parenthesised or named, so the
    expression needs no guard of its own. ``needs`` names helper functions of
    :mod:`scellis_core.lower.prelude` that the expression calls. ``by_dtype`` gives another expression by the
    dtype of the first operand, where WGSL wants one. Predicates yield WGSL ``bool``.
    """

    expr: str
    needs: tuple[str, ...] = ()
    by_dtype: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class View:
    """Lowering of an op that only re-indexes its input(s); ``kind`` names the index rule in lower/."""

    kind: str


@dataclass(frozen=True)
class Reduce:
    """Lowering of a reduction over ``axes``: ``combine`` is ``sum``, ``max``, ``min`` or ``argmax``."""

    combine: str


@dataclass(frozen=True)
class Family:
    """Lowering by a kernel family of its own in lower/ (``matmul``, ``conv2d``, ``scatter_add`` ...)."""

    name: str


@dataclass(frozen=True)
class Leaf:
    """No kernel of its own: a buffer, a constant, or a number made from an index (ramp, random bits)."""


Lowering = Pointwise | View | Reduce | Family | Leaf


@dataclass(frozen=True)
class Tolerance:
    """How far a device's result may be from the float64 oracle: ``|d| <= atol + rtol * |oracle|``."""

    rtol: float = 1e-5
    atol: float = 1e-6
