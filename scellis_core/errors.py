"""The one error type a user meets, and its few kinds.

Every message has one grammar: ``<where>: expected <X>, got <Y>; try <Z>``. The four fields are data,
so that the command line, the Python API and an editor render the same error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ScellisError(Exception):
    """A fault that a user can act on.

    Args:
        where: the place, such as ``run.sml:8:14 optimizer.lr`` or ``plugin scellis-lion 0.1``.
        expected: what would have been right there.
        got: what was found.
        hint: what to try; empty where nothing useful can be said.
    """

    code = "error"

    def __init__(self, where: str, expected: str, got: str, hint: str = "") -> None:
        self.where = where
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        tail = f"; try {self.hint}" if self.hint else ""
        return f"{self.where}: expected {self.expected}, got {self.got}{tail}"


class RecordError(ScellisError):
    """The record (SML) is wrong: syntax, key, type, range, id or wiring."""

    code = "record"


class CatalogError(ScellisError):
    """A block cannot be found, loaded or trusted."""

    code = "catalog"


class IRError(ScellisError):
    """A graph is not legal IR: shapes, dtypes, order, text."""

    code = "ir"


class DataError(ScellisError):
    """A dataset, file or array does not hold what its block promises."""

    code = "data"


class StoreError(ScellisError):
    """An object, checkpoint or provenance record is missing or damaged."""

    code = "store"


class DeviceError(ScellisError):
    """The GPU, its driver or its limits do not allow what was asked."""

    code = "device"


class PlanError(ScellisError):
    """The run does not fit the device."""

    code = "plan"


class ContractError(ScellisError):
    """A block does not keep the contract of its family."""

    code = "contract"


def nearest(name: str, choices: Iterable[str], n: int = 3) -> str:
    """Return a hint naming the valid choices closest to a misspelt name.

    Args:
        name: what was written.
        choices: every valid name.
        n: how many to list at most.

    Returns:
        ``"did you mean 'lr'?"``-like text, or the first few choices where none is close.
    """
    known = sorted(set(choices))
    close = [c for c in known if name in (c, _initials(c)) or c == _initials(name)]
    close = [*close, *(c for c in difflib.get_close_matches(name, known, n=n, cutoff=0.5) if c not in close)][:n]
    if not close:
        tail = [c for c in known if c.rsplit("/", 1)[-1].split("@")[0] == name.rsplit("/", 1)[-1].split("@")[0]]
        close = tail[:n]
    if close:
        return "one of: " + ", ".join(close)
    if not known:
        return ""
    shown = ", ".join(known[: max(n, 8)])
    return f"one of: {shown}" + (", ..." if len(known) > max(n, 8) else "")


def _initials(name: str) -> str:
    """First letters of the words of a name: ``lr`` of ``learning_rate``; empty for a single word."""
    words = [word for word in name.replace("-", "_").split("_") if word]
    return "".join(word[0] for word in words) if len(words) > 1 else ""
