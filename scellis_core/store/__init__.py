"""Content-addressed objects, checkpoints, provenance and stored model versions."""

from scellis_core.store.store import Checkpoint, CheckpointRow, RunRow, Store
from scellis_core.store.tensors import decode, encode, weights_digest

__all__ = ["Checkpoint", "CheckpointRow", "RunRow", "Store", "decode", "encode", "weights_digest"]
