"""Optimizers over twenty steps against PyTorch or their papers (tests/golden/optimizers.npz): oracle and device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runner import on_device, oracle

from scellis_core.catalog import Catalog
from scellis_core.compile.update import Unit, UpdatePlan, build_apply
from scellis_core.ir import Graph, Type, verify
from scellis_core.plugin import Optimizer, ParamInfo, Slot

TESTS = Path(__file__).parents[1]

ARRAYS = np.load(TESTS / "golden" / "optimizers.npz")
CASES: list[dict[str, Any]] = json.loads(str(ARRAYS["cases"]))
CATALOG = Catalog.discover()


def test_every_optimizer_has_a_reference() -> None:
    known = {case["block"] for case in CASES}
    assert {e.id.partition("@")[0] for e in CATALOG.entries("training/optimizer")} == known


def apply_graph(case: dict[str, Any]) -> tuple[Graph, dict[str, Slot], dict[str, Slot]]:
    """The update of one slab as it is compiled, with the optimizer's slots by tensor name and its scalars."""
    block = CATALOG.resolve_as(Optimizer, case["block"])
    params = block.params(**case["params"])
    size = ARRAYS["p0"].shape
    slots = block.slots(params, ParamInfo("p", size))
    globals_ = block.globals(params)
    unit = Unit(
        name="p",
        op="state",
        p="p",
        g="grad:p",
        type=Type("f32", size),
        slots={name: f"opt:{name}" for name in slots},
        params=params,
    )
    plan = UpdatePlan(block, params, None, None, accumulate=False)
    graph = build_apply(plan, [unit], globals_, [])
    verify(graph)
    return graph, {f"opt:{n}": s for n, s in slots.items()}, {f"global:opt.{n}": s for n, s in globals_.items()}


def run(case: dict[str, Any], evaluate: Any) -> list[np.ndarray]:
    """Weights after each step."""
    graph, slots, globals_ = apply_graph(case)
    start = ARRAYS["p0"]
    state: dict[str, Any] = {"p": start}
    state |= {n: start if s.init == "param" else np.full(start.shape, s.init) for n, s in slots.items()}
    state |= {n: np.asarray(s.init, np.float64) for n, s in globals_.items()}
    state |= {"global:t": np.asarray(0.0), "global:skipped": np.asarray(0.0), "global:weight": np.asarray(1.0)}
    state |= {"global:loss": np.asarray(1.0), "global:report": np.zeros(7)}
    state |= {"lr": np.asarray(case["params"]["lr"]), "loss_scale": np.asarray(1.0)}
    steps: list[np.ndarray] = []
    for gradient in ARRAYS["gradients"]:
        found = evaluate(graph, {**state, "grad:p": gradient})
        state |= {n.removeprefix("store:"): v for n, v in found.items() if n.startswith("store:")}
        steps.append(np.asarray(state["p"], np.float64))
    return steps


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_on_the_oracle(case: dict[str, Any]) -> None:
    rtol = 1e-7 if case["block"].endswith("nadam") else 1e-9  # PyTorch keeps the product of momenta in f32
    for step, (found, want) in enumerate(zip(run(case, oracle), ARRAYS[case["name"]], strict=True), 1):
        np.testing.assert_allclose(found, want, rtol=rtol, atol=1e-10, err_msg=f"step {step}")


@pytest.mark.device
@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_updates_on_a_device(case: dict[str, Any], device_name: str) -> None:
    """The sum of all updates within 1e-5 of its size, apart from the rounding of the weights to f32 at each step."""
    found, want = run(case, on_device)[-1], ARRAYS[case["name"]][-1]
    moved = float(np.linalg.norm(want - ARRAYS["p0"]))
    rounding = len(ARRAYS["gradients"]) ** 0.5 * 2.0**-24 * float(np.linalg.norm(want))
    assert np.linalg.norm(found - want) <= 1e-5 * moved + rounding
