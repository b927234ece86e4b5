"""Tensors as safetensors objects: deterministic bytes, so that equal weights have equal digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scellis_core.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encode(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Safetensors bytes; names sorted, so the same tensors give the same bytes."""
    import numpy as np
    from safetensors.numpy import save

    return save({n: np.ascontiguousarray(tensors[n]) for n in sorted(tensors)}, dict(metadata) if metadata else None)


def decode(data: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Tensors of safetensors bytes.

    Raises:
        StoreError: if the bytes are no safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except (SafetensorError, ValueError) as error:
        raise StoreError(where, "a safetensors object", str(error)) from error


def weights_digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of names."""
    import numpy as np

    hasher = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        hasher.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        hasher.update(array.tobytes())
    return "sha256:" + hasher.hexdigest()
