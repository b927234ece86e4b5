"""Rules of the code base that a reviewer should not have to look for."""

from __future__ import annotations

import string

import numpy as np
import pytest

from scellis_core import ops
from scellis_core.ir import OPS, Family, Leaf, Pointwise, Reduce, View
from scellis_core.lower.prelude import PRELUDE


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_has_every_facet(name: str) -> None:
    op = OPS[name]
    assert op.name == name
    assert op.summary
    assert callable(op.infer)
    assert op.oracle is not None, "float64 definition"
    assert isinstance(op.lower, (Pointwise, View, Reduce, Family, Leaf))
    assert op.sample is not None, "sample cases"
    assert (op.vjp is None) == bool(op.no_vjp), "a vjp or the reason why there is none, not both"
    assert set(op.defaults) <= set(op.attrs)
    assert op.tolerance.rtol >= 0.0
    assert op.tolerance.atol >= 0.0


@pytest.mark.parametrize("name", sorted(n for n, o in OPS.items() if isinstance(o.lower, Pointwise)))
def test_expressions_name_their_operands_and_helpers(name: str) -> None:
    lower = OPS[name].lower
    assert isinstance(lower, Pointwise)
    assert set(lower.needs) <= set(PRELUDE)
    sample = OPS[name].sample
    assert sample is not None
    operands = {str(i) for i in range(len(sample(np.random.default_rng(0))[0][0]))}
    for text in (lower.expr, *lower.by_dtype.values()):
        assert {f for _, f, _, _ in string.Formatter().parse(text) if f} - {"out"} == operands
        used = {h for h in PRELUDE if f"sc_{h}(" in text}
        assert used <= set(lower.needs)


def test_the_functional_api_is_complete_and_documented() -> None:
    internal = {"load", "param", "state", "scalar", "store", "philox"} | {n for n in OPS if "_grad" in n}
    renamed = {"and": "and_", "or": "or_", "not": "not_"}
    for name in set(OPS) - internal:
        assert renamed.get(name, name) in ops.__all__, name
    for name in ops.__all__:
        assert getattr(ops, name).__doc__, name
