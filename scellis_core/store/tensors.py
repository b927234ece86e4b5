"""Tensors as safetensors objects: deterministic bytes, so that equal weights have equal digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scellis_core.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = {
    "bool": "BOOL",
    **{
        f"{kind}{bits}": f"{letter}{bits}" for kind, letter in (("int", "I"), ("uint", "U")) for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
}
"""NumPy's names of dtypes -> those of safetensors."""


def chunks(
    tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Safetensors bytes in pieces, without copying contiguous arrays.

    Wider dtypes come first, then names in order; header keys are sorted: the same tensors give the same bytes.

    Args:
        tensors: arrays by name.
        metadata: texts for the header.

    Raises:
        StoreError: if safetensors has no such dtype.
    """
    parts = {name: _plain(name, array) for name, array in tensors.items()}
    order = sorted(parts, key=lambda name: (-parts[name][1].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in order:
        dtype, array = parts[name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        yield _bytes(parts[name][1])


def encode(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of :func:`chunks` in one piece."""
    return b"".join(chunks(tensors, metadata))


def decode(data: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Tensors of safetensors bytes.

    Args:
        data: the whole file.
        where: names it in errors.

    Raises:
        StoreError: if the bytes are no safetensors file, or hold a dtype that NumPy lacks.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except (SafetensorError, ValueError) as error:
        got = " ".join(str(error).split()).removeprefix("Error while deserializing: ")
        hint = "the digest of weights: weights_object of scellis runs --json"
        raise StoreError(where, "weights in the safetensors format", got, hint) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(where, "dtypes of NumPy", f"{type(error).__name__}: {error}", "f32") from error


def weights_digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, dtypes, shapes and little-endian bytes, in the order of names, and over nothing else."""
    hasher = hashlib.sha256()
    for name in sorted(tensors):
        dtype, array = _plain(name, tensors[name])
        hasher.update(json.dumps([name, dtype, list(array.shape)]).encode() + b"\n")
        hasher.update(_bytes(array))
    return "sha256:" + hasher.hexdigest()


def _plain(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Dtype as safetensors names it, and the array little-endian and contiguous, its shape unchanged."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype.name not in _NAMES:
        raise StoreError(f"tensor {name}", "a dtype of safetensors", array.dtype.name, "f32")
    return _NAMES[array.dtype.name], np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _bytes(array: NDArray[Any]) -> memoryview:
    import numpy as np

    return array.reshape(-1).view(np.uint8).data
