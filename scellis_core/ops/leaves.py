"""Leaves (inputs, parameters, state, scalars, constants, ramps) and the one effect, ``store``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scellis_core.ir import FLOATS, Leaf, OpDef, Tolerance, Type, register
from scellis_core.ops.base import (
    Attrs,
    arity,
    dtype_attr,
    fail,
    flags,
    int_attr,
    integers,
    normal,
    shape_attr,
    str_attr,
)

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

_LARGEST = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": math.inf}
_RANGE = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1)}


def _infer_bound(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 0)
    str_attr(attrs, "name")
    return (Type(dtype_attr(attrs), shape_attr(attrs)),)


def _infer_scalar(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 0)
    str_attr(attrs, "name")
    if attrs["shape"] != ():
        fail("a scalar of shape ()", repr(attrs["shape"]), "ops.broadcast")
    return (Type(dtype_attr(attrs, ("f32", "i32", "u32")), ()),)


def _infer_const(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 0)
    dtype, value = dtype_attr(attrs), attrs["value"]
    if dtype in FLOATS:
        if not isinstance(value, float):
            fail(f"a float for a constant of dtype {dtype}", repr(value))
        if math.isfinite(value) and abs(value) > _LARGEST[dtype]:
            fail(f"a constant that {dtype} holds, at most {_LARGEST[dtype]!r}", repr(value))
    elif dtype == "bool":
        if not isinstance(value, bool):
            fail("true or false for a constant of dtype bool", repr(value))
    else:
        low, high = _RANGE[dtype]
        if type(value) is not int or not low <= value <= high:
            fail(f"an integer from {low} to {high} for a constant of dtype {dtype}", repr(value))
    return (Type(dtype, shape_attr(attrs)),)


def _infer_iota(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 0)
    shape = shape_attr(attrs)
    int_attr(attrs, "axis", 0, len(shape))
    return (Type(dtype_attr(attrs, ("i32", "u32", "f32", "f64")), shape),)


def _infer_store(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    str_attr(attrs, "name")
    return ()


def _bound_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return [arrays[0]]


def _store_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return []


def _const_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    kind = np.float64 if attrs["dtype"] in FLOATS else np.bool_ if attrs["dtype"] == "bool" else np.int64
    return [np.full(attrs["shape"], attrs["value"], kind)]  # type: ignore[arg-type]


def _iota_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    shape, axis = shape_attr(attrs), int_attr(attrs, "axis")
    ramp = np.arange(shape[axis], dtype=np.float64 if attrs["dtype"] in FLOATS else np.int64)
    return [np.broadcast_to(ramp.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


def _bound_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    arrays = [normal(rng, 1), normal(rng, 7, 3), normal(rng, 70, 67), integers(rng, -9, 9, 5), flags(rng, 9)]
    kinds = ["f32", "f32", "f32", "i32", "bool"]
    return [
        ([a], {"name": f"t{i}", "dtype": k, "shape": a.shape})
        for i, (a, k) in enumerate(zip(arrays, kinds, strict=True))
    ]


def _scalar_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [
        ([normal(rng)], {"name": "a", "dtype": "f32", "shape": ()}),
        ([integers(rng, -5, 5)], {"name": "b", "dtype": "i32", "shape": ()}),
        ([integers(rng, 0, 2**32, dtype="uint32")], {"name": "c", "dtype": "u32", "shape": ()}),
    ]


def _const_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [
        ([], {"value": float(rng.standard_normal()), "dtype": "f32", "shape": (3, 5)}),
        ([], {"value": -0.0, "dtype": "f32", "shape": ()}),
        ([], {"value": 1e-30, "dtype": "f32", "shape": (1,)}),
        ([], {"value": -7, "dtype": "i32", "shape": (70,)}),
        ([], {"value": 4294967295, "dtype": "u32", "shape": (2,)}),
        ([], {"value": True, "dtype": "bool", "shape": (3,)}),
    ]


def _iota_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [
        ([], {"shape": (7,), "axis": 0, "dtype": "i32"}),
        ([], {"shape": (3, 70), "axis": 0, "dtype": "f32"}),
        ([], {"shape": (3, 1, 70), "axis": 2, "dtype": "u32"}),
    ]


def _store_sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    return [([normal(rng, 1)], {"name": "a"}), ([normal(rng, 70, 3)], {"name": "b"}), ([normal(rng)], {"name": "c"})]


_EXACT = Tolerance(0.0, 0.0)
_BOUND = ("name", "dtype", "shape")

for _name, _summary in (
    ("load", "A batch input by name."),
    ("param", "A trainable tensor by path."),
    ("state", "A persistent tensor that is not trained, as it is at this point of the program."),
):
    register(
        OpDef(
            _name,
            _summary,
            _infer_bound,
            _bound_oracle,
            Leaf(),
            no_vjp="a leaf: the gradient stops here",
            tolerance=_EXACT,
            attrs=_BOUND,
            sample=_bound_sample,
        )
    )

SCALAR = register(
    OpDef(
        "scalar",
        "A number that the host writes before every run of the sequence.",
        _infer_scalar,
        _bound_oracle,
        Leaf(),
        no_vjp="a leaf: the gradient stops here",
        tolerance=_EXACT,
        attrs=_BOUND,
        defaults={"dtype": "f32", "shape": ()},
        sample=_scalar_sample,
    )
)

CONST = register(
    OpDef(
        "const",
        "One number at every element.",
        _infer_const,
        _const_oracle,
        Leaf(),
        no_vjp="a constant",
        tolerance=Tolerance(1e-7, 1e-45),
        attrs=("value", "dtype", "shape"),
        defaults={"dtype": "f32", "shape": ()},
        sample=_const_sample,
    )
)

IOTA = register(
    OpDef(
        "iota",
        "The index along one axis.",
        _infer_iota,
        _iota_oracle,
        Leaf(),
        no_vjp="a constant",
        tolerance=_EXACT,
        attrs=("axis", "dtype", "shape"),
        defaults={"dtype": "i32"},
        sample=_iota_sample,
    )
)

STORE = register(
    OpDef(
        "store",
        "Write a value to a persistent tensor.",
        _infer_store,
        _store_oracle,
        Leaf(),
        no_vjp="an effect: it yields no value",
        tolerance=_EXACT,
        attrs=("name",),
        sample=_store_sample,
        effect=True,
    )
)
