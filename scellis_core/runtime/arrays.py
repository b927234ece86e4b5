"""Arrays of the host to and from the bytes of a tensor; what a dtype can't hold is refused, never wrapped."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from scellis_core.errors import DataError, DeviceError
from scellis_core.lower.program import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMPY: dict[str, type[np.generic]] = {
    "f32": np.float32,
    "f16": np.float16,
    "i32": np.int32,
    "u32": np.uint32,
    "bool": np.uint32,
}
"""How each dtype lies in a buffer."""


def encode(array: Any, tensor: Tensor, where: str) -> NDArray[Any]:
    """The words of a tensor, contiguous and flat; an odd number of f16 elements gets a zero after it.

    Raises:
        DataError: another shape, or numbers that the tensor's dtype does not hold.
    """
    given = np.asarray(array)
    if tuple(given.shape) != tensor.shape:
        raise DataError(where, f"shape {list(tensor.shape)}", f"{list(given.shape)}")
    target = NUMPY[tensor.dtype]
    if given.dtype == target and tensor.dtype != "bool":
        flat = np.ascontiguousarray(given).reshape(-1)
    elif tensor.dtype in ("f32", "f16"):
        flat = _floats(given, np.dtype(target), tensor.dtype, where)
    else:
        flat = _integers(given, np.dtype(target), tensor.dtype, where)
    if flat.nbytes % 4:
        flat = np.concatenate([flat, np.zeros(1, flat.dtype)])
    return flat


def decode(raw: NDArray[np.uint8], tensor: Tensor) -> NDArray[Any]:
    """The array of a tensor's bytes (owned by the caller); bool tensors become bool arrays."""
    count = 1
    for size in tensor.shape:
        count *= size
    words = raw.view(NUMPY[tensor.dtype])[:count].reshape(tensor.shape)
    return words != 0 if tensor.dtype == "bool" else words


def scalar_bytes(name: str, dtype: str, value: float | int) -> bytes:
    """The four bytes of a scalar.

    Raises:
        DataError: for a number that the dtype does not hold.
    """
    code = {"f32": "<f", "i32": "<i", "u32": "<I", "bool": "<I"}.get(dtype)
    if code is None:
        raise DeviceError(f"scalar {name}", "dtype f32, i32, u32 or bool", dtype)
    try:
        return struct.pack(code, value)
    except (struct.error, OverflowError, TypeError) as error:
        raise DataError(f"scalar {name}", f"a number that {dtype} holds", repr(value)) from error


def _floats(given: NDArray[Any], target: np.dtype[Any], dtype: str, where: str) -> NDArray[Any]:
    if given.dtype.kind not in "fiub":
        raise DataError(where, f"numbers for {dtype}", f"an array of {given.dtype}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        flat = np.ascontiguousarray(given, target).reshape(-1)
    if given.dtype.itemsize > target.itemsize and not np.isfinite(flat).all():
        flat_given = given.reshape(-1)
        bad = ~np.isfinite(flat) & np.isfinite(flat_given)
        if bad.any():
            top = float(np.finfo(target).max)
            raise DataError(where, f"numbers up to {top:.6g} ({dtype})", repr(float(flat_given[bad.argmax()])))
    return flat


def _integers(given: NDArray[Any], target: np.dtype[Any], dtype: str, where: str) -> NDArray[Any]:
    if given.dtype.kind not in "iub":
        raise DataError(where, f"whole numbers for {dtype}", f"an array of {given.dtype}", "array.astype('int64')")
    if given.size:
        low, high = (0, 1) if dtype == "bool" else (int(np.iinfo(target).min), int(np.iinfo(target).max))
        least, most = int(given.min()), int(given.max())
        if least < low or most > high:
            raise DataError(where, f"numbers from {low} to {high} ({dtype})", str(least if least < low else most))
    return np.ascontiguousarray(given, target).reshape(-1)
