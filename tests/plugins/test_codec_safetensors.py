"""codec/safetensors: round trips, conversions, every way in which a file can be wrong (traps 16 to 18)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scellis_codecs.safetensors import SAFETENSORS, SafetensorsParams, read, write

from scellis_core.plugin import DataError

NONE = SafetensorsParams()


def raw(path: Path, header: dict[str, Any] | bytes, data: bytes) -> Path:
    """Write a file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_round_trip(tmp_path: Path) -> None:
    tensors = {
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": np.array(7, dtype=np.int64),
        "flag": np.array([True, False]),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    }
    path = tmp_path / "w.safetensors"
    write(path, tensors, {"format": "scellis"})
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
    found = read(path, NONE)
    other = load_file(path)
    assert found.metadata == {"format": "scellis"}
    assert found.notes == ()
    for name, value in tensors.items():
        np.testing.assert_array_equal(found.tensors[name], value)
        np.testing.assert_array_equal(other[name], value)
        assert found.tensors[name].shape == value.shape


def test_write_replaces_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    write(path, {"a": np.zeros(2, np.float32)}, {})
    before = path.read_bytes()

    def broken(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write(path, {"a": np.ones(2, np.float32)}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_strides_are_honoured(tmp_path: Path) -> None:
    strided = np.lib.stride_tricks.as_strided(
        np.arange(24, dtype=np.float32), (2, 3, 2, 2), tuple(4 * s for s in (12, 1, 6, 3))
    )
    write(tmp_path / "w.safetensors", {"w": strided}, {})
    np.testing.assert_array_equal(read(tmp_path / "w.safetensors", NONE).tensors["w"][0, :, 0, 0], [0, 1, 2])


def test_floats_become_f32(tmp_path: Path) -> None:
    bf16 = np.array([0x3F80, 0xC000, 0x7F80], np.uint16).tobytes()
    f64 = np.array([1.0 + 2.0**-40], np.float64).tobytes()
    f16 = np.array([0.5], np.float16).tobytes()
    header = {"b": entry("BF16", [3], 0, 6), "d": entry("F64", [1], 6, 14), "h": entry("F16", [1], 14, 16)}
    found = read(raw(tmp_path / "w.safetensors", header, bf16 + f64 + f16), NONE)
    assert all(t.dtype == np.float32 for t in found.tensors.values())
    np.testing.assert_array_equal(found.tensors["b"], [1.0, -2.0, np.inf])
    np.testing.assert_array_equal(found.tensors["d"], [1.0])
    assert found.notes == (
        "b: bf16 widened to f32, exactly",
        "d: f64 narrowed to f32, rounded",
        "h: f16 widened to f32, exactly",
    )


def test_truncated(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": np.zeros(10, np.float32), "b": np.zeros((8, 8), np.float32)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError) as error:
        read(path, NONE)
    assert str(error.value) == (
        f"{path} tensor 'b': expected data up to byte {len(whole)} of the file, "
        f"got a file of {len(whole) - 100} bytes; try downloading or exporting the file again: it is cut off"
    )


F32 = b"\0" * 16
BAD: dict[str, tuple[dict[str, Any] | bytes, bytes, str]] = {
    "overlap": (
        {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)},
        F32[:12],
        "tensor 'b': expected data from byte 8 on, after 'a', got from 4: they overlap",
    ),
    "gap": (
        {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)},
        F32[:12],
        "tensor 'b': expected data from byte 4 on, got from 8: a gap of 4 bytes",
    ),
    "size": (
        {"a": entry("F32", [3], 0, 8)},
        F32[:8],
        "tensor 'a': expected 12 bytes for F32 [3], got offsets 0 to 8, 8 bytes",
    ),
    "negative": (
        {"a": entry("F32", [1], -4, 0)},
        F32[:4],
        "tensor 'a': expected dtype, shape and two data_offsets",
    ),
    "far": ({"a": entry("F32", [2**40], 0, 2**42)}, F32, "tensor 'a': expected data up to byte"),
    "dtype": ({"a": entry("F8_E4M3", [4], 0, 4)}, F32[:4], "tensor 'a': expected one of the dtypes BOOL, U8"),
    "trailing": ({"a": entry("F32", [1], 0, 4)}, F32[:8], "bytes, as the header says, got"),
    "twice": (
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {}}',
        F32[:4],
        "header: expected each name once, got 'a' twice",
    ),
    "json": (b"{", b"", "header: expected JSON, got"),
    "list": (b"[]", b"", "header: expected a mapping from names to tensors, got list"),
    "metadata": (
        {"__metadata__": {"n": 1}},
        b"",
        '__metadata__: expected a mapping from text to text, got {"n": 1}',
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged(tmp_path: Path, case: str) -> None:
    header, data, message = BAD[case]
    with pytest.raises(DataError) as error:
        read(raw(tmp_path / "w.safetensors", header, data), NONE)
    assert message in str(error.value)


def test_no_header(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"abc")
    with pytest.raises(DataError, match="got 3 bytes in all"):
        read(path, NONE)
    path.write_bytes((1 << 60).to_bytes(8, "little"))
    with pytest.raises(DataError, match=r"in a file of 8 bytes, got length 1152921504606846976"):
        read(path, NONE)
    with pytest.raises(DataError, match="expected a safetensors file, got nothing there"):
        read(tmp_path / "none.safetensors", NONE)


def test_shards(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32), "extra": np.zeros(1, np.float32)}, tmp_path / "one.safetensors")
    save_file({"a": np.zeros(2, np.float32)}, tmp_path / "stray.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    table = {"a": "one.safetensors", "b": "two.safetensors"}
    index.write_text(json.dumps({"weight_map": table}))
    with pytest.raises(DataError, match=r"expected shard two.safetensors beside the index, got nothing there"):
        read(index, NONE)
    save_file({"c": np.ones(2, np.float32)}, tmp_path / "two.safetensors")
    with pytest.raises(DataError, match=r"two.safetensors: expected tensor 'b', as model.safetensors.index.json says"):
        read(index, NONE)
    save_file({"b": np.full(2, 3, np.float32)}, tmp_path / "two.safetensors")
    found = read(index, NONE).tensors
    assert sorted(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], [1, 1])
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    with pytest.raises(DataError, match=r"expected a file name in the index's own folder, got '../one.safetensors'"):
        read(index, NONE)


def test_no_such_dtype(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tensor 'z': expected one of .*, got complex128"):
        write(tmp_path / "w.safetensors", {"z": np.zeros(1, complex)}, {})
    assert ".safetensors" in SAFETENSORS.suffixes
