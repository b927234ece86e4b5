"""First values of a model's tensors, from the ``init`` stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scellis_core.errors import ContractError
from scellis_core.model.trace import TensorMeta

if TYPE_CHECKING:
    from numpy.typing import NDArray

STREAM = "init"
CHUNK = 1 << 16
"""Draws made at a time, to stay in the cache; even, as two draws take one block of the counter."""
CUT = 2.0
"""A truncated normal lies within this many standard deviations; draws beyond are drawn again."""


def initial_tensors(
    params: Mapping[str, TensorMeta], states: Mapping[str, TensorMeta], seed: int
) -> dict[str, NDArray[Any]]:
    """Draw the first value of every tensor.

    Each tensor has a stream of its own, ``init/<name>``, so that its value depends on the seed and its name alone,
    not on what other tensors there are.

    Args:
        params: from :attr:`scellis_core.model.Lowered.params`.
        states: from :attr:`scellis_core.model.Lowered.states`.
        seed: the record's.

    Returns:
        f32 arrays by name, parameters first.

    Raises:
        ContractError: for a kind of initial value that is not known.
    """
    return {name: _draw(name, meta, seed) for name, meta in {**params, **states}.items()}


def _draw(name: str, meta: TensorMeta, seed: int) -> NDArray[Any]:
    import numpy as np

    from scellis_core import rng

    init, stream = meta.init, f"{STREAM}/{name}"
    if init.kind in ("zeros", "ones", "constant"):
        value = {"zeros": 0.0, "ones": 1.0}.get(init.kind, init.value)
        return np.full(meta.shape, value, np.float32)
    if init.kind == "uniform":
        unit = rng.uniform(seed, stream, 0, meta.shape).astype(np.float64)
        return np.asarray((2.0 * unit - 1.0) * init.value, np.float32)
    if init.kind not in ("normal", "truncated_normal"):
        raise ContractError(f"initial value of {name}", "a kind of Init", repr(init.kind), "normal")
    draws = np.empty(meta.numel, np.float64)
    for start in range(0, meta.numel, CHUNK):
        part = draws[start : start + CHUNK]
        part[:] = rng.normal(seed, stream, start // 2, len(part))
    counter = _blocks(meta.numel)
    while init.kind == "truncated_normal" and (beyond := np.flatnonzero(np.abs(draws) > CUT)).size:
        draws[beyond] = rng.normal(seed, stream, counter, beyond.size)
        counter += _blocks(beyond.size)
    return np.asarray(draws * init.value, np.float32).reshape(meta.shape)


def _blocks(draws: int) -> int:
    """Blocks of four words that so many normal draws take: one for each two."""
    return (draws + 1) // 2
