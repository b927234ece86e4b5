"""The provenance database: SQLite in WAL mode, one file a store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from scellis_core.errors import StoreError

VERSION = 1
"""Of the schema; kept in the file's ``user_version``."""
PATIENCE = 30.0
"""Seconds to wait for another process's transaction."""

_SCHEMA = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, model TEXT NOT NULL, record TEXT NOT NULL, record_digest TEXT NOT NULL, base TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'interrupted')), error TEXT,
  created REAL NOT NULL, updated REAL NOT NULL, process TEXT, command TEXT NOT NULL, device TEXT NOT NULL,
  tier TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL,
  skipped INTEGER NOT NULL DEFAULT 0);
CREATE TABLE environments (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, step INTEGER NOT NULL,
  created REAL NOT NULL, facts TEXT NOT NULL);
CREATE TABLE datasets (digest TEXT PRIMARY KEY, created REAL NOT NULL);
CREATE TABLE run_datasets (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, dataset TEXT NOT NULL REFERENCES datasets(digest),
  block TEXT NOT NULL, params TEXT NOT NULL, sizes TEXT NOT NULL, PRIMARY KEY (run, dataset));
CREATE TABLE checkpoints (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, step INTEGER NOT NULL,
  epoch INTEGER NOT NULL, bundle TEXT NOT NULL, weights TEXT NOT NULL, objects TEXT NOT NULL,
  best INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL, created REAL NOT NULL, UNIQUE (run, step));
CREATE TABLE metrics (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
  name TEXT NOT NULL, value REAL, PRIMARY KEY (run, name, step)) WITHOUT ROWID;
CREATE TABLE models (
  name TEXT NOT NULL, version INTEGER NOT NULL, record TEXT NOT NULL, digest TEXT NOT NULL, created REAL NOT NULL,
  PRIMARY KEY (name, version));
CREATE TABLE pins (digest TEXT PRIMARY KEY, note TEXT NOT NULL, created REAL NOT NULL);
"""


class Database:
    """A connection for each use, so that processes and threads may share the file.

    Args:
        path: the file; made at the first write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection, None, None]:
        """A connection inside one transaction that holds the write lock from its start.

        Raises:
            StoreError: if the file is no database of ours, of a newer version, or cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            got = error.strerror or str(error)
            raise StoreError(
                f"store {self.path.parent}", "a folder that can be made", got, "another --store"
            ) from error
        with self._open("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection, None, None]:
        """A connection that sees one state of the database; where there is no file, an empty one and none is made.

        Raises:
            StoreError: if the file is no database of ours, or of a newer version.
        """
        with self._open("BEGIN") as connection:
            yield connection

    @contextmanager
    def _open(self, begin: str) -> Generator[sqlite3.Connection, None, None]:
        stored = begin != "BEGIN" or self.path.exists()
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(self.path if stored else ":memory:", timeout=PATIENCE, isolation_level=None)
            connection.row_factory = sqlite3.Row
            self._prepare(connection)
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                expected, hint = f"the database free within {PATIENCE:g} s", "again when other processes are done"
            elif isinstance(error, sqlite3.OperationalError):
                expected = "a provenance database that can be read and written"
                hint = "room on the disk, its permissions, or another --store"
            else:
                expected, hint = "a provenance database", "another --store"
            raise StoreError(str(self.path), expected, str(error), hint) from error
        finally:
            if connection is not None:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._version(connection, "BEGIN"):
            _use_wal(connection)
            if not self._version(connection, "BEGIN IMMEDIATE", close=False):
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    def _version(self, connection: sqlite3.Connection, begin: str, *, close: bool = True) -> int:
        """The schema's version, 0 for an empty file, seen in a transaction that may stay open."""
        connection.execute(begin)
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise StoreError(
                str(self.path), f"a database of version {VERSION} or older", str(version), "a newer Scellis"
            )
        if not version and connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(str(self.path), "a provenance database", "another program's", "another --store")
        if close:
            connection.execute("COMMIT")
        return version


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, which SQLite refuses at once, without its usual waiting, while another process switches."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
