"""The store among processes: killed at each point of a checkpoint, several at once, runs whose process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from store_children import POINTS, save

from scellis_core.errors import StoreError
from scellis_core.store import Store, process

CHILDREN = Path(__file__).with_name("store_children.py")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")


def job(name: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, str(CHILDREN), name, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("killed")
    return folder, job("kill_points", folder).splitlines()


def test_every_point_was_met(killed: tuple[Path, list[str]]) -> None:
    names = ["write", "fsync", "rename"] * 3 + ["row"]
    assert killed[1] == [f"{point} {name}" for point, name in enumerate(names)]


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_while_writing_a_checkpoint(killed: tuple[Path, list[str]], point: int) -> None:
    store = Store(killed[0] / str(point))
    row = store.find_run()
    assert row.state == "interrupted"
    last = 2 if point == POINTS - 1 else 1
    found, bundle = store.checkpoint(row.id)
    assert (found.step, bundle.step, bundle.rng_state["counter"]) == (last, last, 10 * last)
    expected = np.random.default_rng(last).standard_normal((5, 7)).astype(np.float32)
    np.testing.assert_array_equal(store.tensors(bundle.weights)["w"], expected)
    assert store.tensors(bundle.optimizer_state)["global:t"] == last

    store.collect(minutes=0)
    kept = {found.bundle, bundle.weights, bundle.optimizer_state}
    assert set(store.objects.all()) == kept
    assert not any((store.root / "objects" / "tmp").iterdir())

    store.resume_run(row.id, last, "none")
    assert [r[0] for r in store.metrics(row.id, "loss")] == list(range(1, last + 1))
    store.log(row.id, [(2, 0, "loss", 0.5)], step=2, epoch=0, skipped=0)
    saved = save(store, row.id, 2)
    store.end_run(row.id, "finished", 2, 0)
    assert [c.id for c in store.checkpoints(row.id)] == [saved.id]
    assert store.find_run(row.id).state == "finished"
    assert store.metrics(row.id) == [(1, 0, "loss", 1.0), (2, 0, "loss", 0.5)]
    assert not any((store.root / "running").iterdir())


def test_several_processes_share_a_store(tmp_path: Path) -> None:
    job("together", tmp_path)
    store = Store(tmp_path)
    runs = store.runs()
    assert [r.state for r in runs] == ["finished"] * 4
    used: set[str] = set()
    for row in runs:
        assert len(store.metrics(row.id)) == 8
        found, bundle = store.checkpoint(row.id)
        assert found.step == 8
        assert store.tensors(bundle.weights)["w"].shape == (5, 7)
        assert store.tensors(bundle.optimizer_state)["global:t"] == 8
        used |= {found.bundle, bundle.weights, bundle.optimizer_state}
    store.collect()
    assert set(store.objects.all()) == used


def test_a_run_is_running_while_its_process_lives(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, str(CHILDREN), "live", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        run = child.stdout.readline().strip()
        store = Store(tmp_path)
        assert store.find_run(run).state == "running"
        assert store.reconcile() == []
        with pytest.raises(StoreError) as caught:
            store.resume_run(run, 0, "none")
        assert str(caught.value) == f"run {run}: expected a run that is not running, got running in another process"
    finally:
        child.kill()
        child.communicate()
    assert store.reconcile() == [run]
    assert store.find_run().id == run
    store.resume_run(run, 0, "none")
    assert Store(tmp_path).find_run(run).state == "running"


def test_without_locks_the_process_id_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise OSError(95, "no locks here")

    monkeypatch.setattr(process, "_lock", refuse)
    assert process.claim(tmp_path / "a") is not None
    own = process.identity()
    assert process.alive(tmp_path / "a", own)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    gone = own.replace(f'"pid": {process.os.getpid()}', f'"pid": {child.pid}')
    child.wait()
    assert gone != own
    assert not process.alive(tmp_path / "a", gone)
    assert not process.alive(tmp_path / "a", own.replace('"started": "', '"started": "0'))
    assert not process.alive(tmp_path / "a", "")
    assert process.alive(tmp_path / "a", gone.replace('"host": "', '"host": "other-'))
