"""A static site that trains a run in a browser tab: step program, weights, data, order and rates, and the host."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from scellis_core import rng
from scellis_core.blocks import Dataset
from scellis_core.catalog import Catalog
from scellis_core.compile import Compiled, compile_run
from scellis_core.errors import DataError, DeviceError, RecordError
from scellis_core.lower.program import Limits
from scellis_core.model import ResolvedRun, resolve_run
from scellis_core.record import Record
from scellis_core.train.batching import Schedule, order
from scellis_core.train.session import batches, initial, learning_rate, open_data

HOST = "scellis_tab"
"""The package that ships the browser host."""

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of training data that a site may hold; a tab loads it whole."""


def write_site(record: Record, out: Path, catalog: Catalog) -> Path:
    """Write a page that trains the record on WebGPU, with nothing of Python at run time.

    The program is compiled for WebGPU's default limits. The folder appears whole or not at all.

    Args:
        record: the run.
        out: folder to write; it may exist if it is empty or an earlier site.
        catalog: where blocks are found.

    Returns:
        The page, ``index.html``.

    Raises:
        RecordError: if the record does not train, or a block of it needs Python on the host.
        DataError: if ``out`` holds other files, or the data is too large for a tab.
    """
    if missing := record.pipeline_missing():
        raise RecordError(record.where(()), f"a pipeline to train with: {', '.join(missing)}", "no such key")
    if out.exists() and any(out.iterdir()) and not (out / "program.json").exists():
        raise DataError(str(out), "an empty folder or an earlier site", "other files", "another -o")
    run = resolve_run(record, catalog, record.base)
    _check_portable(run)
    dataset = open_data(run)
    assert dataset is not None
    plan, training, evaluation = batches(record, dataset.spec.sizes, True)
    assert plan is not None
    compiled = compile_run(run, Limits(), train=training, evaluate=evaluation)
    if "shader-f16" in compiled.program.limits.features:
        raise DeviceError("site", "WebGPU's default features", "shader-f16", "precision: { policy: f32 }")
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=out.name + ".", dir=out.parent))
    try:
        _copy_host(building)
        weights = _weights(run, compiled, building / "weights.bin")
        splits = _data(compiled, dataset, building / "data.bin")
        _order(record, plan, building / "order.bin")
        _json(building / "program.json", compiled.program.to_json())
        sizes = {p.name: p.stat().st_size for p in building.glob("*.bin")}
        _json(building / "run.json", _run_file(run, compiled, plan, weights, splits) | {"files": sizes})
        if out.exists():
            shutil.rmtree(out)
        building.chmod(0o755)
        building.replace(out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return out / "index.html"


def _check_portable(run: ResolvedRun) -> None:
    for use in [*run.metrics, *run.losses, *run.augment]:
        if use.block.host == "python" or callable(getattr(use.block, "finalize", None)):
            raise RecordError(use.where, "blocks that a browser tab can run", f"{use.block.id}, which needs Python")
    for key, pair in (("scheduler", run.scheduler), ("optimizer", run.optimizer)):
        if pair is not None and (pair[0].host == "python" or getattr(pair[0], "advance", None) is not None):
            where = run.record.where(key)
            raise RecordError(where, "blocks that a browser tab can run", f"{pair[0].id}, which needs the host's state")


def _copy_host(folder: Path) -> None:
    source = resources.files(HOST) / "static"
    for item in source.iterdir():
        if item.name.endswith((".js", ".html", ".css")):
            (folder / item.name).write_bytes(item.read_bytes())


def _weights(run: ResolvedRun, compiled: Compiled, path: Path) -> list[dict[str, Any]]:
    """Initial tensors, one after another; those that start as zeros are left to WebGPU, which clears buffers."""
    import numpy as np

    table: list[dict[str, Any]] = []
    with path.open("wb") as file:
        for name, array in initial(compiled, run.record.spec.seed).items():
            if np.any(array):
                raw = np.ascontiguousarray(array, np.float32).tobytes()
                table.append({"name": name, "offset": file.tell(), "bytes": len(raw)})
                file.write(raw)
    return table


def _data(compiled: Compiled, dataset: Dataset, path: Path) -> dict[str, Any]:
    """Every split's arrays, one after another."""
    import numpy as np

    splits: dict[str, Any] = {}
    with path.open("wb") as file:
        for split, examples in dataset.spec.sizes.items():
            arrays: dict[str, Any] = {}
            for name, array in dataset.batch(split, np.arange(examples)).items() if examples else ():
                spec = compiled.inputs.get(name)
                if spec is None:
                    continue
                raw = np.ascontiguousarray(array, np.float32 if spec.dtype == "f32" else np.int32).tobytes()
                if file.tell() + len(raw) > MOST_BYTES:
                    expected = f"at most {MOST_BYTES} bytes for a tab"
                    raise DataError("data", expected, f"more (split {split})", "a smaller dataset")
                place = {"offset": file.tell(), "bytes": len(raw)}
                arrays[name] = {"dtype": spec.dtype, "shape": list(spec.shape), **place}
                file.write(raw)
            if examples:
                splits[split] = {"examples": examples, "arrays": arrays}
    return splits


def _order(record: Record, plan: Schedule, path: Path) -> None:
    import numpy as np

    with path.open("wb") as file:
        for epoch in range(plan.epochs):
            file.write(order(record.spec.seed, epoch, plan.examples).astype(np.uint32).tobytes())


def _run_file(
    run: ResolvedRun, compiled: Compiled, plan: Schedule, weights: list[dict[str, Any]], splits: Mapping[str, Any]
) -> dict[str, Any]:
    record = run.record
    streams = [n[4:-5] for n in compiled.program.scalars if n.startswith("rng.") and n.endswith(".key0")]
    return {
        "title": str(record.model) if record.model else Path(record.name).stem,
        "record": record.text(),
        "record_digest": record.digest,
        "seed": record.spec.seed,
        "total": plan.total,
        "batch": plan.batch,
        "accumulation": plan.accumulation,
        "examples": plan.examples,
        "epochs": plan.epochs,
        "draws": compiled.draws,
        "streams": {s: list(rng.stream_key(record.spec.seed, s)) for s in streams},
        "lr": _rates(run, plan),
        "tensors": weights,
        "splits": splits,
        "metrics": [{"id": u.key, "name": u.name, "finalize": u.block.finalize} for u in run.metrics],
    }


def _rates(run: ResolvedRun, plan: Schedule) -> list[float]:
    return [learning_rate(run, plan, step, {}) for step in range(plan.total)]


def _json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
