"""Training on a device: killed runs go on to the same bits, skipped steps change none, memory is as planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runner import on_device, oracle
from tiny import STEPS, digest, in_processes, plant_infinity, state_of, tiny, unix

from scellis_core import rng
from scellis_core.catalog import Catalog
from scellis_core.model import lower, resolve_run
from scellis_core.record import Record
from scellis_core.store import Store
from scellis_core.train import api
from scellis_core.train.session import Session, open_session


def opened(record: Record, device: str, **options: Any) -> Session:
    session = open_session(record, Catalog.discover(), device=device, **options)
    session.initialise()
    return session


@unix
@pytest.mark.parametrize(
    "changes", [{}, {"determinism_tier": "debug"}, {"grad_accumulation": 2}], ids=["prod", "debug", "accumulation"]
)
def test_killed_runs_go_on_to_the_same_bits(tmp_path: Path, changes: dict[str, Any], device_name: str) -> None:
    """Trap 1: dropout, batch norm, Adam; killed in an epoch, at its edge, and while a checkpoint was written."""
    ends = [["kill", 11, 0], ["kill", 13, 0], ["write", 16, 4], ["none", 0, 0]]
    [said] = in_processes((tmp_path, ends, changes), device=device_name)
    assert said == [*(f"{i} SIGKILL" for i in range(3)), f"3 finished {STEPS}"]
    store = Store(tmp_path / "store")
    run = store.runs()[0].id
    whole = api.train(tiny(tmp_path, changes), store=tmp_path, device=device_name)
    assert whole.state == "finished"
    assert state_of(store.root, run) == state_of(tmp_path, whole.run)
    if not changes:
        again = api.train(tiny(tmp_path), store=tmp_path, device="oracle")
        assert whole.metrics == pytest.approx(again.metrics, rel=1e-4)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_without_finite_gradients_changes_nothing(
    tmp_path: Path, accumulation: int, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 7: running statistics too keep their bits, and Adam counts applied updates only."""
    plant_infinity(monkeypatch)
    session = opened(tiny(tmp_path, {"grad_accumulation": accumulation}), device_name)
    names = [*session.weight_names(), *session.compiled.slots]
    skips = 0
    for _ in range(6):
        before = digest(session.read(names))
        report = session.report(session.update())
        skips += report["ok"] == 0.0
        assert (digest(session.read(names)) == before) == (report["ok"] == 0.0)
    assert skips == accumulation
    assert float(session.executor.read("global:t")) == report["t"] == 6 - skips
    assert float(session.executor.read("global:skipped")) == report["skipped"] == skips
    assert all(np.isfinite(a).all() for a in session.read(names).values())
    session.close()


def test_memory_is_what_the_plan_says_and_stays(tmp_path: Path, device_name: str) -> None:
    """Trap 13."""
    record = tiny(tmp_path, {"steps": 2000})
    session = opened(record, device_name)
    executor: Any = session.executor
    planned = api.plan(record, limits=session.compiled.program.limits)
    assert executor.allocated_bytes() == planned.total

    def steps(count: int) -> tuple[int, dict[str, int]]:
        for _ in range(count):
            session.report(session.update())
        session.evaluate("val")
        session.read(session.weight_names())
        executor.sync()
        return executor.allocated_bytes(), executor.live_objects()

    first = steps(6)
    assert first[0] == planned.total
    assert steps(1000) == first
    session.close()


def test_evaluation_in_parts_is_evaluation_at_once(tmp_path: Path, device_name: str) -> None:
    found: list[dict[str, float]] = []
    for batch in (4, 11):
        session = opened(tiny(tmp_path, {"batch_size": batch}), device_name, train=False)
        found.append(session.evaluate("val"))
        session.close()
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_accumulation_is_the_mean_over_all_that_counts(tmp_path: Path, device_name: str) -> None:
    """42 examples at once, or in nine parts of which the last is smaller; without batch norm and dropout."""
    changes = {
        "graph": {
            "h": {"block_id": "layer/linear", "in": "x", "features": 8},
            "o": {"block_id": "layer/linear", "in": "h", "features": 2},
        }
    }
    sessions = [
        opened(tiny(tmp_path, {**changes, "batch_size": batch, "grad_accumulation": groups}), device_name)
        for batch, groups in ((42, 1), (5, 12))
    ]
    for _ in range(3):
        reports = [s.report(s.update()) for s in sessions]
        assert reports[1] == pytest.approx(reports[0], rel=1e-5)
    for name in sessions[0].weight_names():
        one, many = (s.executor.read(name) for s in sessions)
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-6)
    for session in sessions:
        session.close()


def test_dropout_masks_are_the_oracle_s_bit_for_bit(tmp_path: Path) -> None:
    record = tiny(
        tmp_path,
        {
            "graph": {
                "a": {"block_id": "layer/dropout", "in": "x", "rate": 0.3},
                "b": {"block_id": "layer/dropout", "in": "x", "rate": 0.75},
                "h": {"block_id": "layer/add", "in": ["a", "b"]},
            },
            "outputs": {"a": "a", "b": "b", "logits": "h"},
            "loss.output": "logits",
            "metrics": [],
        },
    )
    low = lower(resolve_run(record, Catalog.discover(), record.base), 97, "train")
    low.graph.outputs.clear()
    low.graph.output("a", low.outputs["a"])
    low.graph.output("b", low.outputs["b"])
    graph = low.graph.prune()
    key0, key1 = rng.stream_key(3, "dropout")
    for low_word, high_word in ((0, 0), (12345, 0), (2**32 - 7, 5)):
        arrays = {
            "x": np.ones((97, 6), np.float32),
            "rng.counter_lo": np.uint32(low_word),
            "rng.counter_hi": np.uint32(high_word),
            "rng.dropout.key0": np.uint32(key0),
            "rng.dropout.key1": np.uint32(key1),
        }
        found, expected = on_device(graph, arrays), oracle(graph, arrays)
        for name, rate in (("a", 0.3), ("b", 0.75)):
            np.testing.assert_array_equal(found[name] != 0, expected[name] != 0)
            assert abs(float((expected[name] != 0).mean()) - (1 - rate)) < 0.1
        assert ((expected["a"] != 0) != (expected["b"] != 0)).any()
