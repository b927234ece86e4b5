"""Long runs: memory of the process and of the device stays, and a run killed again and again ends as one never was."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path
from typing import Any

import pytest
from tiny import STEPS as LAST
from tiny import in_processes, state_of, tiny, unix

from scellis_core.catalog import Catalog
from scellis_core.store import Store
from scellis_core.train import api
from scellis_core.train.session import open_session

STEPS = int(os.environ.get("SCELLIS_SOAK_STEPS", "20000"))


def test_memory_stays_over_a_long_run(tmp_path: Path, device_name: str) -> None:
    record = tiny(tmp_path, {"steps": 10 * STEPS})
    session = open_session(record, Catalog.discover(), device=device_name)
    session.initialise()
    executor: Any = session.executor

    def state() -> tuple[int, dict[str, int]]:
        session.evaluate("val")
        executor.sync()
        return executor.allocated_bytes(), executor.live_objects()

    for _ in range(STEPS // 10):
        session.report(session.update())
    before, peak = state(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(STEPS):
        session.report(session.update())
    assert state() == before
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown < 20_000, f"the process grew by {grown} KiB in {STEPS} steps"
    session.close()


@unix
@pytest.mark.parametrize("seed", range(6))
def test_a_run_killed_many_times_ends_with_the_same_bits(seed: int, tmp_path: Path, device_name: str) -> None:
    rng = random.Random(seed)
    steps = sorted(rng.sample(range(2, LAST - 1), 6))
    ends: list[list[Any]] = [[rng.choice(["kill", "write"]), step, rng.randrange(0, 5)] for step in steps]
    [said] = in_processes((tmp_path, [*ends, ["none", 0, 0]], {}), device=device_name)
    assert said[-1] == f"{len(ends)} finished {LAST}"
    store = Store(tmp_path / "store")
    whole = api.train(tiny(tmp_path), store=tmp_path, device=device_name)
    assert state_of(store.root, store.runs()[0].id) == state_of(tmp_path, whole.run)
