"""What data blocks share: finding files, splitting examples, and datasets whose arrays fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scellis_core.blocks.contracts import DataContext, DataSpec
from scellis_core.errors import DataError

if TYPE_CHECKING:
    import numpy as np


def data_path(ctx: DataContext, path: str, kind: Literal["file", "folder"] = "file") -> Path:
    """A file or folder that the record names; relative paths start at the record's folder.

    Raises:
        DataError: if it is not there, or not of that kind.
    """
    full = ctx.base / path
    if full.is_dir() if kind == "folder" else full.is_file():
        return full
    found = f"a {'folder' if full.is_dir() else 'file'}" if full.exists() else "nothing there"
    beside = [p.name for p in full.parent.iterdir() if p.is_dir() == (kind == "folder")] if full.parent.is_dir() else []
    close = [str(Path(path).with_name(name)) for name in get_close_matches(full.name, beside, 3, 0.6)]
    hint = f"one of: {', '.join(close)}" if close else f"a path relative to {ctx.base}, or a full one"
    raise DataError(f"{ctx.where}.path", f"a {kind} at {full}", found, hint)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_problem(split: Mapping[str, float]) -> str | None:
    """What is wrong with a ``split`` parameter, for :meth:`BlockParams.problem`; None where nothing is."""
    if "train" in split:
        return "split must not name train: it is what the others leave"
    if any(not 0.0 < share < 1.0 for share in split.values()) or sum(split.values()) >= 1.0:
        return f"split must hold shares between 0 and 1 that sum to less than 1, not {dict(split)}"
    return None


def split_sizes(total: int, split: Mapping[str, float], where: str = "data.split") -> dict[str, int]:
    """Elements in each split: ``train`` first, then each named one, rounded to the nearest (halves to even).

    Raises:
        DataError: if a split would be empty.
    """
    sizes = {name: round(total * share) for name, share in split.items()}
    sizes = {"train": total - sum(sizes.values()), **sizes}
    for name, size in sizes.items():
        if size < 1:
            raise DataError(
                where, f"at least one example in {name}", f"{size} of {total}", "another share, or more data"
            )
    return sizes


def split_rows(total: int, split: Mapping[str, float], seed: int, where: str = "data.split") -> dict[str, np.ndarray]:
    """Examples of each split, ascending, drawn without replacement by the ``split`` stream of ``seed``.

    The draw depends on ``seed`` and ``total`` alone, so that a run's own seed never moves an example from one
    split to another.

    Raises:
        DataError: if a split would be empty.
    """
    import numpy as np

    from scellis_core import rng

    order = np.asarray(rng.permutation(seed, "split", 0, total), dtype=np.int64)
    rows: dict[str, np.ndarray] = {}
    start = 0
    for name, size in split_sizes(total, split, where).items():
        rows[name] = np.sort(order[start : start + size])
        start += size
    return rows


@dataclass(frozen=True)
class ArraySet:
    """A dataset whose examples are rows of arrays.

    Attributes:
        spec: what one example holds.
        digest: SHA-256 of the content it was read from.
        arrays: inputs and targets by name; axis 0 counts examples.
        rows: examples of each split.
    """

    spec: DataSpec
    digest: str
    arrays: Mapping[str, np.ndarray]
    rows: Mapping[str, np.ndarray]

    def batch(self, split: str, indices: np.ndarray) -> dict[str, np.ndarray]:
        """The examples numbered ``indices`` within a split."""
        rows = self.rows[split][indices]
        return {name: array[rows] for name, array in self.arrays.items()}

    def encode(self, text: str) -> list[int]:
        """Refuses: there is no text here.

        Raises:
            DataError: always.
        """
        raise DataError("data", "a dataset of text", "one of arrays", "data/text")

    def decode(self, ids: Sequence[int]) -> str:
        """Refuses: there is no text here.

        Raises:
            DataError: always.
        """
        raise DataError("data", "a dataset of text", "one of arrays", "data/text")
