"""Whether the process that runs a run is still there.

A running run holds a lock on a file of its own, which the system lets go when the process ends, however it ends: that
is right across containers and where process ids come round again. Where the file system knows no locks, the process
id and the times at which process and machine started decide.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path

from scellis_core.errors import StoreError

_BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class Claim:
    """A lock that is held until it is released, dropped, or the process ends."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle, self._path = handle, path

    def release(self, *, remove: bool = False) -> None:
        """Let go, once; ``remove`` deletes the file too."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            if remove:
                self._path.unlink(missing_ok=True)

    def __del__(self) -> None:
        self.release()


def claim(path: Path) -> Claim | None:
    """Lock a file, made if missing; None where another process (or another claim of this one) holds it.

    Where the file system has no locks the claim is given and holds nobody off.

    Raises:
        StoreError: if the file cannot be made.
    """
    try:
        handle = _opened(path)
    except OSError as error:
        got = error.strerror or str(error)
        raise StoreError(str(path), "a file that can be written", got, "another --store") from error
    try:
        _lock(handle)
    except OSError as error:
        if error.errno in _BUSY:
            os.close(handle)
            return None
    return Claim(handle, path)


def alive(path: Path, identity_text: str) -> bool:
    """Whether the process that claimed a file is still running.

    Args:
        path: the file of :func:`claim`.
        identity_text: what :func:`identity` gave there, for file systems without locks, or that are read only.
    """
    try:
        handle = _opened(path)
    except OSError:
        return _alive_by_id(identity_text)
    try:
        _lock(handle)
    except OSError as error:
        return error.errno in _BUSY or _alive_by_id(identity_text)
    finally:
        os.close(handle)
    return False


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def identity() -> str:
    """This process, as text for the database: host, process id and when it started."""
    pid = os.getpid()
    return json.dumps({"host": socket.gethostname(), "pid": pid, "started": _started(pid)})


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _started(pid: int) -> str:
    """A text that differs when the id is used again; empty where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return f"{boot}:{fields[19]}"


def _alive_by_id(text: str) -> bool:
    """Whether the process of an :func:`identity` runs; on another host, and on Windows, it is taken to."""
    try:
        known = json.loads(text)
        pid = int(known["pid"])
    except (ValueError, KeyError, TypeError):
        return False
    if known.get("host") != socket.gethostname() or sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except ProcessLookupError:
        return False
    except OSError:
        return _started(pid) == known.get("started", "")
    return fields[0] != "Z" and _started(pid) == known.get("started", "")
