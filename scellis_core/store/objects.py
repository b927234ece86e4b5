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
    """Called between the steps of writing (``write``, ``fsync``, ``rename``, ``row``); tests replace it to stop there."""


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

    def put(self, data: bytes | Iterable[bytes]) -> str:
        """Store bytes (or chunks of them) and return the digest; an object that is there stays as it is.

        Raises:
            StoreError: if the disk refuses; nothing half-written is left.
        """
        folder = self.root / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        temporary = Path(name)
        try:
            hasher = hashlib.sha256()
            with os.fdopen(handle, "wb") as file:
                for chunk in (data,) if isinstance(data, bytes) else data:
                    hasher.update(chunk)
                    file.write(chunk)
                at("write")
                file.flush()
                os.fsync(file.fileno())
            at("fsync")
            digest = "sha256:" + hasher.hexdigest()
            target = self.path(digest)
            if target.exists() and self._intact(target, digest):
                temporary.unlink()
                return digest
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, target)
            _sync_folder(target.parent)
            at("rename")
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(f"store {self.root}", "a disk that takes the object", str(error), "another --store") from error
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
            raise StoreError(f"object {digest}", f"a file {path}", "none", "another checkpoint of the run") from None
        found = "sha256:" + hashlib.sha256(data).hexdigest()
        if found != digest:
            raise StoreError(f"object {digest}", "bytes of that digest", f"{len(data)} bytes of {found}", "another checkpoint of the run")
        return data

    def verify(self, digest: str) -> None:
        """Raise StoreError unless the object is there and intact, without holding it in memory."""
        path = self.path(digest)
        if not path.is_file() or not self._intact(path, digest):
            self.get(digest)

    @staticmethod
    def _intact(path: Path, digest: str) -> bool:
        hasher = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                hasher.update(chunk)
        return "sha256:" + hasher.hexdigest() == digest

    def all(self) -> Iterator[str]:
        """Digests of every object."""
        for path in sorted((self.root / "sha256").glob("??/*")):
            yield f"sha256:{path.parent.name}{path.name}"

    def remove(self, digest: str) -> int:
        """Delete an object; returns its size in bytes."""
        path = self.path(digest)
        size = path.stat().st_size
        path.unlink()
        return size

    def clear_temporary(self, older_than: float) -> int:
        """Delete what killed writers left (last changed before that time); returns how many files."""
        stale = [p for p in (self.root / "tmp").glob("*") if p.stat().st_mtime < older_than]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
