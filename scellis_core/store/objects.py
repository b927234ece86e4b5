"""Content-addressed objects: written to a temporary name, fsynced, renamed, verified on read."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from scellis_core.errors import StoreError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CHUNK = 1 << 20


def at(point: str) -> None:
    """Called after each step of writing: ``write``, ``fsync``, ``rename``, ``row``; tests replace it to stop there."""


class Objects:
    """A folder of objects named by the SHA-256 of their bytes.

    Args:
        root: ``objects`` folder; made at the first write.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        """Where an object lies.

        Raises:
            StoreError: if the digest is not ``sha256:`` and 64 hexadecimal digits.
        """
        if not _DIGEST.match(digest):
            raise StoreError(f"object {digest[:80]}", "sha256: and 64 hexadecimal digits", "another name")
        name = digest.removeprefix("sha256:")
        return self.root / "sha256" / name[:2] / name[2:]

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def put(self, data: bytes | Iterable[bytes | memoryview]) -> str:
        """Store bytes (or chunks of them) and return the digest; an intact object stays as it is.

        Raises:
            StoreError: if the disk refuses; nothing half-written is left.
        """
        temporary: Path | None = None
        try:
            folder = _make(self.root / "tmp")
            handle, name = tempfile.mkstemp(dir=folder)
            temporary = Path(name)
            hasher = hashlib.sha256()
            with os.fdopen(handle, "wb") as file:
                for chunk in (data,) if isinstance(data, bytes) else data:
                    hasher.update(chunk)
                    file.write(chunk)
                file.flush()
                at("write")
                os.fsync(file.fileno())
            at("fsync")
            digest = "sha256:" + hasher.hexdigest()
            target = self.path(digest)
            if not self._intact(target, digest):
                _make(target.parent)
                os.replace(temporary, target)
                _sync(target.parent)
                at("rename")
        except OSError as error:
            got, hint = error.strerror or str(error), "room on the disk, or another --store"
            raise StoreError(f"store {self.root}", "a disk that takes the object", got, hint) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        return digest

    def get(self, digest: str) -> bytes:
        """An object's bytes, verified.

        Raises:
            StoreError: if it is missing, or its bytes are not those it is named after.
        """
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise _bad(digest, f"a file {path}", "none") from None
        except OSError as error:
            raise _bad(digest, f"a readable file {path}", error.strerror or str(error)) from error
        found = "sha256:" + hashlib.sha256(data).hexdigest()
        if found != digest:
            raise _bad(digest, f"bytes of that digest in {path}", f"{len(data)} bytes of {found}")
        return data

    def verify(self, digest: str) -> None:
        """Read an object through without holding it in memory.

        Raises:
            StoreError: if it is missing or damaged.
        """
        if not self._intact(self.path(digest), digest):
            self.get(digest)

    @staticmethod
    def _intact(path: Path, digest: str) -> bool:
        hasher = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    hasher.update(chunk)
        except OSError:
            return False
        return "sha256:" + hasher.hexdigest() == digest

    def all(self) -> Iterator[str]:
        """Digests of every object, in order."""
        for path in sorted((self.root / "sha256").glob("??/*")):
            digest = f"sha256:{path.parent.name}{path.name}"
            if _DIGEST.match(digest):
                yield digest

    def remove(self, digest: str) -> None:
        """Delete an object, where it is there.

        Raises:
            StoreError: if the file cannot be deleted.
        """
        try:
            self.path(digest).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"object {digest}", "a file that can be deleted", error.strerror or str(error)) from error

    def clear_temporary(self, older_than: float) -> int:
        """Delete what killed writers left (last changed at that time or before); returns how many files."""
        cleared = 0
        for path in (self.root / "tmp").glob("*"):
            try:
                if path.stat().st_mtime <= older_than:
                    path.unlink()
                    cleared += 1
            except FileNotFoundError:
                continue
        return cleared


def _bad(digest: str, expected: str, got: str) -> StoreError:
    return StoreError(f"object {digest}", expected, got, "another checkpoint, or the file again from a copy")


def _make(folder: Path) -> Path:
    """Make a folder and what lies above it, each entry on the disk before the next."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)
    return folder


def _sync(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
