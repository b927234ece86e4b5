"""``train`` and ``resume``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from scellis_core.cli.app import (
    device_option,
    limits_option,
    plugins_option,
    read_limits,
    read_record,
    record_argument,
    set_option,
    store_option,
)
from scellis_core.errors import DeviceError

DRIVERS = {
    "linux": "install a Vulkan driver (Debian, Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1)",
    "darwin": "Metal should answer on any Mac; is this a virtual machine without a GPU?",
    "win32": "install or update the graphics driver",
}


@click.command()
@record_argument
@device_option
@store_option
@set_option
@limits_option
@plugins_option
def train(
    record: Path, device: str, store: Path | None, overrides: tuple[str, ...], limits: Path | None, plugins_dir: Path | None
) -> None:
    """Train RECORD from its initial weights; Ctrl-C saves a checkpoint and leaves it to be resumed."""
    from scellis_core.catalog import Catalog
    from scellis_core.train import api

    ready = read_record(record, overrides, store)
    catalog = Catalog.discover(plugins_dir)
    chosen = choose_device(device)
    _run(lambda callbacks: api.train(
        ready, store=store, device=chosen, callbacks=callbacks, catalog=catalog, limits=read_limits(limits)
    ))  # fmt: skip


@click.command()
@click.argument("run", required=False)
@device_option
@store_option
@limits_option
@plugins_option
def resume(run: str | None, device: str, store: Path | None, limits: Path | None, plugins_dir: Path | None) -> None:
    """Go on with RUN (an id or its beginning; the latest interrupted one without) from its newest checkpoint."""
    from scellis_core.catalog import Catalog
    from scellis_core.train import api

    chosen = choose_device(device)
    _run(lambda callbacks: api.resume(
        run, store=store or Path(".scellis"), device=chosen, callbacks=callbacks,
        catalog=Catalog.discover(plugins_dir), limits=read_limits(limits),
    ))  # fmt: skip


def choose_device(device: str) -> str:
    """``auto`` becomes ``oracle``, with a loud line, where no adapter answers.

    Raises:
        DeviceError: there is none and SCELLIS_REQUIRE_GPU is set.
    """
    if device == "auto":
        from scellis_core import runtime

        if runtime.adapters():
            return device
        advice = DRIVERS.get(sys.platform, DRIVERS["linux"])
        if os.environ.get("SCELLIS_REQUIRE_GPU"):
            raise DeviceError("SCELLIS_REQUIRE_GPU", "a WebGPU adapter", "none", advice)
        click.secho(f"NO GPU ADAPTER FOUND: the float64 oracle (NumPy, slow) runs this; {advice}", err=True, bold=True)
        return "oracle"
    if device == "oracle":
        click.secho("the float64 oracle (NumPy) runs this, not a GPU", err=True, bold=True)
    return device


def _run(start: Any) -> None:
    from scellis_core.catalog import Hooks
    from scellis_core.cli.progress import Reporter
    from scellis_core.train.events import Event, RunStarted

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
        reporter.close()
        if started:
            click.echo(f"run {started[0]} failed; scellis runs shows it, scellis resume {started[0]} goes on", err=True)
        raise
    _summary(result)


def _summary(result: Any) -> None:
    from scellis_core.cli.progress import metric_line

    click.echo(f"run {result.run} {result.state}" + (f" ({result.reason})" if result.reason else ""))
    click.echo(f"updates applied {result.applied}, skipped {result.skipped}; store {result.store}")
    if result.state == "interrupted":
        click.echo(f"go on with: scellis resume {result.run} --store {result.store}")
    else:
        click.echo(f"weights: scellis export {result.run} --store {result.store} -o weights.safetensors")
    click.echo(metric_line(result.metrics))
