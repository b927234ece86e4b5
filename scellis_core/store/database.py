"""The provenance database: SQLite in WAL mode, one file a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scellis_core.errors import StoreError

VERSION = 1

_SCHEMA = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, model TEXT, record TEXT NOT NULL, record_digest TEXT NOT NULL, base TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'interrupted')), error TEXT,
  created REAL NOT NULL, updated REAL NOT NULL, process TEXT, device TEXT, tier TEXT, environment TEXT NOT NULL,
  dataset TEXT, epoch INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0);
CREATE TABLE datasets (digest TEXT PRIMARY KEY, block TEXT NOT NULL, params TEXT NOT NULL, sizes TEXT NOT NULL);
CREATE TABLE checkpoints (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, step INTEGER NOT NULL,
  epoch INTEGER NOT NULL, bundle TEXT NOT NULL, weights TEXT NOT NULL, objects TEXT NOT NULL, best INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL);
CREATE INDEX checkpoints_by_run ON checkpoints(run, step);
CREATE TABLE metrics (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
  name TEXT NOT NULL, value REAL, PRIMARY KEY (run, name, step)) WITHOUT ROWID;
CREATE TABLE models (name TEXT NOT NULL, version INTEGER NOT NULL, record TEXT NOT NULL, digest TEXT NOT NULL,
  created REAL NOT NULL, PRIMARY KEY (name, version));
"""


class Database:
    """A connection for each use, so that processes and threads may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction; made on first use.

        Raises:
            StoreError: if the file is no database of ours, or of a newer version.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=30.0)
        connection.row_factory = sqlite3.Row
        try:
            self._prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.commit()
        except sqlite3.DatabaseError as error:
            connection.rollback()
            raise StoreError(str(self.path), "a provenance database", str(error)) from error
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.isolation_level = None
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise StoreError(str(self.path), f"a database of version {VERSION} or older", str(version), "a newer Scellis")
        connection.execute("PRAGMA foreign_keys = ON")
        if version == 0:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            if int(connection.execute("PRAGMA user_version").fetchone()[0]) == 0:
                for statement in _SCHEMA.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
