"""``train`` and ``resume``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scellis_core.cli import text
from scellis_core.cli.app import (
    DEFAULT_STORE,
    device_option,
    limits_option,
    plugins_option,
    read_limits,
    read_record,
    record_argument,
    set_options,
    store_option,
)
from scellis_core.errors import DeviceError

if TYPE_CHECKING:
    from scellis_core.train.api import Result
    from scellis_core.train.events import Event

DRIVERS = {
    "linux": "install a Vulkan driver (Debian, Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1)",
    "darwin": "Metal answers on every Mac with a GPU; a virtual machine may have none",
    "win32": "install or update the graphics driver",
}
"""By ``sys.platform``: what gives this machine an adapter."""


def driver_advice() -> str:
    """How to get an adapter here."""
    return DRIVERS.get(sys.platform, DRIVERS["linux"])


@click.command()
@record_argument
@device_option
@store_option
@set_options
@limits_option
@plugins_option
def train(
    record: Path,
    device: str,
    store: Path | None,
    overrides: tuple[str, ...],
    removed: tuple[str, ...],
    limits: Path | None,
    plugins_dir: Path | None,
) -> int:
    """Train RECORD from its initial weights; Ctrl-C saves a checkpoint and leaves the run to be resumed."""
    from scellis_core.catalog import Catalog
    from scellis_core.train import api

    ready = read_record(record, overrides, removed, store)
    folder = api.store_path(ready, store)
    catalog, cap, chosen = Catalog.discover(plugins_dir), read_limits(limits), choose_device(device)
    return _run(
        lambda callbacks: api.train(
            ready, store=folder, device=chosen, callbacks=callbacks, catalog=catalog, limits=cap
        ),
        folder,
    )


@click.command()
@click.argument("run", required=False)
@click.option(
    "--step", type=click.IntRange(min=0), help="Go on from the checkpoint of this step; later ones are dropped."
)
@device_option
@store_option
@limits_option
@plugins_option
def resume(
    run: str | None, step: int | None, device: str, store: Path | None, limits: Path | None, plugins_dir: Path | None
) -> int:
    """Go on with RUN (an id or its beginning; the latest interrupted one without) from its newest checkpoint."""
    from scellis_core.catalog import Catalog
    from scellis_core.store import Store
    from scellis_core.train import api

    folder = store or DEFAULT_STORE
    found = Store(folder).find_run(run).id
    catalog, cap, chosen = Catalog.discover(plugins_dir), read_limits(limits), choose_device(device)
    return _run(
        lambda callbacks: api.resume(
            found, step=step, store=folder, device=chosen, callbacks=callbacks, catalog=catalog, limits=cap
        ),
        folder,
    )


def choose_device(device: str) -> str:
    """``auto`` becomes ``oracle``, with a loud line, where no adapter answers.

    Raises:
        DeviceError: there is none and SCELLIS_REQUIRE_GPU is set.
    """
    if device == "auto":
        from scellis_core import runtime

        if runtime.adapters():
            return device
        if os.environ.get("SCELLIS_REQUIRE_GPU"):
            raise DeviceError("SCELLIS_REQUIRE_GPU", "a WebGPU adapter", "none", driver_advice())
        _loud(f"NO GPU ADAPTER: the float64 oracle (NumPy, slow) runs this; {driver_advice()}")
        return "oracle"
    if device == "oracle":
        _loud("NOT ON A GPU: the float64 oracle (NumPy, slow) runs this")
    return device


def _loud(line: str) -> None:
    click.secho(line, err=True, bold=True, fg="red")


def _run(start: Callable[[Sequence[Callable[[Event], None]]], Result], store: Path) -> int:
    """Train with progress, hooks told and a summary; returns the exit code."""
    from scellis_core.catalog import Hooks
    from scellis_core.cli.progress import Reporter
    from scellis_core.train.events import RunStarted

    reporter, hooks = Reporter(), Hooks.discover()
    started: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, RunStarted):
            started.append(event.run)
        for failure in hooks.event(event):
            click.echo(str(failure), err=True)

    try:
        result = start([reporter, note])
    except BaseException:
        if started:
            reporter.close()
            click.echo(f"run {started[0]} failed; go on with: {text.resume_command(started[0], store)}", err=True)
        raise
    finally:
        reporter.close()
    return _summary(result)


def _summary(result: Result) -> int:
    click.echo(f"run {result.run} {result.state}" + (f": {result.reason}" if result.reason else ""))
    click.echo(f"updates applied {result.applied}, skipped {result.skipped}; store {result.store}")
    if result.skipped * 10 > result.applied + result.skipped:
        share = f"{result.skipped} of {result.applied + result.skipped} updates were skipped"
        _loud(f"{share}: a lower learning rate, grad_clip or other data may help")
    if result.state == "interrupted":
        click.echo(f"go on with: {text.resume_command(result.run, result.store)}")
    click.echo(text.metric_line(result.metrics))
    if result.state != "interrupted":
        return 0
    return 128 + (signal.Signals[result.reason] if result.reason in signal.Signals.__members__ else signal.SIGINT)
