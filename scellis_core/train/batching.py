"""Which examples each micro step takes: epochs, tails, accumulation groups; all pure functions of the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scellis_core import rng

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Schedule:
    """The arithmetic of a run.

    An epoch has ``ceil(examples / batch)`` micro steps, the last perhaps smaller; every ``accumulation`` of them,
    and what remains at the epoch's end, make one update. Nothing is dropped, nothing crosses an epoch.

    Attributes:
        examples: in the training split.
        batch: examples a micro step.
        accumulation: micro steps an update.
        total: updates of the whole run.
    """

    examples: int
    batch: int
    accumulation: int
    total: int

    @classmethod
    def plan(cls, examples: int, batch: int, accumulation: int, epochs: int | None, steps: int | None) -> Schedule:
        """From a record: either ``epochs`` or ``steps`` (updates) is given."""
        epoch = cls(examples, batch, accumulation, 0)
        total = steps if steps is not None else (epochs or 0) * epoch.updates_per_epoch
        return cls(examples, batch, accumulation, total)

    @property
    def micros_per_epoch(self) -> int:
        """Micro steps of an epoch, the smaller last one included."""
        return -(-self.examples // self.batch)

    @property
    def updates_per_epoch(self) -> int:
        """Updates of an epoch, the last perhaps over fewer micro steps."""
        return -(-self.micros_per_epoch // self.accumulation)

    @property
    def epochs(self) -> int:
        """Epochs begun by the end of the run."""
        return -(-self.total // self.updates_per_epoch)

    def batch_sizes(self) -> list[int]:
        """The sizes that occur, largest first."""
        sizes = {min(self.batch, self.examples)}
        tail = self.examples % self.batch
        if tail:
            sizes.add(tail)
        return sorted(sizes, reverse=True)

    def position(self, update: int) -> tuple[int, int]:
        """(epoch, update within it) of the update numbered from 0."""
        return divmod(update, self.updates_per_epoch)

    def micros(self, update: int) -> range:
        """Micro steps, numbered within their epoch, of one update."""
        first = self.position(update)[1] * self.accumulation
        return range(first, min(first + self.accumulation, self.micros_per_epoch))

    def examples_of(self, update: int) -> int:
        """Examples that one update sees."""
        micros = self.micros(update)
        return min(micros.stop * self.batch, self.examples) - micros.start * self.batch

    def micros_before(self, update: int) -> int:
        """Micro steps of the whole run before an update: what the random counter has advanced by."""
        epoch, within = self.position(update)
        return epoch * self.micros_per_epoch + min(within * self.accumulation, self.micros_per_epoch)


def order(seed: int, epoch: int, examples: int) -> np.ndarray:
    """The examples' order in one epoch, from the ``shuffle`` stream: i64[examples].

    The counter of epoch ``e`` starts at ``e * ceil(examples / 2)`` blocks, since each index draws 64 bits.
    """
    return rng.permutation(seed, "shuffle", epoch * -(-examples // 2), examples)


def indices(schedule: Schedule, epoch_order: np.ndarray, micro: int) -> np.ndarray:
    """Examples of one micro step."""
    return epoch_order[micro * schedule.batch : (micro + 1) * schedule.batch]


def eval_sizes(examples: int, batch: int) -> list[int]:
    """Batch sizes that evaluating a split meets, largest first."""
    sizes = {min(batch, examples)} if examples else set[int]()
    if examples > batch and examples % batch:
        sizes.add(examples % batch)
    return sorted(sizes, reverse=True)
