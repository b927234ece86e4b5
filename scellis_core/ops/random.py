"""Random bits: a pure function of the run's counter, a named stream and the element's index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scellis_core.ir import Leaf, OpDef, Tolerance, Type, register
from scellis_core.ops.base import Attrs, arity, int_attr, shape_attr, str_attr

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

SCALARS = ("rng.counter_lo", "rng.counter_hi", "rng.{stream}.key0", "rng.{stream}.key1")
"""The u32 scalars that a draw reads, in the order in which the oracle receives them."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 0)
    str_attr(attrs, "stream")
    int_attr(attrs, "offset", 0, 2**32)
    return (Type("u32", shape_attr(attrs)),)


def _oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Word ``i % 4`` of the block at ``counter + offset + i // 4``; ``arrays`` hold the four scalars."""
    import numpy as np

    from scellis_core.rng import draw

    low, high, key0, key1 = (int(a) for a in arrays)
    shape = shape_attr(attrs)
    first = (high << 32 | low) + int_attr(attrs, "offset")
    return [np.asarray(draw((key0, key1), first, math.prod(shape)), np.int64).reshape(shape)]


def _sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [
        ([], {"stream": "dropout", "offset": 0, "shape": (1,)}),
        ([], {"stream": "dropout", "offset": 3, "shape": (70, 67)}),
        ([], {"stream": "augment", "offset": 2**32 - 2, "shape": (2, 3, 7)}),
        ([], {"stream": "init", "offset": 5, "shape": ()}),
    ]


register(
    OpDef(
        "philox",
        "Philox4x32-10 words (u32): the same bits on every device.",
        _infer,
        _oracle,
        Leaf(),
        no_vjp="random bits depend on no value",
        tolerance=Tolerance(0.0, 0.0),
        attrs=("stream", "offset", "shape"),
        sample=_sample,
    )
)
