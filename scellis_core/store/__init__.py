"""Content-addressed objects, checkpoints, provenance and stored model versions."""

from scellis_core.store.rows import Checkpoint, CheckpointRow, RunRow
from scellis_core.store.store import Store
from scellis_core.store.tensors import decode, encode, weights_digest

__all__ = ["Checkpoint", "CheckpointRow", "RunRow", "Store", "decode", "encode", "weights_digest"]
