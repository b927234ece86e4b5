"""Schedules at each of a thousand updates against PyTorch or their papers (tests/golden/schedules.npz)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import state_of, tiny

from scellis_core.catalog import Catalog
from scellis_core.errors import DataError
from scellis_core.plugin import ScheduleContext, Scheduler
from scellis_core.store import Store
from scellis_core.train import api
from scellis_core.train.events import StepDone

TESTS = Path(__file__).parents[1]

ARRAYS = np.load(TESTS / "golden" / "schedules.npz")
CASES: list[dict[str, Any]] = json.loads(str(ARRAYS["cases"]))
CATALOG = Catalog.discover()
EPOCH = 25


def test_every_schedule_has_a_reference() -> None:
    known = {case["block"] for case in CASES}
    assert {e.id.partition("@")[0] for e in CATALOG.entries("training/scheduler")} == known


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_factors(case: dict[str, Any]) -> None:
    block = CATALOG.resolve_as(Scheduler, case["block"])
    params = block.params(**case["params"])
    want = ARRAYS[case["name"]]
    state = dict(block.init_state(params)) if block.init_state else {}
    found: list[float] = []
    for step in range(len(want)):
        context = ScheduleContext(len(want), EPOCH, state)
        found.append(block.factor(step, params, context))
        if block.advance is not None and (step + 1) % EPOCH == 0:
            metric = float(ARRAYS["metrics"][step // EPOCH])
            state = json.loads(json.dumps(dict(block.advance(state, {"val_loss": metric}, params))))
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)
    assert (found[0], found[-1]) == pytest.approx((want[0], want[-1]), rel=1e-9)


PLATEAU = {
    "scheduler": {"block_id": "training/scheduler/plateau", "patience": 0, "gamma": 0.5, "threshold": 0.5},
    "checkpoint.every": 2,
}


def rates(record: Any, store: Path, run: str | None = None, *, stop: int = 0) -> list[float]:
    """Learning rates of a run's updates; stopped after some where asked for."""
    found: list[float] = []

    def on_event(event: object) -> None:
        if isinstance(event, StepDone):
            found.append(event.lr)
            if event.step == stop:
                raise KeyboardInterrupt

    if stop:
        with pytest.raises(KeyboardInterrupt):
            api.train(record, store=store, device="oracle", on_event=on_event)
    elif run is None:
        api.train(record, store=store, device="oracle", on_event=on_event)
    else:
        api.resume(run, store=store, device="oracle", on_event=on_event)
    return found


def test_a_schedule_that_follows_a_metric_goes_on_after_a_resume(tmp_path: Path) -> None:
    record = tiny(tmp_path, PLATEAU)
    whole = rates(record, tmp_path / "whole")
    assert len(set(whole)) > 2
    rates(record, tmp_path / "parts", stop=20)
    run = Store(tmp_path / "parts").runs()[0].id
    rest = rates(record, tmp_path / "parts", run)
    assert rest == whole[-len(rest) :]
    first = Store(tmp_path / "whole").runs()[0].id
    assert state_of(tmp_path / "parts", run) == state_of(tmp_path / "whole", first)


def test_a_metric_that_is_not_there(tmp_path: Path) -> None:
    record = tiny(tmp_path, {"scheduler": {"block_id": "training/scheduler/plateau", "metric": "val_los"}})
    with pytest.raises(DataError) as caught:
        api.train(record, store=tmp_path / "s", device="oracle")
    assert str(caught.value) == (
        "scheduler.metric: expected a metric of the run's validation, got 'val_los'; try one of: val_accuracy, val_loss"
    )
