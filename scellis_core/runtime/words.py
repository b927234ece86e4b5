"""Drivers' error texts, cut to what a reader can use."""

from __future__ import annotations

import re

_NOISE = re.compile(r"^(Validation Error|Caused by:|In wgpu\w+.*|[│┌─=\s]*)$")
_LINES = 4
_WIDTH = 160


def driver_words(message: str) -> str:
    """The first telling lines of a driver's message, joined by `` | ``."""
    lines = [line.strip() for line in message.splitlines()]
    told = [line for line in lines if not _NOISE.match(line)] or [line for line in lines if line]
    return " | ".join(line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..." for line in told[:_LINES])
