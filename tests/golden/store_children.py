"""What tests of the store do in processes of their own: ``python store_children.py <job> <folder>``.

One interpreter imports once and forks for each process that is needed, since a fork of the test's own process would
carry its threads along.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from scellis_core.record import Record
from scellis_core.store import Store, objects

POINTS = 10
"""Times that writing one checkpoint stops by: three objects of three points each, and the row."""


def record(**more: object) -> Record:
    return Record.from_dict(
        {
            "sml": 1,
            "model": "user/ada/net",
            "architecture": {"block_id": "model/mlp"},
            "determinism_tier": "debug",
            **more,
        }
    )


def start(store: Store, **more: object) -> str:
    return store.create_run(record(**more), device="none", environment={"python": "3"}, total=9, base=Path("."))


def save(store: Store, run: str, step: int, *, seed: int | None = None, keep: int = 1, best: bool = False):
    generator = np.random.default_rng(step if seed is None else seed)
    return store.write_checkpoint(
        run,
        {"w": generator.standard_normal((5, 7)).astype(np.float32)},
        {"opt:m:w": generator.standard_normal((5, 7)).astype(np.float32), "global:t": np.array(step, np.float32)},
        keep=keep,
        best=best,
        rng_state={"algorithm": "philox4x32", "counter": 10 * step},
        epoch=0,
        step=step,
        cursor=step,
        record=record().digest,
        metrics={"loss": 1.0 / step},
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_points(folder: Path) -> None:
    """One store for each point; the second checkpoint's writer dies there."""
    for point in range(POINTS):
        child = os.fork()
        if not child:
            store = Store(folder / str(point))
            run = start(store)
            store.log(run, [(1, 0, "loss", 1.0)], step=1, epoch=0, skipped=0)
            save(store, run, 1)
            store.log(run, [(2, 0, "loss", 0.5)], step=2, epoch=0, skipped=0)
            passed: list[str] = []

            def at(name: str, passed: list[str] = passed, point: int = point) -> None:
                passed.append(name)
                if len(passed) == point + 1:
                    print(point, name, flush=True)
                    die()

            objects.at = at
            save(store, run, 2)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)


def together(folder: Path) -> None:
    """Four processes write runs, metrics and checkpoints, some of equal content, and collect."""
    children: list[int] = []
    for number in range(4):
        child = os.fork()
        if not child:
            store = Store(folder)
            run = start(store, seed=number)
            for step in range(1, 9):
                store.log(run, [(step, 0, "loss", float(number))], step=step, epoch=0, skipped=0)
                save(store, run, step, seed=step % 3)
            store.end_run(run, "finished", 8, 0)
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def live(folder: Path) -> None:
    """Start a run, say so, and wait to be killed."""
    store = Store(folder)
    print(start(store), flush=True)
    time.sleep(60)


if __name__ == "__main__":
    {"kill_points": kill_points, "together": together, "live": live}[sys.argv[1]](Path(sys.argv[2]))
