"""``doctor``, ``web`` and ``explain``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from scellis_core.cli.app import plugins_option, read_record, record_argument, set_option, store_option
from scellis_core.errors import ScellisError, nearest

MEANINGS = {
    "error": "Something you can act on; the message says where, what was expected, what was found and what to try.",
    "record": "The record (SML) is wrong at the line and column shown. docs/sml.md lists every key; `scellis catalog show ID` "
    "the parameters of a block.",
    "catalog": "A block cannot be found, loaded or trusted. `scellis catalog` lists what is installed and what is broken.",
    "ir": "A graph is not legal: shapes or dtypes do not fit, or text does not parse. `scellis inspect --level L2` prints it.",
    "data": "A file or array does not hold what its block promises; the message names file, row or position.",
    "store": "An object, checkpoint or run in the store is missing or damaged. Damaged objects are never used; an earlier "
    "checkpoint of the run may be whole.",
    "device": "The GPU, its driver or its limits do not allow it. `scellis doctor` shows what they are.",
    "plan": "The run does not fit. `scellis plan` shows the bytes by class.",
    "contract": "A block does not keep the contract of its family; its author has to mend it.",
}


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain a kind of error by its CODE, as the message's last line names it."""
    if code not in MEANINGS:
        raise ScellisError("explain", "a code of an error", repr(code), nearest(code, MEANINGS))
    click.echo(MEANINGS[code])


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def doctor(as_json: bool) -> None:
    """Say which GPUs are there, what they allow, and what that means here."""
    from scellis_core import runtime
    from scellis_core.cli.progress import human_bytes
    from scellis_core.cli.training import DRIVERS

    found = runtime.adapters()
    if as_json:
        click.echo(json.dumps([a.to_json() for a in found], indent=1))
        return
    if not found:
        click.echo("no WebGPU adapter: " + DRIVERS.get(sys.platform, DRIVERS["linux"]))
        click.echo("until then `--device oracle` runs everything in float64 on the CPU, slowly")
        return
    for k, adapter in enumerate(found):
        limits = adapter.limits
        click.echo(f"{adapter.name} ({adapter.kind}, {adapter.backend}, {adapter.driver})" + (" <- auto" if k == 0 else ""))
        cap, largest = limits.max_storage_buffer_binding_size, limits.max_buffer_size
        click.echo(f"  one binding holds {human_bytes(cap)}; larger tensors are processed by windows")
        click.echo(f"  one buffer holds {human_bytes(largest)}; a larger tensor is refused")
        click.echo(f"  {limits.max_storage_buffers_per_shader_stage} storage buffers a kernel; fused kernels split beyond that")
        click.echo(
            f"  {limits.max_compute_invocations_per_workgroup} invocations and "
            f"{human_bytes(limits.max_compute_workgroup_storage_size)} of shared memory a workgroup"
        )
        f16 = "yes" if "shader-f16" in adapter.features else "no: precision must be f32"
        click.echo(f"  f16 in kernels: {f16}")
        timed = "yes" if "timestamp-query" in adapter.features else "no: kernels can't be timed one by one"
        click.echo(f"  timestamps: {timed}")
        if adapter.kind == "CPU":
            click.echo("  this is a software device: right, and slow")
    click.echo("WGSL has neither bf16 nor f64: f32 on the GPU, float64 on the oracle (`--device oracle`)")


@click.command()
@record_argument
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write.")
@store_option
@set_option
@plugins_option
def web(record: Path, out: Path, store: Path | None, overrides: tuple[str, ...], plugins_dir: Path | None) -> None:
    """Write a static page that trains RECORD in a browser tab on WebGPU."""
    from scellis_core.catalog import Catalog
    from scellis_core.site import write_site

    page = write_site(read_record(record, overrides, store), out, Catalog.discover(plugins_dir))
    click.echo(f"{page}")
    click.echo(f"serve it with: python3 -m http.server --directory {out}")
