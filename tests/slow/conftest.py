"""Slow tests, run by ``tox -e fuzz`` and ``tox -e soak``; they borrow the runners of the other folders."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / "device"), str(TESTS / "golden"), str(TESTS / "null")]
