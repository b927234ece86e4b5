"""Whether the process that a run belongs to is still there: its id, and when it and the machine started."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path


def _started(pid: int) -> str:
    """A text that differs when the id is used again; empty where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return f"{boot}:{fields[19]}"


def identity() -> str:
    """This process, as text for the database."""
    pid = os.getpid()
    return json.dumps({"host": socket.gethostname(), "pid": pid, "started": _started(pid)})


def alive(text: str) -> bool:
    """Whether the process of an :func:`identity` is still running (on another host: taken to be)."""
    try:
        known = json.loads(text)
        pid = int(known["pid"])
    except (ValueError, KeyError, TypeError):
        return False
    if known.get("host") != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state = Path(f"/proc/{pid}/stat")
    if state.exists() and state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
        return False
    return _started(pid) == known.get("started", "")
