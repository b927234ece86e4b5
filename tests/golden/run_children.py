"""Runs in processes of their own that end as planned: ``python run_children.py <plans as JSON>``.

A plan holds ``folder``, ``store``, ``device``, ``changes`` of the record, and ``ends``: how each process in turn
ends, the first training, the others going on. One interpreter imports once and forks for each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tiny import tiny

from scellis_core.store import objects
from scellis_core.train import api
from scellis_core.train.events import Checkpointed, Event, StepDone


def ending(kind: str, step: int, point: int) -> Any:
    """A callback that ends its process.

    ``kill``: as the report of a step comes in. ``write``: at a point of writing the checkpoint after that step, of
    ten. ``saved``: once the checkpoint of a step is there. ``SIGTERM`` and ``SIGINT`` are sent to itself at a step,
    ``point`` + 1 times.
    """
    passed: list[str] = []

    def at(name: str) -> None:
        passed.append(name)
        if len(passed) == point + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == step:
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif kind == "write":
                objects.at = at
            elif kind in ("SIGTERM", "SIGINT"):
                for _ in range(point + 1):
                    os.kill(os.getpid(), signal.Signals[kind])
        elif isinstance(event, Checkpointed) and event.step == step and kind == "saved":
            os.kill(os.getpid(), signal.SIGKILL)

    return on_event


def process(plan: dict[str, Any], number: int, end: list[Any]) -> None:
    """Train (the first) or go on; says how it ended."""
    callback = ending(*end)
    if number == 0:
        record = tiny(Path(plan["folder"]), plan["changes"])
        result = api.train(record, store=plan["store"], device=plan["device"], on_event=callback)
    else:
        result = api.resume(store=plan["store"], device=plan["device"], on_event=callback)
    print(number, result.state, result.step, flush=True)


def follow(plan: dict[str, Any]) -> None:
    """Fork for each end."""
    for number, end in enumerate(plan["ends"]):
        child = os.fork()
        if not child:
            try:
                process(plan, number, end)
            except BaseException as error:  # noqa: BLE001 the parent's answer
                print(number, f"{type(error).__name__}: {error}", flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(number, signal.Signals(os.WTERMSIG(status)).name, flush=True)


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        follow(each)
