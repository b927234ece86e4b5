"""First values: from seed and name alone, in the declared distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scellis_core.blocks import Init
from scellis_core.errors import ContractError
from scellis_core.model import TensorMeta, initial_tensors

NORMAL = [-0.6615268588066101, 0.2799042761325836, -0.6377794742584229]
UNIFORM = [-0.5452181100845337, -0.34965062141418457, -0.1274118423461914]
"""Under seed 7 and the name ``a.weight``; a change here changes every run."""


def draw(
    kind: str, value: float = 0.0, shape: tuple[int, ...] = (300, 401), name: str = "a.weight", seed: int = 7
) -> Any:
    meta = TensorMeta(shape, "f32", Init(kind, value))  # type: ignore[arg-type]
    return initial_tensors({"a.weight": meta}, {}, 7)["a.weight"]


def test_constants() -> None:
    for kind, value, expected in (("zeros", 5.0, 0.0), ("ones", 5.0, 1.0), ("constant", 5.0, 5.0)):
        found = draw(kind, value, (2, 3))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.full((2, 3), expected, np.float32))


@pytest.mark.parametrize(
    ("kind", "value", "std", "bound"),
    [
        ("uniform", 0.5, 0.5 / math.sqrt(3.0), 0.5),
        ("normal", 0.02, 0.02, 0.02 * 6.0),
        ("truncated_normal", 0.02, 0.02 * 0.8796, 0.02 * 2.0),
    ],
)
def test_distributions(kind: str, value: float, std: float, bound: float) -> None:
    found = draw(kind, value).astype(np.float64)
    assert abs(found.mean()) < 4 * std / math.sqrt(found.size)
    assert found.std() == pytest.approx(std, rel=0.01)
    assert np.abs(found).max() <= bound * (1 + 1e-6)


def test_a_value_depends_on_seed_and_name_alone() -> None:
    metas = {name: TensorMeta((5, 7), "f32", Init("normal", 1.0)) for name in ("a", "b", "c")}
    some = {"c": metas["c"], "a": metas["a"]}
    all_of_them, fewer = initial_tensors(metas, {}, 3), initial_tensors(some, {"state:m": TensorMeta((2,))}, 3)
    np.testing.assert_array_equal(all_of_them["a"], fewer["a"])
    np.testing.assert_array_equal(all_of_them["c"], fewer["c"])
    assert not np.array_equal(all_of_them["a"], all_of_them["b"])
    assert not np.array_equal(all_of_them["a"], initial_tensors(metas, {}, 4)["a"])
    assert list(fewer) == ["c", "a", "state:m"]


def test_the_first_values_do_not_depend_on_the_size() -> None:
    large, small = draw("normal", 1.0, (70_001,)), draw("normal", 1.0, (1_000,))
    np.testing.assert_array_equal(large[:1_000], small)


def test_these_bits_stay() -> None:
    np.testing.assert_allclose(draw("normal", 1.0, (3,)), NORMAL, rtol=1e-6)
    np.testing.assert_array_equal(draw("uniform", 1.0, (3,)), np.array(UNIFORM, np.float32))


def test_an_unknown_kind() -> None:
    with pytest.raises(ContractError, match=r"initial value of a\.weight: expected a kind of Init, got 'orthogonal'"):
        draw("orthogonal")
