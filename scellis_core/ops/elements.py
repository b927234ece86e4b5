"""Sample operands and float64 definitions of the elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from scellis_core.ir import FLOATS
from scellis_core.ops.base import SIZES, Attrs, away, between, flags, integers, normal

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

Sample = Callable[["Rng"], "list[tuple[list[Array], dict[str, Any]]]"]


# -- samples --------------------------------------------------------------------------------------------------
def draws(low: float, high: float) -> Sample:
    """Uniform f32 operands of one input, every shape of SIZES."""
    return lambda rng: [([between(rng, low, high, *shape)], {}) for shape in SIZES]


def normals(count: int) -> Sample:
    """Normal f32 operands, every shape of SIZES."""
    return lambda rng: [([normal(rng, *shape) for _ in range(count)], {}) for shape in SIZES]


def ints(count: int, low: int = -50, high: int = 50) -> Sample:
    """Integers from ``low`` to ``high - 1`` as i32, and any u32."""

    def sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
        cases = [([integers(rng, low, high, *shape) for _ in range(count)], {}) for shape in SIZES[1:]]
        cases.append(([integers(rng, 0, 2**32, 9, dtype="uint32") for _ in range(count)], {}))
        return cases

    return sample


def signed(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """One i32 operand."""
    return [([integers(rng, -50, 50, *shape)], {}) for shape in SIZES[1:]]


def both(first: Sample, second: Sample) -> Sample:
    """The cases of two samples."""
    return lambda rng: first(rng) + second(rng)


def flag_pairs(count: int) -> Sample:
    """Boolean operands."""
    return lambda rng: [([flags(rng, *shape) for _ in range(count)], {}) for shape in ((1,), (70, 3))]


def ties(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """Small whole numbers, so that equal operands occur."""
    return [([integers(rng, -2, 3, *s).astype("float32") for _ in range(2)], {}) for s in ((7,), (70, 3))]


def nonzero(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """A quotient whose divisor is not near 0."""
    return [([normal(rng, *s), away(rng, 0.3, 3.0, *s)], {}) for s in SIZES]


def powers(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """Positive bases, and the edges that IEEE defines."""
    import numpy as np

    cases: list[tuple[list[Array], dict[str, Any]]] = [
        ([between(rng, 0.1, 4.0, *s), between(rng, -3.0, 3.0, *s)], {}) for s in SIZES
    ]
    edge = [(-2.0, 3.0), (-2.0, 2.0), (-1.5, -3.0), (0.0, 2.0), (0.0, 0.0), (-3.0, 0.0), (2.0, 0.0), (1.0, 100.0)]
    cases.append(([np.asarray(e, np.float32) for e in zip(*edge, strict=True)], {}))
    return cases


def finites(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """Infinities, NaN, a subnormal, and ordinary numbers."""
    import numpy as np

    with np.errstate(all="ignore"):
        edge = np.asarray([1.0, np.inf, np.nan, -0.0, 3.4e38, -np.inf, 1e-45, -np.nan], np.float32)
    return [([edge], {}), ([normal(rng, 70, 3)], {}), ([normal(rng)], {})]


def shifts(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """Whole words and 0 to 31 bits."""
    return [
        ([integers(rng, -(2**31), 2**31, 70, 3), integers(rng, 0, 32, 70, 3)], {}),
        ([integers(rng, 0, 2**32, 9, dtype="uint32"), integers(rng, 0, 32, 9, dtype="uint32")], {}),
        ([integers(rng, -9, 9), integers(rng, 0, 32)], {}),
    ]


def quotients(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """Integers divided, by 0 too."""
    return [
        ([integers(rng, -99, 99, 70, 3), integers(rng, -7, 8, 70, 3)], {}),
        ([integers(rng, 0, 2**32, 9, dtype="uint32"), integers(rng, 1, 2**16, 9, dtype="uint32")], {}),
    ]


def selects(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """A condition and two values of every dtype."""
    cases: list[tuple[list[Array], dict[str, Any]]] = [
        ([flags(rng, *s), normal(rng, *s), normal(rng, *s)], {}) for s in SIZES
    ]
    cases.append(([flags(rng, 9), integers(rng, -9, 9, 9), integers(rng, -9, 9, 9)], {}))
    cases.append(([flags(rng, 9), flags(rng, 9), flags(rng, 9)], {}))
    return cases


def casts(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    """From each dtype to each."""
    return [
        ([between(rng, -99.0, 99.0, 70, 3)], {"dtype": "i32"}),
        ([integers(rng, -99, 99, 7)], {"dtype": "f32"}),
        ([integers(rng, 0, 2**24, 7, dtype="uint32")], {"dtype": "f32"}),
        ([integers(rng, -99, 99, 1)], {"dtype": "u32"}),
        ([integers(rng, 0, 2**32, 9, dtype="uint32")], {"dtype": "i32"}),
        ([flags(rng, 9)], {"dtype": "f32"}),
        ([flags(rng, 9)], {"dtype": "i32"}),
        ([integers(rng, -1, 2, 9)], {"dtype": "bool"}),
        ([normal(rng, 3, 5)], {"dtype": "f32"}),
    ]


# -- oracles --------------------------------------------------------------------------------------------------
def numpy(name: str) -> Callable[[Sequence[Array], Attrs], Sequence[Array]]:
    """The NumPy function of that name over the operands."""

    def oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        import numpy as np

        return [getattr(np, name)(*arrays)]

    return oracle


def erf_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """The error function."""
    import numpy as np

    return [np.asarray(np.frompyfunc(math.erf, 1, 1)(arrays[0]), np.float64)]


def sigmoid_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Sigmoid by an exponential that never overflows."""
    import numpy as np

    e = np.exp(-np.abs(arrays[0]))
    return [np.where(arrays[0] >= 0, 1.0, e) / (1.0 + e)]


def rsqrt_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """1 / sqrt(x)."""
    import numpy as np

    return [1.0 / np.sqrt(arrays[0])]


def recip_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """1 / x."""
    return [1.0 / arrays[0]]


def div_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """A / b, of integers as WGSL defines it."""
    import numpy as np

    a, b = arrays
    if a.dtype.kind == "f":
        return [a / b]
    safe = np.where(b == 0, 1, b)
    return [np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)]


def rem_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """A % b of integers as WGSL defines it."""
    import numpy as np

    return [np.fmod(arrays[0], np.where(arrays[1] == 0, 1, arrays[1]))]


def shift_oracle(name: str) -> Callable[[Sequence[Array], Attrs], Sequence[Array]]:
    """A shift by ``b`` modulo 32."""

    def oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        import numpy as np

        return [getattr(np, name)(arrays[0], arrays[1] & 31)]

    return oracle


def select_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """One of two by the condition."""
    import numpy as np

    return [np.where(arrays[0], arrays[1], arrays[2])]


def same_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """The operand."""
    return [arrays[0]]


def cast_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Another dtype: floats truncate and saturate."""
    import numpy as np

    x, dtype = arrays[0], str(attrs["dtype"])
    if dtype in FLOATS:
        return [np.asarray(x, np.float64)]
    if dtype == "bool":
        return [x != 0]
    if x.dtype.kind == "f":
        low, high = (-(2**31), 2**31 - 1) if dtype == "i32" else (0, 2**32 - 1)
        whole = np.clip(np.trunc(np.where(np.isnan(x), 0.0, x)), low, high)
        return [whole.astype(np.int64)]
    return [np.asarray(x, np.int64)]
