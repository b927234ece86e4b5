"""Runs, checkpoints, metrics and stored models over objects and the provenance database."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scellis_core.errors import StoreError, nearest
from scellis_core.record import Record
from scellis_core.store import objects, process, tensors
from scellis_core.store.database import Database
from scellis_core.store.objects import Objects

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RunRow:
    """A run as the store knows it. ``state``: running, finished, failed (with ``error``) or interrupted."""

    id: str
    model: str
    record: str
    record_digest: str
    base: str
    state: str
    error: str
    created: float
    updated: float
    device: str
    tier: str
    environment: Mapping[str, Any]
    dataset: str
    epoch: int
    step: int
    total: int
    skipped: int


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint's place: ``bundle`` is the digest of its JSON, ``weights`` that of the tensors."""

    id: int
    run: str
    step: int
    epoch: int
    bundle: str
    weights: str
    best: bool


@dataclass(frozen=True)
class Checkpoint:
    """The bundle: all that a run needs to go on as if it had not stopped.

    Attributes:
        weights, optimizer_state: objects (safetensors) by digest.
        weights_digest: over names, dtypes, shapes and bytes.
        rng_state: ``{"algorithm": "philox4x32", "counter": n}``.
        epoch, step: updates done; ``cursor``: updates within the epoch.
        scheduler, scaler: their states.
        loop: best metrics, stop rule and counts.
        record: digest of the record.
        metrics: newest value of each.
    """

    weights: str
    optimizer_state: str
    weights_digest: str
    rng_state: Mapping[str, Any]
    epoch: int
    step: int
    cursor: int
    record: str
    metrics: Mapping[str, float]
    scheduler: Mapping[str, float] = field(default_factory=dict[str, float])
    scaler: Mapping[str, float] = field(default_factory=dict[str, float])
    loop: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Store:
    """A folder of objects and their provenance.

    Args:
        root: ``.scellis`` beside the record, or where ``--store`` says.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.objects = Objects(root / "objects")
        self.database = Database(root / "provenance.sqlite")

    # -- runs -----------------------------------------------------------------------------------------------
    def create_run(
        self, record: Record, *, device: str, environment: Mapping[str, Any], total: int, base: Path
    ) -> str:
        """Start a run in state ``running``; returns its id."""
        now = time.time()
        run = time.strftime("%Y%m%d-%H%M%S-", time.gmtime(now)) + secrets.token_hex(3)
        model = str(record.model) if record.model else ""
        values = (
            *(run, model, record.text(), record.digest, str(base.resolve()), "running", now, now),
            *(process.identity(), device, record.spec.determinism_tier or "", json.dumps(environment), total),
        )
        with self.database.open() as db:
            db.execute(
                "INSERT INTO runs (id, model, record, record_digest, base, state, created, updated, process, device, tier,"
                " environment, total) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                values,
            )
        return run

    def resume_run(self, run: str, step: int, device: str) -> None:
        """Mark a run ``running`` again from a step; what was logged after it is dropped.

        Raises:
            StoreError: if a process that is alive is running it.
        """
        self.reconcile()
        with self.database.open() as db:
            state = db.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()["state"]
            if state == "running":
                raise StoreError(f"run {run}", "a run that is not running", "running in another process")
            db.execute("DELETE FROM metrics WHERE run = ? AND step > ?", (run, step))
            db.execute(
                "UPDATE runs SET state = 'running', error = NULL, process = ?, device = ?, updated = ?, step = ? WHERE id = ?",
                (process.identity(), device, time.time(), step, run),
            )

    def end_run(self, run: str, state: str, step: int, skipped: int, error: str = "") -> None:
        """Record how a run ended: ``finished``, ``interrupted`` or ``failed``."""
        with self.database.open() as db:
            db.execute(
                "UPDATE runs SET state = ?, error = ?, step = ?, skipped = ?, updated = ?, process = NULL WHERE id = ?",
                (state, error or None, step, skipped, time.time(), run),
            )

    def reconcile(self) -> list[str]:
        """Runs whose process is gone become ``interrupted``; returns their ids."""
        if not self.database.path.exists():
            return []
        with self.database.open() as db:
            rows = db.execute("SELECT id, process FROM runs WHERE state = 'running'").fetchall()
            gone = [str(r["id"]) for r in rows if not process.alive(str(r["process"] or ""))]
            for run in gone:
                db.execute("UPDATE runs SET state = 'interrupted', process = NULL WHERE id = ?", (run,))
        return gone

    def runs(self) -> list[RunRow]:
        """Every run, newest first, after :meth:`reconcile`."""
        self.reconcile()
        if not self.database.path.exists():
            return []
        with self.database.open() as db:
            return [_run(r) for r in db.execute("SELECT * FROM runs ORDER BY created DESC, id DESC")]

    def find_run(self, name: str | None = None) -> RunRow:
        """A run by id or the beginning of one; without a name the latest interrupted or failed.

        Raises:
            StoreError: if there is none, or several begin so.
        """
        rows = self.runs()
        if name is None:
            waiting = [r for r in rows if r.state in ("interrupted", "failed")]
            if not waiting:
                raise StoreError(f"store {self.root}", "an interrupted run", "none", "scellis runs")
            return waiting[0]
        found = [r for r in rows if r.id == name] or [r for r in rows if name and r.id.startswith(name)]
        if len(found) != 1:
            got = "several: " + ", ".join(r.id for r in found) if found else "none"
            raise StoreError(f"run {name}", "one run that begins so", got, nearest(name, [r.id for r in rows]))
        return found[0]

    def log(self, run: str, rows: Iterable[tuple[int, int, str, float]], *, step: int, epoch: int, skipped: int) -> None:
        """Write metric rows (step, epoch, name, value) and how far the run is; a row that is there is replaced."""
        with self.database.open() as db:
            db.executemany("INSERT OR REPLACE INTO metrics VALUES (?,?,?,?,?)", [(run, s, e, n, v) for s, e, n, v in rows])
            db.execute(
                "UPDATE runs SET step = ?, epoch = ?, skipped = ?, updated = ? WHERE id = ?",
                (step, epoch, skipped, time.time(), run),
            )

    def metrics(self, run: str, name: str | None = None) -> list[tuple[int, int, str, float]]:
        """Rows (step, epoch, name, value) of a run in order of steps."""
        clause, values = ("", (run,)) if name is None else (" AND name = ?", (run, name))
        with self.database.open() as db:
            found = db.execute(f"SELECT * FROM metrics WHERE run = ?{clause} ORDER BY step, name", values)
            return [(int(r["step"]), int(r["epoch"]), str(r["name"]), float("nan") if r["value"] is None else float(r["value"])) for r in found]

    def set_dataset(self, run: str, digest: str, block: str, params: str, sizes: Mapping[str, int]) -> None:
        """Note which dataset a run reads."""
        with self.database.open() as db:
            db.execute("INSERT OR IGNORE INTO datasets VALUES (?,?,?,?)", (digest, block, params, json.dumps(dict(sizes))))
            db.execute("UPDATE runs SET dataset = ? WHERE id = ?", (digest, run))

    # -- checkpoints ----------------------------------------------------------------------------------------
    def write_checkpoint(
        self,
        run: str,
        weights: Mapping[str, NDArray[Any]],
        optimizer_state: Mapping[str, NDArray[Any]],
        *,
        keep: int,
        best: bool,
        **fields: Any,
    ) -> CheckpointRow:
        """Store tensors and bundle, then the row that makes it count; older ones beyond ``keep`` are let go.

        Args:
            run: whose it is.
            weights, optimizer_state: arrays by name.
            keep: newest checkpoints to keep; the best is kept besides.
            best: whether this is the best so far.
            fields: the other fields of :class:`Checkpoint`.
        """
        digests = [self.objects.put(tensors.encode(part)) for part in (weights, optimizer_state)]
        bundle = Checkpoint(digests[0], digests[1], tensors.weights_digest(weights), **fields)
        digest = self.objects.put(json.dumps(asdict(bundle), sort_keys=True, allow_nan=True).encode())
        with self.database.open() as db:
            db.execute("DELETE FROM checkpoints WHERE run = ? AND step >= ?", (run, bundle.step))
            if best:
                db.execute("UPDATE checkpoints SET best = 0 WHERE run = ?", (run,))
            row = db.execute(
                "INSERT INTO checkpoints (run, step, epoch, bundle, weights, objects, best, created)"
                " VALUES (?,?,?,?,?,?,?,?) RETURNING *",
                (run, bundle.step, bundle.epoch, digest, bundle.weights_digest, json.dumps(digests), int(best), time.time()),
            ).fetchone()
            db.execute(
                "DELETE FROM checkpoints WHERE run = ? AND best = 0 AND id NOT IN"
                " (SELECT id FROM checkpoints WHERE run = ? ORDER BY step DESC LIMIT ?)",
                (run, run, keep),
            )
        objects.at("row")
        self.collect()
        return _checkpoint(row)

    def checkpoints(self, run: str) -> list[CheckpointRow]:
        """A run's checkpoints, newest first."""
        with self.database.open() as db:
            rows = db.execute("SELECT * FROM checkpoints WHERE run = ? ORDER BY step DESC", (run,))
            return [_checkpoint(r) for r in rows]

    def checkpoint(self, run: str, *, best: bool = False) -> tuple[CheckpointRow, Checkpoint]:
        """The newest (or best) checkpoint of a run, its bundle verified.

        Raises:
            StoreError: if there is none, or an object of it is missing or damaged (named).
        """
        rows = [r for r in self.checkpoints(run) if r.best or not best]
        if not rows:
            raise StoreError(f"run {run}", "a checkpoint" + (" marked best" if best else ""), "none yet")
        data = json.loads(self.objects.get(rows[0].bundle))
        return rows[0], Checkpoint(**data)

    def tensors(self, digest: str) -> dict[str, NDArray[Any]]:
        """Tensors of a safetensors object, verified."""
        return tensors.decode(self.objects.get(digest), f"object {digest}")

    def collect(self, *, minutes: float = 60.0) -> list[str]:
        """Delete objects that no checkpoint refers to, and what killed writers left over an hour ago; returns digests.

        Objects younger than ``minutes`` stay while another process may be about to refer to them.
        """
        with self.database.open() as db:
            rows = db.execute("SELECT bundle, objects FROM checkpoints").fetchall()
            active = int(db.execute("SELECT COUNT(*) FROM runs WHERE state = 'running'").fetchone()[0])
        used = {str(r["bundle"]) for r in rows} | {d for r in rows for d in json.loads(r["objects"])}
        now = time.time()
        self.objects.clear_temporary(now - 60 * minutes)
        removed: list[str] = []
        for digest in self.objects.all():
            young = active > 1 and self.objects.path(digest).stat().st_mtime > now - 60 * minutes
            if digest not in used and not young and self.objects.path(digest).name not in _pinned(self.root):
                self.objects.remove(digest)
                removed.append(digest)
        return removed

    def pin(self, data: bytes) -> str:
        """Store an object that :meth:`collect` keeps (imported weights)."""
        digest = self.objects.put(data)
        folder = self.root / "pins"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.objects.path(digest).name).touch()
        return digest

    # -- stored models --------------------------------------------------------------------------------------
    def save_model(self, record: Record) -> tuple[str, int]:
        """Store a record as the next version of its ``model`` name; the same record again is the same version.

        Raises:
            StoreError: if the record names no model, or a version that exists with another content.
        """
        if record.model is None:
            raise StoreError(record.name, "a model name to save under", "none", "model: user/me/name")
        name = str(record.model._replace(version=None))
        with self.database.open() as db:
            rows = db.execute("SELECT version, digest FROM models WHERE name = ? ORDER BY version", (name,)).fetchall()
            for row in rows:
                if row["digest"] == record.digest:
                    return name, int(row["version"])
            version = int(rows[-1]["version"]) + 1 if rows else 1
            db.execute("INSERT INTO models VALUES (?,?,?,?,?)", (name, version, record.text(), record.digest, time.time()))
        return name, version

    def load_model(self, name: str, version: int | None = None) -> Record:
        """A stored model's record; without a version the newest.

        Raises:
            StoreError: if there is none of that name or version, naming what there is.
        """
        with self.database.open() as db:
            rows = db.execute("SELECT * FROM models ORDER BY name, version").fetchall()
        own = [r for r in rows if r["name"] == name and (version is None or r["version"] == version)]
        if not own:
            known = [f"{r['name']}@{r['version']}" for r in rows]
            shown = f"{name}@{version}" if version else name
            raise StoreError(f"model {shown}", f"a stored model in {self.root}", "none", nearest(shown, known))
        row = own[-1]
        return Record.parse(str(row["record"]), f"{row['name']}@{row['version']}")


def _pinned(root: Path) -> set[str]:
    folder = root / "pins"
    return set(os.listdir(folder)) if folder.exists() else set()


def _run(row: sqlite3.Row) -> RunRow:
    return RunRow(
        **{k: (row[k] if row[k] is not None else "") for k in RunRow.__dataclass_fields__ if k != "environment"},
        environment=json.loads(row["environment"]),
    )


def _checkpoint(row: sqlite3.Row) -> CheckpointRow:
    return CheckpointRow(row["id"], row["run"], row["step"], row["epoch"], row["bundle"], row["weights"], bool(row["best"]))
