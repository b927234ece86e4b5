"""Canonical bytes: typed, independent of key order, layout and comments."""

from __future__ import annotations

import math
import struct

from scellis_core.record.sml import Value

_NAN = bytes.fromhex("7ff8000000000000")


def canonical_bytes(value: Value) -> bytes:
    """Return the bytes that a digest is taken of.

    Each value carries its type: ``n`` null, ``t``/``f`` booleans, ``i<decimal>;`` integers, ``d`` and the 8 bytes of
    an IEEE double (big-endian; every NaN is one NaN, -0.0 is not 0.0), ``s<bytes>:`` and UTF-8 text, ``l<count>:``
    and items, ``m<count>:`` and pairs in the order of their keys' UTF-8 bytes. So 1, 1.0, "1" and true stay apart.

    Args:
        value: plain data.
    """
    out = bytearray(b"sml1\n")
    _write(value, out)
    return bytes(out)


def _write(value: Value, out: bytearray) -> None:
    if value is None:
        out += b"n"
    elif isinstance(value, bool):
        out += b"t" if value else b"f"
    elif isinstance(value, int):
        out += b"i%d;" % value
    elif isinstance(value, float):
        out += b"d" + (_NAN if math.isnan(value) else struct.pack(">d", value))
    elif isinstance(value, str):
        raw = value.encode()
        out += b"s%d:" % len(raw) + raw
    elif isinstance(value, list):
        out += b"l%d:" % len(value)
        for item in value:
            _write(item, out)
    else:
        out += b"m%d:" % len(value)
        for raw, key in sorted((key.encode(), key) for key in value):
            out += b"s%d:" % len(raw) + raw
            _write(value[key], out)
