"""Runs, checkpoints, metrics and stored models over objects and the provenance database."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scellis_core.errors import StoreError, nearest
from scellis_core.record import Record
from scellis_core.store import objects, process, tensors
from scellis_core.store.database import Database
from scellis_core.store.objects import Objects
from scellis_core.store.rows import Checkpoint, CheckpointRow, RunRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

MetricRow = tuple[int, int, str, float]
"""Step, epoch, name, value."""

_RUNS = """
SELECT runs.*,
  (SELECT facts FROM environments WHERE run = runs.id ORDER BY id DESC LIMIT 1) AS environment,
  (SELECT dataset FROM run_datasets WHERE run = runs.id ORDER BY rowid DESC LIMIT 1) AS dataset
FROM runs ORDER BY created DESC, id DESC
"""
_OBJECT = re.compile(r"sha256:[0-9a-f]{64}")


class Store:
    """A folder of objects and their provenance. Reading makes no files; any number of processes may use it.

    Args:
        root: ``.scellis`` beside the record, or where ``--store`` says.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.objects = Objects(self.root / "objects")
        self.database = Database(self.root / "provenance.sqlite")
        self._claims: dict[str, process.Claim] = {}

    # -- runs -----------------------------------------------------------------------------------------------
    def create_run(
        self,
        record: Record,
        *,
        device: str,
        environment: Mapping[str, Any],
        total: int,
        base: Path,
        command: str = "",
    ) -> str:
        """Start a run in state ``running``; it stays so while this store is held and the process lives.

        Args:
            record: kept as text and digest.
            device: adapter's name.
            environment: device, driver, versions.
            total: steps that are planned.
            base: folder that the record's paths start from.
            command: what started it.

        Returns:
            Its id: time and random digits, so ids sort by time.

        Raises:
            StoreError: if the store cannot be written.
        """
        now = time.time()
        run = time.strftime("%Y%m%d-%H%M%S-", time.gmtime(now)) + secrets.token_hex(3)
        values: dict[str, Any] = {
            "id": run,
            "model": str(record.model or ""),
            "record": record.text(),
            "record_digest": record.digest,
            "base": str(base.resolve()),
            "state": "running",
            "created": now,
            "updated": now,
            "process": process.identity(),
            "command": command,
            "device": device,
            "tier": record.spec.determinism_tier or "",
            "total": total,
        }
        marks = ",".join(f":{name}" for name in values)
        with self.database.write() as db:
            claim = process.claim(self._claim_path(run))
            db.execute(f"INSERT INTO runs ({','.join(values)}) VALUES ({marks})", values)
            _note_environment(db, run, 0, environment)
        if claim is not None:
            self._claims[run] = claim
        return run

    def hold(self, run: str) -> None:
        """Keep every other process from going on with a run, from before its checkpoint is read.

        Raises:
            StoreError: if there is no such run, a process that is alive holds it, or it has finished.
        """
        with self.database.write() as db:
            self._hold(db, run)

    def _hold(self, db: sqlite3.Connection, run: str) -> None:
        row = db.execute("SELECT state, process FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise StoreError(f"run {run}", f"a run of {self.root}", "none", "scellis runs")
        if row["state"] == "finished":
            raise StoreError(f"run {run}", "an interrupted run", "one that has finished", "scellis runs")
        running = row["state"] == "running" and self._runs(run, row["process"])
        if run in self._claims and not running:
            return
        claim = None if running else process.claim(self._claim_path(run))
        if claim is None:
            raise StoreError(f"run {run}", "a run that is not running", "running in another process")
        db.execute("UPDATE runs SET state = 'interrupted', process = NULL WHERE id = ? AND state = 'running'", (run,))
        self._claims[run] = claim

    def release(self, run: str) -> None:
        """Let go of a run that is held, where it is; one that still counts as running is then interrupted."""
        if run in self._claims:
            with self.database.write():
                self._claims.pop(run).release(remove=True)

    def resume_run(
        self,
        run: str,
        step: int,
        device: str,
        environment: Mapping[str, Any] | None = None,
        *,
        epoch: int = 0,
        skipped: int = 0,
    ) -> None:
        """Mark a run ``running`` again from a step; what was logged or saved after it is dropped.

        Args:
            run: its id; held from now on if it is not yet.
            step: of the checkpoint that it goes on from, or 0.
            device: adapter's name.
            environment: device, driver, versions now.
            epoch: epochs done by that step.
            skipped: updates skipped by that step.

        Raises:
            StoreError: if there is no such run, a process that is alive is running it, or it has finished.
        """
        with self.database.write() as db:
            self._hold(db, run)
            db.execute("DELETE FROM metrics WHERE run = ? AND step > ?", (run, step))
            db.execute("DELETE FROM checkpoints WHERE run = ? AND step > ?", (run, step))
            db.execute(
                "UPDATE runs SET state = 'running', error = NULL, process = ?, device = ?, updated = ?, epoch = ?,"
                " step = ?, skipped = ? WHERE id = ?",
                (process.identity(), device, time.time(), epoch, step, skipped, run),
            )
            if environment is not None:
                _note_environment(db, run, step, environment)

    def end_run(self, run: str, state: str, step: int, skipped: int, error: str = "") -> None:
        """Record how a run ended.

        Args:
            run: its id.
            state: ``finished``, ``interrupted`` or ``failed``.
            step: updates done.
            skipped: updates skipped.
            error: why it failed.

        Raises:
            StoreError: if there is no such run.
        """
        with self.database.write() as db:
            changed = db.execute(
                "UPDATE runs SET state = ?, error = ?, step = ?, skipped = ?, updated = ?, process = NULL WHERE id = ?",
                (state, error or None, step, skipped, time.time(), run),
            )
            self._require(changed, run)
            if claim := self._claims.pop(run, None):
                claim.release(remove=True)

    def reconcile(self) -> list[str]:
        """Runs whose process is gone become ``interrupted``; returns their ids."""
        running = "SELECT id, process FROM runs WHERE state = 'running'"
        with self.database.read() as db:
            if not db.execute(running).fetchall():
                return []
        with self.database.write() as db:
            gone = [str(r["id"]) for r in db.execute(running).fetchall() if not self._runs(r["id"], r["process"])]
            for run in gone:
                db.execute("UPDATE runs SET state = 'interrupted', process = NULL WHERE id = ?", (run,))
                self._claim_path(run).unlink(missing_ok=True)
        return gone

    def runs(self) -> list[RunRow]:
        """Every run, newest first, after :meth:`reconcile`."""
        self.reconcile()
        with self.database.read() as db:
            return [_run(row) for row in db.execute(_RUNS)]

    def find_run(self, name: str | None = None) -> RunRow:
        """A run by id or the beginning of one; without a name the latest interrupted.

        Raises:
            StoreError: if there is none, or several begin so.
        """
        rows = self.runs()
        if name is None:
            for row in rows:
                if row.state == "interrupted":
                    return row
            failed = [r.id for r in rows if r.state == "failed"]
            hint = f"scellis resume {failed[0]}" if failed else f"scellis runs --store {self.root}"
            running = [r.id for r in rows if r.state == "running"]
            got = f"none; {', '.join(running)} is running" if running else "none"
            raise StoreError(f"store {self.root}", "an interrupted run", got, hint)
        found = [r for r in rows if r.id == name] or [r for r in rows if name and r.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(r.id for r in found[:8]) + (", ..." if len(found) > 8 else "")
            raise StoreError(f"run {name}", "one run that begins so", f"{len(found)}: {several}", "more of the id")
        raise StoreError(
            f"run {name or repr(name)}",
            "a run that begins so",
            "none",
            nearest(name, [r.id for r in rows]) or "scellis train",
        )

    def environments(self, run: str) -> list[tuple[int, Mapping[str, Any]]]:
        """Where a run ran: (step from which on, facts), in order."""
        with self.database.read() as db:
            rows = db.execute("SELECT step, facts FROM environments WHERE run = ? ORDER BY id", (run,))
            return [(int(r["step"]), json.loads(r["facts"])) for r in rows]

    # -- what runs leave ------------------------------------------------------------------------------------
    def log(self, run: str, rows: Iterable[MetricRow], *, step: int, epoch: int, skipped: int) -> None:
        """Write metric rows and how far the run is; a row of the same step and name is replaced.

        Args:
            run: its id.
            rows: step, epoch, name, value.
            step: updates done.
            epoch: epochs begun, from 0.
            skipped: updates skipped so far.

        Raises:
            StoreError: if there is no such run.
        """
        with self.database.write() as db:
            changed = db.execute(
                "UPDATE runs SET step = ?, epoch = ?, skipped = ?, updated = ? WHERE id = ?",
                (step, epoch, skipped, time.time(), run),
            )
            self._require(changed, run)
            values = [(run, s, e, n, v) for s, e, n, v in rows]
            db.executemany("INSERT OR REPLACE INTO metrics (run, step, epoch, name, value) VALUES (?,?,?,?,?)", values)

    def metrics(self, run: str, name: str | None = None) -> list[MetricRow]:
        """Rows of a run, of one metric or all, in order of steps."""
        clause, values = ("", (run,)) if name is None else (" AND name = ?", (run, name))
        with self.database.read() as db:
            rows = db.execute(f"SELECT * FROM metrics WHERE run = ?{clause} ORDER BY step, name", values)
            return [(int(r["step"]), int(r["epoch"]), str(r["name"]), _number(r["value"])) for r in rows]

    def newest_metrics(self, run: str) -> dict[str, float]:
        """The newest value of each metric of a run."""
        with self.database.read() as db:
            rows = db.execute("SELECT name, value, MAX(step) FROM metrics WHERE run = ? GROUP BY name", (run,))
            return {str(r["name"]): _number(r["value"]) for r in rows}

    def set_dataset(self, run: str, digest: str, block: str, params: str, sizes: Mapping[str, int]) -> None:
        """Note which dataset a run reads.

        Args:
            run: its id.
            digest: of the content.
            block: that reads it.
            params: of the block, as JSON.
            sizes: examples of each split.

        Raises:
            StoreError: if there is no such run.
        """
        with self.database.write() as db:
            self._require(db.execute("UPDATE runs SET updated = ? WHERE id = ?", (time.time(), run)), run)
            db.execute("INSERT OR IGNORE INTO datasets VALUES (?,?)", (digest, time.time()))
            row = (run, digest, block, params, json.dumps(dict(sizes)))
            db.execute("INSERT OR REPLACE INTO run_datasets VALUES (?,?,?,?,?)", row)

    def datasets(self, run: str) -> list[dict[str, Any]]:
        """What :meth:`set_dataset` noted: ``digest``, ``block``, ``params`` and ``sizes`` of each."""
        with self.database.read() as db:
            rows = db.execute("SELECT * FROM run_datasets WHERE run = ? ORDER BY rowid", (run,))
            return [
                {
                    "digest": str(r["dataset"]),
                    "block": str(r["block"]),
                    "params": json.loads(r["params"]),
                    "sizes": json.loads(r["sizes"]),
                }
                for r in rows
            ]

    # -- checkpoints ----------------------------------------------------------------------------------------
    def write_checkpoint(
        self,
        run: str,
        weights: Mapping[str, NDArray[Any]],
        optimizer_state: Mapping[str, NDArray[Any]],
        *,
        keep: int,
        best: bool,
        rng_state: Mapping[str, Any],
        epoch: int,
        step: int,
        cursor: int,
        record: str,
        metrics: Mapping[str, float],
        scheduler: Mapping[str, float] | None = None,
        scaler: Mapping[str, float] | None = None,
        loop: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> CheckpointRow:
        """Store tensors and bundle, then the row that makes it count; older ones beyond ``keep`` are let go.

        A process that is killed at any point of it leaves the run with its checkpoint before, or with this one.

        Args:
            run: whose it is.
            weights: arrays by name.
            optimizer_state: arrays by name.
            keep: newest checkpoints to keep; the best is kept besides.
            best: whether this is the best so far.
            rng_state: ``{"algorithm": "philox4x32", "counter": n}``.
            epoch: epochs done.
            step: updates done.
            cursor: updates within the epoch.
            record: digest of the record.
            metrics: newest value of each.
            scheduler: its state.
            scaler: of the loss scale.
            loop: best metrics, stop rule and counts.
            reason: why it is written.

        Raises:
            StoreError: if there is no such run, or disk or database refuse.
        """
        digests = [self.objects.put(tensors.chunks(part)) for part in (weights, optimizer_state)]
        bundle = Checkpoint(
            weights=digests[0],
            optimizer_state=digests[1],
            weights_digest=tensors.weights_digest(weights),
            rng_state=dict(rng_state),
            epoch=epoch,
            step=step,
            cursor=cursor,
            record=record,
            metrics=dict(metrics),
            scheduler=dict(scheduler or {}),
            scaler=dict(scaler or {}),
            loop=dict(loop or {}),
        )
        digest = self.objects.put(bundle.to_bytes())
        with self.database.write() as db:
            self._require(db.execute("UPDATE runs SET updated = ? WHERE id = ?", (time.time(), run)), run)
            # Another process may have collected an object that had no row yet; under the write lock none can.
            for name, part in zip(digests, (weights, optimizer_state), strict=True):
                if name not in self.objects:
                    self.objects.put(tensors.chunks(part))
            if digest not in self.objects:
                self.objects.put(bundle.to_bytes())
            same = db.execute(
                "SELECT weights, best FROM checkpoints WHERE run = ? AND step = ?", (run, step)
            ).fetchone()
            best = best or bool(same and same["best"] and same["weights"] == bundle.weights_digest)
            db.execute("DELETE FROM checkpoints WHERE run = ? AND step >= ?", (run, step))
            if best:
                db.execute("UPDATE checkpoints SET best = 0 WHERE run = ?", (run,))
            row = db.execute(
                "INSERT INTO checkpoints (run, step, epoch, bundle, weights, objects, best, reason, created)"
                " VALUES (?,?,?,?,?,?,?,?,?) RETURNING *",
                (
                    *(run, step, epoch, digest, bundle.weights_digest, json.dumps(digests)),
                    *(int(best), reason, time.time()),
                ),
            ).fetchone()
            db.execute(
                "DELETE FROM checkpoints WHERE run = ? AND best = 0 AND id NOT IN"
                " (SELECT id FROM checkpoints WHERE run = ? ORDER BY step DESC LIMIT ?)",
                (run, run, max(keep, 1)),
            )
        objects.at("row")
        self.collect()
        return _checkpoint(row)

    def checkpoints(self, run: str) -> list[CheckpointRow]:
        """A run's checkpoints, newest first."""
        with self.database.read() as db:
            rows = db.execute("SELECT * FROM checkpoints WHERE run = ? ORDER BY step DESC", (run,))
            return [_checkpoint(r) for r in rows]

    def checkpoint(self, run: str, *, best: bool = False, step: int | None = None) -> tuple[CheckpointRow, Checkpoint]:
        """The newest (or best, or a step's) checkpoint of a run, its bundle verified.

        Raises:
            StoreError: if there is none, or an object of it is missing or damaged (named).
        """
        kept = self.checkpoints(run)
        rows = [r for r in kept if (r.best or not best) and step in (None, r.step)]
        if kept and step is not None and not rows:
            raise StoreError(f"run {run}", f"a checkpoint of step {step}", "none", f"one of {_steps(kept)}")
        if not rows:
            expected = "a checkpoint marked best" if best else "a checkpoint"
            hint = "checkpoint: { best: { metric: val_loss } } in the record" if best else f"scellis resume {run}"
            raise StoreError(f"run {run}", expected, "none yet", hint)
        with self.reading(run, rows[0]):
            return rows[0], Checkpoint.from_bytes(self.objects.get(rows[0].bundle), f"object {rows[0].bundle}")

    @contextmanager
    def reading(self, run: str, row: CheckpointRow) -> Iterator[None]:
        """Where what is read of a checkpoint is damaged, the error names the run's other checkpoints."""
        try:
            yield
        except StoreError as error:
            others = [r for r in self.checkpoints(run) if r.step != row.step]
            hint = f"--step of another checkpoint ({_steps(others)})" if others else error.hint
            where = f"checkpoint at step {row.step}: {error.where}"
            raise StoreError(where, error.expected, error.got, hint) from error

    def tensors(self, digest: str) -> dict[str, NDArray[Any]]:
        """Tensors of a safetensors object, verified.

        Raises:
            StoreError: if the object is missing, damaged, or holds something else.
        """
        return tensors.decode(self.objects.get(digest), f"object {digest}")

    # -- objects --------------------------------------------------------------------------------------------
    def collect(self, *, minutes: float = 60.0, dry_run: bool = False) -> list[str]:
        """Delete objects that no checkpoint, pin or record refers to, and old files of killed writers.

        Args:
            minutes: age from which a temporary file counts as left behind.
            dry_run: delete nothing.

        Returns:
            Digests of the objects that went, or would go.
        """
        with self.database.write() as db:
            used = _referenced(db)
            loose = [digest for digest in self.objects.all() if digest not in used]
            if not dry_run:
                for digest in loose:
                    self.objects.remove(digest)
                self.objects.clear_temporary(time.time() - 60 * minutes)
        return loose

    def pin(self, data: bytes, note: str = "") -> str:
        """Store an object that :meth:`collect` keeps, such as imported weights; returns its digest."""
        digest = self.objects.put(data)
        with self.database.write() as db:
            if digest not in self.objects:
                self.objects.put(data)
            db.execute("INSERT OR IGNORE INTO pins VALUES (?,?,?)", (digest, note, time.time()))
        return digest

    # -- stored models --------------------------------------------------------------------------------------
    def save_model(self, record: Record) -> tuple[str, int]:
        """Store a record as the next version of its ``model`` name; the same content again is the same version.

        A record that names a version must be that version, or the next.

        Returns:
            Name and version.

        Raises:
            StoreError: if the record names no model, has no architecture, or names a version with other content.
        """
        model = record.model
        where = record.where("model")
        if model is None:
            raise StoreError(where, "a model name to save under", "none", "model: user/me/name")
        name = str(model._replace(version=None))
        if record.stored is not None:
            raise StoreError(
                where, "an architecture to save", f"only the name of {model}", "scellis save of a whole record"
            )
        digest = record.with_override("model", name).digest
        with self.database.write() as db:
            rows = db.execute("SELECT version, digest FROM models WHERE name = ? ORDER BY version", (name,)).fetchall()
            known = {int(r["version"]): str(r["digest"]) for r in rows}
            for version, other in known.items():
                if other == digest and model.version in (None, version):
                    return name, version
            version = max(known, default=0) + 1
            if model.version not in (None, version):
                got = "another content" if model.version in known else "no such version yet"
                raise StoreError(
                    where, f"version {version}, the next of {name}", f"{model.version}: {got}", f"model: {name}"
                )
            row = (name, version, record.text(), digest, time.time())
            db.execute("INSERT INTO models VALUES (?,?,?,?,?)", row)
        return name, version

    def load_model(self, name: str, version: int | None = None) -> Record:
        """A stored model's record; without a version the newest.

        Raises:
            StoreError: if there is none of that name or version, naming what there is.
        """
        with self.database.read() as db:
            rows = db.execute("SELECT * FROM models ORDER BY name, version").fetchall()
        own = [r for r in rows if r["name"] == name and (version is None or r["version"] == version)]
        if not own:
            known = [f"{r['name']}@{r['version']}" for r in rows]
            shown = name if version is None else f"{name}@{version}"
            raise StoreError(f"model {shown}", f"a stored model in {self.root}", "none", nearest(shown, known))
        row = own[-1]
        return Record.parse(str(row["record"]), f"{row['name']}@{row['version']}")

    def models(self) -> list[tuple[str, int]]:
        """Name and version of every stored model, in order."""
        with self.database.read() as db:
            rows = db.execute("SELECT name, version FROM models ORDER BY name, version")
            return [(str(r["name"]), int(r["version"])) for r in rows]

    # -- helpers --------------------------------------------------------------------------------------------
    def _claim_path(self, run: str) -> Path:
        return self.root / "running" / run

    def _runs(self, run: str, identity: str | None) -> bool:
        return run in self._claims or process.alive(self._claim_path(run), identity or "")

    def _require(self, changed: sqlite3.Cursor, run: str) -> None:
        if changed.rowcount != 1:
            raise StoreError(f"run {run}", f"a run of {self.root}", "none", "scellis runs")


def _note_environment(db: sqlite3.Connection, run: str, step: int, facts: Mapping[str, Any]) -> None:
    db.execute(
        "INSERT INTO environments (run, step, created, facts) VALUES (?,?,?,?)",
        (run, step, time.time(), json.dumps(facts)),
    )


def _referenced(db: sqlite3.Connection) -> set[str]:
    """Objects that checkpoints, pins, and the records of runs and stored models name."""
    used = {str(r["digest"]) for r in db.execute("SELECT digest FROM pins")}
    for row in db.execute("SELECT bundle, objects FROM checkpoints"):
        used |= {str(row["bundle"]), *json.loads(row["objects"])}
    for table in ("runs", "models"):
        for row in db.execute(f"SELECT record FROM {table} WHERE record LIKE '%sha256:%'"):
            used |= set(_OBJECT.findall(row["record"]))
    return used


def _number(value: Any) -> float:
    """SQLite keeps NaN as NULL."""
    return float("nan") if value is None else float(value)


def _run(row: sqlite3.Row) -> RunRow:
    values: dict[str, Any] = {n: "" if row[n] is None else row[n] for n in RunRow.__dataclass_fields__}
    values["environment"] = json.loads(row["environment"] or "{}")
    return RunRow(**values)


def _steps(rows: Iterable[CheckpointRow]) -> str:
    return ", ".join(str(step) for step in sorted({r.step for r in rows}, reverse=True))


def _checkpoint(row: sqlite3.Row) -> CheckpointRow:
    values: dict[str, Any] = {n: row[n] for n in CheckpointRow.__dataclass_fields__}
    values["best"], values["objects"] = bool(row["best"]), tuple(json.loads(row["objects"]))
    return CheckpointRow(**values)
